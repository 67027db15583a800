/** Values of rows. Clients answer a `bigint` as a text, a number or a bigint, as the user has set them. */

import { damaged } from "../journal/bytes.ts";

export function sqlNumber(value: unknown): number {
  const number = typeof value === "number" ? value : Number(value);
  if (typeof value === "object" || typeof value === "boolean" || !Number.isSafeInteger(number)) {
    throw damaged(`a row has no number: ${String(value)}`);
  }
  return number;
}

export function sqlText(value: unknown): string {
  if (typeof value !== "string") throw damaged("a row has no text");
  return value;
}

export function sqlBytes(value: unknown): Buffer {
  if (value instanceof Uint8Array) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
  throw damaged("a row has no bytes");
}
