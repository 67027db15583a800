/** Listens to abort signals that many callers share. */

/** One callback for a signal. */
interface Listening {
  readonly runs: Set<() => void>;
  readonly tell: () => void;
}

const listening = new WeakMap<AbortSignal, Listening>();

/**
 * Calls `run` when the signal aborts. The returned function cancels that. A signal gets one listener for any number
 * of callers, because Node warns of a leak at the eleventh.
 */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const { runs, tell } = listening.get(signal) ?? listenTo(signal);
  // A caller may pass the same function twice.
  const own = (): void => {
    run();
  };
  runs.add(own);
  return () => {
    if (!runs.delete(own) || runs.size > 0) return;
    signal.removeEventListener("abort", tell);
    listening.delete(signal);
  };
}

function listenTo(signal: AbortSignal): Listening {
  const runs = new Set<() => void>();
  const tell = (): void => {
    for (const run of [...runs]) run();
  };
  signal.addEventListener("abort", tell, { once: true });
  const made = { runs, tell };
  listening.set(signal, made);
  return made;
}
