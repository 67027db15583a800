/**
 * Records that wait, and their bytes.
 *
 *   - a record has the same bytes in every batch as it would have alone;
 *   - a record can be turned back into data, which would be stored as the same bytes.
 *
 * Records of JSON are encoded many at once, because the call costs more than the bytes.
 */

import type { Ending } from "./batching.ts";
import { utf8Of, joinBytes } from "../base/bytes.ts";
import { type Codec, type Encoded, misfit, NO_DATA } from "./records.ts";

/** Called with the end of its record. */
export type Listener = (ending: Ending) => void;

/** One record that waits. */
export interface WaitingRecord {
  readonly encoded: Encoded;
  readonly listener?: Listener | undefined;
  /** Headers of an append that goes alone. */
  readonly conditions?: Readonly<Record<string, string>> | undefined;
}

/** The opening bracket of an array. It replaces the first comma. */
const OPENING = 0x5b;

/** Returns the size of entries in a batch, with their commas: bytes, or the characters of texts. */
export function sizeOf(entries: readonly WaitingRecord[]): number {
  let size = entries.length;
  for (const { encoded } of entries) size += encoded.content.length;
  return size;
}

/** Returns the body of one append; undefined without data. Throws `invalid_request` if a record does not fit the stream. */
export function appendBodyOf(
  entries: readonly WaitingRecord[],
  codec: Codec | undefined,
): Uint8Array | undefined {
  if (codec === undefined || entries[0]?.encoded === NO_DATA) return undefined;
  if (!codec.isJson) return joinBytes(entries.map((entry) => partOf(entry, codec)));
  let text = "";
  for (const { encoded } of entries) {
    if (encoded.form !== "json") throw misfit(codec);
    // Not `join`: a text that grows piece by piece is copied only once, when it is encoded.
    text += `,${encoded.content}`;
  }
  const body = utf8Of(`${text}]`);
  body[0] = OPENING;
  return body;
}

/** Encodes each text alone: the end of one and the start of the next could form a character. */
function partOf(entry: WaitingRecord, codec: Codec): Uint8Array {
  // The record may come from before the type was known: then a text is kept as a JSON string.
  const data = dataOf(entry);
  if (data instanceof Uint8Array) return data;
  if (typeof data !== "string" || data === "") throw misfit(codec);
  return utf8Of(data);
}

export function dataOf({ encoded: { form, content } }: WaitingRecord): unknown {
  return form === "json" ? JSON.parse(content) : content;
}

/** Calls the listeners of the records with their end. */
export function tellAll(entries: readonly WaitingRecord[], ending: Ending): void {
  for (const { listener } of entries) listener?.(ending);
}
