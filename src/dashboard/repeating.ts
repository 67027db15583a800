/** What a page asks for, once or again and again. */

import { useEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> {
  readonly value: T | undefined;
  readonly error: unknown;
  /** Asks now. */
  readonly reload: () => void;
}

/**
 * Calls `load` when the page opens, when one of `keys` changes, and every `everyMs`. The last value stays while a newer one is not
 * there, also over an outage.
 */
export function useRepeated<T>(
  load: (signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[],
  everyMs?: number,
): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>({
    value: undefined,
    error: undefined,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    setState({ value: undefined, error: undefined });
  }, keys);
  useEffect(() => {
    const ending = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = async (): Promise<void> => {
      try {
        if (!document.hidden) {
          const value = await latest.current(ending.signal);
          if (!ending.signal.aborted) setState({ value, error: undefined });
        }
      } catch (error) {
        if (!ending.signal.aborted) setState((old) => ({ ...old, error }));
      }
      if (everyMs !== undefined && !ending.signal.aborted) {
        timer = setTimeout(() => void again(), everyMs);
      }
    };
    void again();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [round, everyMs, ...keys]);
  return {
    ...state,
    reload: () => {
      setRound((count) => count + 1);
    },
  };
}
