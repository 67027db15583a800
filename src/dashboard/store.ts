/** A value that parts of the page share, and that they show anew when it changes. */

import { useEffect, useState } from "preact/hooks";

export class Shared<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of this.#listeners) listener();
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** The value now; the part that asks is shown anew when it changes. */
export function useShared<T>(shared: Shared<T>): T {
  const [, show] = useState(0);
  useEffect(() => {
    const update = (): void => {
      show((count) => count + 1);
    };
    // It may have changed before the effect ran.
    update();
    return shared.listen(update);
  }, [shared]);
  return shared.value;
}
