/** The outbox of a ledger in memory: outbox-log.ts in the fewest words. A position is the number of the last event before it. */

import type { Clock } from "../../base/clock.ts";
import type {
  HeldEvent,
  HeldFilter,
  HeldWrite,
  LogOutbox,
  NewOutboxEvent,
  OutboxEvent,
  OutboxSpan,
} from "../outbox/log.ts";
import type { MemoryTransaction } from "./memory-transaction.ts";
import { untilWoken } from "./outbox-hints.ts";

interface NumberedEvent {
  readonly number: number;
  readonly event: OutboxEvent;
}

interface KeptHeld extends Omit<HeldEvent, "dueInMs"> {
  readonly dueAtMs: number;
}

export interface MemoryOutboxState {
  events: readonly NumberedEvent[];
  /** By relay and id, in the order in which they were put first. */
  held: ReadonlyMap<string, KeptHeld>;
  lastNumber: number;
  /** Counts what was added, also by transactions that failed. */
  hints: number;
  readonly waiting: Set<() => void>;
}

export function newOutboxState(): MemoryOutboxState {
  return { events: [], held: new Map(), lastNumber: 0, hints: 0, waiting: new Set() };
}

type Alone = <T>(work: (tx: MemoryTransaction) => T | Promise<T>) => Promise<T>;

export function createMemoryOutbox(
  state: MemoryOutboxState,
  clock: Clock,
  alone: Alone,
): LogOutbox<MemoryTransaction> {
  let hintsSeen = 0;
  return {
    way: "log",
    add: (tx, events) => Promise.resolve(add(state, clock, tx, events)),
    wait: (delayMs, signal) => {
      if (state.hints === hintsSeen) return untilWoken(state.waiting, clock, delayMs, signal);
      hintsSeen = state.hints;
      return Promise.resolve();
    },
    spans: {
      cleansIn: "transaction",
      start: (at) => alone(() => String(at === "end" ? state.lastNumber : 0)),
      plan: (from, max) =>
        alone(() => {
          hintsSeen = state.hints;
          const last = state.events
            .filter(({ number }) => number > Number(from))
            .slice(0, max)
            .at(-1);
          return last === undefined ? undefined : { from, to: String(last.number) };
        }),
      read: (span) => alone(() => read(state, span)),
      clean: (positions, keepMs, max) =>
        alone((tx) => {
          const passed = Math.min(...positions.map(Number));
          const over = state.events
            .filter(
              ({ number, event }) => number <= passed && event.addedAtMs <= clock.nowMs() - keepMs,
            )
            .slice(0, positions.length === 0 ? 0 : max);
          const gone = new Set(over);
          change(state, tx, "events", (events) => events.filter((one) => !gone.has(one)));
          return over.length;
        }),
    },
    held: {
      list: (filter) => alone(() => held(state, clock, filter)),
      count: (filter) => alone(() => held(state, clock, filter).length),
      keys: (relay, among, wanted) =>
        alone(() => {
          const has = new Set<string>();
          for (const one of state.held.values()) {
            const { key } = one.event;
            if (key === undefined || one.relay !== relay) continue;
            if (wanted === undefined || one.state === wanted) has.add(key);
          }
          return new Set(among.filter((key) => has.has(key)));
        }),
      change: (relay, puts, removes) =>
        alone((tx) => {
          change(state, tx, "held", (all) => applyHold(all, clock, relay, puts, removes));
        }),
    },
    lag: (position) =>
      alone(() => {
        const oldest = state.events.find(({ number }) => number > Number(position ?? 0));
        const oldestMs =
          oldest === undefined ? 0 : Math.max(0, clock.nowMs() - oldest.event.addedAtMs);
        return { oldestMs, slotBytes: undefined };
      }),
  };
}

function change<Name extends "events" | "held">(
  state: MemoryOutboxState,
  tx: MemoryTransaction,
  name: Name,
  next: (before: MemoryOutboxState[Name]) => MemoryOutboxState[Name],
): void {
  const before = state[name];
  state[name] = next(before);
  tx.undo(() => {
    state[name] = before;
  });
}

function add(
  state: MemoryOutboxState,
  clock: Clock,
  tx: MemoryTransaction,
  events: readonly NewOutboxEvent[],
): readonly string[] {
  const added = events.map(({ topic, key, payload, headers = {} }) => {
    // Numbers stay given, also if this is undone: one at a time means that they are committed in their order.
    state.lastNumber += 1;
    const number = state.lastNumber;
    const event: OutboxEvent = {
      id: String(number),
      topic,
      key,
      payload: payload.slice(),
      headers: { ...headers },
      addedAtMs: clock.nowMs(),
    };
    return { number, event };
  });
  change(state, tx, "events", (before) => [...before, ...added]);
  state.hints += 1;
  for (const wake of [...state.waiting]) wake();
  return added.map(({ event }) => event.id);
}

function read({ events }: MemoryOutboxState, { from, to }: OutboxSpan): readonly OutboxEvent[] {
  return events
    .filter(({ number }) => number > Number(from) && number <= Number(to))
    .map(({ event }) => ({ ...event, payload: event.payload.slice() }));
}

function idOf(relay: string, id: string): string {
  return JSON.stringify([relay, id]);
}

function applyHold(
  before: ReadonlyMap<string, KeptHeld>,
  clock: Clock,
  relay: string,
  puts: readonly HeldWrite[],
  removes: readonly string[],
): ReadonlyMap<string, KeptHeld> {
  const next = new Map(before);
  for (const { event, state, attempts, dueInMs, reason } of puts) {
    const dueAtMs = clock.nowMs() + dueInMs;
    next.set(idOf(relay, event.id), { relay, event, state, attempts, reason, dueAtMs });
  }
  for (const id of removes) next.delete(idOf(relay, id));
  return next;
}

function held(
  state: MemoryOutboxState,
  clock: Clock,
  { relay, state: wanted, key, ids, fingerprint, isDue, max }: HeldFilter,
): readonly HeldEvent[] {
  const nowMs = clock.nowMs();
  return [...state.held.values()]
    .filter(
      (one) =>
        one.relay === relay &&
        (wanted === undefined || one.state === wanted) &&
        (key === undefined || one.event.key === key) &&
        (ids === undefined || ids.includes(one.event.id)) &&
        (fingerprint === undefined || one.reason?.fingerprint === fingerprint) &&
        (isDue !== true || one.dueAtMs <= nowMs),
    )
    .slice(0, max)
    .map(({ dueAtMs, ...rest }) => ({ ...rest, dueInMs: dueAtMs - nowMs }));
}
