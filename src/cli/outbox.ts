/** `hapax outbox`: how far relays are, and what becomes of the events that they have given up. */

import { HapaxError } from "../base/errors.ts";
import type { Ledger } from "../toolkit/ledgers/ledger.ts";
import {
  createDeadLetters,
  type DeadLetterFilter,
  type DeadLetterGroup,
  type OutboxDeadLetter,
} from "../toolkit/outbox/dead-letters.ts";
import { forgetRelay } from "../toolkit/outbox/forgetting.ts";
import { parseState, relayPlace } from "../toolkit/outbox/relay-state.ts";
import { parseCount, quote } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, systemCode, usageFailure } from "./failure.ts";
import type { OutboxDatabase } from "./outbox-database.ts";
import { tell } from "./tell.ts";
import { countOf, createPaint, formatTable, printable } from "./terminal.ts";

const DEFAULT_RELAY = "relay";
const LISTED = { min: 1, max: 100_000, fallback: 100 };
/** Held events are counted up to here. */
const COUNTED_MAX = 10_000;

const ACTIONS = { list, replay: change, discard: change, status, forget } as const;
type ActionName = keyof typeof ACTIONS;

/** The options that belong to some actions only. */
const OPTIONS_OF: Readonly<Record<string, readonly ActionName[]>> = {
  id: ["list", "replay", "discard"],
  key: ["list", "replay", "discard"],
  fingerprint: ["list", "replay", "discard"],
  max: ["list"],
  all: ["replay", "discard"],
  yes: ["discard", "forget"],
  "discard-held": ["forget"],
};

interface Work {
  readonly action: ActionName;
  readonly invocation: Invocation;
  readonly context: Context;
  readonly database: OutboxDatabase;
}

async function runOutbox(invocation: Invocation, context: Context): Promise<number> {
  const [word = ""] = invocation.positionals;
  const action = checkWords(invocation, word);
  const text = invocation.value("database") ?? context.env["HAPAX_DATABASE"];
  if (text === undefined || text === "") {
    throw usageFailure("outbox needs --database", [
      "--database is a URL such as postgres://user@host/name, or the path of a SQLite file",
    ]);
  }
  const settings = { directory: process.cwd(), schema: invocation.value("schema") };
  try {
    // Loaded only here: every other command starts faster without it.
    const { openOutboxDatabase } = await import("./outbox-database.ts");
    const database = await openOutboxDatabase(text, settings);
    try {
      return await ACTIONS[action]({ action, invocation, context, database });
    } finally {
      await database.close();
    }
  } catch (error) {
    throw failureOf(error);
  }
}

function checkWords(invocation: Invocation, word: string): ActionName {
  const names = Object.keys(ACTIONS) as ActionName[];
  const action = names.find((name) => name === word);
  if (action === undefined) {
    throw usageFailure(`unknown action ${quote(word)} of outbox`, [`actions: ${names.join(", ")}`]);
  }
  for (const [option, actions] of Object.entries(OPTIONS_OF)) {
    if (invocation.has(option) && !actions.includes(action)) {
      throw usageFailure(`--${option} is for outbox ${actions.join(", ")}`);
    }
  }
  const isNamed = ["id", "key", "fingerprint"].some((option) => invocation.has(option));
  if (isNamed && invocation.has("all")) {
    throw usageFailure("--all and --id, --key or --fingerprint exclude each other");
  }
  if ((action === "replay" || action === "discard") && !isNamed && !invocation.has("all")) {
    throw usageFailure(`outbox ${action} needs --id, --key, --fingerprint, or --all`, [
      "see: hapax outbox list, hapax outbox status",
    ]);
  }
  if (action === "forget" && !invocation.has("relay")) {
    throw usageFailure("outbox forget needs --relay", ["see: hapax outbox status"]);
  }
  return action;
}

