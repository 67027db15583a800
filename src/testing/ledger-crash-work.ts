/**
 * What a process of the crash suite does: one piece of work with one primitive, until a failpoint ends or stops it.
 * ledger-crashes.ts starts the processes and counts what they leave behind.
 */

import { writeSync } from "node:fs";
import { HapaxError, isHapaxError } from "../base/errors.ts";
import { failpoint, setFailpoint } from "../base/failpoint.ts";
import { createIdempotency, type FetchHandler, type Idempotency } from "../toolkit/idempotency.ts";
import type { Ledger } from "../toolkit/ledgers/ledger.ts";
import { GLOBAL } from "../toolkit/rules/scoped-key.ts";
import { createInbox } from "../toolkit/once/inbox.ts";
import { acquireLease } from "../toolkit/once/lease.ts";
import { processOnce } from "../toolkit/once/process-once.ts";
import type { OnceProbed } from "../toolkit/once/options.ts";
import { createOutbox, createRelay, functionPublisher, type Relay } from "../toolkit/outbox.ts";

/** The user's own data. Each piece must be there once. */
export interface CrashEffects<Tx> {
  /** Adds a row in the transaction. */
  write(tx: Tx, text: string): Promise<void>;
  /** Whether the row is there, seen from the transaction. */
  has(tx: Tx, text: string): Promise<boolean>;
  /** Delivers to a receiver elsewhere, which keeps one text under each key. A repeated delivery changes nothing. */
  deliver(key: string, text: string): Promise<void>;
  /** Whether the receiver has the text. */
  isDelivered(text: string): Promise<boolean>;
}

/** The task of a process, as plain data. The process gets it as JSON. */
export interface CrashTask {
  readonly work: CrashWork;
  /** Names the key, the message, the lease, …: one for each case. */
  readonly id: string;
  readonly leaseMs: number;
  /** How often the work is done, one after the other. */
  readonly times: number;
  readonly halt?: CrashHalt;
}

/** Where the process ends or stops. */
export interface CrashHalt {
  /** The name of a failpoint. */
  readonly at: string;
  /** At which visit of the failpoint, from 1. */
  readonly occurrence: number;
  /** `kill`: SIGKILL, like a crash. `stop`: SIGSTOP, like a machine that stands still. */
  readonly by: "kill" | "stop";
}

/** The lines that a process writes to its standard output. */
export const CRASH_SAYS = {
  stopping: "crash-suite: stopping",
  done: "crash-suite: done",
  /** Followed by a code of `ERRORS`, or the message of another error. */
  failed: "crash-suite: failed ",
} as const;

interface Stage<Tx> {
  readonly ledger: Ledger<Tx>;
  readonly effects: CrashEffects<Tx>;
  readonly task: CrashTask;
  /** Long enough for the lease of a process that is gone. */
  readonly waitMs: number;
}

type Work = <Tx>(stage: Stage<Tx>) => Promise<void>;

async function onceInTransaction<Tx>({ ledger, effects, task, waitMs }: Stage<Tx>): Promise<void> {
  const { id, leaseMs } = task;
  const options = { leaseMs, waitMs };
  await processOnce(
    ledger,
    { scope: GLOBAL, key: id },
    ({ tx }) => effects.write(tx, `${id} row`),
    options,
  );
}

/** The claim is committed before the work, and counts its attempts. */
async function onceClaimedFirst<Tx>({ ledger, effects, task, waitMs }: Stage<Tx>): Promise<void> {
  const { id, leaseMs } = task;
  const options = { leaseMs, waitMs, claimsFirst: true };
  const work = (tx: Tx): Promise<void> => effects.write(tx, `${id} row`);
  await processOnce(ledger, { scope: GLOBAL, key: id }, ({ tx }) => work(tx), options);
}

/** The effect is elsewhere, under a key that is the same in every attempt. */
async function onceRepeatable<Tx>({ ledger, effects, task, waitMs }: Stage<Tx>): Promise<void> {
  const { id, leaseMs } = task;
  const options = { leaseMs, waitMs, effect: "repeatable" } as const;
  await processOnce(
    ledger,
    { scope: GLOBAL, key: id },
    ({ key }) => effects.deliver(key, `${id} letter`),
    options,
  );
}

