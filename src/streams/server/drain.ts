/** The end of a server: live readers are asked to go, so that they do not hold it up. */

export class Drain {
  readonly #leavers = new Set<() => void>();
  #isDraining = false;

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Calls `leave` when the server stops, or soon if it does already; the returned function takes it out. */
  onDrain(leave: () => void): () => void {
    this.#leavers.add(leave);
    // A request that was admitted before the stop may begin to wait only now, and `start` has asked all others.
    if (this.#isDraining) {
      void Promise.resolve().then(() => {
        if (this.#leavers.has(leave)) leave();
      });
    }
    return () => {
      this.#leavers.delete(leave);
    };
  }

  start(): void {
    this.#isDraining = true;
    for (const leave of [...this.#leavers]) leave();
  }
}
