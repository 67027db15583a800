/** Waits: for a time, for a promise, or until the caller's signal aborts. */

import { onAbort } from "../../base/aborts.ts";
import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { PAUSE_MS_MAX, PAUSE_MS_MIN } from "./limits.ts";

/** Waits for `delayMs`. Rejects with the signal's reason as soon as the signal aborts. */
export function pause(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(asError(signal.reason));
      return;
    }
    let stopListening: () => void = () => undefined;
    const cancel = clock.after(delayMs, () => {
      stopListening();
      resolve();
    });
    if (signal === undefined) return;
    stopListening = onAbort(signal, () => {
      cancel();
      reject(asError(signal.reason));
    });
  });
}

/** Settles as the promise does, or rejects when the signal aborts first. The promise goes on in any case. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      reject(asError(signal.reason));
    };
    if (signal.aborted) giveUp();
    const stopListening = onAbort(signal, giveUp);
    promise.then(resolve, reject).finally(stopListening);
  });
}

/** Returns pauses that grow to a second, each with jitter: those who wait do not come back together. */
export function growingPauses(random: Random): () => number {
  let wholeMs = PAUSE_MS_MIN;
  return () => {
    const nextMs = wholeMs * (0.5 + random.unit() / 2);
    wholeMs = Math.min(wholeMs * 1.6, PAUSE_MS_MAX);
    return Math.ceil(nextMs);
  };
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
