/** What an entry in Redis looks like: the fields of redis-scripts.ts to entries, and writes to the values of the scripts. */

import { decodeBase64, encodeBase64 } from "../../base/base64.ts";
import { type RedisSession, replyList, replyText } from "../databases/redis.ts";
import type { EntryState } from "../rules/claim.ts";
import type { Entry, EntryWrite, Expected, Place } from "./ledger.ts";
import { idOfPlace, type ShardKeys, STATES } from "./redis-keys.ts";
import { READ } from "./redis-scripts.ts";

/** A hundred years: the clock and this together stay exact in Lua. */
const DELAY_MS_MAX = 100 * 366 * 86_400_000;
/** Entries that one script reads: each may have a megabyte. */
const READ_MAX = 50;

/** What a write expects, and its id. */
export function expectationOf(place: Place, expected: Expected): string[] {
  const token = expected.kind === "absent" ? "" : String(expected.token);
  const revision = expected.kind === "unchanged" ? String(expected.revision) : "";
  return [expected.kind, token, revision, idOfPlace(place)];
}

/** What becomes of the entry. */
export function changeOf(write: EntryWrite): string[] {
  const { state, token, attempts, leaseMs, keepMs, fingerprint, data } = write;
  return [
    state,
    // There are no locks here, so none was drawn before.
    typeof token === "string" ? token : "next",
    String(attempts),
    microsOf(leaseMs),
    leaseMs === undefined ? "" : String(Math.ceil(cut(leaseMs))),
    microsOf(keepMs),
    fieldOf(fingerprint, (text) => text),
    fieldOf(data, encodeBase64),
  ];
}

function cut(delayMs: number): number {
  return Math.min(delayMs, DELAY_MS_MAX);
}

function microsOf(delayMs: number | undefined): string {
  return delayMs === undefined ? "" : String(Math.round(cut(delayMs) * 1000));
}

function fieldOf<T>(
  field: { readonly value: T | undefined } | "same",
  encode: (value: T) => string,
): string {
  if (field === "same") return "=";
  return field.value === undefined ? "-" : `+${encode(field.value)}`;
}

/** Reads entries; undefined for those that are not there. */
export async function readEntries(
  session: RedisSession,
  keys: ShardKeys,
  ids: readonly string[],
): Promise<readonly (Entry | undefined)[]> {
  const entries: (Entry | undefined)[] = [];
  for (let at = 0; at < ids.length; at += READ_MAX) {
    const some = ids.slice(at, at + READ_MAX);
    const reply = await session.run(
      READ,
      some.map((id) => keys.entry(id)),
      [],
    );
    const [now, ...found] = replyList(reply);
    for (const fields of found) entries.push(entryOf(replyList(fields), Number(replyText(now))));
  }
  return entries;
}

function entryOf(fields: readonly unknown[], now: number): Entry | undefined {
  const texts = fields.map((field) =>
    field === null || field === undefined ? undefined : replyText(field),
  );
  const [token, revision, state, attempts, leaseUntil, leaseMs, expiresAt, madeAt] = texts;
  if (token === undefined) return undefined;
  const [fingerprint, data] = texts.slice(8);
  return {
    token: safeInteger(token),
    revision: safeInteger(revision),
    state: stateOf(state),
    attempts: safeInteger(attempts),
    leaseLeftMs: leftOf(leaseUntil, now),
    leaseMs: leaseMs === undefined ? undefined : safeInteger(leaseMs),
    keepLeftMs: leftOf(expiresAt, now),
    ageMs: Math.max(0, -(leftOf(madeAt, now) ?? 0)),
    fingerprint,
    data: data === undefined ? undefined : decodeBase64(data),
  };
}

// Rounded up, so that what is left never becomes nothing before it is.
function leftOf(until: string | undefined, now: number): number | undefined {
  return until === undefined ? undefined : Math.ceil((safeInteger(until) - now) / 1000);
}

function stateOf(value: string | undefined): EntryState {
  for (const state of STATES) if (state === value) return state;
  throw new TypeError(`no state of an entry: ${String(value)}`);
}

export function safeInteger(value: unknown): number {
  const integer = Number(replyText(value));
  if (!Number.isSafeInteger(integer)) throw new RangeError(`no safe integer: ${String(value)}`);
  return integer;
}
