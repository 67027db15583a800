/**
 * Decides when a transaction of a pipeline has enough records, and when the pipeline stops.
 *
 * A transaction has at most `batchMax` records, and takes no more of them after `batchMs`. When the pipeline must
 * end, or the stream is asked back, the transaction ends with the current record. The next holder processes the records
 * after it.
 */

import { isHapaxError } from "../../base/errors.ts";
import type { LeasedBatch } from "./held.ts";
import { Stopped } from "./pipeline-attempts.ts";
import type { ResolvedPipelineOptions } from "./pipeline-options.ts";

/** The bounds of a transaction. */
interface Bounds {
  readonly options: Pick<ResolvedPipelineOptions<never, never>, "batchMax" | "batchMs" | "clock">;
  readonly stop: AbortSignal;
}

type Asked = Pick<LeasedBatch<unknown>, "isAskedBack">;

/** Returns whether this pipeline must stop processing the stream. */
export function isEnding({ stop }: Pick<Bounds, "stop">, batch: Asked): boolean {
  return stop.aborted || batch.isAskedBack;
}

/** Begins a transaction. Returns a function that says whether so many records are enough. */
export function beginPortion(bounds: Bounds, batch: Asked): (records: number) => boolean {
  const { batchMax, batchMs, clock } = bounds.options;
  const endMs = clock.steadyMs() + batchMs;
  return (records) => {
    if (records >= batchMax || isEnding(bounds, batch)) return true;
    // Reads the clock for each record: cheap beside the call of a function.
    return clock.steadyMs() >= endMs;
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
