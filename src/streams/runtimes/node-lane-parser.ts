/**
 * Parses the head of an append strictly: bytes to positions, no copies, no state between two calls. It knows a small
 * part of HTTP/1.1, in which no two parsers differ. Everything else is `unusual` and goes to `node:http`, which gets
 * the same bytes.
 *
 *   - a head is whole only if every byte of it is in the strict grammar below;
 *   - one Content-Length of plain digits, or none, says where a request ends: a request with any other word on it,
 *     or with one word twice, is unusual;
 *   - the verdict on a head does not depend on what follows it; a head that is cut anywhere is partial or unusual,
 *     never whole. Nor does it depend on the credential that is given along: only its bytes need no second look.
 *
 *   head    = "POST" SP target SP "HTTP/1.1" CRLF 1*31( field CRLF ) CRLF
 *   target  = "/" *( letter | digit | one of -._~%!$&'()*+,;=:@/? ), without "/_": reserved paths
 *   field   = name ":" [ SP ] value, each name once in any case
 *   host    = letters, digits, "-", "." and "_", and a port of digits or none
 *   value   = visible ASCII and single spaces inside, at least one character
 */

import { assert } from "../../base/assert.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { LaneMemory } from "./node-lane-memory.ts";

/** The verdict on bytes: a complete head, the start of one, or not for the lane. */
export type HeadVerdict = "whole" | "partial" | "unusual";

const SPACE = 0x20;
const COLON = 0x3a;
const CR = 0x0d;
const LF = 0x0a;
const SLASH = 0x2f;
const UNDERSCORE = 0x5f;
const QUESTION = 0x3f;
const NO_BYTES = Buffer.alloc(0);
const START = Buffer.from("POST /");
const VERSION = Buffer.from("HTTP/1.1\r\n");
/** A number of fifteen digits is exact. The limit of a body has far fewer digits. */
const LENGTH_DIGITS_MAX = 15;

const LETTERS_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const isTargetByte = table(`${LETTERS_DIGITS}-.~%!$&'()*+,;=:@/?`);
const isHostByte = table(`${LETTERS_DIGITS}-._`);
const HOST_BYTES_MAX = 255;
const isVisible = table(
  Array.from({ length: 94 }, (_, at) => String.fromCharCode(33 + at)).join(""),
);

function table(characters: string): Uint8Array {
  const marks = new Uint8Array(256);
  for (const character of characters) marks[character.charCodeAt(0)] = 1;
  return marks;
}

const FIELDS_MAX = 31;
/** A position in a head needs no more bits. */
const POSITION_BITS = 12;
const POSITION_MASK = (1 << POSITION_BITS) - 1;
assert(LIMITS.laneHeadBytesMax <= 1 << POSITION_BITS, "a position in a head has too many bits");

/** The lower case of a byte that may stand in a name, or 0. */
const lowerCase = new Uint8Array(256);
for (const character of "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") {
  lowerCase[character.charCodeAt(0)] = character.toLowerCase().charCodeAt(0);
}

/** The byte of a name in lower case. 0: no name has it. */
function nameByte(byte: number): number {
  return lowerCase[byte] ?? 0;
}

/** Equal names have the same hash. After a match the caller also compares the bytes. */
function hashOf(name: string): number {
  let hash = 0;
  for (let at = 0; at < name.length; at += 1) hash = nextHash(hash, name.charCodeAt(at));
  return hash;
}

function nextHash(hash: number, byte: number): number {
  return (Math.imul(hash, 31) + byte) | 0;
}

/** One of 32 marks. A name whose mark is missing is not in a head; one whose mark is there may be. */
function markOf(hash: number): number {
  return 1 << hash; // By its last five bits.
}

const hashes = new Map<string, number>();

const HOST = hashOf("host");
const CONTENT_LENGTH = hashOf("content-length");
const CONNECTION = hashOf("connection");
const AUTHORIZATION = hashOf("authorization");
/**
 * Headers that change where a request ends, what happens to the connection, what the answer must say, or that the body is decoded,
 * during which the next request would begin.
 */
const FOREIGN = new Set(
  [
    "transfer-encoding",
    "expect",
    "upgrade",
    "proxy-connection",
    "trailer",
    "te",
    "origin",
    "content-encoding",
  ].map(hashOf),
);

/**
 * The fields of a head. A name is found by its hash, and then compared: two names may share one.
 *
 *   - no two fields have the same hash;
 *   - a head costs little memory: two small numbers for each field;
 *   - handlers ask for a dozen fields that few requests have, so one look at the marks shows that a name is not there.
 */
export class LaneFields {
  readonly bytes: Buffer;
  readonly #from: number;
  /** For each field: the hash of its name, and where its value is. */
  readonly #places: number[] = [];
  #marks = 0;

