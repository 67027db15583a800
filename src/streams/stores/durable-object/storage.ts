/** The part of a Durable Object's storage that the store needs. It accepts the platform's own types. */

/** A value in a row of an object's database. */
export type StoredValue = ArrayBuffer | string | number | null;

/** The rows that a statement has found. */
export interface StoredRows {
  toArray(): Record<string, StoredValue>[];
  [Symbol.iterator](): Iterator<Record<string, StoredValue>>;
  /** Rows that were read so far, as they are billed. */
  readonly rowsRead: number;
  /** Rows that were written, as they are billed. */
  readonly rowsWritten: number;
}

/** The database of an object: `ctx.storage.sql`. */
export interface StoreSql {
  exec(query: string, ...values: unknown[]): StoredRows;
  /** Bytes that the database takes, without pages that are free. */
  readonly databaseSize: number;
}

/** The storage of an object with SQLite: `ctx.storage`. */
export interface SqliteObjectStorage {
  readonly sql: StoreSql;
  transactionSync<T>(run: () => T): T;
}
