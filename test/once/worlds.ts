/**
 * A database in memory whose transactions run beside each other, as those of PostgreSQL do, and processes that use it: they
 * crash, lose their connection, and lose the answer to a commit.
 */

import type { Clock } from "../../src/base/clock.ts";
import type { Ledger, Locked, Place } from "../../src/toolkit/ledgers/ledger.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/virtual-clock.ts";

/** A business transaction: what it writes is there after its commit. */
export interface WorldTransaction {
  write(text: string): void;
}

interface Open extends WorldTransaction {
  readonly written: string[];
  /** From its first entry on it excludes the others: as a lock of its row would. */
  locked: { readonly tx: MemoryTransaction; readonly end: (error?: Error) => void } | undefined;
  ended: Promise<unknown>;
  readonly beganMs: number;
}

/** Who has locked a place, by its name. */
type Locks = Map<string, Open>;

/** What is due has been done when this resolves: nothing here waits for anything but promises and the clock. */
export const flush = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export interface World {
  readonly clock: VirtualClock;
  /** What was committed. */
  readonly effects: string[];
  readonly memory: Ledger<MemoryTransaction>;
  process(): Process;
  advance(ms: number): Promise<void>;
}

export interface Process {
  readonly ledger: Ledger<WorldTransaction>;
  readonly clock: Clock;
  /** As by SIGKILL: open transactions are undone, and nothing of it goes on. */
  crash(): void;
  /** Calls outside of transactions fail from now on, or work again. */
  cut(isCut: boolean): void;
  /** The next write outside of a transaction is done, and gets no answer. */
  loseAnswer(): void;
  /** The next commit gets no answer. */
  loseCommit(fate: "stored" | "undone"): void;
}

/** `locks`: its transactions can lock places, so that work and claim are one commit. */
export function createWorld(options: { readonly locks?: boolean } = {}): World {
  const clock = createVirtualClock();
  const memory = memoryLedger({ clock });
  const effects: string[] = [];
  const locks: Locks | undefined = options.locks === true ? new Map() : undefined;
  return {
    clock,
    effects,
    memory,
    process: () => createProcess(memory, clock, effects, locks),
    async advance(ms) {
      for (let passed = 0; passed < ms; passed += 50) {
        clock.advance(50);
        await flush();
      }
    },
  };
}

const never = new Promise<never>(() => undefined);

function createProcess(
  memory: Ledger<MemoryTransaction>,
  clock: VirtualClock,
  effects: string[],
  locks: Locks | undefined,
): Process {
  let isDead = false;
  let isCut = false;
  let isAnswerLost = false;
  let fate: "stored" | "undone" | undefined;
  let die: (error: Error) => void = () => undefined;
  const death = new Promise<never>((_, reject) => {
    die = reject;
  });
  death.catch(() => undefined);
  /** A dead process receives no answers. */
  const heard = async <T>(call: Promise<T>): Promise<T> => {
    try {
      const result = await call;
      return isDead ? await never : result;
    } catch (error) {
      if (isDead) return await never;
      throw error;
    }
  };
  const lock = async (open: Open): Promise<Ledger<MemoryTransaction>> => {
    open.locked ??= await new Promise<NonNullable<Open["locked"]>>((resolve) => {
      open.ended = memory.transaction(
        (tx) =>
          new Promise<void>((done, undo) => {
            const end = (error?: Error): void => {
              if (error === undefined) done();
              else undo(error);
            };
            resolve({ tx, end });
          }),
      );
      open.ended.catch(() => undefined);
    });
    return memory.in(open.locked.tx);
  };
  const transaction = async <T>(work: (tx: WorldTransaction) => Promise<T>): Promise<T> => {
    if (isCut) throw new Error("no connection");
    const written: string[] = [];
    const open: Open = {
      written,
      locked: undefined,
      ended: Promise.resolve(),
      beganMs: clock.steadyMs(),
      write: (text) => void written.push(text),
    };
    const unlock = (): void => {
      for (const [name, holder] of locks ?? []) if (holder === open) locks?.delete(name);
    };
    let result: T;
    try {
      result = await Promise.race([work(open), death]);
      if (fate === "undone") throw new Error("the connection was lost in COMMIT");
    } catch (error) {
      fate = undefined;
      open.locked?.end(new Error("rolled back"));
      await open.ended.catch(() => undefined);
      unlock();
      throw error;
    }
    open.locked?.end();
    await open.ended;
    effects.push(...written);
    unlock();
    const isLost = fate === "stored";
    fate = undefined;
    if (isLost) throw new Error("the connection was lost in COMMIT");
    return result;
  };
  /** LG11: a lock of its own, and a look at the entry that is committed. */
  const lockPlace = async (open: Open, place: Place): Promise<Locked> => {
    const name = JSON.stringify(place);
    const holder = locks?.get(name);
    if (holder !== undefined && holder !== open)
      return { kind: "held", heldMs: clock.steadyMs() - holder.beganMs };
    locks?.set(name, open);
    const locked = await memory.transaction(async (tx) => memory.in(tx).entries.lock?.(place));
    if (locked === undefined) throw new Error("the ledger in memory has locks");
    if (locked.kind !== "absent") locks?.delete(name);
    return locked;
  };
  const ledgerOf = (open: Open | undefined): Ledger<WorldTransaction> => {
    const inside = async <T>(
      call: (ledger: Ledger<MemoryTransaction>) => Promise<T>,
    ): Promise<T> => {
      if (isDead) return await never;
      if (open !== undefined) return await heard(lock(open).then(call));
      if (isCut) throw new Error("no connection");
      return await heard(call(memory));
    };
    return {
      name: "world",
      supports: { ...memory.supports, isExclusive: false },
      isJoined: open !== undefined,
      entries: {
        find: (place) => inside(({ entries }) => entries.find(place)),
        ...(locks === undefined
          ? {}
          : {
              lock: (place: Place) =>
                open === undefined
                  ? Promise.reject(new Error("a lock needs a transaction"))
                  : isDead
                    ? never
                    : heard(lockPlace(open, place)),
            }),
        async put(...args) {
          const answer = await inside(({ entries }) => entries.put(...args));
          if (!isAnswerLost || open !== undefined) return answer;
          isAnswerLost = false;
          throw new Error("no connection");
        },
        remove: (...args) => inside(({ entries }) => entries.remove(...args)),
        scan: (filter) => inside(({ entries }) => entries.scan(filter)),
        page: (filter) => inside(({ entries }) => entries.page(filter)),
        nextDue: (kinds) => inside(({ entries }) => entries.nextDue(kinds)),
        sweep: (max) => inside(({ entries }) => entries.sweep(max)),
      },
      get outbox(): never {
        throw new Error("there is none");
      },
      migrate: () => Promise.resolve(),
      transaction: (work) => (open === undefined ? heard(transaction(work)) : work(open)),
      // Every `tx` that `transaction` hands out is an Open.
      in: (tx) => ledgerOf(tx as Open),
    };
  };
  return {
    ledger: ledgerOf(undefined),
    clock: {
      ...clock,
      after: (delayMs, run) =>
        clock.after(delayMs, () => {
          if (!isDead) run();
        }),
    },
    crash() {
      isDead = true;
      die(new Error("killed"));
    },
    cut(value) {
      isCut = value;
    },
    loseAnswer() {
      isAnswerLost = true;
    },
    loseCommit(value) {
      fate = value;
    },
  };
}
