/**
 * The format of API keys. Pure.
 *
 *     hpx_<id>_<secret><checksum>
 *
 *     id         12 digits in base 62. It finds the key, and may be shown
 *     secret     43 digits in base 62 for 256 random bits. The server keeps its SHA-256 alone
 *     checksum    6 digits in base 62: the CRC-32 of all that stands before it
 *
 * The checksum protects nothing. It tells a key from a text that looks like one: programs that search for leaked keys raise no
 * false alarm, and a mistyped key is refused before anything is hashed. PROTOCOL.md §21.8.
 */

import { utf8Of } from "../../base/bytes.ts";
import type { Random } from "../../base/random.ts";

export const API_KEY_PREFIX = "hpx_";

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_DIGITS = 12;
const SECRET_DIGITS = 43;
const CHECKSUM_DIGITS = 6;
const SECRET_AT = API_KEY_PREFIX.length + ID_DIGITS + 1;
const CHECKSUM_AT = SECRET_AT + SECRET_DIGITS;
const KEY_CHARS = CHECKSUM_AT + CHECKSUM_DIGITS;
const SHAPE = /^hpx_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/;
const ID = /^[0-9A-Za-z]{12}$/;

export interface ApiKeyParts {
  readonly id: string;
  readonly secret: string;
}

export interface NewApiKey extends ApiKeyParts {
  /** The whole key, as its owner sends it. */
  readonly key: string;
}

/** Makes a key that no other key equals. */
export function createApiKey(random: Random): NewApiKey {
  const id = digitsOf(numberOf(random.id()), ID_DIGITS);
  const secret = digitsOf(numberOf(random.id() + random.id()), SECRET_DIGITS);
  const body = `${API_KEY_PREFIX}${id}_${secret}`;
  return { id, secret, key: body + checksumOf(body) };
}

/** Undefined for a text that is no key: another length, other characters, or a wrong checksum. */
export function parseApiKey(text: string): ApiKeyParts | undefined {
  if (text.length !== KEY_CHARS || !SHAPE.test(text)) return undefined;
  if (checksumOf(text.slice(0, CHECKSUM_AT)) !== text.slice(CHECKSUM_AT)) return undefined;
  return {
    id: text.slice(API_KEY_PREFIX.length, SECRET_AT - 1),
    secret: text.slice(SECRET_AT, CHECKSUM_AT),
  };
}

export function isApiKeyId(text: string): boolean {
  return ID.test(text);
}

/**
 * Whether two digests are equal. It looks at every byte of both, so that its time does not tell how many bytes are right.
 */
export function areSameDigests(one: ArrayLike<number>, other: ArrayLike<number>): boolean {
  if (one.length !== other.length) return false;
  let difference = 0;
  for (let at = 0; at < one.length; at += 1) difference |= (one[at] ?? 0) ^ (other[at] ?? 0);
  return difference === 0;
}

function numberOf(hexadecimal: string): bigint {
  return BigInt(`0x${hexadecimal}`);
}

/** The last digits of a number in base 62. */
function digitsOf(number: bigint, count: number): string {
  let text = "";
  let rest = number;
  for (let at = 0; at < count; at += 1) {
    text = DIGITS.charAt(Number(rest % 62n)) + text;
    rest /= 62n;
  }
  return text;
}

function checksumOf(body: string): string {
  return digitsOf(BigInt(crc32(utf8Of(body))), CHECKSUM_DIGITS);
}

/** The CRC-32 of gzip and PNG. By bits and without a table: a key is short. */
function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}
