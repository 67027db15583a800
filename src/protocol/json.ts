/**
 * Streams of application/json: request bodies, stored bytes, response bodies (PROTOCOL.md, JSON mode).
 *
 *   stored   =  *( element "," )      {"a":1},2,"x",
 *
 * A stored record is the element's own bytes and one comma, so a read of whole appends is `[`, the
 * stored bytes without the last comma, and `]`. Stored bytes concatenate.
 *
 *   J1  a body is accepted exactly when it is strict UTF-8 without a byte order mark, JSON by the
 *       engine's own JSON.parse, and no record nests deeper than LIMITS.jsonDepthMax;
 *   J2  every byte inside an element is kept; only whitespace around elements is dropped. Numbers
 *       are never read: 1.0 and 1e400 come back as they were sent;
 *   J3  a top-level array is flattened by exactly one level;
 *   J4  no scan recurses, and every scan is linear: hostile input costs its length.
 *
 * Not here: whether an empty array is allowed. A PUT allows it, a POST does not.
 */

import { NO_BYTES } from "../base/bytes.ts";
import { assert } from "../base/assert.ts";
import { LIMITS } from "./limits.ts";
import { readJsonShape } from "./json-grammar.ts";

export type JsonSplit =
  | { readonly kind: "records"; readonly stored: Uint8Array; readonly count: number }
  | { readonly kind: "invalid"; readonly reason: string };

const COMMA = 0x2c;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const ARRAY_OPEN = 0x5b;
const ARRAY_CLOSE = 0x5d;

// What a byte outside strings means for the structure. Every other byte is inside a scalar.
const SCALAR = 0;
const STRING = 1;
const OPEN = 2;
const CLOSE = 3;
const SEPARATOR = 4;
const SPACE = 5;
const MEANING = new Uint8Array(256);
MEANING[QUOTE] = STRING;
for (const byte of [ARRAY_OPEN, 0x7b]) MEANING[byte] = OPEN;
for (const byte of [ARRAY_CLOSE, 0x7d]) MEANING[byte] = CLOSE;
MEANING[COMMA] = SEPARATOR;
for (const byte of [0x20, 0x09, 0x0a, 0x0d]) MEANING[byte] = SPACE;

// The byte order mark must stay visible: JSON.parse has to see what the readers will see.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Checks a body and returns its stored form, in a buffer of its own. */
export function splitJson(body: Uint8Array): JsonSplit {
  const shape = readJsonShape(body);
  const isJson = shape !== undefined && (!shape.hasHighBytes || decodeUtf8(body) !== undefined);
  // A body that is refused here is read again, more slowly, to find the reason.
  if (!isJson || !shape.isCompact) return splitLoosely(body);
  if (shape.count === 0) return { kind: "records", stored: NO_BYTES, count: 0 };
  const inside = shape.isArray ? body.subarray(1, body.length - 1) : trimmed(body);
  const stored = new Uint8Array(inside.length + 1);
  stored.set(inside);
  stored[inside.length] = COMMA;
  return { kind: "records", stored, count: shape.count };
}

function trimmed(body: Uint8Array): Uint8Array {
  let start = 0;
  let end = body.length;
  while (start < end && meaningAt(body, start) === SPACE) start++;
  while (end > start && meaningAt(body, end - 1) === SPACE) end--;
  return body.subarray(start, end);
}

/** Does the same for bodies with whitespace between the elements, and for bodies that are not JSON. */
function splitLoosely(body: Uint8Array): JsonSplit {
  const text = decodeUtf8(body);
  if (text === undefined) return invalid("the body is not valid UTF-8");
  if (text.startsWith("\uFEFF")) return invalid("the body starts with a byte order mark");

  const value = trimmed(body);
  const isArray = value.length >= 2 && value[0] === ARRAY_OPEN && value.at(-1) === ARRAY_CLOSE;
  const inside = isArray ? value.subarray(1, -1) : value;
  const end = inside.length;

  // One allocation and one copy; packing then happens in place, in the same pass that counts.
  const buffer = new Uint8Array(end + 1);
  buffer.set(inside);
  // The depth is checked before JSON.parse runs: engines differ in how they survive deep nesting. Every level takes
  // two bytes, so a short value that is no array needs no scan.
  const needsScan = isArray || end > 2 * LIMITS.jsonDepthMax;
  const packed = needsScan ? packElements(buffer, end) : { length: end, separators: 0 };
  if (packed === undefined) return invalid(`a record nests deeper than ${LIMITS.jsonDepthMax}`);
  const problem = parseProblem(text);
  if (problem !== undefined) return invalid(problem);

  if (packed.length === 0) return { kind: "records", stored: NO_BYTES, count: 0 };
  buffer[packed.length] = COMMA;
  const size = packed.length + 1;
  const stored = size === buffer.length ? buffer : buffer.subarray(0, size);
  return { kind: "records", stored, count: packed.separators + 1 };
}

/** Returns stored bytes as the inside of an array. */
export function withoutLastComma(stored: Uint8Array): Uint8Array {
  if (stored.length === 0) return stored;
  assert(stored[stored.length - 1] === COMMA, "J2 stored JSON ends with a comma");
  return stored.subarray(0, stored.length - 1);
}

/** Returns the bytes of the first `count` records with their commas. Undefined if there are fewer records. */
export function jsonRecordEnd(stored: Uint8Array, count: number): number | undefined {
  let end = 0;
  for (let found = 0; found < count; found++) {
    end = recordEndAfter(stored, end);
    if (end === -1) return undefined;
  }
  return end;
}

