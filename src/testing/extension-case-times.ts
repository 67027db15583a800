/** Ids that carry their time, for the cases of PROTOCOL.md §16.2. */

import { hexOf } from "../base/hex.ts";

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** Makes a UUID of version 7 (RFC 9562) with this time; the rest of it is random. */
export function uuid7Of(timeMs: number): string {
  const time = timeMs.toString(16).padStart(12, "0");
  const random = hexOf(crypto.getRandomValues(new Uint8Array(10)));
  return [
    time.slice(0, 8),
    time.slice(8),
    `7${random.slice(0, 3)}`,
    `8${random.slice(3, 6)}`,
    random.slice(6, 18),
  ].join("-");
}

/** Makes a ULID with this time; the rest of it is random. */
export function ulidOf(timeMs: number): string {
  let time = "";
  for (let rest = timeMs; time.length < 10; rest = Math.floor(rest / 32)) {
    time = (CROCKFORD[rest % 32] ?? "0") + time;
  }
  const random = crypto.getRandomValues(new Uint8Array(16));
  return time + Array.from(random, (byte) => CROCKFORD[byte % 32] ?? "0").join("");
}
