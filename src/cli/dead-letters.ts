/**
 * `hapax dead-letters`: what was given up, and what becomes of it. The source is an argument: the stream of a pipeline, or
 * the outbox of a database.
 */

import { parseCountOption, quote } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import { confirm } from "./confirm.ts";
import type { Context } from "./context.ts";
import { EXIT, usageFailure } from "./failure.ts";
import type { LetterFilter, LetterSource, ListedLetter } from "./letter-source.ts";
import { tell } from "./tell.ts";
import { countOf, createPaint, formatTable, printable } from "./terminal.ts";

const ACTIONS = ["list", "replay", "discard"] as const;
type Action = (typeof ACTIONS)[number];

const LISTED = { min: 1, max: 100_000, fallback: 100 };
const OUTBOX = "outbox:";

/** The options that belong to some actions only. */
const OPTIONS_OF: Readonly<Record<string, readonly Action[]>> = {
  max: ["list"],
  all: ["replay", "discard"],
  to: ["replay"],
  yes: ["discard"],
};
/** The options that belong to one kind of source only. */
const OPTIONS_OF_STREAM = ["to", "url", "header"];
const OPTIONS_OF_OUTBOX = ["relay", "schema", "key"];

async function runDeadLetters(invocation: Invocation, context: Context): Promise<number> {
  const [word = "", argument = "", ...ids] = invocation.positionals;
  const action = ACTIONS.find((one) => one === word);
  if (action === undefined) {
    throw usageFailure(`unknown action ${quote(word)} of dead-letters`, [
      `actions: ${ACTIONS.join(", ")}`,
    ]);
  }
  checkWords(invocation, action, argument.startsWith(OUTBOX), ids);
  const source = await openSource(invocation, context, argument);
  try {
    const filter = filterOf(invocation, ids);
    if (action === "list") await list(invocation, context, source, filter);
    else if (action === "replay") await replay(invocation, context, source, filter);
    else await discard(invocation, context, source, filter);
    return EXIT.done;
  } catch (error) {
    throw source.failureOf(error, action);
  } finally {
    await source.close();
  }
}

async function openSource(
  invocation: Invocation,
  context: Context,
  argument: string,
): Promise<LetterSource> {
  if (!argument.startsWith(OUTBOX)) {
    // Loaded here alone: every other command starts a quarter faster without pipelines.
    const { lettersOfStream } = await import("./letters-of-stream.ts");
    return lettersOfStream(invocation, context, argument);
  }
  const database = argument.slice(OUTBOX.length) || (context.env["HAPAX_DATABASE"] ?? "");
  if (database === "") {
    throw usageFailure("outbox: needs a database behind it, or HAPAX_DATABASE", [
      "it is a URL such as outbox:postgres://user@host/name, or the path of a SQLite file",
    ]);
  }
  // Loaded only here: every other command starts faster without them.
  const { databaseFailure } = await import("./outbox-database.ts");
  const { lettersOfOutbox } = await import("./letters-of-outbox.ts");
  const [schema, relay] = [invocation.value("schema"), invocation.value("relay")];
  try {
    return await lettersOfOutbox(database, { schema, relay });
  } catch (error) {
    throw databaseFailure(error);
  }
}

function checkWords(
  invocation: Invocation,
  action: Action,
  isOutbox: boolean,
  ids: readonly string[],
): void {
  for (const [option, actions] of Object.entries(OPTIONS_OF)) {
    if (invocation.has(option) && !actions.includes(action)) {
      throw usageFailure(`--${option} is for dead-letters ${actions.join(", ")}`);
    }
  }
  for (const option of isOutbox ? OPTIONS_OF_STREAM : OPTIONS_OF_OUTBOX) {
    if (invocation.has(option)) {
      const kind = isOutbox ? "a stream" : "an outbox: dead-letters <action> outbox:<database>";
      throw usageFailure(`--${option} is for the dead letters of ${kind}`);
    }
  }
  const isNamed = ids.length > 0 || invocation.has("key") || invocation.has("fingerprint");
  if (isNamed && invocation.has("all")) {
    throw usageFailure("--all and ids, --key or --fingerprint exclude each other");
  }
  if (action !== "list" && !isNamed && !invocation.has("all")) {
    throw usageFailure(`${action} needs ids, --key, --fingerprint, or --all`, [
      "see: hapax dead-letters list <source>",
    ]);
  }
}

function filterOf(invocation: Invocation, ids: readonly string[]): LetterFilter {
  const [key, fingerprint] = [invocation.value("key"), invocation.value("fingerprint")];
  return {
    ...(ids.length === 0 ? {} : { ids }),
    ...(key === undefined ? {} : { key }),
    ...(fingerprint === undefined ? {} : { fingerprint }),
  };
}

