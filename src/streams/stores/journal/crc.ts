/**
 * Checksums of bytes that follow each other, from the checksums of the parts: what was summed once is not read again.
 *
 *   - `joinCrc(crc32(one, start), crc32(other), other.length)` is `crc32(both, start)`, for any `start`.
 *
 * A checksum is the remainder of a polynomial over bits. Bits that follow multiply it by a power of x, which is made of the powers
 * x^(2^n), by squaring (as in zlib's crc32_combine).
 */

/** The polynomial of CRC-32, with its lowest power in the highest bit. */
const POLYNOMIAL = 0xed_b8_83_20;
const ONE = 0x80_00_00_00;

/** x^(2^n) at place n. */
const POWERS: readonly number[] = powers();

function powers(): readonly number[] {
  const all = [ONE >>> 1];
  for (let at = 1; at < 32; at += 1) {
    const last = all[at - 1] ?? 0;
    all.push(multiply(last, last));
  }
  return all;
}

function multiply(one: number, other: number): number {
  let product = 0;
  let factor = other;
  for (let bit = ONE; bit !== 0; bit >>>= 1) {
    if ((one & bit) !== 0) product ^= factor;
    factor = (factor & 1) === 0 ? factor >>> 1 : (factor >>> 1) ^ POLYNOMIAL;
  }
  return product >>> 0;
}

/** The checksum of bytes with the checksum `before`, followed by `bytes` bytes whose own checksum is `crc`. */
export function joinCrc(before: number, crc: number, bytes: number): number {
  let shift = ONE;
  // Three places on: a byte has eight bits.
  for (let left = bytes, at = 3; left > 0; left = Math.floor(left / 2), at += 1) {
    if (left % 2 === 1) shift = multiply(POWERS[at % 32] ?? 0, shift);
  }
  return (multiply(shift, before) ^ crc) >>> 0;
}
