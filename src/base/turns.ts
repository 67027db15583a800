/**
 * Runs at most so many tasks at a time; the others wait in order. Node's thread pool has four threads for files, gzip
 * and names. Code that may need many of them uses this class, so that a commit never waits for a thread.
 */
export class Turns {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Runs the work when it is its turn. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#max) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    } else {
      this.#running += 1;
    }
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // The turn passes directly to the next task, so that no other can take it in between.
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }
}
