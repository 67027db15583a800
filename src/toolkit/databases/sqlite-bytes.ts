import type { SqliteValue } from "./sqlite.ts";

/** Returns the bytes of a column: libsql has a Buffer for one row and an ArrayBuffer for many, others a Uint8Array. */
export function sqliteBytes(value: unknown): Uint8Array | undefined {
  if (value === null || value === undefined) return undefined;
  if (value instanceof Uint8Array || value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError(`a column with bytes has a ${typeof value}`);
}

/** Has memory behind it, as `new Uint8Array(0)` may not. */
const EMPTY = new Uint8Array(1).subarray(0, 0);

/** Returns the value as a statement takes it: `node:sqlite` of Node 22 stores NULL for some bytes that are empty. */
export function sqliteValue(value: SqliteValue): SqliteValue {
  return value instanceof Uint8Array && value.length === 0 ? EMPTY : value;
}
