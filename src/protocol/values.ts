/**
 * Parses and encodes values of headers, paths and queries (PROTOCOL.md, headers).
 *
 *   V1  a parser accepts exactly its grammar. It never trims, rounds or repairs: what is refused
 *       here is answered with 400, and what is accepted means one thing only;
 *   V2  a stream name is decoded exactly once and has one spelling: no dot segments, no empty
 *       segments, no encoded slash, so two targets never name the same stream by accident;
 *   V3  offsets sort as text in the order of the bytes that they count.
 *
 * Every regular expression here is free of ambiguous repetition, so matching is linear.
 */

import { utf8Of } from "../base/bytes.ts";
import { assert } from "../base/assert.ts";
import { isJson } from "../streams/core/stream.ts";
import type { Offset, StreamName } from "../streams/core/types.ts";
import { LIMITS } from "./limits.ts";

export type ParsedOffset =
  | { readonly kind: "at"; readonly offset: Offset }
  | { readonly kind: "start" }
  | { readonly kind: "now" }
  /** Well formed, but larger than any offset that this server can hand out. */
  | { readonly kind: "beyond" };

export type ParsedPath =
  | { readonly kind: "path"; readonly name: StreamName }
  | {
      readonly kind: "invalid";
      readonly code: "invalid_request" | "uri_too_long";
      readonly reason: string;
    };

export interface ContentType {
  /** `type/subtype` in lower case, without parameters. */
  readonly essence: string;
  readonly text: string;
  readonly isJson: boolean;
}

export type QueryValue =
  | { readonly kind: "value"; readonly value: string }
  | { readonly kind: "absent" }
  | { readonly kind: "repeated" }
  | { readonly kind: "invalid" };

export interface QueryString {
  get(name: string): QueryValue;
}

const OFFSET = /^[0-9]{16}_[0-9]{16}$/;
const OFFSET_PREFIX = "0000000000000000_";
const DIGIT_ZERO = 0x30;
/** The beginning of an offset whose count has so many digits. */
const OFFSET_STARTS = Array.from(
  { length: 17 },
  (_, digits) => OFFSET_PREFIX + "0".repeat(16 - digits),
);

/** Parses decimal digits without sign, leading zeros or fraction, from 0 to 2^53-1. */
export function parseCount(text: string): number | undefined {
  const { length } = text;
  if (length === 0 || length > 16 || (length > 1 && text.charCodeAt(0) === DIGIT_ZERO)) {
    return undefined;
  }
  let count = 0;
  for (let at = 0; at < length; at += 1) {
    const digit = text.charCodeAt(at) - DIGIT_ZERO;
    if (digit < 0 || digit > 9) return undefined;
    count = count * 10 + digit;
  }
  // Sixteen digits may be more than 2^53 and be rounded, but never to less.
  return Number.isSafeInteger(count) ? count : undefined;
}

export function parseOffset(text: string): ParsedOffset | undefined {
  if (text === "-1") return { kind: "start" };
  if (text === "now") return { kind: "now" };
  if (!OFFSET.test(text)) return undefined;
  const bytes = Number(text.slice(OFFSET_PREFIX.length));
  if (!text.startsWith(OFFSET_PREFIX) || !Number.isSafeInteger(bytes)) return { kind: "beyond" };
  return { kind: "at", offset: bytes as Offset }; // The grammar above proves that it is an offset.
}

export function formatOffset(offset: Offset): string {
  assert(Number.isSafeInteger(offset) && offset >= 0, "V3 an offset is a count of bytes");
  const count = String(offset);
  return (OFFSET_STARTS[count.length] ?? OFFSET_PREFIX) + count;
}

const RFC3339 =
  /^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))$/;
const DAY_MS = 86_400_000;
const YEAR_ZERO_MS = -62_167_219_200_000;
const YEAR_10000_MS = 253_402_300_800_000;

/**
 * Returns milliseconds since 1970. Cuts off digits after the third of a fraction. A leap second, which exists only at
 * the end of a month in UTC, counts as the last millisecond of its minute.
 */
export function parseRfc3339(text: string): number | undefined {
  const match = RFC3339.exec(text);
  if (match === null) return undefined;
  const [, day, minute, seconds, fraction = "", sign, zoneHours = 0, zoneMinutes = 0] = match;
  const second = Number(seconds);
  if (second > 60 || Number(zoneHours) > 23 || Number(zoneMinutes) > 59) return undefined;

  // oxlint-disable-next-line no-restricted-globals -- It reads a text and no clock.
  const localMs = Date.parse(`${day}T${minute}Z`);
  // Platforms take the 31st of a month of 30 days for a day of the next month, and 24:00 for 0:00.
  if (Number.isNaN(localMs) || !calendar(localMs).toISOString().startsWith(`${day}T${minute}`)) {
    return undefined;
  }

  const zoneMs = (Number(zoneHours) * 60 + Number(zoneMinutes)) * 60_000;
  const minuteMs = localMs - (sign === "-" ? -zoneMs : zoneMs);
  const isLeap = second === 60;
  if (isLeap && !endsMonth(minuteMs)) return undefined;
  const fractionMs = Number(fraction.slice(0, 3).padEnd(3, "0"));
  const ms = minuteMs + (isLeap ? 59_999 : second * 1000 + fractionMs);
  // A zone can move a time out of the four-digit years. Then it could not be written back.
  return ms >= YEAR_ZERO_MS && ms < YEAR_10000_MS ? ms : undefined;
}

export function formatRfc3339(ms: number): string {
  assert(ms >= YEAR_ZERO_MS && ms < YEAR_10000_MS, "V1 a timestamp has a year of four digits");
  return calendar(Math.floor(ms)).toISOString();
}

