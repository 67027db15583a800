/**
 * The writes of a window on their way to the log: one batch at a time, until its outcome is known.
 *
 *   WD7  a log that chooses positions gets nothing a second time before its tail was read from the last known position: what is
 *        there is stored, the rest is sent again.
 *
 * A log whose positions the window chooses gets the same batch for the same position again.
 */

import { backoffMs } from "../../base/backoff.ts";
import { BrokenInvariant } from "../../base/assert.ts";
import { isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { KeyMark } from "../../base/key-window.ts";
import { rest } from "../../base/pause.ts";
import type { LogPosition } from "../rules/window.ts";
import type { ClientPositions, LogBatch, WindowEntry, LogPositions } from "./log.ts";
import { fencedError } from "./object-log.ts";
import type { ResolvedWindow } from "./options.ts";
import type { WindowReader } from "./recovery.ts";

const PAUSES = { pauseMs: 20, pauseMsMax: 2_000 };

/** A write that is not confirmed. Callers of the same id share it. */
export class UnconfirmedWrite {
  readonly entry: WindowEntry;
  /** Undefined: it has no id. */
  readonly mark: KeyMark | undefined;
  readonly outcome: Promise<LogPosition>;
  #resolve!: (position: LogPosition) => void;
  #reject!: (error: Error) => void;

  constructor(entry: WindowEntry, mark: KeyMark | undefined) {
    this.entry = entry;
    this.mark = mark;
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // Its callers may have stopped waiting.
    this.outcome.catch(() => undefined);
  }

  confirm(position: LogPosition): void {
    this.#resolve(position);
  }

  fail(error: Error): void {
    this.#reject(error);
  }
}

/** A batch whose outcome is not known yet. */
interface SentBatch {
  readonly atMs: number;
  readonly writes: readonly UnconfirmedWrite[];
  /** Where it goes, if the window chooses. */
  readonly position: LogPosition | undefined;
  /** It may be in the log. */
  readonly isSent: boolean;
}

/** The open log, of either kind. */
export type OpenLog =
  | { readonly positions: "client"; readonly writer: ClientPositions }
  | { readonly positions: "log"; readonly writer: LogPositions };

export class Batches {
  readonly #log: OpenLog;
  readonly #reader: WindowReader;
  readonly #options: ResolvedWindow;
  readonly #stopped = new AbortController();
  readonly #onStored: (writes: readonly UnconfirmedWrite[]) => void;
  readonly #onEnd: (error: Error) => void;
  #queue: UnconfirmedWrite[] = [];
  #sent: SentBatch | undefined;
  #running: Promise<void> | undefined;
  #lastError: unknown;

  constructor(
    log: OpenLog,
    reader: WindowReader,
    options: ResolvedWindow,
    onStored: (writes: readonly UnconfirmedWrite[]) => void,
    onEnd: (error: Error) => void,
  ) {
    this.#log = log;
    this.#reader = reader;
    this.#options = options;
    this.#onStored = onStored;
    this.#onEnd = onEnd;
  }

  /** Why the last attempt failed; undefined if it did not. */
  get lastError(): unknown {
    return this.#lastError;
  }

  add(write: UnconfirmedWrite): void {
    this.#queue.push(write);
    this.#running ??= this.#run();
  }

  /** Resolves when all writes are confirmed, or the batches are stopped. */
  async idle(): Promise<void> {
    await this.#running;
  }

  /** Gives up: no batch is sent from now on. */
  stop(error: Error): void {
    this.#stopped.abort();
    const writes = [...(this.#sent?.writes ?? []), ...this.#queue];
    this.#sent = undefined;
    this.#queue = [];
    for (const write of writes) write.fail(error);
  }

  async #run(): Promise<void> {
    // Writes of the same turn go together.
    await Promise.resolve();
    const { clock, random, meter } = this.#options;
    const { signal } = this.#stopped;
    for (let failures = 0; !signal.aborted && this.#hasWork;) {
      try {
        await this.#flush();
        failures = 0;
        this.#lastError = undefined;
      } catch (error) {
        if (isFinal(error)) {
          this.#onEnd(error);
          break;
        }
        failures += 1;
        this.#lastError = error;
        meter.add("failures_total", 1, { primitive: "window" });
        await rest(clock, backoffMs(failures, PAUSES, random.unit()), signal);
      }
    }
    this.#running = undefined;
  }

  get #hasWork(): boolean {
    return this.#sent !== undefined || this.#queue.length > 0;
  }

  #flush(): Promise<void> {
    const { positions, writer } = this.#log;
    return positions === "client" ? this.#flushTo(writer) : this.#flushBehind(writer);
  }

  /** The window chooses the position. */
  async #flushTo(log: ClientPositions): Promise<void> {
    if (this.#sent === undefined) {
      const position = await log.next();
      if (position === "fenced") throw fencedError("another writer has taken the log");
      this.#sent = this.#take(position);
    }
    const { position, atMs, writes } = this.#sent;
    if (position === undefined) return;
    await failpoint("window.placed");
    if ((await log.append(position, batchOf(this.#sent))) === "fenced")
      throw fencedError("another writer has taken the log");
    await failpoint("window.stored");
    const { segment, entry: start } = position;
    const positions = writes.map((_, index) => ({ segment, entry: start + index }));
    this.#confirm(writes, positions, start, atMs);
  }

  /** The log chooses the positions. */
  async #flushBehind(log: LogPositions): Promise<void> {
    if (this.#sent?.isSent === true) await this.#lookFor(this.#sent, log);
    if (!this.#hasWork) return;
    const sent = this.#sent ?? this.#take(undefined);
    this.#sent = { ...sent, isSent: true };
    await failpoint("window.placed");
    const positions = await log.append(batchOf(sent));
    if (positions === "fenced") throw fencedError("another writer has taken the log");
    await failpoint("window.stored");
    this.#confirm(sent.writes, positions, undefined, sent.atMs);
  }

  /** WD7: reads what the log has stored of the batch. What is left of it is sent as a new one. */
  async #lookFor(sent: SentBatch, log: LogPositions): Promise<void> {
    await log.settle();
    await this.#reader.catchUp();
    const { state } = this.#reader;
    const left: UnconfirmedWrite[] = [];
    const found: UnconfirmedWrite[] = [];
    for (const write of sent.writes) {
      const ordinal = write.mark === undefined ? undefined : state.keys.find(write.mark);
      if (ordinal === undefined) {
        left.push(write);
        continue;
      }
      found.push(write);
      write.confirm(state.positionOf(ordinal));
    }
    this.#sent = left.length === 0 ? undefined : { ...sent, writes: left, isSent: false };
    this.#onStored(found);
  }

  #take(position: LogPosition | undefined): SentBatch {
    const { batchEntriesMax, batchBytesMax, clock } = this.#options;
    let [count, bytes] = [0, 0];
    for (const { entry } of this.#queue) {
      bytes += entry.bytes.length;
      if (count > 0 && (count >= batchEntriesMax || bytes > batchBytesMax)) break;
      count += 1;
    }
    const writes = this.#queue.splice(0, count);
    // Log time never goes back, also if the clock does.
    const atMs = Math.max(this.#reader.state.newestMs, Math.floor(clock.nowMs()));
    return { atMs, writes, position, isSent: false };
  }

  #confirm(
    writes: readonly UnconfirmedWrite[],
    positions: readonly LogPosition[],
    start: number | undefined,
    atMs: number,
  ): void {
    const { state } = this.#reader;
    this.#sent = undefined;
    const [first] = positions;
    if (first !== undefined && !state.watermarks.has(first.segment))
      this.#reader.sealBefore(first.segment);
    state.applyTime(atMs);
    for (const [index, { mark }] of writes.entries()) {
      const position = positions[index];
      if (position === undefined) throw new BrokenInvariant("WD1 a stored entry has a position");
      const { segment, entry } = position;
      if (mark !== undefined) state.applyStored({ mark, ...position, atMs });
      state.watermarks.set(segment, { segment, entry, start: start ?? entry, isSealed: false });
    }
    this.#onStored(writes);
    for (const [index, write] of writes.entries()) {
      const position = positions[index];
      if (position !== undefined) write.confirm(position);
    }
  }
}

function batchOf({ atMs, writes }: SentBatch): LogBatch {
  return { atMs, entries: writes.map(({ entry }) => entry) };
}

/** What no further attempt can change. */
function isFinal(error: unknown): error is Error {
  return (
    isHapaxError(error, "lease_lost") ||
    isHapaxError(error, "data_damaged") ||
    error instanceof BrokenInvariant
  );
}
