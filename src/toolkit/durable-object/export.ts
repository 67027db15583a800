/**
 * Exports and imports everything that an object keeps: tables with all their values, indexes, triggers, views, counters, keys.
 *
 *   - an export is of one moment: if anything is written while it runs, it ends with an error, and has no last chunk;
 *   - an import changes nothing before every chunk has come and proved itself; then it replaces everything, in one transaction;
 *   - what comes out of an import is what went into the export, type for type.
 */

import { systemClock } from "../../base/clock.ts";
import { exactJson } from "../../base/exact-json.ts";
import { wordsOfError } from "../../base/error-words.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { quotedName } from "../databases/quoting.ts";
import { Check } from "../once/check.ts";
import {
  type ObjectRow,
  type ObjectTableStorage,
  replacedStorages,
  objectRows,
} from "./context.ts";
import { encodeChunk, hashOfChunk, linesOfChunk, NO_CHUNK, verifyChunk } from "./export-format.ts";
import {
  boundValue,
  IMPORT_TABLE,
  lineValue,
  madeIn,
  shapeOf,
  type TableShape,
  typeColumns,
  typesOf,
} from "./table-shape.ts";

/** Rows that are read at once, in one step of the object. */
const PAGE_ROWS = 200;
/** Of an error that a statement of an export has thrown. */
const WORDS_MAX = 200;
/** Storages into which an import runs: two of them would mix their chunks. */
const importing = new WeakSet<object>();
/** A row of the table where an import waits: below the platform's 2 MB. */
const PART_BYTES = 1024 * 1024;

/**
 * Exports an object as chunks of bytes, each with its checksum. Store them in their order, for `importObject`. Throws
 * `in_progress` if something was written meanwhile: call it inside `ctx.blockConcurrencyWhile` to prevent that. Throws
 * `unsupported` for virtual tables and for keys whose values JSON cannot keep. `chunkBytes` is about the size of a chunk; default
 * 1 MiB.
 *
 * ```ts
 * import { exportObject, importObject, type ObjectTableStorage } from "hapax/durable-object";
 *
 * // `storage` is `this.ctx.storage`. The chunks may go to R2 instead.
 * export const copy = async (from: ObjectTableStorage, to: ObjectTableStorage) => {
 *   const chunks: Uint8Array[] = [];
 *   for await (const chunk of exportObject(from)) chunks.push(chunk);
 *   await importObject(to, chunks);
 * };
 * ```
 */
export async function* exportObject(
  storage: ObjectTableStorage,
  { chunkBytes = PART_BYTES }: { readonly chunkBytes?: number } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const check = new Check();
  check.whole("chunkBytes", chunkBytes, chunkBytes, 1, 64 * PART_BYTES);
  check.end();
  const isSame = watch(storage);
  let before = NO_CHUNK;
  let lines: string[] = [];
  let size = 0;
  let rows = 0;
  for (const line of linesOf(storage)) {
    if (line[0] === "row") rows += 1;
    const text = JSON.stringify(line);
    lines.push(text);
    size += text.length;
    if (size < chunkBytes) continue;
    const chunk = await encodeChunk(lines, before, false);
    isSame();
    yield chunk;
    isSame();
    before = hashOfChunk(chunk);
    [lines, size] = [[], 0];
  }
  lines.push(JSON.stringify(["end", rows]));
  const last = await encodeChunk(lines, before, true);
  isSame();
  yield last;
}

/** Throws if anything was written since it was made. */
function watch({ sql }: ObjectTableStorage): () => void {
  const look = (): string => {
    const [counted] = objectRows(sql, "SELECT total_changes() AS changes");
    return JSON.stringify([counted?.["changes"], madeIn(sql)]);
  };
  const first = look();
  return () => {
    if (look() === first) return;
    throw new HapaxError("in_progress", "the object has changed while it was exported");
  };
}

/** Reads a page at a time: no cursor stays open while others run. */
function* linesOf(storage: ObjectTableStorage): Generator<readonly unknown[]> {
  const { sql, kv } = storage;
  const made = madeIn(sql);
  const tables = made.filter(({ type }) => type === "table");
  // All of them before the first row: rows may refer to any of them.
  for (const { type, name, sql: text } of tables) yield ["schema", type, name, text];
  for (const table of tables) {
    const shape = shapeOf(sql, table);
    yield ["table", shape.name, shape.columns, shape.rowid ?? null];
    yield* rowLines(storage, shape);
  }
  for (const { type, name, sql: text } of made)
    if (type !== "table") yield ["schema", type, name, text];
  yield* counterLines(storage);
  for (const [name, value] of kv.list()) {
    const json = exactJson(value, "value");
    if (!("text" in json))
      throw new HapaxError("unsupported", `${json.path} ${json.problem}; key=${name}`);
    yield ["key", name, value];
  }
}

function* counterLines({ sql }: ObjectTableStorage): Generator<readonly unknown[]> {
  if (objectRows(sql, "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").length === 0)
    return;
  const query = "SELECT name, CAST(seq AS TEXT) AS seq FROM sqlite_sequence ORDER BY name";
  for (const { name, seq } of objectRows(sql, query)) yield ["counter", name, seq];
}

