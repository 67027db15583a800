/** Listens to abort signals that many callers share. */

/** The callbacks of one signal. The signal has this set as its only listener. */
class Runs extends Set<() => void> {
  handleEvent(): void {
    for (const run of [...this]) run();
  }
}

const runsBySignal = new WeakMap<AbortSignal, Runs>();

/**
 * Calls `run` when the signal aborts. The returned function cancels that. A signal gets one listener for any number
 * of callers, because Node warns of a leak at the eleventh.
 */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const runs = runsBySignal.get(signal) ?? new Runs();
  runsBySignal.set(signal, runs);
  // The same function may be given twice.
  const own = (): void => {
    run();
  };
  runs.add(own);
  // Nothing happens if it listens already.
  signal.addEventListener("abort", runs);
  return () => {
    runs.delete(own);
    if (runs.size === 0) signal.removeEventListener("abort", runs);
  };
}

/** Has an abort signal, and creates it when it is first read, because most calls end without one. An `AbortController` is one. */
export interface Stopper {
  readonly signal: AbortSignal;
}

/** A stopper whose owner can stop it. An `AbortController` is one. */
export interface Stoppable extends Stopper {
  abort(reason?: unknown): void;
}

/** Works like an `AbortController`, for calls that mostly end without a signal: its own listeners need no signal. */
export class LightStop implements Stoppable {
  #controller: AbortController | undefined;
  #stopped: { readonly reason: unknown } | undefined;
  #runs: Set<() => void> | undefined;

  get isStopped(): boolean {
    return this.#stopped !== undefined;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#stopped !== undefined) this.#controller.abort(this.#stopped.reason);
    }
    return this.#controller.signal;
  }

  abort(reason?: unknown): void {
    if (this.#stopped !== undefined) return;
    this.#stopped = { reason };
    this.#controller?.abort(reason);
    for (const run of [...(this.#runs ?? [])]) run();
  }

  /** Calls `run` when it is stopped, like `onAbort`. Does not call it if it was stopped before. */
  heed(run: () => void): () => void {
    const own = (): void => {
      run();
    };
    (this.#runs ??= new Set()).add(own);
    return () => {
      this.#runs?.delete(own);
    };
  }
}

/** Does the same as `onAbort` for a stopper, and creates no signal if it can do without. */
export function onStop(over: Stopper, run: () => void): () => void {
  return over instanceof LightStop ? over.heed(run) : onAbort(over.signal, run);
}

export function isStopped(over: Stopper | undefined): boolean {
  return over instanceof LightStop ? over.isStopped : over?.signal.aborted === true;
}

/** Signals that end the same thing. Each may be undefined. */
export type Signals = readonly (AbortSignal | undefined)[];

/** Calls `run` when one of the signals aborts. The returned function cancels that. */
export function onAnyAbort(signals: Signals, run: () => void): () => void {
  const undo = signals.map((signal) => signal && onAbort(signal, run));
  return () => {
    for (const one of undo) one?.();
  };
}

/** Returns the reason of the first signal that has aborted, unchanged. */
export function abortedBy(signals: Signals): Error | undefined {
  // Cast: mostly an error. A caller who gave something else compares with just that.
  return signals.find((signal) => signal?.aborted)?.reason as Error | undefined;
}

/** Settles as the promise does. If the signal aborts first, rejects with the signal's reason. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      reject(abortedBy([signal]));
    };
    const stopListening = onAbort(signal, giveUp);
    if (signal.aborted) giveUp();
    promise.then(resolve, reject).finally(stopListening);
  });
}
