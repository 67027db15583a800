/**
 * Settles fenced writes: `write` resolves only if the write is in the log, as durable as the store promises. It
 * settles what happens to the connection and to the server meanwhile.
 *
 *   - what is visible proves nothing. After an answer that is missing or doubtful, only a later write of our own, which
 *     finds the first one and is answered without doubt, proves that it is durable (the barrier);
 *   - a write is repeated with the same bytes at the same place until it is settled, and never at another place;
 *   - with a later epoch in the row of the shard this owner writes nothing more: `shard_moved`;
 *   - with an earlier epoch, or without the frame before, the database has lost what it had acknowledged:
 *     `engine_went_back`, and this owner writes nothing more;
 *   - a statement is never cancelled.
 */

import type { Clock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { StatementRefused } from "./session.ts";
import type { Done, FencedWrite, ShardTables } from "./tables.ts";

const PAUSE_MS = 50;
const PAUSE_MS_MAX = 1000;
/** How long the database may be away before the store warns, and after which time again. */
const WARN_MS = 10_000;

/** SQLSTATE. */
const UNDEFINED_TABLE = "42P01";
const DISK_FULL = "53100";
/** What no repetition can cure: a syntax, a type or a right that is wrong. */
const HOPELESS = /^(42(?!P01)|22|0A|3F|2200)/;

/** Counts what happened to writes, for metrics. */
export interface FenceCounts {
  /** Writes that had an unknown or doubtful outcome at first, and were found or written later. */
  settled: number;
  /** Confirmations that were sent. */
  barriers: number;
}

export interface FenceParts {
  readonly tables: ShardTables;
  readonly epoch: number;
  readonly clock: Clock;
  readonly onWarning: (warning: string) => void;
  /** Called when the database says that it has no room, and when it has some again. */
  readonly onFull: (isFull: boolean) => void;
}

type Step = "write" | "confirm" | "look";

export class Fence {
  readonly counts: FenceCounts = { settled: 0, barriers: 0 };
  readonly #parts: FenceParts;
  #isImpatient = false;
  #endPause: () => void = () => undefined;
  #isWaiting = false;

  constructor(parts: FenceParts) {
    this.#parts = parts;
  }

  /** A write waits for the database. */
  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  async write(write: FencedWrite): Promise<void> {
    let step: Step = "write";
    const patience = new Patience(this.#parts);
    for (let isFirst = true; ; isFirst = false) {
      const next: Step | "done" = await this.#step(step, write, patience);
      if (next === "done") {
        if (!isFirst) this.counts.settled += 1;
        this.#isWaiting = false;
        patience.over();
        return;
      }
      const isAtOnce = step !== next;
      step = next;
      if (isAtOnce) continue;
      this.#isWaiting = true;
      if (this.#isImpatient) {
        throw new HapaxError("unreachable", "closed while the outcome of a write was unknown");
      }
      await this.#pause(patience.nextMs());
    }
  }

  /** From now on no write waits for the database: one more attempt, then an error. */
  stopWaiting(): void {
    this.#isImpatient = true;
    this.#endPause();
  }

  /** Takes one step. Returns the next one: the same one again if this one got no clear answer. */
  async #step(step: Step, write: FencedWrite, patience: Patience): Promise<Step | "done"> {
    try {
      if (step === "look") return await this.#look(write);
      const { isDone, isSure } = await this.#send(step, write);
      patience.full(false);
      if (isDone && isSure) return "done";
      // Visible, and perhaps not durable; or not written now, because it is there already, or because it may not be.
      if (isDone || step === "write") return "confirm";
      return "look";
    } catch (error) {
      if (error instanceof HapaxError) throw error;
      this.#explain(error, patience);
      return step;
    }
  }

  #send(step: "write" | "confirm", write: FencedWrite): Promise<Done> {
    const { tables, epoch } = this.#parts;
    if (step === "write") return tables.write(epoch, write);
    this.counts.barriers += 1;
    return tables.confirm(epoch, write);
  }

  async #look(write: FencedWrite): Promise<Step> {
    const { tables, epoch } = this.#parts;
    const sight = await tables.look(write, epoch);
    if (sight.epoch > epoch) throw movedError(epoch, sight.epoch);
    if (sight.epoch < epoch) {
      throw wentBack(`the epoch of the shard is ${sight.epoch}, and was ${epoch}`);
    }
    if (!sight.hasBefore) throw wentBack(`the frame before LSN ${lsnOf(write)} is gone`);
    if (sight.isTaken) {
      throw new HapaxError("data_damaged", `another frame is in the place of LSN ${lsnOf(write)}`);
    }
    return sight.isThere ? "confirm" : "write";
  }

  /** Throws if repeating cannot help. */
  #explain(error: unknown, patience: Patience): void {
    const reason = error instanceof Error ? error.message : String(error);
    if (error instanceof StatementRefused) {
      if (error.state === UNDEFINED_TABLE) throw wentBack(`a table is gone: ${reason}`, error);
      if (HOPELESS.test(error.state)) {
        throw new HapaxError("internal", `the database refuses a write: ${reason}`, {
          cause: error,
        });
      }
      patience.full(error.state === DISK_FULL);
    }
    patience.failed(reason);
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.after(ms, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}

/** How long a write has waited, and what was said about it. */
class Patience {
  readonly #parts: FenceParts;
  readonly #begunMs: number;
  #warnedMs: number;
  #pauseMs = PAUSE_MS;
  #reason = "its answer is doubtful";
  #isFull = false;
  #hasWarned = false;

  constructor(parts: FenceParts) {
    this.#parts = parts;
    this.#begunMs = parts.clock.steadyMs();
    this.#warnedMs = this.#begunMs;
  }

  failed(reason: string): void {
    this.#reason = reason;
  }

  full(isFull: boolean): void {
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    this.#parts.onFull(isFull);
  }

  nextMs(): number {
    const nowMs = this.#parts.clock.steadyMs();
    if (nowMs - this.#warnedMs >= WARN_MS) {
      this.#warnedMs = nowMs;
      this.#hasWarned = true;
      const seconds = Math.round((nowMs - this.#begunMs) / 1000);
      this.#parts.onWarning(
        `a commit has waited ${seconds} s for the database, and goes on: ${this.#reason}`,
      );
    }
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 2);
    return pauseMs;
  }

  over(): void {
    this.full(false);
    if (this.#hasWarned) this.#parts.onWarning("the database takes commits again");
  }
}

function lsnOf(write: FencedWrite): string {
  return write.kind === "frame" || write.kind === "image" ? String(write.lsn) : write.kind;
}

export function movedError(epoch: number, now: number): HapaxError {
  return new HapaxError(
    "shard_moved",
    `another server has taken the shard over: epoch=${now}, this one had epoch=${epoch}`,
  );
}

export function wentBack(what: string, cause?: unknown): HapaxError {
  const message = `the database has lost what it had acknowledged: ${what}`;
  return new HapaxError("engine_went_back", message, cause === undefined ? {} : { cause });
}
