/**
 * The bytes of an exported object: chunks that each prove themselves, and their place after the one before.
 *
 * | bytes | what                                                                       |
 * | ----- | -------------------------------------------------------------------------- |
 * | 32    | SHA-256 of everything behind it                                            |
 * | 4     | `HPXO`                                                                     |
 * | 1     | version of the format: 1                                                   |
 * | 1     | 1: the last chunk; 0: another one                                          |
 * | 32    | the SHA-256 that the chunk before begins with; zeros in the first chunk    |
 * | rest  | lines of JSON, in UTF-8                                                    |
 *
 * A line is an array. `["table", name, columns, rowid]` begins a table, `["row", …values]` is a row of it,
 * `["schema", type, name, sql]` is a statement, `["counter", table, last]` the last number that a table has given,
 * `["key", name, value]` a key of `ctx.storage.put`, `["end", rows]` the last line. A value is null, a text, `["i", digits]`, `["r", number]`
 * or `["b", base64]`.
 */

import { isSameBytes } from "../../base/bytes.ts";
import { webDigest } from "../../base/digest.ts";
import { HapaxError } from "../../base/errors.ts";

const MAGIC = [0x48, 0x50, 0x58, 0x4f];
const VERSION = 1;
const HASH_BYTES = 32;
const HEAD_BYTES = HASH_BYTES + MAGIC.length + 2 + HASH_BYTES;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** The place before the first chunk. */
export const NO_CHUNK: Uint8Array = new Uint8Array(HASH_BYTES);

/** Makes a chunk of lines. */
export async function encodeChunk(
  lines: readonly string[],
  before: Uint8Array,
  isLast: boolean,
): Promise<Uint8Array> {
  const text = encoder.encode(lines.join("\n"));
  const chunk = new Uint8Array(HEAD_BYTES + text.length);
  chunk.set([...MAGIC, VERSION, isLast ? 1 : 0], HASH_BYTES);
  chunk.set(before, HEAD_BYTES - HASH_BYTES);
  chunk.set(text, HEAD_BYTES);
  chunk.set(await webDigest(chunk.subarray(HASH_BYTES)), 0);
  return chunk;
}

/** What the next chunk must name. */
export function hashOfChunk(chunk: Uint8Array): Uint8Array {
  return chunk.slice(0, HASH_BYTES);
}

/** Throws `invalid_request` for everything that is not the chunk after `before`. Returns whether it is the last one. */
export async function verifyChunk(
  chunk: Uint8Array,
  before: Uint8Array,
  number: number,
): Promise<boolean> {
  const refuse = (why: string): never => {
    throw new HapaxError("invalid_request", `the export ${why}; chunk=${number}`);
  };
  if (chunk.length < HEAD_BYTES) refuse("has a chunk that is too short");
  const digest = await webDigest(chunk.subarray(HASH_BYTES));
  if (!isSameBytes(digest, chunk.subarray(0, HASH_BYTES)))
    refuse("has a chunk with a wrong checksum");
  const magic = chunk.subarray(HASH_BYTES, HASH_BYTES + MAGIC.length);
  if (!isSameBytes(magic, Uint8Array.from(MAGIC))) refuse("is no export of an object");
  const [version, isLast] = chunk.subarray(HASH_BYTES + MAGIC.length);
  if (version !== VERSION) refuse(`is of version=${String(version)}, which is not known here`);
  const named = chunk.subarray(HEAD_BYTES - HASH_BYTES, HEAD_BYTES);
  if (!isSameBytes(named, before)) refuse("lacks the chunk before, or has them in another order");
  return isLast === 1;
}

/** The lines of a chunk that was verified. */
export function linesOfChunk(chunk: Uint8Array): readonly (readonly unknown[])[] {
  const text = decoder.decode(chunk.subarray(HEAD_BYTES));
  if (text === "") return [];
  return text.split("\n").map((line) => JSON.parse(line) as readonly unknown[]);
}
