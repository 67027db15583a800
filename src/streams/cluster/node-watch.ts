/**
 * Which nodes are alive, as one node sees it. Patience on its own steady clock is all that counts: no wall clocks are compared, and a
 * database that was away takes no shard from its owner.
 *
 *   - NW1 a node is dead once the same sign of life was seen for a whole lease, with the database answering in between;
 *   - NW2 a look that took long, or failed, or came long after the one before, says nothing about anybody: all patience begins anew;
 *   - NW3 a node whose process is gone (node-suspicion.ts) is dead with the next look that finds no new sign of life, and lives with
 *     the first one that does.
 */

/** A node as its row says. */
export interface NodeRow {
  readonly node: string;
  readonly life: string;
  readonly beat: number;
}

interface Suspect extends NodeRow {
  readonly brokenMs: number;
  readonly untilMs: number;
}

/** A look that takes a larger share of the lease says nothing. */
const LOOK_SHARE_MAX = 0.5;

export class NodeWatch {
  readonly #leaseMs: number;
  readonly #seen = new Map<string, NodeRow & { readonly sinceMs: number }>();
  /** The last signs of nodes whose process seems to be gone. */
  readonly #suspects = new Map<string, Suspect>();
  /** Of these, the ones that a later look has found unchanged, and when their connections ended. */
  readonly #gone = new Map<string, number>();
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
      this.#weigh(row, endedMs);
      const known = this.#seen.get(row.node);
      if (known?.life === row.life && known.beat === row.beat) continue;
      this.#seen.set(row.node, { ...row, sinceMs: endedMs });
    }
    for (const node of gone) {
      this.#seen.delete(node);
      this.#clear(node);
    }
  }

  /** The sign of life that was seen last. */
  beatOf(node: string, life: string): number | undefined {
    const known = this.#seen.get(node);
    return known?.life === life ? known.beat : undefined;
  }

  /**
   * The process that has given this sign, and whose connection has ended then, is gone, unless the next look finds another sign or comes
   * too late.
   */
  suspect(row: NodeRow, brokenMs: number, untilMs: number): void {
    this.#suspects.set(row.node, { ...row, brokenMs, untilMs });
  }

  /** When the connection of a node has ended that is dead because its process is gone, and not because a lease is over. */
  goneSinceMs(node: string): number | undefined {
    return this.#gone.get(node);
  }

  #weigh({ node, life, beat }: NodeRow, endedMs: number): void {
    const suspect = this.#suspects.get(node);
    if (suspect === undefined) return;
    const isSame = suspect.life === life && suspect.beat === beat;
    const isInTime = this.#gone.has(node) || endedMs <= suspect.untilMs;
    if (isSame && isInTime) this.#gone.set(node, suspect.brokenMs);
    else this.#clear(node);
  }

  #clear(node: string): void {
    this.#suspects.delete(node);
    this.#gone.delete(node);
  }

  /** The database did not answer. */
  failed(): void {
    this.#seen.clear();
  }

  isAlive(node: string, nowMs: number): boolean {
    if (this.#gone.has(node)) return false;
    const known = this.#seen.get(node);
    return known === undefined || nowMs - known.sinceMs < this.#leaseMs;
  }
}
