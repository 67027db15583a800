/** `hapax compaction`: makes a stream a changelog, which keeps the newest record of each key. PROTOCOL.md §26. */

import { STREAM_COMPACT_KEY } from "../protocol/header-names.ts";
import { LIMITS } from "../protocol/limits.ts";
import { parseCountOption } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation, type OptionSpec } from "./command.ts";
import type { Context } from "./context.ts";
import { EXIT, usageFailure } from "./failure.ts";
import { type CliAnswer, send } from "./http.ts";
import { extensionRefusal } from "./listing.ts";
import { askToGoOn, YES } from "./retention.ts";
import { resolveRoute } from "./target.ts";
import { printable } from "./terminal.ts";

/** Options of `create` and of `compaction`. */
export const COMPACTION_OPTIONS: readonly OptionSpec[] = [
  {
    name: "compact-key",
    value: "path",
    help: "keep the newest record of each key, which is the text at this path, such as id or user.id",
  },
  {
    name: "compact-tombstone",
    value: "path",
    help: "… a record without this member, or with null there, deletes its key",
  },
  { name: "compact-lag", value: "seconds", help: "… younger records stay (default 60)" },
];

/** The header that the options mean; undefined without any. */
export function compactionOf(invocation: Invocation): string | undefined {
  const key = invocation.value("compact-key");
  const tombstone = invocation.value("compact-tombstone");
  const lag = invocation.value("compact-lag");
  if (key === undefined) {
    if ((tombstone ?? lag) === undefined) return undefined;
    throw usageFailure("--compact-tombstone and --compact-lag need --compact-key");
  }
  const members = [key];
  if (tombstone !== undefined) members.push(`tombstone=${tombstone}`);
  if (lag !== undefined) {
    const bounds = { min: 0, max: LIMITS.ttlSecondsMax, fallback: 60 };
    members.push(`lag=${parseCountOption("compact-lag", lag, bounds)}`);
  }
  return members.join(", ");
}

/** What an answer says of the key of a changelog. */
export function compactionFacts(answer: CliAnswer): { readonly compactKey?: string } {
  const compactKey = answer.header(STREAM_COMPACT_KEY);
  return compactKey === undefined ? {} : { compactKey };
}

/** The same for people. */
export function compactionPairs(answer: CliAnswer): [string, string][] {
  const { compactKey } = compactionFacts(answer);
  return compactKey === undefined ? [] : [["compact key", compactKey]];
}

async function runCompaction(invocation: Invocation, context: Context): Promise<number> {
  const argument = invocation.positionals[0] ?? "";
  const given = compactionOf(invocation);
  const isNone = invocation.has("none");
  if ((given === undefined) !== isNone) {
    throw usageFailure("compaction needs --compact-key, or --none alone");
  }
  const { target, stream } = resolveRoute(invocation, context, argument, "/_hapax/compaction");
  const rule = given ?? "none";
  if (!isNone) {
    const question = `Keep only the newest record of each key of ${target.label} (${rule})? Older records of a key are gone for good.`;
    await askToGoOn(invocation, context, question);
  }
  const headers = { [STREAM_COMPACT_KEY]: rule };
  const answer = await send(context, { target, method: "PUT", query: { stream }, headers });
  if (answer.status !== 204) throw extensionRefusal(target, answer);
  const line = invocation.has("json")
    ? JSON.stringify({ path: target.label, compactKey: isNone ? null : rule })
    : `compact key of ${printable(target.label)}: ${rule}`;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}

export const compactionCommand: Command = {
  name: "compaction",
  summary: "keep only the newest record of each key of a stream",
  usage: ["hapax compaction <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    ...COMPACTION_OPTIONS,
    { name: "none", help: "keep every record from now on" },
    YES,
    ...CLIENT_OPTIONS,
  ],
  details: [
    "For streams of JSON. Such a changelog trims its oldest records when it has grown, and appends the newest record of a",
    "key again before it trims it: so what readers get from the beginning to the tail has every key. Offsets do not change.",
  ],
  examples: [
    ["the newest record of each id", "hapax compaction users --compact-key id"],
    [
      "records with the member value set to null delete their key",
      "hapax compaction users --compact-key id --compact-tombstone value --compact-lag 3600",
    ],
    ["everything again", "hapax compaction users --none"],
  ],
  run: runCompaction,
};
