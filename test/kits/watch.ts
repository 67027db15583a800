/** Looks at a promise without waiting for it, so that a test can say "this must not be answered yet". */

/** The present state of a promise. */
export interface Watched<T> {
  readonly isWaiting: boolean;
  readonly value: T | undefined;
  readonly error: unknown;
}

/** Watches a promise, so that a test can ask whether it has settled. */
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

/** Resolves when everything that can happen without time, a disk or a network has happened. */
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
