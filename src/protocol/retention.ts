/** The rule of retention on the wire: one header, `seconds=86400, bytes=1073741824, needed=drop`. PROTOCOL.md §23. */

import type { RetentionRule } from "../streams/core/trim.ts";
import { HEADER } from "./headers.ts";
import { LIMITS } from "./limits.ts";
import { invalid } from "./refusal.ts";
import { parseCount } from "./values.ts";

const CHARS_MAX = 100;

/** The header. `none` is for streams that have a rule: they keep everything again. */
export function parseRetention(text: string): RetentionRule | "none" {
  if (text === "none") return text;
  const members = new Map<string, string>();
  if (text.length > CHARS_MAX) throw refused();
  for (const member of text.split(",")) {
    const [name = "", value = "", ...rest] = member.trim().split("=");
    if (rest.length > 0 || members.has(name)) throw refused();
    members.set(name, value);
  }
  const seconds = numberOf(members.get("seconds"), LIMITS.ttlSecondsMax);
  const bytes = numberOf(members.get("bytes"), Number.MAX_SAFE_INTEGER);
  const needed = members.get("needed");
  if (needed !== undefined && needed !== "drop") throw refused();
  for (const name of members.keys()) {
    if (name !== "seconds" && name !== "bytes" && name !== "needed") throw refused();
  }
  if (seconds === undefined && bytes === undefined) throw refused();
  return { seconds, bytes, dropsNeeded: needed === "drop" };
}

function numberOf(text: string | undefined, max: number): number | undefined {
  if (text === undefined) return undefined;
  const count = parseCount(text);
  if (count === undefined || count < 1 || count > max) throw refused();
  return count;
}

function refused(): Error {
  return invalid(HEADER.retention, "is not seconds=<1 or more>, bytes=<1 or more>, needed=drop");
}

export function formatRetention({ seconds, bytes, dropsNeeded }: RetentionRule): string {
  const members = [
    ...(seconds === undefined ? [] : [`seconds=${seconds}`]),
    ...(bytes === undefined ? [] : [`bytes=${bytes}`]),
    ...(dropsNeeded ? ["needed=drop"] : []),
  ];
  return members.join(", ");
}

export function retentionHeaders(rule: RetentionRule | undefined): Record<string, string> {
  return rule === undefined ? {} : { [HEADER.retention]: formatRetention(rule) };
}
