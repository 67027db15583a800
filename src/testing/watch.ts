/** Looking at a promise without waiting for it: how a test says "this must not be answered yet". */

/** A promise as it is now. */
export interface Watched<T> {
  readonly isWaiting: boolean;
  readonly value: T | undefined;
  readonly error: unknown;
}

/**
 * Follows a promise, so that a test can ask whether it has settled.
 *
 * ```ts
 * import { turn, watch } from "hapax/testing";
 *
 * const answer = watch(Promise.resolve("done"));
 * console.assert(answer.isWaiting);
 * await turn();
 * console.assert(!answer.isWaiting && answer.value === "done");
 * ```
 */
export function watch<T>(promise: Promise<T>): Watched<T> {
  const watched: { isWaiting: boolean; value: T | undefined; error: unknown } = {
    isWaiting: true,
    value: undefined,
    error: undefined,
  };
  promise.then(
    (value) => {
      watched.isWaiting = false;
      watched.value = value;
    },
    (error: unknown) => {
      watched.isWaiting = false;
      watched.error = error;
    },
  );
  return watched;
}

/**
 * Resolves when everything that can happen without time, a disk or a network has happened.
 *
 * ```ts
 * import { turn } from "hapax/testing";
 *
 * let isDone = false;
 * void Promise.resolve().then(() => (isDone = true));
 * await turn();
 * console.assert(isDone);
 * ```
 */
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
