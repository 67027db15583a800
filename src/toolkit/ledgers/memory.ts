/**
 * `hapax/ledgers/memory`: a ledger in memory, for tests and for work that ends with its process. It runs one transaction at a time, and
 * undoes what a failed one has changed. It is the shortest ledger, so read it before you write one of your own.
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { Loan, unlessEnded } from "../databases/lending.ts";
import type {
  Entries,
  Entry,
  EntryFilter,
  EntryPage,
  EntryWrite,
  Expected,
  Ledger,
  PageFilter,
  Place,
  PlacedEntry,
} from "./ledger.ts";
import { createMemoryOutbox, type MemoryOutboxState, newOutboxState } from "./memory-outbox.ts";
import type { MemoryTransaction } from "./memory-transaction.ts";
import { requirePlace } from "./places.ts";
import { nextTokenAt } from "./tokens.ts";

export type { MemoryTransaction } from "./memory-transaction.ts";

interface Kept {
  readonly place: Place;
  readonly token: number;
  readonly revision: number;
  readonly state: Entry["state"];
  readonly attempts: number;
  readonly leaseUntilMs: number | undefined;
  readonly keepUntilMs: number | undefined;
  readonly madeAtMs: number;
  readonly fingerprint: string | undefined;
  readonly data: Uint8Array | undefined;
}

interface Book {
  readonly kept: Map<string, Kept>;
  readonly outbox: MemoryOutboxState;
  readonly clock: Clock;
  lastToken: number;
  /** The end of the last transaction or call. */
  last: Promise<unknown>;
  /** Transactions and calls that are not over. */
  open: number;
}

/**
 * Creates a ledger in memory.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * await ledger.migrate();
 * console.assert(ledger.supports.durability === "memory");
 * ```
 */
export function memoryLedger(options: { readonly clock?: Clock } = {}): Ledger<MemoryTransaction> {
  return ledgerOf(
    {
      kept: new Map(),
      outbox: newOutboxState(),
      clock: options.clock ?? systemClock,
      lastToken: 0,
      last: Promise.resolve(),
      open: 0,
    },
    undefined,
  );
}

function ledgerOf(book: Book, joined: MemoryTransaction | undefined): Ledger<MemoryTransaction> {
  const alone = <T>(work: (tx: MemoryTransaction) => T | Promise<T>): Promise<T> =>
    joined === undefined ? transaction(book, work) : Promise.resolve(joined).then(work);
  return {
    name: "memory",
    supports: { transactions: true, isExclusive: true, durability: "memory", outbox: ["log"] },
    isJoined: joined !== undefined,
    entries: entriesOf(book, alone),
    get outbox() {
      return createMemoryOutbox(book.outbox, book.clock, alone);
    },
    migrate: () => Promise.resolve(),
    transaction: (work, signal) =>
      joined === undefined ? transaction(book, work, signal) : Promise.resolve(joined).then(work),
    transactionSync: (work) => (joined === undefined ? transactionSync(book, work) : work(joined)),
    // An earlier life has left nothing.
    recover: () => Promise.resolve(0),
    in: (tx) => ledgerOf(book, tx),
  };
}

/** Runs one transaction at a time: no call sees what may still be undone. */
function transaction<T>(
  book: Book,
  work: (tx: MemoryTransaction) => T | Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  book.open += 1;
  const turn = book.last.then(async () => {
    const { loan, undo } = lend();
    try {
      return await unlessEnded(Promise.resolve(work(loan.tx)), signal);
    } catch (error) {
      undo();
      throw error;
    } finally {
      loan.end();
      book.open -= 1;
    }
  });
  book.last = turn.catch(() => undefined);
  return turn;
}

