/**
 * Adds `headers.offset` of the State protocol to each JSON record that is a change or a control message, for readers
 * that ask for it. The offset is the end of the record's append. PROTOCOL.md §7.8.
 *
 * A record is one of these if it is an object with an object `headers` in which `operation` or `control` is text.
 * The member goes behind the others of `headers`, where it counts for every parser that takes the last of two equal
 * names, as JSON.parse does. No other byte changes.
 *
 * JSON.parse of the result gives the same as of the record, with `headers.offset` set. Nothing recurses, and every
 * byte is read a limited number of times.
 */

import { utf8Of } from "../base/bytes.ts";

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const ARRAY_OPEN = 0x5b;
const ARRAY_CLOSE = 0x5d;
const OBJECT_OPEN = 0x7b;
const OBJECT_CLOSE = 0x7d;
const LETTER_U = 0x75;

/**
 * Returns the stored records of one append, which ended at `offset`. Returns the same bytes if none is of the State
 * protocol.
 */
export function addStateOffsets(stored: Uint8Array, offset: string): Uint8Array {
  const places: number[] = [];
  for (let at = 0; at < stored.length;) {
    const place = stored[at] === OBJECT_OPEN ? placeInRecord(stored, at) : undefined;
    if (place !== undefined) places.push(place);
    at = endOfValue(stored, at) + 1;
  }
  return places.length === 0 ? stored : insertAt(stored, places, `,"offset":"${offset}"`);
}

/** Returns where the `headers` of a message of the State protocol end. */
function placeInRecord(stored: Uint8Array, start: number): number | undefined {
  const headers = membersOf(stored, start, ["headers"]).get("headers");
  if (headers === undefined || stored[headers] !== OBJECT_OPEN) return undefined;
  const marks = membersOf(stored, headers, ["operation", "control"]);
  for (const value of marks.values()) {
    if (stored[value] === QUOTE) return endOfValue(stored, headers) - 1;
  }
  return undefined;
}

/** Returns where the values of these members begin. Of two equal names the last one counts. */
function membersOf(
  stored: Uint8Array,
  start: number,
  names: readonly string[],
): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  let at = skipSpace(stored, start + 1);
  while (stored[at] === QUOTE) {
    const end = endOfString(stored, at);
    const colon = skipSpace(stored, end);
    const value = skipSpace(stored, stored[colon] === COLON ? colon + 1 : colon);
    for (const name of names) if (isName(stored, at, end, name)) found.set(name, value);
    at = skipSpace(stored, endOfValue(stored, value));
    if (stored[at] === COMMA) at = skipSpace(stored, at + 1);
  }
  return found;
}

/** Whether the string from `start` to `end` is this name of ASCII letters, with escapes or without. */
function isName(stored: Uint8Array, start: number, end: number, name: string): boolean {
  let at = start + 1;
  for (let index = 0; index < name.length; index += 1) {
    let unit = stored[at];
    at += 1;
    if (unit === BACKSLASH) {
      // Of all escapes only this one can be a letter of the names that we look for.
      if (stored[at] !== LETTER_U) return false;
      unit = hexUnit(stored, at + 1);
      at += 5;
    }
    if (unit !== name.charCodeAt(index)) return false;
  }
  return at === end - 1;
}

/** Reads four hexadecimal digits. NaN if they are none. */
function hexUnit(stored: Uint8Array, start: number): number {
  let unit = 0;
  for (let at = start; at < start + 4; at += 1) unit = unit * 16 + hexDigit(stored[at] ?? 0);
  return unit;
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = (byte | 0x20) - 0x61;
  return letter >= 0 && letter < 6 ? letter + 10 : Number.NaN;
}

/** Returns the place just behind the value that begins at `start`. The stored bytes are JSON, so brackets match. */
function endOfValue(stored: Uint8Array, start: number): number {
  const first = stored[start];
  if (first === QUOTE) return endOfString(stored, start);
  if (first !== OBJECT_OPEN && first !== ARRAY_OPEN) return endOfScalar(stored, start);
  let depth = 0;
  for (let at = start; at < stored.length; at += 1) {
    const byte = stored[at];
    if (byte === QUOTE) at = endOfString(stored, at) - 1;
    else if (byte === OBJECT_OPEN || byte === ARRAY_OPEN) depth += 1;
    else if (byte === OBJECT_CLOSE || byte === ARRAY_CLOSE) depth -= 1;
    if (depth === 0) return at + 1;
  }
  return stored.length;
}

function endOfString(stored: Uint8Array, start: number): number {
  for (let at = start + 1; at < stored.length; at += 1) {
    if (stored[at] === BACKSLASH) at += 1;
    else if (stored[at] === QUOTE) return at + 1;
  }
  return stored.length;
}

function endOfScalar(stored: Uint8Array, start: number): number {
  for (let at = start; at < stored.length; at += 1) {
    const byte = stored[at] ?? 0;
    if (byte <= 0x20 || byte === COMMA || byte === OBJECT_CLOSE || byte === ARRAY_CLOSE) return at;
  }
  return stored.length;
}

function skipSpace(stored: Uint8Array, start: number): number {
  let at = start;
  while (at < stored.length && (stored[at] ?? 0) <= 0x20) at += 1;
  return at;
}

function insertAt(stored: Uint8Array, places: readonly number[], text: string): Uint8Array {
  const added = utf8Of(text);
  const result = new Uint8Array(stored.length + places.length * added.length);
  let to = 0;
  let next = 0;
  // One byte at a time: the pieces are so short that a call for each would take longer.
  for (let at = 0; at < stored.length; at += 1) {
    if (at === places[next]) {
      next += 1;
      for (let index = 0; index < added.length; index += 1) result[to++] = added[index] ?? 0;
    }
    result[to++] = stored[at] ?? 0;
  }
  return result;
}
