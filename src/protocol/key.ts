/**
 * Idempotency keys of streams: the time that some keys carry, and the marks that a stream remembers. PROTOCOL.md §16.
 *
 *   - a key made of content never equals a key of a header.
 */

import { utf8Of } from "../base/bytes.ts";
import { HEADER } from "./headers.ts";
import type { KeyMark } from "../base/key-window.ts";
import { keyProblem, parseIdempotencyKey } from "./idempotency-key.ts";
import { invalid } from "./refusal.ts";

/** A key as it was sent. */
export interface KeyHead {
  readonly text: string;
  readonly timeMs: number | undefined;
}

export function parseKey(value: string | undefined): KeyHead | undefined {
  if (value === undefined) return undefined;
  const text = parseIdempotencyKey(value);
  if (text === undefined) throw invalid(HEADER.idempotencyKey, keyProblem(value));
  return { text, timeMs: keyTimeMs(text) };
}

const UUID_7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;
const ULID = /^[0-7][0-9a-hjkmnp-tv-z]{25}$/i;
const CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz";
/** There were no such ids before. An earlier time means that the text is no such id. */
const EARLIEST_MS = 1_420_070_400_000; // 2015-01-01

/** Returns the time that a UUIDv7 or a ULID carries, in milliseconds since 1970. */
export function keyTimeMs(text: string): number | undefined {
  let timeMs: number;
  if (UUID_7.test(text)) {
    timeMs = Number.parseInt(text.slice(0, 8) + text.slice(9, 13), 16);
  } else if (ULID.test(text)) {
    timeMs = 0;
    for (const letter of text.slice(0, 10).toLowerCase()) {
      timeMs = timeMs * 32 + CROCKFORD.indexOf(letter);
    }
  } else {
    return undefined;
  }
  return timeMs < EARLIEST_MS ? undefined : timeMs;
}

/** Returns the bytes to hash for the key of a header. */
export function keyBytes(text: string): Uint8Array {
  return utf8Of(text);
}

/** Makes the mark of an append. Without the digest of a key, the content is the key. */
export function markOf(
  keyDigest: Uint8Array | undefined,
  contentDigest: Uint8Array,
  closes: boolean,
): KeyMark {
  const content = viewOf(contentDigest);
  const mark = new Uint32Array(6);
  // The two kinds of keys use different halves of a digest, so content that equals a key is not that key.
  const key = keyDigest === undefined ? content : viewOf(keyDigest);
  const from = keyDigest === undefined ? 16 : 0;
  for (let word = 0; word < 4; word += 1) mark[word] = key.getUint32(from + 4 * word, true);
  mark[4] = content.getUint32(0, true);
  mark[5] = (content.getUint32(4, true) ^ (closes ? 1 : 0)) >>> 0;
  // Whether it closes is part of the content, and so of a key that is made of the content.
  if (keyDigest === undefined && closes) mark[0] = ((mark[0] ?? 0) ^ 1) >>> 0;
  return mark;
}

function viewOf(digest: Uint8Array): DataView {
  return new DataView(digest.buffer, digest.byteOffset, digest.byteLength);
}
