/** FNV-1a, 32 bits: tells things apart, and protects nothing. */

/** The hash of an empty input. */
export const FNV_START = 0x811c9dc5;

/** Returns the hash after one more unit: a byte or a character code. */
export function fnvStep(hash: number, unit: number): number {
  return Math.imul(hash ^ unit, 0x01000193);
}
