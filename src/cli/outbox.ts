/** `hapax outbox`: how far relays are, and forgetting them. Their dead letters: dead-letters.ts. */

import type { DeadLetterGroup } from "../base/dead-letter.ts";
import type { Ledger } from "../toolkit/ledgers/ledger.ts";
import { createDeadLetters } from "../toolkit/outbox/dead-letters.ts";
import { forgetRelay } from "../toolkit/outbox/forgetting.ts";
import { acceptRestore } from "../toolkit/outbox/target.ts";
import { DEFAULT_RELAY, parseState, relayPlace } from "../toolkit/outbox/relay-state.ts";
import { quote } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import { confirm } from "./confirm.ts";
import type { Context } from "./context.ts";
import { EXIT, usageFailure } from "./failure.ts";
import type { OutboxDatabase } from "./outbox-database.ts";
import { tell } from "./tell.ts";
import { countOf, createPaint, formatTable } from "./terminal.ts";

/** Held events are counted up to here. */
const COUNTED_MAX = 10_000;

const ACTIONS = { status, forget, "accept-restore": acceptRestored } as const;
type ActionName = keyof typeof ACTIONS;

/** The options that belong to some actions only. */
const OPTIONS_OF: Readonly<Record<string, readonly ActionName[]>> = {
  yes: ["forget", "accept-restore"],
  "discard-held": ["forget"],
};

interface Work {
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
  const options = { directory: process.cwd(), schema: invocation.value("schema") };
  // Loaded only here: every other command starts faster without it.
  const { databaseFailure, openOutboxDatabase } = await import("./outbox-database.ts");
  try {
    const database = await openOutboxDatabase(text, options);
    try {
      return await ACTIONS[action]({ invocation, context, database });
    } finally {
      await database.close();
    }
  } catch (error) {
    throw databaseFailure(error);
  }
}

function checkWords(invocation: Invocation, word: string): ActionName {
  const names = Object.keys(ACTIONS) as ActionName[];
  const action = names.find((name) => name === word);
  if (action === undefined) {
    throw usageFailure(`outbox does not know ${quote(word)}`, [
      `what it does: ${names.join(", ")}`,
      "dead letters of an outbox: hapax dead-letters list outbox:<database>",
    ]);
  }
  for (const [option, actions] of Object.entries(OPTIONS_OF)) {
    if (invocation.has(option) && !actions.includes(action)) {
      throw usageFailure(`--${option} is for outbox ${actions.join(", ")}`);
    }
  }
  if (action !== "status" && !invocation.has("relay")) {
    throw usageFailure(`outbox ${action} needs --relay`, ["see: hapax outbox status"]);
  }
  return action;
}

function relayOf(invocation: Invocation): string {
  return invocation.value("relay") ?? DEFAULT_RELAY;
}

async function forget({ invocation, context, database }: Work): Promise<number> {
  const relay = relayOf(invocation);
  const discardsHeld = invocation.has("discard-held");
  const held = await database.ledger.outbox.held.count({ relay, max: COUNTED_MAX });
  const events = `${counted(held)} held ${held === 1 ? "event" : "events"}`;
  const question = `Forget relay ${relay}? What it has not published, it never will.
It has ${events}: ${discardsHeld ? "thrown away" : "kept"}. This cannot be undone.`;
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

async function acceptRestored({ invocation, context, database }: Work): Promise<number> {
  const relay = relayOf(invocation);
  const question = `Let relay ${relay} go on at a restored server? What it has published since the backup, that server lacks for good.`;
  await confirm(invocation, context, question, "accepted");
  const known = await acceptRestore(database.ledger, relay);
  const rest =
    known === undefined
      ? `relay ${relay}: it knew no server, so there was nothing to accept`
      : `relay ${relay} knew incarnation ${known}, and takes the server as it is when it starts`;
  await tell(invocation, context, { relay, known }, "accepted", rest);
  return EXIT.done;
}

interface RelayStatus {
  readonly relay: string;
  readonly waiting: number;
  readonly dead: number;
  readonly lagSeconds: number | undefined;
  readonly slotBytes: number | undefined;
  readonly reasons: readonly DeadLetterGroup[];
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
  const reasons = all.flatMap(({ relay, reasons: groups }) =>
    groups.map(({ fingerprint, count, message }) => [relay, fingerprint, String(count), message]),
  );
  if (reasons.length === 0) return EXIT.done;
  const table = formatTable(["RELAY", "FINGERPRINT", "DEAD", "REASON"], reasons, paint);
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
    outbox.held.count({ relay, state, max: COUNTED_MAX });
  const { outbox: own } = await database.ledgerAt(relay, position);
  const lag = position === undefined ? undefined : await own.lag(position);
  return {
    relay,
    lagSeconds: lag === undefined ? undefined : lag.oldestMs / 1000,
    slotBytes: lag?.slotBytes,
    waiting: await count("waiting"),
    dead: await count("dead"),
    reasons: await createDeadLetters(database.ledger, { relay }).groups(),
  };
}

function counted(count: number): string {
  return count < COUNTED_MAX ? String(count) : `${String(COUNTED_MAX)} or more`;
}

export const outboxCommand: Command = {
  name: "outbox",
  summary: "show how far relays are, forget one, and let one go on after a restore",
  usage: [
    "hapax outbox status --database <database> [options]",
    "hapax outbox forget --database <database> --relay <name> [--discard-held]",
    "hapax outbox accept-restore --database <database> --relay <name>",
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
    {
      name: "discard-held",
      help: "forget: throw away its held events, dead letters too",
    },
    { name: "yes", short: "y", help: "forget, accept-restore: do not ask" },
  ],
  details: [
    "--database is the database of your application. The command opens it with a driver in your working directory: pg or",
    "postgres for PostgreSQL; node:sqlite, better-sqlite3, libsql or bun:sqlite for SQLite.",
    "",
    "Held events wait behind an event that failed. Events that a relay has given up are dead letters (see hapax help",
    "dead-letters).",
    "",
    "An event is deleted when every known relay has passed it. So forget a relay that will not run again. This also drops",
    "its replication slot, if it has one.",
    "",
    "A relay stops with server_restored at a server that was restored from a backup: the server lacks what the relay has published",
    "since. accept-restore lets it go on behind that. To publish again what the outbox still has, forget the relay, and start it with",
    'from: "beginning".',
  ],
  examples: [
    ["how far are they?", "hapax outbox status --database postgres://localhost/shop"],
    ["it will not run again", "hapax outbox forget --database shop.db --relay to-the-old-broker"],
  ],
  run: runOutbox,
};
