/**
 * Which nodes are alive, as one node sees it. Patience on its own steady clock is all that counts: no wall clocks are compared, and a
 * database that was away takes no shard from its owner.
 *
 *   - NW1 a node is dead once the same sign of life was seen for a whole lease, with the database answering in between;
 *   - NW2 a look that took long, or failed, or came long after the one before, says nothing about anybody: all patience begins anew.
 */

/** A node as its row says. */
export interface NodeRow {
  readonly node: string;
  readonly life: string;
  readonly beat: number;
}

/** A look that takes a larger share of the lease says nothing. */
const LOOK_SHARE_MAX = 0.5;

export class NodeWatch {
  readonly #leaseMs: number;
  readonly #seen = new Map<string, NodeRow & { readonly sinceMs: number }>();
  #lastMs: number | undefined;

  constructor(leaseMs: number) {
    this.#leaseMs = leaseMs;
  }

  /** Takes what a look has found. `begunMs` and `endedMs`: by the steady clock. */
  saw(rows: readonly NodeRow[], begunMs: number, endedMs: number): void {
    // This process may have been stopped between two looks, and all others with it.
    const longestMs = Math.max(endedMs - begunMs, begunMs - (this.#lastMs ?? begunMs));
    if (longestMs > this.#leaseMs * LOOK_SHARE_MAX) this.failed();
    this.#lastMs = endedMs;
    const gone = new Set(this.#seen.keys());
    for (const row of rows) {
      gone.delete(row.node);
      const known = this.#seen.get(row.node);
      if (known?.life === row.life && known.beat === row.beat) continue;
      this.#seen.set(row.node, { ...row, sinceMs: endedMs });
    }
    for (const node of gone) this.#seen.delete(node);
  }

  /** The database did not answer. */
  failed(): void {
    this.#seen.clear();
  }

  isAlive(node: string, nowMs: number): boolean {
    const known = this.#seen.get(node);
    return known === undefined || nowMs - known.sinceMs < this.#leaseMs;
  }
}