function* rowLines(storage: ObjectTableStorage, shape: TableShape): Generator<readonly unknown[]> {
  for (let after: readonly unknown[] | undefined; ;) {
    const page = readPage(storage, shape, after);
    for (const { values, rowid } of page)
      yield ["row", ...(rowid === undefined ? [] : [rowid]), ...values];
    if (page.length < PAGE_ROWS) return;
    after = page.at(-1)?.key;
  }
}

interface ExportedRow {
  readonly values: readonly unknown[];
  readonly rowid: string | undefined;
  /** The values of its key, as a line has them. */
  readonly key: readonly unknown[];
}

function readPage(
  { sql }: ObjectTableStorage,
  { name, columns, rowid, key }: TableShape,
  after: readonly unknown[] | undefined,
): readonly ExportedRow[] {
  const table = quotedName(name);
  const order = key.map(quotedName).join(", ");
  const bound = (after ?? []).map(boundValue);
  const where =
    after === undefined ? "" : ` WHERE (${order}) > (${bound.map((one) => one.sql).join(", ")})`;
  const rest = `FROM ${table}${where} ORDER BY ${order} LIMIT ${PAGE_ROWS}`;
  const bindings = bound.map((one) => one.value);
  const number = rowid === undefined ? [] : [`CAST(${quotedName(rowid)} AS TEXT) AS "hapax rowid"`];
  const kinds = [...number, ...typeColumns(columns)].join(", ");
  const types = objectRows(sql, `SELECT ${kinds} ${rest}`, ...bindings);
  const found = objectRows(
    sql,
    `SELECT ${columns.map(quotedName).join(", ")} ${rest}`,
    ...bindings,
  );
  return found.map((row, at) => {
    const kind = types[at] ?? {};
    const id = rowid === undefined ? undefined : String(kind["hapax rowid"]);
    const letters = typesOf(kind, columns);
    const exact = (column: string): string => {
      const query = `SELECT CAST(${quotedName(column)} AS TEXT) AS exact ${rest} OFFSET ${at}`;
      return String(objectRows(sql, query, ...bindings)[0]?.["exact"]);
    };
    const values = columns.map((column, index) =>
      lineValue(letters[index], row[column], () => exact(column)),
    );
    const byName = new Map(columns.map((column, index) => [column, values[index]]));
    return {
      values,
      rowid: id,
      key: id === undefined ? key.map((one) => byName.get(one)) : [["i", id]],
    };
  });
}

/**
 * Replaces everything that an object stores by what `exportObject` has exported. The chunks wait in a table of the object until
 * the last one has arrived. Then one transaction replaces the data. Throws `invalid_request`, and changes nothing, if a chunk is
 * missing, comes twice, is in the wrong place or is damaged. Afterwards call `ctx.abort()` to restart the object: what it has in
 * memory is out of date.
 *
 * ```ts
 * import { importObject, type ObjectTableStorage } from "hapax/durable-object";
 *
 * // `ctx` is `this.ctx`. Nothing changes if a chunk is missing or damaged: the import throws, and the object goes on.
 * export async function restore(
 *   ctx: { readonly storage: ObjectTableStorage; abort(): void },
 *   chunks: AsyncIterable<Uint8Array>,
 * ): Promise<void> {
 *   await importObject(ctx.storage, chunks);
 *   ctx.abort();
 * }
 * ```
 */