function filterOf(invocation: Invocation): DeadLetterFilter {
  const ids = invocation.values("id");
  const [key, fingerprint] = [invocation.value("key"), invocation.value("fingerprint")];
  return {
    ...(ids.length === 0 ? {} : { ids }),
    ...(key === undefined ? {} : { key }),
    ...(fingerprint === undefined ? {} : { fingerprint }),
  };
}

function relayOf(invocation: Invocation): string {
  return invocation.value("relay") ?? DEFAULT_RELAY;
}

async function list({ invocation, context, database }: Work): Promise<number> {
  const relay = relayOf(invocation);
  const max = parseCount("max", invocation.value("max"), LISTED);
  const letters = createDeadLetters(database.ledger, { relay });
  const found = await letters.list({ ...filterOf(invocation), max });
  if (invocation.has("json")) {
    for (const letter of found) await context.stdout.write(`${lineOf(relay, letter)}\n`);
    return EXIT.done;
  }
  if (found.length === 0) {
    await context.stderr.write(`no dead letters of relay ${printable(relay)}\n`);
    return EXIT.done;
  }
  const rows = found.map(({ event, attempts, failure }) => [
    event.id,
    event.topic,
    event.key ?? "",
    String(attempts),
    timeOf(event.addedAtMs),
    failure?.fingerprint ?? "",
    failure?.message ?? "",
  ]);
  const header = ["ID", "TOPIC", "KEY", "ATTEMPTS", "ADDED", "FINGERPRINT", "ERROR"];
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  if (found.length === max) {
    await context.stderr.write(`the first ${countOf(max, "dead letter")}; --max shows more\n`);
  }
  return EXIT.done;
}

/** With the payload: as text if it is, and otherwise in base64. */
function lineOf(relay: string, { event, attempts, failure }: OutboxDeadLetter): string {
  const { id, topic, key, headers, payload, addedAtMs } = event;
  const facts = { relay, id, topic, key, headers, added: timeOf(addedAtMs), attempts };
  const bytes = Buffer.from(payload);
  const text = bytes.toString("utf8");
  const content = Buffer.from(text).equals(bytes)
    ? { payload: text }
    : { base64: bytes.toString("base64") };
  return JSON.stringify({ ...facts, ...failure, ...content });
}

function timeOf(atMs: number): string {
  return new Date(atMs).toISOString();
}

async function change({ action, invocation, context, database }: Work): Promise<number> {
  const relay = relayOf(invocation);
  const letters = createDeadLetters(database.ledger, { relay });
  if (action === "replay") {
    const count = await letters.replay(filterOf(invocation));
    const text = `${countOf(count, "dead letter")} of relay ${relay}`;
    await tell(invocation, context, { relay, replayed: count }, "replayed", text);
    return EXIT.done;
  }
  // Discards the letters that the question was about, and no later ones.
  const found = await letters.list({ ...filterOf(invocation), max: LISTED.max });
  const question = `Discard ${countOf(found.length, "dead letter")} of relay ${relay}?`;
  const warning = "They will never be published. This cannot be undone.";
  if (found.length > 0) await confirm(invocation, context, `${question}\n${warning}`, "discarded");
  const count = await letters.discard(found.map(({ event }) => event.id));
  const text = `${countOf(count, "dead letter")} of relay ${relay}`;
  await tell(invocation, context, { relay, discarded: count }, "discarded", text);
  return EXIT.done;
}

/** A script has decided already; a person at a terminal may have meant fewer. */
async function confirm(
  invocation: Invocation,
  context: Context,
  question: string,
  what: string,
): Promise<void> {
  if (!context.stdin.isTerminal || !context.stderr.isTerminal || invocation.has("yes")) return;
  const answer = (await context.ask(printable(`${question}\nGo on? [y/N] `))).trim().toLowerCase();
  if (answer !== "y" && answer !== "yes") throw new CommandFailure(EXIT.refused, `not ${what}`);
}

