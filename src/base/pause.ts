/** Lets time pass, until a signal aborts. */

import { abortedBy, onAnyAbort, type Signals } from "./aborts.ts";
import type { Clock } from "./clock.ts";

/** Resolves after `delayMs`. Rejects with the reason of a signal as soon as that aborts. */
export function pause(clock: Clock, delayMs: number, ...signals: Signals): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      cancel();
      unlisten();
      const reason = abortedBy(signals);
      if (reason === undefined) resolve();
      else reject(reason);
    };
    const cancel = clock.after(delayMs, end);
    const unlisten = onAnyAbort(signals, end);
    if (abortedBy(signals) !== undefined) end();
  });
}

/** Resolves after `delayMs`, or as soon as one of the signals aborts: for callers that look at the signals themselves. */
export function rest(clock: Clock, delayMs: number, ...signals: Signals): Promise<void> {
  return pause(clock, delayMs, ...signals).catch(() => undefined);
}