function transactionSync<T>(book: Book, work: (tx: MemoryTransaction) => T): T {
  if (book.open > 0)
    throw new HapaxError("in_progress", "another transaction of the ledger is open");
  const { loan, undo } = lend();
  try {
    const result = work(loan.tx);
    if (result instanceof Promise)
      throw new HapaxError("invalid_request", "the work of transactionSync must not be async");
    return result;
  } catch (error) {
    undo();
    throw error;
  } finally {
    loan.end();
  }
}

function lend(): { readonly loan: Loan<MemoryTransaction>; readonly undo: () => void } {
  const undos: (() => void)[] = [];
  const loan = new Loan<MemoryTransaction>(
    { undo: (undo) => undos.push(undo) },
    { before: () => undefined },
  );
  const undo = (): void => {
    for (const one of undos.toReversed()) one();
  };
  return { loan, undo };
}

function entriesOf(
  book: Book,
  alone: <T>(work: (tx: MemoryTransaction) => T) => Promise<T>,
): Entries {
  const { kept, clock } = book;
  const change = (tx: MemoryTransaction, id: string, next: Kept | undefined): void => {
    const before = kept.get(id);
    const put = (one: Kept | undefined): void => {
      if (one === undefined) kept.delete(id);
      else kept.set(id, one);
    };
    put(next);
    tx.undo(() => {
      put(before);
    });
  };
  const nextToken = (): number => {
    book.lastToken = nextTokenAt(book.lastToken, clock.nowMs());
    return book.lastToken;
  };
  const tokenOf = (before: Kept | undefined, { token }: EntryWrite): number => {
    if (typeof token !== "string") return token.drawn;
    return before !== undefined && token === "same" ? before.token : nextToken();
  };
  return {
    find: (place) =>
      alone(() => {
        requirePlace(place);
        const found = kept.get(idOf(place));
        return found === undefined ? undefined : entryOf(found, clock.nowMs());
      }),
    lock: (place) =>
      alone(() => {
        requirePlace(place);
        const found = kept.get(idOf(place));
        return found === undefined
          ? { kind: "absent", token: nextToken() }
          : { kind: "found", entry: entryOf(found, clock.nowMs()) };
      }),
    put: (place, expected, write) =>
      alone((tx) => {
        requirePlace(place);
        const before = kept.get(idOf(place));
        if (!isAsExpected(before, expected)) return undefined;
        // Given tokens stay given, also if this is undone. What is made anew has a new one, also if `same` was asked for.
        const next = written(place, before, write, tokenOf(before, write), clock.nowMs());
        change(tx, idOf(place), next);
        return { token: next.token, revision: next.revision };
      }),
    remove: (place, expected) =>
      alone((tx) => {
        requirePlace(place);
        if (expected.kind === "absent" || !isAsExpected(kept.get(idOf(place)), expected))
          return false;
        change(tx, idOf(place), undefined);
        return true;
      }),
    scan: (filter) => alone(() => scan(kept.values(), filter, clock.nowMs())),
    page: (filter) => alone(() => pageOf(kept, filter, clock.nowMs())),
    nextDue: (kinds) => alone(() => nextDue(kept.values(), kinds, clock.nowMs())),
    sweep: (max) =>
      alone((tx) => {
        const nowMs = clock.nowMs();
        const over = [...kept].filter(([, one]) => isSweepable(one, nowMs)).slice(0, max);
        for (const [id] of over) change(tx, id, undefined);
        return over.length;
      }),
  };
}

function idOf({ kind, scope, key }: Place): string {
  return JSON.stringify([kind, scope, key]);
}

function isAsExpected(before: Kept | undefined, expected: Expected): boolean {
  switch (expected.kind) {
    case "absent":
      return before === undefined;
    case "unchanged":
      return before?.token === expected.token && before.revision === expected.revision;
    case "owned":
      return before?.token === expected.token && before.state === "running";
  }
}