async function forget({ invocation, context, database }: Work): Promise<number> {
  const relay = relayOf(invocation);
  const discardsHeld = invocation.has("discard-held");
  const held = await database.ledger.outbox.countHeld({ relay, max: COUNTED_MAX });
  const events = `${counted(held)} ${held === 1 ? "event that waits" : "events that wait"}`;
  const question = `Forget relay ${relay}? It will never publish what it has not published yet.
It has ${events} behind a failure: ${discardsHeld ? "deleted" : "kept"}. This cannot be undone.`;
  await confirm(invocation, context, question, "forgotten");
  const { position, ...forgotten } = await forgetRelay(database.forgetting, relay, {
    discardsHeld,
  });
  // Last: a slot that is gone before would stop a relay that is still known.
  const slot = await database.dropSlot(relay, position);
  const { isFound, heldKept, heldDiscarded, isUnfinished } = forgotten;
  const notes = [
    isFound ? "" : "; there was none",
    heldKept > 0 ? `; ${countOf(heldKept, "held event")} kept` : "",
    heldDiscarded > 0 ? `; ${countOf(heldDiscarded, "held event")} discarded` : "",
    isUnfinished ? "; a batch was not finished, and may have been published" : "",
    slot === undefined ? "" : `; slot ${slot} dropped`,
  ];
  await tell(
    invocation,
    context,
    { relay, ...forgotten, slot },
    "forgot",
    `relay ${relay}${notes.join("")}`,
  );
  return EXIT.done;
}

interface RelayStatus {
  readonly relay: string;
  readonly waiting: number;
  readonly dead: number;
  readonly lagSeconds: number | undefined;
  readonly slotBytes: number | undefined;
  readonly failures: readonly DeadLetterGroup[];
}

async function status({ invocation, context, database }: Work): Promise<number> {
  const positions = await positionsOf(database.ledger, invocation.value("relay"));
  const all: RelayStatus[] = [];
  for (const [relay, position] of positions) all.push(await statusOf(database, relay, position));
  if (invocation.has("json")) {
    for (const one of all) await context.stdout.write(`${JSON.stringify(one)}\n`);
    return EXIT.done;
  }
  const paint = createPaint(context.stdout, context.env);
  const rows = all.map(({ relay, lagSeconds, slotBytes, waiting, dead }) => [
    relay,
    lagSeconds === undefined ? "" : `${lagSeconds.toFixed(1)} s`,
    counted(waiting),
    counted(dead),
    slotBytes === undefined ? "" : `${(slotBytes / 1e6).toFixed(1)} MB`,
  ]);
  const header = ["RELAY", "LAG", "WAITING", "DEAD", "KEPT BY SLOT"];
  await context.stdout.write(formatTable(header, rows, paint));
  const failures = all.flatMap(({ relay, failures: groups }) =>
    groups.map(({ fingerprint, count, message }) => [relay, fingerprint, String(count), message]),
  );
  if (failures.length === 0) return EXIT.done;
  const table = formatTable(["RELAY", "FINGERPRINT", "DEAD", "ERROR"], failures, paint);
  await context.stdout.write(`\n${table}`);
  return EXIT.done;
}

/** By the entries of relays. Those that take rows have none: then the name has to be given, or is the usual one. */
async function positionsOf(
  { entries }: Ledger<unknown>,
  given: string | undefined,
): Promise<ReadonlyMap<string, string | undefined>> {
  const { kind, scope } = relayPlace("");
  const found = await entries.scan({ kind, scope, max: COUNTED_MAX });
  const positions = new Map(
    found.map(({ place, data }) => [place.key, parseState(data).position] as const),
  );
  if (given !== undefined) return new Map([[given, positions.get(given)]]);
  return positions.size === 0 ? new Map([[DEFAULT_RELAY, undefined]]) : positions;
}

