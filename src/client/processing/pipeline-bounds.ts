/**
 * When a transaction of a pipeline has enough, and when the pipeline has.
 *
 * A transaction has at most `batchMax` records, and takes no more of them after `batchMs`. When the pipeline is told to
 * end, or the stream is asked back, the transaction ends with the record at hand. What follows it is left to the next
 * holder.
 */

import { isHapaxError } from "../../base/errors.ts";
import type { LeasedBatch } from "./held.ts";
import { Stopped } from "./pipeline-attempts.ts";
import type { PipelineSettings } from "./pipeline-settings.ts";

/** What bounds a transaction. */
interface Bounds {
  readonly settings: Pick<PipelineSettings<never, never>, "batchMax" | "batchMs" | "clock">;
  readonly stop: AbortSignal;
}

type Asked = Pick<LeasedBatch<unknown>, "isAskedBack">;

/** Whether no more is wanted from here. */
export function isEnding({ stop }: Pick<Bounds, "stop">, batch: Asked): boolean {
  return stop.aborted || batch.isAskedBack;
}

/** A transaction begins. Answers whether so many records are enough. */
export function beginPortion(bounds: Bounds, batch: Asked): (records: number) => boolean {
  const { batchMax, batchMs, clock } = bounds.settings;
  const endMs = clock.steadyMs() + batchMs;
  return (records) => {
    if (records >= batchMax || isEnding(bounds, batch)) return true;
    // The clock is asked for each record: cheap beside a call of a function.
    return clock.steadyMs() >= endMs;
  };
}

/** A sink did not answer before anything was done. Its `cause` is what it said. */
export class Away extends Error {
  override readonly name = "Away";
}

/** Prepares a sink. Throws `Away` for what may be an outage, and as it is what no retry can cure. */
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

/** The promise; rejects with `Stopped` if the pipeline is told to end before it is settled. */
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