function written(
  place: Place,
  before: Kept | undefined,
  write: EntryWrite,
  token: number,
  nowMs: number,
): Kept {
  const { state, attempts, leaseMs, keepMs, fingerprint, data } = write;
  return {
    place,
    token,
    revision: (before?.revision ?? 0) + 1,
    state,
    attempts,
    leaseUntilMs: leaseMs === undefined ? undefined : nowMs + leaseMs,
    keepUntilMs: keepMs === undefined ? undefined : nowMs + keepMs,
    madeAtMs: before?.madeAtMs ?? nowMs,
    fingerprint: fingerprint === "same" ? before?.fingerprint : fingerprint.value,
    data: data === "same" ? before?.data : data.value?.slice(),
  };
}

function entryOf(kept: Kept, nowMs: number): Entry {
  const { token, revision, state, attempts, fingerprint, data } = kept;
  const left = (untilMs: number | undefined): number | undefined =>
    untilMs === undefined ? undefined : untilMs - nowMs;
  return {
    token,
    revision,
    state,
    attempts,
    leaseLeftMs: left(kept.leaseUntilMs),
    keepLeftMs: left(kept.keepUntilMs),
    ageMs: nowMs - kept.madeAtMs,
    fingerprint,
    data: data?.slice(),
  };
}

function scan(
  all: Iterable<Kept>,
  { kind, scope, state, isAbandoned, order = "made", max }: EntryFilter,
  nowMs: number,
): readonly PlacedEntry[] {
  const rank = ({ madeAtMs, leaseUntilMs }: Kept): number =>
    order === "made" ? madeAtMs : (leaseUntilMs ?? 0);
  return [...all]
    .filter(
      (one) =>
        one.place.kind === kind &&
        (scope === undefined || one.place.scope === scope) &&
        (state === undefined || one.state === state) &&
        (isAbandoned !== true || (one.leaseUntilMs ?? nowMs + 1) <= nowMs) &&
        (order === "made" || one.leaseUntilMs !== undefined),
    )
    .toSorted((one, other) => rank(one) - rank(other))
    .slice(0, max)
    .map((one) => ({ ...entryOf(one, nowMs), place: one.place }));
}

/** LG13: of all entries it looks at the ids alone: a map has no order to begin in the middle of. */
function pageOf(
  kept: ReadonlyMap<string, Kept>,
  { kind, scope, state, from, max, isBare }: PageFilter,
  nowMs: number,
): EntryPage {
  // The least ids behind the last one, and one more, which says that another page follows.
  const ids: string[] = [];
  for (const [id, { place }] of kept) {
    if (place.kind !== kind || (scope !== undefined && place.scope !== scope)) continue;
    if (from !== undefined && id <= from) continue;
    if (ids.length > max && id > (ids.at(-1) ?? "")) continue;
    const at = ids.findIndex((one) => one > id);
    ids.splice(at === -1 ? ids.length : at, 0, id);
    if (ids.length > max + 1) ids.pop();
  }
  const found = ids.slice(0, max).flatMap((id) => kept.get(id) ?? []);
  const entries = found
    .filter((one) => state === undefined || one.state === state)
    .map((one) => {
      const { data, ...rest } = entryOf(one, nowMs);
      return { ...rest, data: isBare === true ? undefined : data, place: one.place };
    });
  return { entries, next: ids.length > max ? ids[max - 1] : undefined };
}

function nextDue(all: Iterable<Kept>, kinds: readonly string[], nowMs: number): number | undefined {
  const due = [...all].flatMap(({ place, state, leaseUntilMs }) =>
    state === "running" && leaseUntilMs !== undefined && kinds.includes(place.kind)
      ? [leaseUntilMs - nowMs]
      : [],
  );
  return due.length === 0 ? undefined : due.reduce((one, other) => Math.min(one, other));
}

function isSweepable({ state, keepUntilMs, leaseUntilMs }: Kept, nowMs: number): boolean {
  if (keepUntilMs === undefined || keepUntilMs > nowMs) return false;
  return state !== "running" || (leaseUntilMs ?? 0) <= nowMs;
}