/** The effect is elsewhere and has no keys: a process that takes over first asks whether it is there. */
async function onceProbed<Tx>({ ledger, effects, task, waitMs }: Stage<Tx>): Promise<void> {
  const { id, leaseMs } = task;
  const text = `${id} row`;
  const options: OnceProbed<void> = {
    leaseMs,
    waitMs,
    effect: "probed",
    reconcile: async () =>
      (await ledger.transaction((tx) => effects.has(tx, text)))
        ? { kind: "done", result: undefined }
        : { kind: "not_done" },
  };
  const work = (): Promise<void> => ledger.transaction((tx) => effects.write(tx, text));
  await processOnce(ledger, { scope: GLOBAL, key: id }, work, options);
}

async function inbox<Tx>({ ledger, effects, task }: Stage<Tx>): Promise<void> {
  const { id } = task;
  const messages = createInbox(ledger, { consumer: "crash-suite", retainMs: 3_600_000 });
  await messages.handle({ scope: "crash-suite", key: id }, (tx) => effects.write(tx, `${id} row`));
}

/** A lease keeps no record, so the work first looks whether it was done. */
async function lease<Tx>({ ledger, effects, task, waitMs }: Stage<Tx>): Promise<void> {
  const { id, leaseMs } = task;
  const text = `${id} row`;
  const held = await acquireLease(ledger, { scope: GLOBAL, key: id }, { leaseMs, waitMs });
  if (held === undefined) throw new Error(`no process releases the lease: ${id}`);
  const isDone = await ledger.transaction((tx) => effects.has(tx, text));
  // A failpoint of the suite: a process that stops here later writes what it must not, and its token must stop it.
  await failpoint("lease.decided");
  await held.transaction(async (tx) => {
    if (!isDone) await effects.write(tx, text);
    await failpoint("lease.wrote");
  });
  await held.release();
}

/** A request with a key; its record and its row are one transaction. */
async function http<Tx>(stage: Stage<Tx>, claimsFirst = false): Promise<void> {
  const { ledger, effects, task } = stage;
  const { id, leaseMs } = task;
  const idempotency = createIdempotency(ledger, { scope: GLOBAL, leaseMs, claimsFirst });
  await request(stage, idempotency, async (_request, { tx }) => {
    await effects.write(tx, `${id} row`);
    return new Response(id, { status: 201 });
  });
}

/** A request in phases: two transactions, and a call to another system between them. */
async function httpInPhases<Tx>(stage: Stage<Tx>): Promise<void> {
  const { ledger, effects, task } = stage;
  const { id, leaseMs } = task;
  const idempotency = createIdempotency(ledger, { scope: GLOBAL, leaseMs, mode: "phases" });
  await request(stage, idempotency, async (_request, context) => {
    await context.phase("order", ({ tx }) => effects.write(tx, `${id} row`));
    await context.phase("send", ({ key }) => effects.deliver(key, `${id} letter`), {
      effect: "call",
    });
    await context.phase("ship", ({ tx }) => effects.write(tx, `${id} second row`));
    return new Response(id, { status: 201 });
  });
}

async function request<Tx>(
  { task, waitMs }: Stage<Tx>,
  idempotency: Idempotency<Tx>,
  handler: FetchHandler<Tx>,
): Promise<void> {
  const headers = { "idempotency-key": `"${task.id}"`, prefer: `wait=${Math.ceil(waitMs / 1000)}` };
  const asked = new Request("http://localhost/orders", { method: "POST", headers, body: task.id });
  // A server has its socket, which keeps its process alive while it waits.
  const alive = setInterval(() => undefined, 1000);
  try {
    const answer = await idempotency.handle(asked, handler);
    const text = await answer.text();
    if (answer.status === 201 && text === task.id) return;
    const isTaken = text.includes("urn:hapax:error:in_progress");
    throw new HapaxError(isTaken ? "in_progress" : "refused", `${answer.status} ${text}`);
  } finally {
    clearInterval(alive);
  }
}

const LETTERS = ["letter", "second letter"];