async function list(
  invocation: Invocation,
  context: Context,
  source: LetterSource,
  filter: LetterFilter,
): Promise<void> {
  const max = parseCountOption("max", invocation.value("max"), LISTED);
  const found = await source.list(filter, max);
  if (invocation.has("json")) {
    for (const letter of found) await context.stdout.write(`${lineOf(letter)}\n`);
    return;
  }
  if (found.length === 0) {
    await context.stderr.write(`no dead letters of ${printable(source.label)}\n`);
    return;
  }
  const rows = found.map(({ id, from, key, attempts, at, reason }) => [
    id,
    from,
    key ?? "",
    String(attempts),
    at,
    reason?.fingerprint ?? "",
    reason?.message ?? "",
  ]);
  const header = ["ID", "FROM", "KEY", "ATTEMPTS", "AT", "FINGERPRINT", "REASON"];
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  if (found.length === max) {
    await context.stderr.write(`the first ${countOf(max, "dead letter")}; --max shows more\n`);
  }
}

function lineOf({ facts, content, ...common }: ListedLetter): string {
  return `${JSON.stringify({ ...common, ...facts }).slice(0, -1)},${content}}`;
}

async function replay(
  invocation: Invocation,
  context: Context,
  source: LetterSource,
  filter: LetterFilter,
): Promise<void> {
  const count = await source.replay(filter);
  const text = `${countOf(count, "dead letter")} of ${source.label}`;
  await tell(invocation, context, { source: source.label, replayed: count }, "replayed", text);
}

async function discard(
  invocation: Invocation,
  context: Context,
  source: LetterSource,
  filter: LetterFilter,
): Promise<void> {
  // What was asked about is what is discarded: not what came meanwhile.
  const found = await source.list(filter, LISTED.max);
  const question = `Discard ${countOf(found.length, "dead letter")} of ${source.label}?`;
  if (found.length > 0) {
    await confirm(invocation, context, `${question}\n${source.warning}`, "discarded");
  }
  const count = await source.discard(found.map(({ id }) => id));
  const text = `${countOf(count, "dead letter")} of ${source.label}`;
  await tell(invocation, context, { source: source.label, discarded: count }, "discarded", text);
}

export const deadLettersCommand: Command = {
  name: "dead-letters",
  summary: "list, replay or discard what pipelines and relays have given up",
  usage: [
    "hapax dead-letters list <source> [<id>...] [options]",
    "hapax dead-letters replay <source> <id>... | --key <key> | --fingerprint <f> | --all",
    "hapax dead-letters discard <source> <id>... | --key <key> | --fingerprint <f> | --all",
  ],
  positionalsMin: 2,
  positionalsMax: Number.POSITIVE_INFINITY,
  options: [
    { name: "all", help: "replay, discard: all letters of the source" },
    {
      name: "fingerprint",
      value: "fingerprint",
      help: "only letters that failed for this reason, as `list` shows it",
    },
    { name: "key", value: "key", help: "for an outbox: events of this key" },
    { name: "max", value: "count", help: "list: show at most this many (default 100)" },
    { name: "to", value: "stream", help: "replay from a stream: append to this stream instead" },
    { name: "relay", value: "name", help: "for an outbox: the relay (default relay)" },
    {
      name: "schema",
      value: "name",
      help: "for an outbox in PostgreSQL: the schema that has the tables",
    },
    { name: "yes", short: "y", help: "discard: do not ask" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "<source> is one of:",
    "  <stream>             the stream in which a pipeline puts its dead letters",
    "  outbox:<database>    the events that a relay has given up, in postgres://… or the path of a SQLite file;",
    "                       outbox: alone takes the database from HAPAX_DATABASE",
    "",
    "For a stream, replay appends the record again at the end of its stream and marks the letter as handled. Both happen",
    "once, however often you run the command. Discard only marks the letter.",
    "",
    "For an outbox, replay lets the relay try the event again, in the order of its key. Discard deletes the event, and the",
    "later events of its key go on. The command opens the database with the driver in your working directory.",
    "",
    "Pipelines and relays may run meanwhile.",
  ],
  examples: [
    ["what went wrong?", "hapax dead-letters list billing-dead"],
    ["after you have fixed the cause", "hapax dead-letters replay billing-dead --all"],
    ["look at them elsewhere", "hapax dead-letters replay billing-dead --all --to orders-to-check"],
    ["events of a relay", "hapax dead-letters list outbox:postgres://localhost/shop"],
    ["this one will never work", "hapax dead-letters discard outbox:shop.db 4711"],
  ],
  run: runDeadLetters,
};
