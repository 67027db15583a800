/** What the cases of the outbox share: a target, relays, and how to go through spans and batches. */

import { strict as assert } from "node:assert";
import type { Ledger } from "../toolkit/ledgers/ledger.ts";
import type {
  HeldEvent,
  NewOutboxEvent,
  OutboxBatch,
  OutboxEvent,
  OutboxLog,
  OutboxRows,
  OutboxSpans,
  OutboxWay,
} from "../toolkit/outbox/log.ts";

/** Gives the cases access to a database. You implement it for your outbox. */
export interface OutboxTarget<Tx> {
  /** Opens a ledger over the same database, as another process would. Its tables exist. */
  open(): Promise<Ledger<Tx>>;
}

/**
 * One case of the contract of outboxes. `run` throws if the outbox breaks the contract. It returns the reason if the
 * case does not apply.
 */
export interface OutboxCase {
  readonly title: string;
  /** The ways of the outboxes that it is for. */
  readonly ways: readonly OutboxWay[];
  readonly run: <Tx>(target: OutboxTarget<Tx>) => Promise<string | undefined>;
}

/** The ways that have positions, the one that has none, and all of them. */
export const LOG_WAYS: readonly OutboxWay[] = ["log", "decoding", "messages"];
export const ROW_WAYS: readonly OutboxWay[] = ["rows"];
export const ALL_WAYS: readonly OutboxWay[] = [...LOG_WAYS, ...ROW_WAYS];

/** Few names: a relay may cost the database something that stays. */
export const RELAY = "conformance-a";
export const OTHER_RELAY = "conformance-b";
export const LEASE_MS = 30_000;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Makes an event whose payload is a text. */
export function textEvent(text: string, key?: string): NewOutboxEvent {
  const payload = encoder.encode(text);
  return key === undefined ? { topic: "t", payload } : { topic: "t", key, payload };
}

export function payloadTexts(events: readonly OutboxEvent[]): readonly string[] {
  return events.map(({ payload }) => decoder.decode(payload));
}

/** Adds events in a transaction of their own. */
export function add<Tx>(
  ledger: Ledger<Tx>,
  ...events: readonly NewOutboxEvent[]
): Promise<readonly string[]> {
  return ledger.transaction((tx) => ledger.in(tx).outbox.add(tx, events));
}

export function spansOf<Tx>({ outbox }: Ledger<Tx>): OutboxSpans {
  assert.ok(outbox.way !== "rows");
  return outbox.spans;
}

export function rowsOf<Tx>({ outbox }: Ledger<Tx>): OutboxRows {
  assert.ok(outbox.way === "rows");
  return outbox.rows;
}

/** Opens a ledger without held events and, for rows, without rows. */
export async function openFresh<Tx>(target: OutboxTarget<Tx>): Promise<Ledger<Tx>> {
  const ledger = await target.open();
  await clearHeld(ledger);
  if (ledger.outbox.way === "rows") await takeAll(ledger, ledger.outbox.rows);
  return ledger;
}

async function clearHeld<Tx>(ledger: Ledger<Tx>): Promise<void> {
  for (const relay of [RELAY, OTHER_RELAY]) {
    const held = await ledger.outbox.held.list({ relay, max: 10_000 });
    const ids = held.map(({ event }) => event.id);
    await ledger.transaction((tx) => ledger.in(tx).outbox.held.change(relay, [], ids));
  }
}

/** Goes through all spans from a position on, at most `max` events each. */
export async function follow(
  log: OutboxSpans,
  from: string,
  max: number,
): Promise<{ readonly to: string; readonly pages: readonly (readonly OutboxEvent[])[] }> {
  const pages: (readonly OutboxEvent[])[] = [];
  let at = from;
  // A span may be empty, for instance if it has only events of others. But not all spans may be empty.
  for (let empty = 0; empty < 100;) {
    const span = await log.plan(at, max);
    if (span === undefined) return { to: at, pages };
    assert.equal(span.from, at);
    const page = await log.read(span);
    empty = page.length === 0 ? empty + 1 : 0;
    if (page.length > 0) pages.push(page);
    at = span.to;
  }
  throw new Error("OL3 spans without events do not end");
}

/** Claims and settles until there is nothing. Returns the batches. */
export async function takeAll<Tx>(
  ledger: Ledger<Tx>,
  rows: OutboxRows,
  max = 100,
): Promise<readonly OutboxBatch[]> {
  const batches: OutboxBatch[] = [];
  for (;;) {
    const batch = await rows.claim(RELAY, max, LEASE_MS, "block");
    if (batch === undefined) return batches;
    batches.push(batch);
    assert.equal(await settleBatch(ledger, batch, idsOf(batch.events)), true);
  }
}

export function settleBatch<Tx>(
  ledger: Ledger<Tx>,
  batch: OutboxBatch,
  done: readonly string[],
): Promise<boolean> {
  return ledger.transaction((tx) => rowsOf(ledger.in(tx)).settle(batch, done));
}

export function idsOf(events: readonly OutboxEvent[]): readonly string[] {
  return events.map(({ id }) => id);
}

/** Reads everything that is there now: from an earlier position, or by claiming it. */
export async function readAllEvents<Tx>(
  ledger: Ledger<Tx>,
  from: string | undefined,
): Promise<readonly OutboxEvent[]> {
  const { outbox } = ledger;
  if (outbox.way === "rows") {
    return (await takeAll(ledger, outbox.rows)).flatMap(({ events }) => events);
  }
  assert.notEqual(from, undefined);
  return (await follow(outbox.spans, from ?? "", 100)).pages.flat();
}

/** Returns a position to read on from later. Undefined for rows. */
export async function mark<Tx>(outbox: OutboxLog<Tx>): Promise<string | undefined> {
  return outbox.way === "rows" ? undefined : await outbox.spans.start("end", RELAY);
}

export function heldOf(event: OutboxEvent, facts: Partial<HeldEvent> = {}): HeldEvent {
  return {
    relay: RELAY,
    event,
    state: "waiting",
    attempts: 1,
    dueInMs: 0,
    reason: { fingerprint: "f", message: "it broke" },
    ...facts,
  };
}

/** Returns the reason if a ledger cannot have two transactions at once. */
export function whyNotTwo<Tx>({ supports }: Ledger<Tx>): string | undefined {
  return supports.isExclusive ? "one transaction at a time: none can commit late" : undefined;
}

/** Returns a promise and the function that fulfils it. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
