/** `hapax trim` and `hapax retention`: old data goes by a cut, or by a rule of its stream. PROTOCOL.md §23. */

import { STREAM_EARLIEST_OFFSET, STREAM_RETENTION } from "../protocol/header-names.ts";
import { LIMITS } from "../protocol/limits.ts";
import { parseCountOption } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation, type OptionSpec } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { type CliAnswer, send } from "./http.ts";
import { extensionRefusal } from "./listing.ts";
import { resolveRoute } from "./target.ts";
import { createPaint, printable } from "./terminal.ts";

/** Options of `create` and of `retention`. */
export const RULE_OPTIONS: readonly OptionSpec[] = [
  { name: "retention-seconds", value: "seconds", help: "data of this age is trimmed" },
  { name: "retention-bytes", value: "bytes", help: "keep so many of the newest bytes" },
];

const DROP_NEEDED: OptionSpec = {
  name: "drop-needed",
  help: "trim also what groups, subscriptions and forks still need",
};

/** The header that the options mean; undefined without any. */
export function ruleOf(invocation: Invocation): string | undefined {
  const members: string[] = [];
  for (const [name, max] of [
    ["seconds", LIMITS.ttlSecondsMax],
    ["bytes", Number.MAX_SAFE_INTEGER],
  ] as const) {
    const option = `retention-${name}`;
    const text = invocation.value(option);
    if (text === undefined) continue;
    members.push(`${name}=${parseCountOption(option, text, { min: 1, max, fallback: 1 })}`);
  }
  if (members.length === 0) return undefined;
  if (invocation.has("drop-needed")) members.push("needed=drop");
  return members.join(", ");
}

interface RetentionFacts {
  readonly earliestOffset?: string;
  readonly retention?: string;
}

/** What an answer says of the old data of a stream. */
export function retentionFacts(answer: CliAnswer): RetentionFacts {
  const earliestOffset = answer.header(STREAM_EARLIEST_OFFSET);
  const retention = answer.header(STREAM_RETENTION);
  return {
    ...(earliestOffset === undefined ? {} : { earliestOffset }),
    ...(retention === undefined ? {} : { retention }),
  };
}

/** The same for people. */
export function retentionPairs(answer: CliAnswer): [string, string][] {
  const { earliestOffset, retention } = retentionFacts(answer);
  const pairs: [string, string][] = [];
  // Only of a stream that was trimmed.
  if (earliestOffset !== undefined && /[1-9]/.test(earliestOffset)) {
    pairs.push(["earliest offset", earliestOffset]);
  }
  if (retention !== undefined) pairs.push(["retention", retention]);
  return pairs;
}

async function runTrim(invocation: Invocation, context: Context): Promise<number> {
  const argument = invocation.positionals[0] ?? "";
  const before = invocation.value("before");
  if (before === undefined) throw usageFailure("trim needs --before <offset>");
  const { target, stream } = resolveRoute(invocation, context, argument, "/_hapax/trim");
  await askToGoOn(
    invocation,
    context,
    `Trim ${target.label} before ${before}? The data is gone for good.`,
  );
  const needed = invocation.has("drop-needed") ? "drop" : undefined;
  const query = { stream, before, needed };
  const answer = await send(context, { target, method: "POST", query });
  if (answer.status !== 204) throw extensionRefusal(target, answer);
  const { earliestOffset = before } = retentionFacts(answer);
  const line = invocation.has("json")
    ? JSON.stringify({ path: target.label, earliestOffset })
    : `${createPaint(context.stdout, context.env)("green", "trimmed")} ${printable(target.label)}, it begins at ${earliestOffset}`;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}

async function runRetention(invocation: Invocation, context: Context): Promise<number> {
  const argument = invocation.positionals[0] ?? "";
  const given = ruleOf(invocation);
  const isNone = invocation.has("none");
  if ((given === undefined) !== isNone) {
    throw usageFailure("retention needs --retention-seconds, --retention-bytes, or --none alone");
  }
  const { target, stream } = resolveRoute(invocation, context, argument, "/_hapax/retention");
  const rule = given ?? "none";
  if (!isNone) {
    const question = `Set the retention of ${target.label} to ${rule}? What is older or more is gone for good.`;
    await askToGoOn(invocation, context, question);
  }
  const headers = { [STREAM_RETENTION]: rule };
  const answer = await send(context, { target, method: "PUT", query: { stream }, headers });
  if (answer.status !== 204) throw extensionRefusal(target, answer);
  const line = invocation.has("json")
    ? JSON.stringify({ path: target.label, retention: isNone ? null : rule })
    : `retention of ${printable(target.label)}: ${rule}`;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}

/** A script has decided already. */
export async function askToGoOn(
  invocation: Invocation,
  context: Context,
  question: string,
): Promise<void> {
  if (!context.stdin.isTerminal || !context.stderr.isTerminal || invocation.has("yes")) return;
  const answer = (await context.ask(printable(`${question} [y/N] `))).trim().toLowerCase();
  if (answer !== "y" && answer !== "yes") throw new CommandFailure(EXIT.refused, "not done");
}

export const YES: OptionSpec = { name: "yes", short: "y", help: "do not ask" };

export const trimCommand: Command = {
  name: "trim",
  summary: "remove the oldest data of a stream",
  usage: ["hapax trim <stream> --before <offset> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "before", value: "offset", help: "what is before this offset goes" },
    DROP_NEEDED,
    YES,
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Offsets do not change. Data that a group, a subscription or a fork still needs is not trimmed without",
    "--drop-needed. hapax head shows where a trimmed stream begins; readers before that get the error offset_trimmed.",
  ],
  examples: [
    [
      "keep what came after an offset",
      "hapax trim orders --before 0000000000000000_0000000000004096",
    ],
  ],
  run: runTrim,
};

export const retentionCommand: Command = {
  name: "retention",
  summary: "set what a stream keeps of its old data",
  usage: ["hapax retention <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    ...RULE_OPTIONS,
    DROP_NEEDED,
    { name: "none", help: "keep everything from now on" },
    YES,
    ...CLIENT_OPTIONS,
  ],
  details: [
    "With both numbers, data goes as soon as one of them lets it go. hapax head shows the rule. The age of data",
    "that was there before the first rule counts from then on.",
  ],
  examples: [
    [
      "a week, and at most about a gigabyte",
      "hapax retention orders --retention-seconds 604800 --retention-bytes 1000000000",
    ],
    ["everything again", "hapax retention orders --none"],
  ],
  run: runRetention,
};
