/** Repeats a call until it is answered: for the client, the command line, and calls under idempotency keys. */

import type { Clock } from "./clock.ts";

/**
 * Repeats the attempt until `pauseMs` says, by undefined, that its answer is final. No pause begins that would end after
 * `totalMs`: then the last answer is returned. An answer is undefined if none came.
 */
export async function repeat<Answer>(
  clock: Clock,
  totalMs: number,
  attempt: () => Promise<Answer>,
  pauseMs: (answer: Answer, attempts: number) => number | undefined,
  wait: (delayMs: number, answer: Answer, attempts: number) => Promise<void>,
): Promise<Answer> {
  const deadlineMs = clock.steadyMs() + totalMs;
  for (let attempts = 1; ; attempts += 1) {
    const answer = await attempt();
    const delayMs = pauseMs(answer, attempts);
    if (delayMs === undefined || clock.steadyMs() + delayMs > deadlineMs) return answer;
    await wait(delayMs, answer, attempts);
  }
}
