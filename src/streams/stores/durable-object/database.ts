/** Statements of the store, with what they cost: the platform bills rows. */

import { damaged } from "../journal/bytes.ts";
import type { SqliteObjectStorage, StoredValue } from "./storage.ts";

export type StoredRow = Record<string, StoredValue>;

export class Database {
  readonly #storage: SqliteObjectStorage;
  rowsRead = 0;
  rowsWritten = 0;

  constructor(storage: SqliteObjectStorage) {
    this.#storage = storage;
  }

  /** Bytes of the database, without its free pages. */
  get bytes(): number {
    return this.#storage.sql.databaseSize;
  }

  /** Everything that `run` writes is there, or nothing. */
  inTransaction<T>(run: () => T): T {
    return this.#storage.transactionSync(run);
  }

  /** All rows. No cursor stays open: a table with an open one cannot be dropped. */
  run(query: string, ...values: unknown[]): StoredRow[] {
    const rows = this.#storage.sql.exec(query, ...values);
    const found = rows.toArray();
    this.rowsRead += rows.rowsRead;
    this.rowsWritten += rows.rowsWritten;
    return found;
  }

  /** Row by row, for tables that should not be held in memory at once. Read it to its end. */
  *each(query: string, ...values: unknown[]): Generator<StoredRow> {
    const rows = this.#storage.sql.exec(query, ...values);
    yield* rows;
    this.rowsRead += rows.rowsRead;
  }
}

export function blobOf(value: StoredValue | undefined): Buffer {
  if (value instanceof ArrayBuffer) return Buffer.from(value);
  throw damaged("a row has no bytes");
}

export function wholeNumberOf(value: StoredValue | undefined): number {
  if (typeof value === "number" && Number.isSafeInteger(value)) return value;
  throw damaged("a row has no number");
}