/** Writes a row and two events in one transaction, and runs a relay that takes them to the receiver. */
async function outbox<Tx>({ ledger, effects, task, waitMs }: Stage<Tx>): Promise<void> {
  const { id, leaseMs } = task;
  const events = createOutbox(ledger);
  const add = async (tx: Tx): Promise<void> => {
    await effects.write(tx, `${id} row`);
    for (const payload of LETTERS) await events.add(tx, { topic: id, key: id, payload });
  };
  await processOnce(ledger, { scope: GLOBAL, key: id }, ({ tx }) => add(tx), { leaseMs, waitMs });
  // The relay of a log gets all events of the database. It ignores those of other cases.
  const publisher = functionPublisher(async ({ topic, payload }, { idempotencyKey }) => {
    const text = `${id} ${new TextDecoder().decode(payload)}`;
    if (topic === id) await effects.deliver(idempotencyKey, text);
  });
  const name = encodeURIComponent(id);
  const relay = createRelay(ledger, publisher, { name, leaseMs, cleanup: false });
  // A process that is gone still has the lease for a while: of the relay, or of its rows.
  const endMs = Date.now() + waitMs;
  while (!(await ranOnce(relay)) || !(await areDelivered(effects, id)) || (await hasRows(ledger))) {
    if (Date.now() > endMs) throw new Error(`the events are not published: ${id}`);
    await new Promise((resolve) => setTimeout(resolve, leaseMs / 10));
  }
}

async function ranOnce<Tx>(relay: Relay<Tx>): Promise<boolean> {
  try {
    await relay.runOnce();
    return true;
  } catch (error) {
    if (isHapaxError(error, "in_progress")) return false;
    throw error;
  }
}

async function areDelivered<Tx>(effects: CrashEffects<Tx>, id: string): Promise<boolean> {
  for (const letter of LETTERS) if (!(await effects.isDelivered(`${id} ${letter}`))) return false;
  return true;
}

/** Whether there are rows that are published and not settled. A process has to take them over. */
async function hasRows<Tx>({ outbox: log }: Ledger<Tx>): Promise<boolean> {
  return log.way === "rows" && (await log.lag(undefined)).oldestMs > 0;
}

const WORKS = {
  once: onceInTransaction,
  "once claimed first": onceClaimedFirst,
  "once repeatable": onceRepeatable,
  "once probed": onceProbed,
  inbox,
  lease,
  http: (stage) => http(stage),
  "http claimed first": (stage) => http(stage, true),
  "http in phases": httpInPhases,
  outbox,
} as const satisfies Record<string, Work>;

/** The name of a piece of work. */
export type CrashWork = keyof typeof WORKS;

/**
 * Does a task in this process, and writes the result to its standard output. Use it in the worker
 * script for your own ledger: open the ledger, call this, close it.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { runCrashTask } from "hapax/testing";
 *
 * const rows: string[] = [];
 * const effects = {
 *   write: async (_tx: unknown, text: string) => void rows.push(text),
 *   has: async (_tx: unknown, text: string) => rows.includes(text),
 *   deliver: async () => undefined,
 *   isDelivered: async () => false,
 * };
 * await runCrashTask(memoryLedger(), effects, { work: "once", id: "a", leaseMs: 1000, times: 2 });
 * console.assert(rows.join() === "a row");
 * ```
 */
export async function runCrashTask<Tx>(
  ledger: Ledger<Tx>,
  effects: CrashEffects<Tx>,
  task: CrashTask,
): Promise<void> {
  if (task.halt !== undefined) setFailpoint(haltOf(task.halt));
  try {
    for (let time = 0; time < task.times; time += 1) {
      await WORKS[task.work]({ ledger, effects, task, waitMs: task.leaseMs * 20 });
    }
    say(CRASH_SAYS.done);
  } catch (error) {
    say(
      CRASH_SAYS.failed + (isHapaxError(error) ? error.code : String(error).replaceAll("\n", " ")),
    );
  } finally {
    setFailpoint(undefined);
  }
}

function haltOf({ at, occurrence, by }: CrashHalt): (name: string) => void {
  let left = occurrence;
  return (name) => {
    if (name !== at) return;
    left -= 1;
    if (left !== 0) return;
    if (by === "kill") {
      process.kill(process.pid, "SIGKILL");
    } else {
      say(CRASH_SAYS.stopping);
      process.kill(process.pid, "SIGSTOP");
    }
  };
}

/** Writes at once: a process that is killed or stopped in the next moment has written it. */
function say(line: string): void {
  writeSync(1, `${line}\n`);
}
