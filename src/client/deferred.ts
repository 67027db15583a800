/** Promises that other code settles, and small helpers for callbacks. */

/** Does nothing. */
export function nothing(): void {}

/** A promise, and the functions that settle it. */
export interface Deferred<Value> {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (reason: unknown) => void;
}

export function deferred<Value>(): Deferred<Value> {
  let resolve: Deferred<Value>["resolve"] = nothing;
  let reject: Deferred<Value>["reject"] = nothing;
  const promise = new Promise<Value>((...both) => {
    [resolve, reject] = both;
  });
  return { promise, resolve, reject };
}

/** Returns a thrown value as an `Error`. */
export function errorOf(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
