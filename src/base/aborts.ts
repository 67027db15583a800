/** Listening to signals that many wait for. */

/** Who wants to know of a signal, and what it calls. */
interface Listening {
  readonly runs: Set<() => void>;
  readonly tell: () => void;
}

const listening = new WeakMap<AbortSignal, Listening>();

/**
 * Calls `run` when the signal aborts; the returned function takes it back. However many ask for it, a signal has one
 * listener of theirs: Node warns of a leak at the eleventh.
 */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const { runs, tell } = listening.get(signal) ?? listenTo(signal);
  // The same function may be given twice.
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
