/**
 * Compaction on the wire: one header, `Stream-Compact-Key: key, tombstone=value, lag=60`, and where a record has its key.
 * PROTOCOL.md §26.
 */

import type { CompactionRule, RecordKey } from "../streams/core/compaction.ts";
import { decodeText } from "../base/bytes.ts";
import { HEADER } from "./headers.ts";
import { memberText } from "./json.ts";
import { LIMITS } from "./limits.ts";
import { invalid } from "./refusal.ts";
import { parseCount } from "./values.ts";

const CHARS_MAX = 500;
const LAG_SECONDS = 60;
/** Visible ASCII but for what separates: dots, commas, equals signs, quotes and semicolons. */
const PATH = /^[!#-+\-/-:<>-~]{1,64}(?:\.[!#-+\-/-:<>-~]{1,64}){0,7}$/;
/** Larger records are scanned for the member. To parse a smaller one is faster. */
const PARSED_BYTES_MAX = 16 * 1024;
const QUOTE = 0x22;
const BRACE = 0x7b;

/** The header. `none` is for streams that have a rule: they keep every record again. */
export function parseCompaction(text: string): CompactionRule | "none" {
  if (text === "none") return text;
  if (text.length > CHARS_MAX) throw refused();
  const [key = "", ...rest] = text.split(",").map((member) => member.trim());
  const members = new Map<string, string>();
  for (const member of rest) {
    const [name = "", value = "", ...more] = member.split("=");
    if (more.length > 0 || members.has(name)) throw refused();
    members.set(name, value);
  }
  const tombstone = members.get("tombstone");
  const lag = members.get("lag");
  const lagSeconds = lag === undefined ? LAG_SECONDS : parseCount(lag);
  for (const name of members.keys()) if (name !== "tombstone" && name !== "lag") throw refused();
  const isPath = PATH.test(key) && (tombstone === undefined || PATH.test(tombstone));
  if (!isPath || lagSeconds === undefined || lagSeconds > LIMITS.ttlSecondsMax) throw refused();
  return { key, tombstone, lagSeconds };
}

function refused(): Error {
  const form = "is not <path>, tombstone=<path>, lag=<seconds>";
  return invalid(HEADER.compactKey, `${form}, with paths such as id or user.id`);
}

export function formatCompaction({ key, tombstone, lagSeconds }: CompactionRule): string {
  const members = [key, ...(tombstone === undefined ? [] : [`tombstone=${tombstone}`])];
  return [...members, `lag=${lagSeconds}`].join(", ");
}

export function compactionHeaders(rule: CompactionRule | undefined): Record<string, string> {
  return rule === undefined ? {} : { [HEADER.compactKey]: formatCompaction(rule) };
}

/** Finds the key of a stored record, and whether the record deletes it. If a name is there twice, the last one counts. */
export function recordKey(record: Uint8Array, rule: CompactionRule): RecordKey {
  const find = record.length <= PARSED_BYTES_MAX ? parsedMembers(record) : scannedMembers(record);
  const key = find(rule.key);
  if (typeof key !== "string") return { key: undefined, isTombstone: false };
  const isTombstone = rule.tombstone !== undefined && (find(rule.tombstone) ?? null) === null;
  return { key, isTombstone };
}

type FindMember = (path: string) => unknown;

function parsedMembers(record: Uint8Array): FindMember {
  const root: unknown = JSON.parse(decodeText(record));
  return (path) => {
    let value = root;
    for (const name of path.split(".")) {
      const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
      if (!isObject || !Object.hasOwn(value as object, name)) return undefined;
      value = (value as Readonly<Record<string, unknown>>)[name];
    }
    return value;
  };
}

/** The same without the rest of the record in memory. A value that is neither a text nor null counts as `true`. */
function scannedMembers(record: Uint8Array): FindMember {
  return (path) => {
    let bytes: Uint8Array | undefined = record;
    for (const name of path.split(".")) {
      if (bytes?.[0] !== BRACE) return undefined;
      bytes = memberText(bytes, name);
    }
    if (bytes === undefined) return undefined;
    if (bytes[0] === QUOTE) return JSON.parse(decodeText(bytes)) as unknown;
    return decodeText(bytes.subarray(0, 5)) === "null" ? null : true;
  };
}
