/**
 * Who owns a shard. Safety never rests on what is here: a write counts only if its epoch is the one in the row of the
 * shard. This decides when to ask for the next epoch, and notices early that another server has it.
 *
 *   - a candidate takes over only after it has seen the same sign of life for the whole lease by its own steady
 *     clock, with the database answering in between. No wall clocks are compared, and a database that was away
 *     takes no shard from its owner;
 *   - the log is read only after the takeover is acknowledged: it is then a later write than everything in the log.
 */

import type { Clock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { movedError } from "./fence.ts";
import type { Owner, ShardState, ShardTables } from "./tables.ts";

/** How often in a lease an owner gives a sign of life, and a candidate looks for one. */
const SIGNS = 5;
/** A statement that takes longer says nothing about the owner: the candidate begins to count anew. */
const LOOK_SHARE_MAX = 0.5;
const RETRY_MS = 200;

export interface TakeoverOptions {
  readonly takeover: "refuse" | "wait" | "now";
  readonly leaseMs: number;
  readonly signal?: AbortSignal | undefined;
}

export interface Taken {
  readonly epoch: number;
  /** The clock of the database. */
  readonly timeMs: number;
}

/** Takes the shard over, when that is allowed. */
export async function takeOver(
  tables: ShardTables,
  owner: Owner,
  clock: Clock,
  options: TakeoverOptions,
): Promise<Taken> {
  const watch = new Watch(clock, options.leaseMs);
  for (;;) {
    options.signal?.throwIfAborted();
    const begunMs = clock.steadyMs();
    const state = await tables.state().catch(() => undefined);
    const isSlow = clock.steadyMs() - begunMs > options.leaseMs * LOOK_SHARE_MAX;
    if (state === undefined || isSlow) {
      watch.forget();
      if (options.takeover !== "wait" && watch.hasWaited()) await tables.state(); // Throws the reason.
      await pause(clock, Math.min(RETRY_MS, options.leaseMs / SIGNS), options.signal);
      continue;
    }
    const isMine = state.owner?.life === owner.life;
    const isFree = state.owner === undefined || isMine || options.takeover === "now";
    if (isFree || watch.isDead(state)) {
      const taken = await tables.take(state.epoch, owner).catch(() => undefined);
      // Without a clear answer it may be taken, and not durable. The next round asks for one more epoch.
      if (taken?.isDone === true && taken.isSure) {
        return { epoch: state.epoch + 1, timeMs: taken.timeMs };
      }
    } else if (options.takeover === "refuse" && watch.isAlive(state)) {
      throw new HapaxError(
        "shard_owned",
        `the server ${state.owner?.node ?? ""} owns the streams, and is alive`,
      );
    }
    await pause(clock, options.leaseMs / SIGNS, options.signal);
  }
}

/** What a candidate has seen of the owner. */
class Watch {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  readonly #begunMs: number;
  #seen:
    | { readonly life: string; readonly beat: number | undefined; readonly sinceMs: number }
    | undefined;
  #hasChanged = false;

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#begunMs = clock.steadyMs();
  }

  forget(): void {
    this.#seen = undefined;
  }

  hasWaited(): boolean {
    return this.#clock.steadyMs() - this.#begunMs > 2 * this.#leaseMs;
  }

  /** Whether the owner has given no sign of life for a lease. */
  isDead({ owner, beat }: ShardState): boolean {
    const nowMs = this.#clock.steadyMs();
    const life = owner?.life ?? "";
    if (this.#seen?.life !== life || this.#seen.beat !== beat) {
      this.#hasChanged = this.#seen !== undefined;
      this.#seen = { life, beat, sinceMs: nowMs };
      return false;
    }
    return nowMs - this.#seen.sinceMs >= this.#leaseMs;
  }

  isAlive({ owner }: ShardState): boolean {
    return this.#hasChanged && this.#seen?.life === owner?.life;
  }
}

/** Gives signs of life until it is stopped, and notices a newer owner. */
export class Heartbeat {
  #isStopped = false;
  #cancel: () => void = () => undefined;

  constructor(
    tables: ShardTables,
    owner: Owner,
    epoch: number,
    { clock, leaseMs, onMoved }: { clock: Clock; leaseMs: number; onMoved: (error: Error) => void },
  ) {
    const next = (): void => {
      if (this.#isStopped) return;
      this.#cancel = clock.after(leaseMs / SIGNS, () => {
        void tables
          .beat(owner)
          .then((now) => {
            if (now <= epoch || this.#isStopped) return;
            this.stop();
            onMoved(movedError(epoch, now));
          })
          // The database is away. Commits notice that too, and nothing else depends on a sign of life.
          .catch(() => undefined)
          .finally(next);
      });
    };
    next();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
  }
}

function pause(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      cancel();
      reject(signal?.reason instanceof Error ? signal.reason : new Error("aborted"));
    };
    const cancel = clock.after(ms, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    if (signal?.aborted === true) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
  });
}
