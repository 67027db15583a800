/** Hints inside one process: they wake relays that wait for events when some were added. Nothing depends on them. */

import type { Clock } from "../../base/clock.ts";

/** Resolves after so long, when it is woken, or when the signal aborts. */
export function untilWoken(
  waiting: Set<() => void>,
  clock: Clock,
  delayMs: number,
  signal: AbortSignal,
): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      cancel();
      waiting.delete(end);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const cancel = clock.after(delayMs, end);
    waiting.add(end);
    signal.addEventListener("abort", end);
  });
}
