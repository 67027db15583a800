/**
 * Records that wait, and the bytes that they become.
 *
 *   RU1  the bytes of a record are those that it would have alone, whatever stands beside it;
 *   RU2  a record can be had again as data, which would be stored as the same bytes.
 *
 * Records of JSON are encoded many at once, because the call costs more than the bytes.
 */

import type { Ending } from "./batching.ts";
import { bytesOf, join } from "./bytes.ts";
import { type Codec, type Encoded, misfit, NO_DATA } from "./records.ts";

/** Hears how its record ended. */
export type Listener = (ending: Ending) => void;

/** One record that waits. */
export interface Entry {
  readonly encoded: Encoded;
  readonly listener?: Listener | undefined;
  /** Headers of an append that goes alone. */
  readonly conditions?: Readonly<Record<string, string>> | undefined;
}

/** Of an array; put over the first comma. */
const OPENING = 0x5b;

/** What entries take in a batch, with their commas: bytes, or the characters of texts. */
export function sizeOf(entries: readonly Entry[]): number {
  let size = entries.length;
  for (const { encoded } of entries) size += encoded.content.length;
  return size;
}

/** The body of one append; nothing without data. Throws `invalid_request` if a record does not fit the stream. */
export function bodyOf(
  entries: readonly Entry[],
  codec: Codec | undefined,
): Uint8Array | undefined {
  if (codec === undefined || entries[0]?.encoded === NO_DATA) return undefined;
  if (!codec.isJson) return join(entries.map((entry) => partOf(entry, codec)));
  let text = "";
  for (const { encoded } of entries) {
    if (encoded.form !== "json") throw misfit(codec);
    // Not `join`: what is added piece by piece is copied once, when it is encoded.
    text += `,${encoded.content}`;
  }
  const body = bytesOf(`${text}]`);
  body[0] = OPENING;
  return body;
}

/** RU1. One by one: the end of one text and the start of the next could make a character together. */
function partOf(entry: Entry, codec: Codec): Uint8Array {
  // Given before the type was known: strings can be texts.
  const data = dataOf(entry);
  if (data instanceof Uint8Array) return data;
  if (typeof data !== "string" || data === "") throw misfit(codec);
  return bytesOf(data);
}

/** RU2. */
export function dataOf({ encoded: { form, content } }: Entry): unknown {
  return form === "json" ? JSON.parse(content) : content;
}

/** Tells the listeners of the records how these ended. */
export function tellAll(entries: readonly Entry[], ending: Ending): void {
  for (const { listener } of entries) listener?.(ending);
}