  /** `from`: where the head begins. */
  constructor(bytes: Buffer, from: number) {
    this.bytes = bytes;
    this.#from = from;
  }

  /** Takes a field whose value is there. Returns false if there are too many, or one with the same hash. */
  add(hash: number, start: number, end: number): boolean {
    const places = this.#places;
    if (places.length >= FIELDS_MAX * 2) return false;
    if ((this.#marks & markOf(hash)) !== 0) {
      for (let at = 0; at < places.length; at += 2) if (places[at] === hash) return false;
    }
    this.#marks |= markOf(hash);
    places.push(hash, ((start - this.#from) << POSITION_BITS) | (end - this.#from));
    return true;
  }

  /** The place of a field among all, by its lower-case name. -1: there is none. */
  find(name: string): number {
    let hash = hashes.get(name);
    if (hash === undefined) {
      hash = hashOf(name);
      hashes.set(name, hash); // Names come from handlers, never from clients, so there are few.
    }
    if ((this.#marks & markOf(hash)) === 0) return -1;
    const places = this.#places;
    for (let at = 0; at < places.length; at += 2) {
      if (places[at] === hash) return this.isNamed(this.startOf(at), name) ? at : -1;
    }
    return -1;
  }

  /** Where the value of a field begins. */
  startOf(place: number): number {
    return this.#from + ((this.#places[place + 1] ?? 0) >>> POSITION_BITS);
  }

  /** Where the value of a field ends. */
  endOf(place: number): number {
    return this.#from + ((this.#places[place + 1] ?? 0) & POSITION_MASK);
  }

  /** Names and values in turn, as they were sent. */
  lines(): readonly string[] {
    const { bytes } = this;
    const lines: string[] = [];
    for (let place = 0; place < this.#places.length; place += 2) {
      const start = this.startOf(place);
      const colon = bytes[start - 1] === SPACE ? start - 2 : start - 1;
      const name = bytes.toString("latin1", bytes.lastIndexOf(LF, colon) + 1, colon);
      lines.push(name, bytes.toString("latin1", start, this.endOf(place)));
    }
    return lines;
  }

  /** Whether the name before a value is this one, in lower case. */
  isNamed(start: number, name: string): boolean {
    const { bytes } = this;
    const colon = bytes[start - 1] === SPACE ? start - 2 : start - 1;
    const first = colon - name.length;
    // What is before a name is a line feed, which no name has.
    if (bytes[colon] !== COLON || nameByte(bytes[first - 1] ?? 0) !== 0) return false;
    for (let at = 0; at < name.length; at += 1) {
      if (nameByte(bytes[first + at] ?? 0) !== name.charCodeAt(at)) return false;
    }
    return true;
  }
}

/** Parses heads. It keeps the positions of the last whole head until the next call. */
export class HeadParser {
  /** The first byte after the head. */
  end = 0;
  targetStart = 0;
  /** Position of the query's question mark; `targetEnd` if there is none. */
  queryMark = 0;
  targetEnd = 0;
  contentLength = 0;
  /** Those of the last head. They are never used for another one. */
  fields = new LaneFields(NO_BYTES, 0);
  /** Whether the credential, if the head has one, is the one that `parse` was given: its bytes were checked before. */
  repeatsCredential = false;
  #hasHost = false;
  #memory: LaneMemory | undefined;

  parse(bytes: Buffer, from: number, memory?: LaneMemory): HeadVerdict {
    this.#memory = memory;
    // A longer head is unusual, for any content.
    const to = Math.min(bytes.length, from + LIMITS.laneHeadBytesMax);
    const verdict = this.#parse(bytes, from, to);
    if (verdict === "partial" && to < bytes.length) return "unusual";
    if (verdict === "partial" && to - from === LIMITS.laneHeadBytesMax) return "unusual";
    return verdict;
  }

  #parse(bytes: Buffer, from: number, to: number): HeadVerdict {
    const line = this.#parseLine(bytes, from, to);
    if (line !== "whole") return line;
    this.fields = new LaneFields(bytes, from);
    this.contentLength = 0;
    this.#hasHost = false;
    this.repeatsCredential = false;
    let at = this.end;
    for (;;) {
      if (at >= to) return "partial";
      if (bytes[at] === CR) {
        if (at + 1 >= to) return "partial";
        if (bytes[at + 1] !== LF || !this.#hasHost) return "unusual";
        this.end = at + 2;
        return "whole";
      }
      const field = this.#parseField(bytes, at, to);
      if (field !== "whole") return field;
      at = this.end;
    }
  }

  #parseLine(bytes: Buffer, from: number, to: number): HeadVerdict {
    const start = matches(bytes, from, to, START);
    if (start !== "whole") return start;
    let at = from + START.length - 1;
    this.targetStart = at;
    this.queryMark = -1;
    let before = 0;
    for (; at < to; at += 1) {
      const byte = bytes[at] ?? 0;
      if (byte === UNDERSCORE) {
        if (before === SLASH) return "unusual";
      } else if (isTargetByte[byte] !== 1) break;
      if (byte === QUESTION && this.queryMark === -1) this.queryMark = at;
      before = byte;
    }
    if (at >= to) return "partial";
    if (bytes[at] !== SPACE) return "unusual";
    this.targetEnd = at;
    if (this.queryMark === -1) this.queryMark = at;
    this.end = at + 1 + VERSION.length;
    return matches(bytes, at + 1, to, VERSION);
  }

  #parseField(bytes: Buffer, from: number, to: number): HeadVerdict {
    let at = from;
    let hash = 0;
    for (; at < to; at += 1) {
      const byte = nameByte(bytes[at] ?? 0);
      if (byte === 0) break;
      hash = nextHash(hash, byte);
    }
    if (at >= to) return "partial";
    if (bytes[at] !== COLON || at === from) return "unusual";
    at += 1;
    if (bytes[at] === SPACE) at += 1;
    const start = at;
    // A name that shares the number of this one has no credential, but may have its bytes: they are good for any field.
    if (hash === AUTHORIZATION) at += this.#repeatedBytes(bytes, start, to);
    for (; at < to; at += 1) {
      const byte = bytes[at] ?? 0;
      if (isVisible[byte] === 1) continue;
      // A space stands between two visible characters, so nothing has to be trimmed.
      if (byte !== SPACE || at === start || bytes[at - 1] === SPACE) break;
    }
    if (at >= to) return "partial";
    if (bytes[at] !== CR || at === start || bytes[at - 1] === SPACE) return "unusual";
    if (at + 1 >= to) return "partial";
    if (bytes[at + 1] !== LF) return "unusual";
    this.end = at + 2;
    return this.#takeField(bytes, hash, start, at) ? "whole" : "unusual";
  }

  /** The bytes of a credential that need no look. They are all of the value, or none of it. */
  #repeatedBytes(bytes: Buffer, start: number, to: number): number {
    if (this.#memory === undefined) return 0;
    const length = this.#memory.repeatedBytes(bytes, start, to);
    if (length === 0 || bytes[start + length] !== CR) return 0;
    this.repeatsCredential = true;
    return length;
  }

  #takeField(bytes: Buffer, hash: number, start: number, end: number): boolean {
    const { fields } = this;
    // Two names with the same hash by chance count as one name. That only makes the request unusual.
    if (!fields.add(hash, start, end)) return false;
    switch (hash) {
      case HOST:
        this.#hasHost = true;
        return fields.isNamed(start, "host") && isPlainHost(bytes, start, end);
      case CONTENT_LENGTH:
        return fields.isNamed(start, "content-length") && this.#takeLength(bytes, start, end);
      case CONNECTION:
        return (
          fields.isNamed(start, "connection") &&
          bytes.toString("latin1", start, end).toLowerCase() === "keep-alive"
        );
      default:
        return !FOREIGN.has(hash);
    }
  }

  #takeLength(bytes: Buffer, start: number, end: number): boolean {
    if (end - start > LENGTH_DIGITS_MAX) return false;
    let length = 0;
    for (let at = start; at < end; at += 1) {
      const digit = (bytes[at] ?? 0) - 0x30;
      if (digit < 0 || digit > 9) return false;
      length = length * 10 + digit;
    }
    this.contentLength = length;
    return bytes[start] !== 0x30 || end - start === 1;
  }
}

/**
 * Whether a host is a name or an IPv4 address, with a port of digits or none. `node:http` decides about other hosts.
 */
function isPlainHost(bytes: Buffer, start: number, end: number): boolean {
  if (end - start > HOST_BYTES_MAX) return false;
  let at = start;
  while (at < end && isHostByte[bytes[at] ?? 0] === 1) at += 1;
  if (at === end) return true;
  const digits = end - at - 1;
  if (at === start || bytes[at] !== COLON || digits < 1 || digits > 5) return false;
  for (at += 1; at < end; at += 1) {
    const digit = (bytes[at] ?? 0) - 0x30;
    if (digit < 0 || digit > 9) return false;
  }
  return true;
}

function matches(bytes: Buffer, from: number, to: number, expected: Buffer): HeadVerdict {
  for (let at = 0; at < expected.length; at += 1) {
    if (from + at >= to) return "partial";
    if (bytes[from + at] !== expected[at]) return "unusual";
  }
  return "whole";
}