async function statusOf(
  database: OutboxDatabase,
  relay: string,
  position: string | undefined,
): Promise<RelayStatus> {
  const { outbox } = database.ledger;
  const count = (state: "waiting" | "dead"): Promise<number> =>
    outbox.countHeld({ relay, state, max: COUNTED_MAX });
  const { outbox: own } = await database.ledgerAt(relay, position);
  const lag = position === undefined ? undefined : await own.lag(position);
  return {
    relay,
    lagSeconds: lag === undefined ? undefined : lag.oldestMs / 1000,
    slotBytes: lag?.slotBytes,
    waiting: await count("waiting"),
    dead: await count("dead"),
    failures: await createDeadLetters(database.ledger, { relay }).groups(),
  };
}

function counted(count: number): string {
  return count < COUNTED_MAX ? String(count) : `${String(COUNTED_MAX)} or more`;
}

/** What a database or its driver says, by its code: a fault of this program has none, and keeps its stack. */
function failureOf(error: unknown): unknown {
  if (error instanceof CommandFailure || !(error instanceof Error)) return error;
  if (error instanceof HapaxError) {
    const { code, status: httpStatus, message, help } = error;
    const problem = { status: httpStatus, code, detail: message, help };
    const words = `${printable(message)} (${code})`;
    return new CommandFailure(EXIT.refused, words, [help], problem, { cause: error });
  }
  const code = systemCode(error);
  if (code === undefined) return error;
  const isUnreachable = /^(E[A-Z]+|CONNECT.*|08...|57P0.|53300)$/.test(code);
  if (!isUnreachable && !/^[0-9A-Z]{5}$|SQLITE/.test(code)) return error;
  const words = `the database says: ${printable(error.message || code)} (${code})`;
  const exitCode = isUnreachable ? EXIT.unreachable : EXIT.refused;
  return new CommandFailure(exitCode, words, [], { code }, { cause: error });
}

export const outboxCommand: Command = {
  name: "outbox",
  summary:
    "show how far relays are; replay or discard the events that they have given up; forget relays",
  usage: [
    "hapax outbox status --database <database> [options]",
    "hapax outbox list --database <database> [options]",
    "hapax outbox replay --database <database> --id <id> | --key <key> | --fingerprint <f> | --all",
    "hapax outbox discard --database <database> --id <id> | --key <key> | --fingerprint <f> | --all",
    "hapax outbox forget --database <database> --relay <name> [--discard-held]",
  ],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    {
      name: "database",
      value: "database",
      env: "HAPAX_DATABASE",
      help: "postgres://…, or the path of a SQLite file",
    },
    { name: "schema", value: "name", help: "PostgreSQL: where the tables are" },
    { name: "relay", value: "name", help: "the relay (default relay; status: all of them)" },
    { name: "id", value: "id", isRepeatable: true, help: "this event; may be repeated" },
    { name: "key", value: "key", help: "events of this key" },
    { name: "fingerprint", value: "fingerprint", help: "events that failed with this fingerprint" },
    { name: "all", help: "replay, discard: all dead letters of the relay" },
    { name: "max", value: "count", help: "list: show at most this many (default 100)" },
    {
      name: "discard-held",
      help: "forget: delete the events that wait behind a failure, and dead letters",
    },
    { name: "yes", short: "y", help: "discard, forget: do not ask" },
  ],
  details: [
    "The database is that of the application. The command opens it with a driver that is installed in the working",
    "directory: pg or postgres, or node:sqlite, better-sqlite3, libsql or bun:sqlite. A relay gives up an event after",
    "a number of failures; later events of its key wait behind it. A replay lets the relay try again, in the order of",
    "the key. A discard deletes the event, and its key continues. Relays may run at the same time. The outbox deletes",
    "events when every known relay has passed them, so forget a relay that will not run again. This also drops its",
    "replication slot, if it has one.",
  ],
  examples: [
    ["what went wrong?", "hapax outbox status --database postgres://localhost/shop"],
    [
      "after you have fixed the cause",
      "hapax outbox replay --database shop.db --fingerprint 4f6a21c09b7d3e55",
    ],
    ["delete an event that can never succeed", "hapax outbox discard --database shop.db --id 4711"],
  ],
  run: runOutbox,
};
