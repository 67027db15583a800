/**
 * Decides when a transaction of a pipeline has enough records, and when the pipeline stops.
 *
 * A transaction has at most `batchMax` records, and takes no more of them after `batchMs`. When the pipeline must
 * end, or the stream is asked back, the transaction ends with the current record. The next holder processes the records
 * after it.
 *
 * Functions that never wait would hold the process for a whole transaction: its signals, its claims, and a stream that is
 * asked back would be noticed too late. So between two records the process gets a turn, at least every `TURN_MS`.
 */

import { isHapaxError } from "../../base/errors.ts";
import { rest } from "../../base/pause.ts";
import type { LeasedBatch } from "./held.ts";
import { Stopped } from "./pipeline-attempts.ts";
import type { ResolvedPipelineOptions } from "./pipeline-options.ts";

/** What bounds every transaction of a pipeline. */
interface Bounds {
  readonly options: Pick<ResolvedPipelineOptions<never, never>, "batchMax" | "batchMs" | "clock">;
  readonly stop: AbortSignal;
}

/** The longest time between two turns of the process, but for the time that one record takes. */
const TURN_MS = 20;

/** Says when a transaction that collects records has enough of them. */
export interface PortionBounds {
  /** Returns whether so many records are enough. */
  isFull(records: number): boolean;
  /** Returns a promise if the process must have a turn before the next record. */
  turn(): Promise<void> | undefined;
}

type Asked = Pick<LeasedBatch<unknown>, "isAskedBack">;

/** Returns whether this pipeline must stop processing the stream. */
export function isEnding({ stop }: Pick<Bounds, "stop">, batch: Asked): boolean {
  return stop.aborted || batch.isAskedBack;
}

/** Begins a transaction. */
export function beginPortion(bounds: Bounds, batch: Asked): PortionBounds {
  const { batchMax, batchMs, clock } = bounds.options;
  let turnedMs = clock.steadyMs();
  const endMs = turnedMs + batchMs;
  return {
    isFull(records) {
      if (records >= batchMax || isEnding(bounds, batch)) return true;
      // Reads the clock for each record: cheap beside the call of a function.
      return clock.steadyMs() >= endMs;
    },
    turn() {
      if (clock.steadyMs() - turnedMs < TURN_MS) return undefined;
      return rest(clock, 0, bounds.stop).then(() => {
        turnedMs = clock.steadyMs();
      });
    },
  };
}

/** A sink failed before anything was done. Its `cause` is the sink's error. */
export class Away extends Error {
  override readonly name = "Away";
}

/** Prepares a sink. Throws `Away` for a possible outage; throws an error that no retry can cure unchanged. */
export async function prepareSink(
  prepare: () => Promise<void> | undefined,
  stop: AbortSignal,
): Promise<void> {
  try {
    await unlessStopped(Promise.resolve(prepare()), stop);
  } catch (error) {
    if (error instanceof Stopped || (isHapaxError(error) && error.retry === "never")) throw error;
    throw new Away("the sink is away", { cause: error });
  }
}

/** Settles as the promise does, or rejects with `Stopped` if the pipeline must end first. */
function unlessStopped<Value>(promise: Promise<Value>, stop: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      reject(new Stopped("the pipeline was told to end"));
    };
    stop.addEventListener("abort", end, { once: true });
    if (stop.aborted) end();
    promise.then(resolve, reject).finally(() => {
      stop.removeEventListener("abort", end);
    });
  });
}
