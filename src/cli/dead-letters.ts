/** `hapax dead-letters`: lists, replays or discards the records that pipelines could not process. */

import { HapaxError, helpOf } from "../base/errors.ts";
import { connectServer } from "../client/processing.ts";
import { type DeadLetter, DeadLetters, type Handled } from "../client/processing/dead-letter.ts";
import { quote } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { resolveRoute, streamPath } from "./target.ts";
import { countOf, createPaint, formatTable, printable } from "./terminal.ts";

/** A person waits: longer than a short absence is not worth it. */
const RETRY_MS = 10_000;

const ACTIONS = ["list", "replay", "discard"] as const;
type Action = (typeof ACTIONS)[number];

async function runDeadLetters(invocation: Invocation, context: Context): Promise<number> {
  const [word = "", argument = "", ...ids] = invocation.positionals;
  const action = ACTIONS.find((one) => one === word);
  if (action === undefined) {
    throw usageFailure(`unknown action ${quote(word)} of dead-letters`, [
      `actions: ${ACTIONS.join(", ")}`,
    ]);
  }
  checkWords(invocation, action, ids);
  const { target, stream } = resolveRoute(invocation, context, argument, "");
  const hapax = connectServer(target.url, {
    headers: Object.fromEntries(target.headers),
    fetch: context.fetch,
    random: context.random,
    retry: { totalMs: RETRY_MS },
  });
  const letters = new DeadLetters(hapax, stream);
  try {
    const pending = await letters.pending();
    if (action === "list") {
      await list(invocation, context, stream, pending);
    } else {
      const chosen = invocation.has("all") ? pending.map(({ id }) => id) : ids;
      await handle(invocation, context, letters, action, chosen);
    }
    return EXIT.done;
  } catch (error) {
    throw error instanceof HapaxError ? failureOf(error, target.label, action) : error;
  }
}

function checkWords(invocation: Invocation, action: Action, ids: readonly string[]): void {
  const isAll = invocation.has("all");
  if (action === "list" && (ids.length > 0 || isAll)) {
    throw usageFailure("list shows all pending letters: it takes no id and no --all");
  }
  if (action !== "list" && ids.length === 0 && !isAll) {
    throw usageFailure(`${action} needs ids, or --all`, ["see: hapax dead-letters list <stream>"]);
  }
  if (ids.length > 0 && isAll) throw usageFailure("--all and ids exclude each other");
  const to = invocation.value("to");
  if (to === undefined) return;
  if (action !== "replay") throw usageFailure("--to is for replay");
  if (/^https?:\/\//i.test(to)) {
    throw usageFailure("--to is a stream of the same server: a name or a path");
  }
}

async function list(
  invocation: Invocation,
  context: Context,
  stream: string,
  pending: readonly DeadLetter[],
): Promise<void> {
  if (invocation.has("json")) {
    for (const letter of pending) await context.stdout.write(`${lineOf(letter)}\n`);
    return;
  }
  if (pending.length === 0) {
    await context.stderr.write(`no dead letters in ${printable(stream)}\n`);
    return;
  }
  const rows = pending.map(({ id, attempts, at, error }) => [
    id,
    String(attempts),
    at,
    `${error.name}: ${error.message}`,
  ]);
  const paint = createPaint(context.stdout, context.env);
  await context.stdout.write(formatTable(["ID", "ATTEMPTS", "AT", "ERROR"], rows, paint));
  if (context.stderr.isTerminal) {
    await context.stderr.write(`${countOf(pending.length, "dead letter")}\n`);
  }
}

/** As it is stored: JSON with every digit, bytes in base64. */
function lineOf({ record, recordText, ...letter }: DeadLetter): string {
  if (recordText !== undefined)
    return `${JSON.stringify(letter).slice(0, -1)},"record":${recordText}}`;
  if (!(record instanceof Uint8Array)) return JSON.stringify(letter);
  return JSON.stringify({ ...letter, base64: Buffer.from(record).toString("base64") });
}

async function handle(
  invocation: Invocation,
  context: Context,
  letters: DeadLetters,
  action: "replay" | "discard",
  ids: readonly string[],
): Promise<void> {
  const given = invocation.value("to");
  const to = given === undefined ? undefined : streamPath(given);
  const paint = createPaint(context.stdout, context.env);
  for (const id of ids) {
    const handled: Handled =
      action === "replay" ? await letters.replay(id, to) : await letters.discard(id);
    const words = handled === "not_pending" ? "not pending" : paint("green", handled);
    const line = invocation.has("json")
      ? JSON.stringify({ id, handled })
      : `${words} ${printable(id)}`;
    await context.stdout.write(`${line}\n`);
  }
}

function failureOf(error: HapaxError, label: string, action: Action): CommandFailure {
  const { code, status, message } = error;
  const isMissing = code === "stream_not_found" || code === "stream_gone";
  const isUnknown = "outcome" in error && error.outcome === "unknown";
  const exitCode = isMissing
    ? EXIT.notFound
    : code === "unreachable"
      ? EXIT.unreachable
      : EXIT.refused;
  const advice = isUnknown
    ? [`it is not known whether it was done; it is safe to run the same ${action} again`]
    : [];
  const problem = { status, code, detail: message, help: helpOf(error) };
  const words = `${label}: ${printable(message)} (${String(status)} ${code})`;
  return new CommandFailure(exitCode, words, advice, problem, { cause: error });
}

export const deadLettersCommand: Command = {
  name: "dead-letters",
  summary: "list, replay or discard the records that pipelines could not process",
  usage: [
    "hapax dead-letters list <stream> [options]",
    "hapax dead-letters replay <stream> <id>... [options]",
    "hapax dead-letters discard <stream> <id>... [options]",
  ],
  positionalsMin: 2,
  positionalsMax: Number.POSITIVE_INFINITY,
  options: [
    { name: "all", help: "with replay and discard: all pending letters" },
    {
      name: "to",
      value: "stream",
      help: "with replay: append to this stream instead of the original one",
    },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "<stream> is the stream of dead letters of a pipeline. A replay appends the record again at the end of its",
    "stream, and marks the letter in <stream> as handled: both or neither, and once, even if you run the command",
    "several times. A discard only marks the letter. Neither removes anything from a stream.",
  ],
  examples: [
    ["what went wrong?", "hapax dead-letters list billing-dead"],
    ["after you have fixed the cause", "hapax dead-letters replay billing-dead --all"],
    ["look at them elsewhere", "hapax dead-letters replay billing-dead --all --to orders-to-check"],
  ],
  run: runDeadLetters,
};