export async function importObject(
  storage: ObjectTableStorage,
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<void> {
  const { sql } = storage;
  if (importing.has(storage))
    throw new HapaxError("in_progress", "another import of the object has not ended");
  importing.add(storage);
  const clear = `DROP TABLE IF EXISTS ${IMPORT_TABLE}`;
  storage.transactionSync(() => {
    sql.exec(clear);
    sql.exec(`CREATE TABLE ${IMPORT_TABLE} (chunk INTEGER, part INTEGER, bytes BLOB NOT NULL,
      PRIMARY KEY (chunk, part)) WITHOUT ROWID`);
  });
  try {
    const count = await stage(storage, chunks);
    storage.transactionSync(() => {
      try {
        swap(storage, count);
      } catch (cause) {
        if (isHapaxError(cause)) throw cause;
        const words = wordsOfError(cause, WORDS_MAX).message;
        throw new HapaxError("invalid_request", `the export cannot be imported: ${words}`, {
          cause,
        });
      }
      sql.exec(clear);
    });
  } catch (error) {
    sql.exec(clear);
    throw error;
  } finally {
    importing.delete(storage);
  }
  replacedStorages.add(storage);
  // What was imported may have to go on, also if no call comes for a long time.
  await storage.setAlarm(systemClock.nowMs());
  await storage.sync();
}

async function stage(
  { sql }: ObjectTableStorage,
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<number> {
  let before = NO_CHUNK;
  let isOver = false;
  let number = 0;
  for await (const chunk of chunks) {
    if (isOver) throw new HapaxError("invalid_request", "the export goes on behind its last chunk");
    isOver = await verifyChunk(chunk, before, number);
    before = hashOfChunk(chunk);
    for (let at = 0; at < chunk.length; at += PART_BYTES) {
      const part = chunk.slice(at, at + PART_BYTES);
      sql.exec(
        `INSERT INTO ${IMPORT_TABLE} VALUES (?, ?, ?)`,
        number,
        at / PART_BYTES,
        part.buffer,
      );
    }
    number += 1;
  }
  if (isOver) return number;
  throw new HapaxError(
    "invalid_request",
    `the last chunk of the export is missing; chunks=${number}`,
  );
}

/** In one transaction, without an await. */
function swap(storage: ObjectTableStorage, count: number): void {
  const { sql, kv } = storage;
  // Of rows that refer to each other, one comes first.
  sql.exec("PRAGMA defer_foreign_keys = on");
  for (const { type, name } of madeIn(sql).toReversed()) drop(storage, type, name);
  for (const key of [...kv.list()].map(([name]) => name)) kv.delete(key);
  const insert = new Inserting(storage);
  const made: unknown[] = [];
  let isOver = false;
  for (let number = 0; number < count; number += 1) {
    for (const [kind, ...values] of linesOfChunk(stagedChunk(storage, number))) {
      const [first, second, third] = values;
      if (isOver) throw unlike("goes on behind its last line");
      if (kind === "row") insert.row(values);
      else if (kind === "schema") {
        made.push(values);
        sql.exec(String(third));
      } else if (kind === "table") insert.begin(String(first), second as readonly string[], third);
      else if (kind === "counter") setCounter(storage, String(first), String(second));
      else if (kind === "key") kv.put(String(first), second);
      else if (kind !== "end" || first !== insert.rows)
        throw unlike("has another number of rows than it says");
      else isOver = true;
    }
  }
  if (!isOver) throw unlike("has no last line");
  // Its statements have made what it says, and nothing else.
  const found = madeIn(sql).map(({ type, name, sql: text }) => [type, name, text]);
  if (sorted(found) !== sorted(made)) throw unlike("has statements that no export has");
}

function unlike(how: string): HapaxError {
  return new HapaxError("invalid_request", `the export ${how}`);
}

function sorted(lines: readonly unknown[]): string {
  return lines
    .map((line) => JSON.stringify(line))
    .toSorted()
    .join("\n");
}

function drop({ sql }: ObjectTableStorage, type: string, name: string): void {
  // An index of a primary key goes with its table, and so do triggers of a table that went before.
  sql.exec(`DROP ${type.toUpperCase()} IF EXISTS ${quotedName(name)}`);
}

function setCounter({ sql }: ObjectTableStorage, table: string, last: string): void {
  sql.exec("DELETE FROM sqlite_sequence WHERE name = ?", table);
  sql.exec("INSERT INTO sqlite_sequence (name, seq) VALUES (?, CAST(? AS INTEGER))", table, last);
}

function stagedChunk({ sql }: ObjectTableStorage, number: number): Uint8Array {
  const query = `SELECT bytes FROM ${IMPORT_TABLE} WHERE chunk = ? ORDER BY part`;
  const parts = objectRows(sql, query, number).map(
    // Cast: the platform gives bytes as an ArrayBuffer.
    (row: ObjectRow) => new Uint8Array(row["bytes"] as ArrayBuffer),
  );
  const chunk = new Uint8Array(parts.reduce((size, { length }) => size + length, 0));
  let at = 0;
  for (const part of parts) {
    chunk.set(part, at);
    at += part.length;
  }
  return chunk;
}

/** Puts rows into the table that was begun. */
class Inserting {
  rows = 0;
  readonly #storage: ObjectTableStorage;
  #into = "";
  #hasRowid = false;

  constructor(storage: ObjectTableStorage) {
    this.#storage = storage;
  }

  begin(table: string, columns: readonly string[], rowid: unknown): void {
    this.#hasRowid = typeof rowid === "string";
    const names = [...(typeof rowid === "string" ? [rowid] : []), ...columns];
    this.#into = `INSERT INTO ${quotedName(table)} (${names.map(quotedName).join(", ")}) VALUES`;
  }

  row(line: readonly unknown[]): void {
    this.rows += 1;
    const values = this.#hasRowid ? line.slice(1) : line;
    const bound = values.map(boundValue);
    const texts = bound.map(({ sql }) => sql);
    // In the text: a statement has at most 100 values, and a table as many columns.
    if (this.#hasRowid) texts.unshift(`CAST('${integerText(line[0])}' AS INTEGER)`);
    const statement = `${this.#into} (${texts.join(", ")})`;
    this.#storage.sql.exec(statement, ...bound.map(({ value }) => value));
  }
}

function integerText(value: unknown): string {
  const text = String(value);
  if (/^-?\d{1,19}$/.test(text)) return text;
  throw new HapaxError("invalid_request", "the export has a row without its number");
}
