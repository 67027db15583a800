/** Where `read` and `tail` begin: at an offset, with the last records, or at a time. */

import { STREAM_START_OFFSET } from "../protocol/header-names.ts";
import { parseRfc3339 } from "../protocol/values.ts";
import { parseCountOption, quote } from "./arguments.ts";
import type { Invocation, OptionSpec } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import type { Target } from "./target.ts";

export const START_OPTIONS: readonly OptionSpec[] = [
  { name: "last", value: "n", help: "start with the last n records" },
  {
    name: "since",
    value: "time",
    help: "start with what was stored since: 90s, 10m, 6h, 7d, or a time such as 2026-01-31T08:00:00Z",
  },
];

/** The part of a query that says where a read begins. */
export type StartQuery =
  | { readonly offset: string }
  | { readonly last: string }
  | { readonly at: string };

const LAST_MAX = 1_000_000;
const UNIT_MS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Reads the options. Undefined: none of them was given. */
export function startOf(invocation: Invocation, context: Context): StartQuery | undefined {
  const names = ["offset", "last", "since", "from-start"].filter((name) => invocation.has(name));
  if (names.length > 1) {
    throw usageFailure(`${names.map((name) => `--${name}`).join(" and ")} exclude each other`);
  }
  const offset = invocation.has("from-start") ? "-1" : invocation.value("offset");
  if (offset !== undefined) return { offset };
  const last = invocation.value("last");
  if (last !== undefined) {
    return { last: String(parseCountOption("last", last, { min: 1, max: LAST_MAX, fallback: 1 })) };
  }
  const since = invocation.value("since");
  return since === undefined ? undefined : { at: timeOf(since, context) };
}

function timeOf(since: string, context: Context): string {
  if (parseRfc3339(since) !== undefined) return since;
  const [, count = "", unit = ""] = /^(\d{1,9})([smhd])$/.exec(since) ?? [];
  const ms = Number(count) * (UNIT_MS[unit] ?? Number.NaN);
  if (Number.isNaN(ms)) {
    throw usageFailure(
      `--since is ${quote(since)}; allowed: a number with s, m, h or d, or a time such as 2026-01-31T08:00:00Z`,
    );
  }
  return new Date(Math.max(0, context.nowMs() - ms)).toISOString();
}

/** Refuses the answer of a server that has passed over what it does not know, and begins elsewhere. */
export function requireStart(
  target: Target,
  start: StartQuery,
  answer: { header(name: string): string | undefined },
): void {
  if ("offset" in start || answer.header(STREAM_START_OFFSET.toLowerCase()) !== undefined) return;
  throw new CommandFailure(
    EXIT.refused,
    `${target.url} cannot look for ${"last" in start ? "--last" : "--since"}`,
    ["the server has no such reads; start with --offset, or at the beginning"],
  );
}