function endsMonth(minuteMs: number): boolean {
  const next = minuteMs + 60_000;
  return next % DAY_MS === 0 && calendar(next).getUTCDate() === 1;
}

/** The global Date is a clock, and not allowed here, but for its calendar. */
function calendar(ms: number): Date {
  // oxlint-disable-next-line no-restricted-globals -- It is given the time, and reads no clock.
  return new Date(ms);
}

// RFC 9110, 5.6.2 and 8.3.1, but ASCII only: the text is stored, and sent back in a header.
const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const QUOTED = '"(?:[\\t \\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\[\\t \\x21-\\x7e])*"';
const CONTENT_TYPE = new RegExp(
  `^(${TOKEN}/${TOKEN})(?:[ \\t]*;(?:[ \\t]*${TOKEN}=(?:${TOKEN}|${QUOTED}))?)*[ \\t]*$`,
);

let lastContentType: ContentType | undefined;

export function normaliseContentType(text: string): ContentType | undefined {
  // Nearly every request has the same type as the one before.
  if (text === lastContentType?.text) return lastContentType;
  if (text.length > LIMITS.contentTypeBytesMax) return undefined;
  const essence = CONTENT_TYPE.exec(text)?.[1];
  if (essence === undefined) return undefined;
  lastContentType = { essence: essence.toLowerCase(), text, isJson: isJson(text) };
  return lastContentType;
}

/** Whether a header such as Stream-Closed is set. Any other value counts as absent. */
export function parseTrue(text: string | undefined): boolean {
  return text !== undefined && /^true$/i.test(text);
}

const BEARER = /^Bearer +([A-Za-z0-9\-._~+/]+=*)$/i;

export function parseBearer(text: string): string | undefined {
  return BEARER.exec(text)?.[1];
}

const PLAIN_PATH = /^(?:\/(?!\.\.?(?:\/|$))[A-Za-z0-9\-._~!$&'()*+,;=:@]+)+$/;
const RAW_FORBIDDEN = /[^\x21-\x7e]|[?#\\]/;
const NAME_FORBIDDEN = /[\p{Cc}\\]/u;

/** The length is checked first: a pattern that repeats a group needs stack for each repetition. */
function isPlain(path: string): boolean {
  return path.length <= LIMITS.pathBytesMax && PLAIN_PATH.test(path);
}

/** Returns the stream that a raw request path names. The path goes from its slash to before the query. */
export function parseStreamPath(target: string): ParsedPath {
  if (isPlain(target)) {
    return { kind: "path", name: target as StreamName }; // V2 holds: there is nothing to decode.
  }
  if (target.length > LIMITS.targetBytesMax) return tooLong();
  if (!target.startsWith("/")) return invalidPath("the path does not start with a slash");
  if (RAW_FORBIDDEN.test(target)) return invalidPath("the path has a character to be encoded");
  if (/%2f/i.test(target)) return invalidPath("the path has an encoded slash");
  const name = decodePercent(target);
  if (name === undefined) return invalidPath("the path is not percent-encoded UTF-8");
  if (NAME_FORBIDDEN.test(name)) {
    return invalidPath("the path has a control character or a backslash");
  }
  for (const segment of name.slice(1).split("/")) {
    if (segment === "") return invalidPath("the path has an empty segment");
    if (segment === "." || segment === "..") return invalidPath("the path has a dot segment");
  }
  if (utf8Of(name).length > LIMITS.pathBytesMax) return tooLong();
  return { kind: "path", name: name as StreamName };
}

/** Returns the path that parseStreamPath reads as this name: ASCII, fit for a header. */
export function encodeStreamPath(name: StreamName): string {
  return isPlain(name) ? name : name.split("/").map(encodeURIComponent).join("/");
}

/** Decodes once. Undefined for a bad escape and for bytes that are not UTF-8. */
export function decodePercent(text: string): string | undefined {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/**
 * Reads the part of a target after `?`. Names are not decoded. A value is decoded when the caller asks for it, with
 * `+` as a space, as forms send it. Other parameters are never decoded.
 */
export function parseQuery(query: string): QueryString {
  return {
    get(name) {
      let found: string | undefined;
      for (let start = 0; start <= query.length;) {
        const next = query.indexOf("&", start);
        const end = next === -1 ? query.length : next;
        if (query.startsWith(name, start)) {
          const at = start + name.length;
          if (at === end || query[at] === "=") {
            if (found !== undefined) return { kind: "repeated" };
            found = query.slice(Math.min(at + 1, end), end);
          }
        }
        start = end + 1;
      }
      if (found === undefined) return { kind: "absent" };
      const value = decodeQueryValue(found);
      return value === undefined ? { kind: "invalid" } : { kind: "value", value };
    },
  };
}

/** Returns all values of a parameter that may be repeated, in their order. Undefined: one of them cannot be decoded. */
export function queryValues(query: string, name: string): readonly string[] | undefined {
  const values: string[] = [];
  for (const parameter of query.split("&")) {
    const isNamed = parameter === name || parameter.startsWith(`${name}=`);
    if (!isNamed) continue;
    const value = decodeQueryValue(parameter.slice(name.length + 1));
    if (value === undefined) return undefined;
    values.push(value);
  }
  return values;
}

function decodeQueryValue(text: string): string | undefined {
  return /[^\x21-\x7e]/.test(text) ? undefined : decodePercent(text.replaceAll("+", " "));
}

function invalidPath(reason: string): ParsedPath {
  return { kind: "invalid", code: "invalid_request", reason };
}

function tooLong(): ParsedPath {
  const reason = `the path is longer than ${LIMITS.pathBytesMax} bytes`;
  return { kind: "invalid", code: "uri_too_long", reason };
}
