/** When the other side of an answer has stopped taking it. */

import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../protocol/limits.ts";

/**
 * Calls `run` each time that the other side has taken next to nothing for `delayMs`, or up to twice that. The returned function
 * cancels. The time limit of a socket is no use here: it starts anew with every received byte, and a client must not stay by
 * sending.
 */
export function whenStuck(
  clock: Clock,
  takenBytes: () => number,
  delayMs: number,
  run: () => void,
): () => void {
  const takenMin = Math.max(1, (LIMITS.readerBytesPerSecondMin * delayMs) / 1000);
  let before = takenBytes();
  const look = (): void => {
    cancel = clock.after(delayMs, look);
    const now = takenBytes();
    if (now - before < takenMin) run();
    before = now;
  };
  let cancel = clock.after(delayMs, look);
  return () => {
    cancel();
  };
}
