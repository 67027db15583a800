/**
 * Makes a short digest of what an append holds: its bytes and whether it closes. A stream keeps the digests of the
 * last appends of each producer. With them it tells a retry from a number that is used for other content.
 * PROTOCOL.md §5.
 *
 * It is MurmurHash3 (x86, 32 bits), which is quick: every append of a producer pays for it. It is no protection from
 * attacks, and needs to be none: only the producer can choose two contents with one digest, and it would deceive only
 * itself. By accident two contents share a digest in 1 of 4,294,967,296 cases. Then the second is taken for a retry,
 * as it would be without a digest.
 */

const SEED = 0x9747b28c;
const SEED_CLOSING = 0x3c6ef372;
const FIRST = 0xcc9e2d51;
const SECOND = 0x1b873593;
/** From this size on, a view costs less than it saves. */
const VIEW_BYTES_MIN = 256;

/** Returns the digest: a whole number from -2^31 to 2^31-1, which engines keep without a box. */
export function digestContent(data: Uint8Array, closes: boolean): number {
  return murmur(data, closes ? SEED_CLOSING : SEED);
}

/** MurmurHash3, x86, 32 bits, as a signed number. */
export function murmur(data: Uint8Array, seed: number): number {
  const { length } = data;
  const whole = length & ~3;
  let hash = length < VIEW_BYTES_MIN ? mixBytes(data, whole, seed) : mixView(data, whole, seed);
  if (whole !== length) {
    const second = whole + 1 < length ? (data[whole + 1] ?? 0) << 8 : 0;
    const third = whole + 2 < length ? (data[whole + 2] ?? 0) << 16 : 0;
    hash ^= scramble((data[whole] ?? 0) | second | third);
  }
  hash ^= length;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

function mixBytes(data: Uint8Array, end: number, seed: number): number {
  let hash = seed;
  for (let at = 0; at < end; at += 4) {
    const low = (data[at] ?? 0) | ((data[at + 1] ?? 0) << 8);
    const high = (data[at + 2] ?? 0) | ((data[at + 3] ?? 0) << 8);
    hash = mix(hash, low | (high << 16));
  }
  return hash;
}

function mixView(data: Uint8Array, end: number, seed: number): number {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  let hash = seed;
  for (let at = 0; at < end; at += 4) hash = mix(hash, view.getInt32(at, true));
  return hash;
}

function mix(hash: number, word: number): number {
  const mixed = hash ^ scramble(word);
  return (Math.imul((mixed << 13) | (mixed >>> 19), 5) + 0xe6546b64) | 0;
}

function scramble(word: number): number {
  const first = Math.imul(word, FIRST);
  return Math.imul((first << 15) | (first >>> 17), SECOND);
}
