/** `hapax producers`: who has written to a stream, a new id, and the reset of one. PROTOCOL.md §12.4, §12.5. */

import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { send, sendAct } from "./http.ts";
import { checkProducerOption } from "./identity.ts";
import { type ListEntry, extensionRefusal, jsonLines, readEntry, readPages } from "./listing.ts";
import { resolvePath, resolveRoute, type Target } from "./target.ts";
import { countOf, createPaint, formatTable, printable } from "./terminal.ts";

const PRODUCERS_PATH = "/_hapax/producers";

async function runProducers(invocation: Invocation, context: Context): Promise<number> {
  const stream = invocation.positionals[0];
  const id = invocation.value("reset");
  if (invocation.has("new")) {
    if (stream !== undefined || id !== undefined) {
      throw usageFailure("--new takes no stream and no --reset: an id is not bound to a stream");
    }
    return assign(invocation, context);
  }
  if (stream === undefined) {
    throw usageFailure("producers needs <stream>", ["usage: hapax producers <stream> [options]"]);
  }
  if (id === undefined) return list(invocation, context, stream);
  return reset(invocation, context, stream, checkProducerOption("reset", id));
}

async function assign(invocation: Invocation, context: Context): Promise<number> {
  const target = resolvePath(invocation, context, PRODUCERS_PATH);
  const answer = await send(context, { target, method: "POST" });
  if (answer.status !== 201) throw extensionRefusal(target, answer);
  const entry = readEntry(target, answer);
  const line = invocation.has("json") ? JSON.stringify(entry.raw) : entry.text("producerId");
  await context.stdout.write(`${printable(line)}\n`);
  return EXIT.done;
}

async function list(invocation: Invocation, context: Context, argument: string): Promise<number> {
  const { target, stream } = resolveRoute(invocation, context, argument, PRODUCERS_PATH);
  const producers: ListEntry[] = [];
  for await (const page of readPages(context, target, "producers", { stream })) {
    if (invocation.has("json")) await context.stdout.write(jsonLines(page));
    else producers.push(...page);
  }
  if (!invocation.has("json")) await print(context, target, producers);
  return EXIT.done;
}

async function print(
  context: Context,
  target: Target,
  producers: readonly ListEntry[],
): Promise<void> {
  if (producers.length === 0) {
    await context.stderr.write(`no producers in ${printable(target.label)}\n`);
    return;
  }
  const rows = producers.map((producer) => [
    producer.text("producerId"),
    String(producer.number("epoch") ?? ""),
    String(producer.number("seq") ?? ""),
    producer.text("nextOffset"),
    producer.isTrue("session") ? "yes" : "no",
  ]);
  const header = ["PRODUCER", "EPOCH", "LAST SEQUENCE", "NEXT OFFSET", "SESSION"];
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  if (context.stderr.isTerminal) {
    await context.stderr.write(`${countOf(producers.length, "producer")}\n`);
  }
}

async function reset(
  invocation: Invocation,
  context: Context,
  argument: string,
  id: string,
): Promise<number> {
  // Every URL parser takes such a segment for a step up, also in its encoded form.
  if (id === "." || id === "..") throw usageFailure(`--reset is ${id}: no URL can name that id`);
  const route = `${PRODUCERS_PATH}/${encodeURIComponent(id)}`;
  const { target, stream } = resolveRoute(invocation, context, argument, route);
  const what = `producer ${id} of ${target.label}`;
  // A script has decided already; a person at a terminal may not know the rule.
  if (context.stdin.isTerminal && context.stderr.isTerminal && !invocation.has("yes")) {
    const question = `Reset ${what}?\n${RESET_RULE.join("\n")}\nGo on? [y/N] `;
    const answer = (await context.ask(printable(question))).trim().toLowerCase();
    if (answer !== "y" && answer !== "yes") throw new CommandFailure(EXIT.refused, "not reset");
  }
  const answer = await sendAct(context, { target, method: "DELETE", query: { stream } });
  if (answer.status !== 200 && answer.status !== 204) throw extensionRefusal(target, answer);
  const paint = createPaint(context.stdout, context.env);
  const line = invocation.has("json")
    ? JSON.stringify({ path: target.label, producerId: id, reset: true })
    : `${paint("green", "reset")} ${printable(what)}; its next append has sequence 0`;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}

const RESET_RULE = [
  "The stream forgets the epoch and the last sequence of the producer; its data stays. Then the stream accepts an",
  "append with sequence 0 under any epoch. It cannot tell a late copy of an old append with sequence 0 from a new",
  "one. So reset a producer only when none of its old writers runs.",
];

export const producersCommand: Command = {
  name: "producers",
  summary: "list the producers of a stream, reset one, or get a new id",
  usage: [
    "hapax producers <stream> [options]",
    "hapax producers <stream> --reset <id> [options]",
    "hapax producers --new [options]",
  ],
  positionalsMin: 0,
  positionalsMax: 1,
  options: [
    { name: "reset", value: "id", help: "forget the epoch and the sequence of this producer" },
    { name: "yes", short: "y", help: "with --reset: do not ask" },
    { name: "new", help: "print a new random id; the server stores nothing" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Reset a producer that is stuck, for instance at the highest epoch. The command asks first at a terminal, and",
    "the server writes the reset to its audit log.",
    "",
    ...RESET_RULE,
  ],
  examples: [
    ["who has written?", "hapax producers orders"],
    ["as JSON, one producer a line", "hapax producers orders --json"],
    ["start again from sequence 0", "hapax producers orders --reset import-7"],
    ["an id for a new writer", "hapax producers --new"],
  ],
  run: runProducers,
};
