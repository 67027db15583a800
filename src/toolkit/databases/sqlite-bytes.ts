/** Returns the bytes of a column: libsql has a Buffer for one row and an ArrayBuffer for many, others a Uint8Array. */
export function sqliteBytes(value: unknown): Uint8Array | undefined {
  if (value === null || value === undefined) return undefined;
  if (value instanceof Uint8Array || value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError(`a column with bytes has a ${typeof value}`);
}