/** Returns where the record that begins at this byte ends, with its comma; -1 if none begins there. Reads that record alone. */
export function jsonRecordEndFrom(stored: Uint8Array, start: number): number {
  return recordEndAfter(stored, start);
}

/** Whether a record begins at this byte, or the last one ends there. */
export function isJsonRecordStart(stored: Uint8Array, at: number): boolean {
  // A record follows a comma; most bytes are refused by this alone.
  if (at > 0 && stored[at - 1] !== COMMA) return false;
  let end = 0;
  while (end !== -1 && end < at) end = recordEndAfter(stored, end);
  return end === at;
}

/** Returns where the record that begins at `start` ends, behind its comma; -1 if none begins there. */
export function jsonRecordEndAfter(stored: Uint8Array, start: number): number {
  return recordEndAfter(stored, start);
}

/** Returns the elements without their commas, as views of the stored bytes. */
export function splitStoredJson(stored: Uint8Array): Uint8Array[] {
  const elements: Uint8Array[] = [];
  let start = 0;
  for (let end = 0; (end = recordEndAfter(stored, end)) !== -1; start = end) {
    elements.push(stored.subarray(start, end - 1));
  }
  return elements;
}

/**
 * Returns where the elements of an array begin. The array must be JSON without whitespace around its elements, such
 * as a page of a stream.
 */
export function elementStarts(array: Uint8Array): number[] {
  const starts: number[] = [];
  if (array.length <= 2) return starts;
  for (let at = 1; at !== -1; at = recordEndAfter(array, at)) starts.push(at);
  return starts;
}

/** Returns the bytes of a member's value in a JSON object. If a name is there twice, the last one counts. */
export function memberText(object: Uint8Array, name: string): Uint8Array | undefined {
  let found: Uint8Array | undefined;
  const inside = trimmed(object);
  for (let start = 1; start !== -1;) {
    const next = recordEndAfter(inside, start);
    const member = trimmed(inside.subarray(start, (next === -1 ? inside.length : next) - 1));
    const keyEnd = stringEnd(member, 0, member.length) + 1;
    const colon = member.indexOf(0x3a, keyEnd);
    if (member[0] === QUOTE && colon !== -1) {
      const key: unknown = JSON.parse(utf8.decode(member.subarray(0, keyEnd)));
      if (key === name) found = trimmed(member.subarray(colon + 1));
    }
    start = next;
  }
  return found;
}

/**
 * Moves elements together over the whitespace between them and counts their separators. Undefined if the nesting is
 * too deep. For text that is not JSON the result means nothing, and callers do not use it.
 */
function packElements(
  buffer: Uint8Array,
  length: number,
): { length: number; separators: number } | undefined {
  let depth = 0;
  let separators = 0;
  let written = 0;
  let runStart = 0;
  for (let at = 0; at < length; at++) {
    switch (meaningAt(buffer, at)) {
      case STRING:
        at = stringEnd(buffer, at, length);
        break;
      case OPEN:
        if (++depth > LIMITS.jsonDepthMax) return undefined;
        break;
      case CLOSE:
        depth--;
        break;
      case SEPARATOR:
        if (depth === 0) separators++;
        break;
      case SPACE:
        if (depth !== 0) break;
        // Bytes only move down to places that were already read, so the scan ahead stays correct.
        if (written !== runStart) buffer.copyWithin(written, runStart, at);
        written += at - runStart;
        runStart = at + 1;
        break;
      default:
    }
  }
  if (written !== runStart) buffer.copyWithin(written, runStart, length);
  return { length: written + length - runStart, separators };
}

/** Returns the place after the comma that ends the record at `start`; -1 if no record starts there. */
function recordEndAfter(stored: Uint8Array, start: number): number {
  let depth = 0;
  for (let at = start; at < stored.length; at++) {
    switch (meaningAt(stored, at)) {
      case STRING:
        at = stringEnd(stored, at, stored.length);
        break;
      case OPEN:
        depth++;
        break;
      case CLOSE:
        depth--;
        break;
      case SEPARATOR:
        if (depth === 0) return at + 1;
        break;
      default:
    }
  }
  return -1;
}

/** Returns the place of the quote that ends the string opened at `open`; `length` if there is none. */
function stringEnd(bytes: Uint8Array, open: number, length: number): number {
  // Most strings are short: a call of indexOf costs more than looking at a few bytes.
  let at = open + 1;
  const near = Math.min(at + 24, length);
  for (; at < near; at++) {
    const byte = bytes[at];
    if (byte === QUOTE) return at;
    if (byte === BACKSLASH) at++;
  }
  for (let quote = at - 1; (quote = bytes.indexOf(QUOTE, quote + 1)) !== -1;) {
    let backslash = quote - 1;
    while (backslash >= at && bytes[backslash] === BACKSLASH) backslash--;
    // An even number of backslashes escape each other, so the quote is real.
    if ((quote - backslash) % 2 === 1) return quote;
  }
  return length;
}

function meaningAt(bytes: Uint8Array, at: number): number {
  return MEANING[bytes[at] ?? 0] ?? SCALAR;
}

function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

function parseProblem(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    // The engine's message quotes the body, which must not reach a log or a terminal as it is.
    const message = error instanceof Error ? error.message : "not JSON";
    return message.replace(/[^\x20-\x7e]/g, "?").slice(0, 160);
  }
}

function invalid(reason: string): JsonSplit {
  return { kind: "invalid", reason };
}
