/** Promises that are settled from outside, and what else callbacks need. */

/** Does nothing. */
export function nothing(): void {}

/** A promise, and what settles it. */
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

/** Whatever was thrown, as an error. */
export function errorOf(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
