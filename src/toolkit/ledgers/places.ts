/**
 * What a place may be called, in every ledger alike (LG6). A NUL is no text for PostgreSQL, and half a surrogate pair
 * becomes the same replacement character as any other half: two keys would meet.
 */

import { HapaxError } from "../../base/errors.ts";
import { isPlainText } from "../../base/plain-text.ts";
import type { Place } from "./ledger.ts";

/** In UTF-8: all three fit into one entry of PostgreSQL's index, which ends at 2,704. A key may be the path of a stream. */
const BYTES_MAX = { kind: 512, scope: 512, key: 1024 } as const;
/** So many UTF-16 units have at most three times as many bytes. */
const SURELY_FITS = Math.floor(BYTES_MAX.scope / 3);
// oxlint-disable-next-line no-control-regex -- NUL is the character in question.
const UNKEEPABLE = /[\0\p{Surrogate}]/u;
const encoder = new TextEncoder();

/** Throws `invalid_request` for what no ledger could keep apart. */
export function requirePlace(place: Place): void {
  requireText("kind", place.kind);
  requireText("scope", place.scope);
  requireText("key", place.key);
}

function requireText(name: keyof Place, text: string): void {
  if (isPlainText(text)) return;
  if (UNKEEPABLE.test(text))
    throw new HapaxError("invalid_request", `NUL and lone surrogates cannot be kept; in=${name}`);
  if (text.length <= SURELY_FITS) return;
  const bytes = encoder.encode(text).byteLength;
  if (bytes > BYTES_MAX[name]) {
    const facts = `in=${name} bytes=${bytes} max=${BYTES_MAX[name]}`;
    throw new HapaxError("invalid_request", `too long for a place in a ledger; ${facts}`);
  }
}
