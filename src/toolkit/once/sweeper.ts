/**
 * Deletes entries past their retention, in small batches with pauses, and measures how old the oldest work is.
 *
 *   - a sweep ends when nothing is left to delete, in batches of the size that was set, with a pause between them;
 *   - every error goes to `onError`, and the next sweep comes in its time;
 *   - after `stop` no sweep begins, and none runs.
 */

import { spreadMs } from "../../base/backoff.ts";
import { HapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { Check } from "./check.ts";
import { resolveTools, type Tools } from "./tools.ts";
import { SWEEP_BATCH_DEFAULT, SWEEP_BATCH_MAX } from "./limits.ts";

/** Options of a sweeper. All are optional. */
export interface SweeperOptions extends Tools {
  /** Time from the end of a sweep to the next, in milliseconds, give or take a fifth. Default 60 s. */
  readonly everyMs?: number;
  /** The most entries that one statement deletes. Default 200. */
  readonly batchMax?: number;
  /** Pause between two batches, in milliseconds. Default 50. */
  readonly pauseMs?: number;
  /** The kinds of entries that the metric `oldest_pending_seconds` measures. Default `once` and `http`. */
  readonly pendingKinds?: readonly string[];
  /** Called with every error of a sweep. Default: errors are ignored; the next sweep tries again. */
  readonly onError?: (error: unknown) => void;
}

/**
 * Deletes entries that are past their retention, from time to time. Any number of sweepers may run at once, in any number of
 * processes.
 */
export interface Sweeper extends AsyncDisposable {
  /** Starts the sweeps. Does nothing if they run already. Its timers do not keep the process alive. */
  start(): void;
  /** Stops the sweeps. Resolves when none runs any more. */
  stop(): Promise<void>;
  /** Runs one sweep to its end. Returns how many entries it deleted. Throws what the ledger throws. */
  sweepOnce(): Promise<number>;
}

/**
 * Creates a sweeper. Nothing runs before `start`. Throws `invalid_options`.
 *
 * ```ts
 * import { createSweeper } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const sweeper = createSweeper(memoryLedger(), { everyMs: 60_000, onError: console.error });
 * sweeper.start();
 * const deleted = await sweeper.sweepOnce();
 * await sweeper.stop();
 * console.assert(deleted === 0);
 * ```
 */
export function createSweeper<Tx>(ledger: Ledger<Tx>, options: SweeperOptions = {}): Sweeper {
  return new LedgerSweeper(ledger, options);
}

const DAY_MS = 86_400_000;

class LedgerSweeper<Tx> implements Sweeper {
  readonly #ledger: Ledger<Tx>;
  readonly #everyMs: number;
  readonly #batchMax: number;
  readonly #pauseMs: number;
  readonly #pendingKinds: readonly string[];
  readonly #onError: (error: unknown) => void;
  readonly #tools: ReturnType<typeof resolveTools>;
  #stopping: AbortController | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(ledger: Ledger<Tx>, options: SweeperOptions) {
    const check = new Check();
    this.#ledger = ledger;
    this.#everyMs = check.whole("everyMs", options.everyMs, 60_000, 10, DAY_MS);
    const { batchMax } = options;
    this.#batchMax = check.whole("batchMax", batchMax, SWEEP_BATCH_DEFAULT, 1, SWEEP_BATCH_MAX);
    this.#pauseMs = check.whole("pauseMs", options.pauseMs, 50, 0, DAY_MS);
    this.#pendingKinds = options.pendingKinds ?? ["once", "http"];
    this.#onError = options.onError ?? ((): void => undefined);
    this.#tools = resolveTools(options);
    check.end();
    if (ledger.isJoined)
      throw new HapaxError("unsupported", "a sweeper has transactions of its own");
  }

  start(): void {
    if (this.#stopping !== undefined) return;
    const stopping = new AbortController();
    this.#stopping = stopping;
    this.#running = this.#run(stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping?.abort(new Error("the sweeper was stopped"));
    this.#stopping = undefined;
    await this.#running;
  }

  sweepOnce(): Promise<number> {
    return this.#sweep(undefined);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#tools;
    while (!signal.aborted) {
      try {
        // Processes that were started together do not sweep together.
        await pause(clock, spreadMs(this.#everyMs, 0.2, random.unit()), signal);
        await this.#sweep(signal);
      } catch (error) {
        if (!signal.aborted) this.#tell(error);
      }
    }
  }

  /** Also if `onError` itself throws. */
  #tell(error: unknown): void {
    try {
      this.#onError(error);
    } catch {
      // No other function could take this error.
    }
  }

  async #sweep(signal: AbortSignal | undefined): Promise<number> {
    const { clock, meter } = this.#tools;
    let total = 0;
    for (;;) {
      const swept = await this.#ledger.entries.sweep(this.#batchMax);
      if (swept > 0) meter.add("swept_total", swept);
      total += swept;
      if (swept < this.#batchMax) break;
      await pause(clock, this.#pauseMs, signal);
    }
    await this.#tellOldest();
    return total;
  }

  async #tellOldest(): Promise<void> {
    for (const kind of this.#pendingKinds) {
      const [oldest] = await this.#ledger.entries.scan({ kind, state: "running", max: 1 });
      const seconds = (oldest?.ageMs ?? 0) / 1000;
      this.#tools.meter.set("oldest_pending_seconds", seconds, { primitive: kind });
    }
  }
}
