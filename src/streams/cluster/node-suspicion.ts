/**
 * Notices that the process of another node is gone, before its lease is over. Each node keeps a connection to each other one, which the
 * other one ends with a word when it stops in order.
 *
 *   - SU1 a node is gone if its connection has ended without a word, its port refuses another one, and it has given no sign of life
 *     between two looks that are `SUSPECT_MS` apart and began after that. Anything less is left to the lease;
 *   - SU2 this is found within `WITHIN_MS`, or not at all: so long a living node gives signs more often. A sign may also have been on its
 *     way when the process ended, so a node that gave one is looked at again;
 *   - SU3 the log has one warning about a node that lives and cannot be reached: at once if it has another key, for any other reason
 *     after `FAILURES_TOLD` attempts.
 */

import type { Clock } from "../../base/clock.ts";
import type { NodeWatch } from "./node-watch.ts";
import type { PeerEvents } from "./peers.ts";

/** A living node gives signs more often than this as soon as such a connection has ended (PC2). */
export const SUSPECT_MS = 150;
const WITHIN_MS = 2000;
/** A node that starts or ends is not reached for a moment. */
const FAILURES_TOLD = 5;

/** A node that is watched. */
export interface WatchedNode {
  readonly node: string;
  readonly life: string;
  readonly peer: string | undefined;
}

export interface NodeSuspicionParts {
  readonly clock: Clock;
  readonly watch: NodeWatch;
  /** Looks at the rows. */
  readonly look: () => Promise<void>;
  /** Keeps a connection. Returns what ends it. */
  readonly connect: (peer: string, events: PeerEvents) => () => void;
  readonly onNote: (note: string) => void;
  /** Whether the machine says that nothing listens there. */
  readonly isRefused: (peer: string) => Promise<boolean>;
}

export class NodeSuspicion {
  readonly #parts: NodeSuspicionParts;
  readonly #watched = new Map<string, () => void>();
  /** Lives that are being looked at. */
  readonly #suspected = new Set<string>();

  constructor(parts: NodeSuspicionParts) {
    this.#parts = parts;
  }

  /** Watches these nodes from now on, and no others. */
  keep(nodes: readonly WatchedNode[]): void {
    const wanted = new Map(nodes.map((one) => [`${one.life} ${one.peer ?? ""}`, one]));
    for (const [key, end] of this.#watched) {
      if (wanted.has(key)) continue;
      this.#watched.delete(key);
      end();
    }
    for (const [key, one] of wanted) {
      const { peer } = one;
      if (peer === undefined || this.#watched.has(key)) continue;
      this.#watched.set(key, this.#parts.connect(peer, this.#eventsOf(one, peer)));
    }
  }

  #eventsOf(one: WatchedNode, peer: string): PeerEvents {
    const { onNote } = this.#parts;
    let failures = 0;
    let isTold = false;
    return {
      onOpen() {
        failures = 0;
        if (isTold) onNote(`node ${one.node} is reached at ${peer}`);
        isTold = false;
      },
      onBroken: () => {
        this.#suspect(one, peer).catch(() => undefined);
      },
      onFailed(reason, isKeyRefused) {
        failures += 1;
        if (isTold || (!isKeyRefused && failures < FAILURES_TOLD)) return;
        isTold = true;
        const why = isKeyRefused ? "all nodes of a cluster need the same peer key" : reason;
        onNote(`node ${one.node} lives, and cannot be reached at ${peer}: ${why}`);
      },
    };
  }

  async #suspect(one: WatchedNode, peer: string): Promise<void> {
    if (this.#suspected.has(one.life)) return;
    this.#suspected.add(one.life);
    try {
      const brokenMs = this.#parts.clock.steadyMs();
      while (await this.#parts.isRefused(peer)) {
        if ((await this.#isGone(one, peer, brokenMs)) !== "unclear") return;
      }
    } finally {
      this.#suspected.delete(one.life);
    }
  }

  async #isGone({ node, life }: WatchedNode, peer: string, brokenMs: number) {
    const { clock, watch, look, isRefused } = this.#parts;
    await look();
    const beat = watch.beatOf(node, life);
    await new Promise<void>((resolve) => {
      clock.after(SUSPECT_MS, resolve);
    });
    if (clock.steadyMs() - brokenMs > WITHIN_MS) return "late";
    if (beat === undefined || !(await isRefused(peer))) return "unclear";
    watch.suspect({ node, life, beat }, brokenMs, brokenMs + WITHIN_MS);
    await look();
    return watch.goneSinceMs(node) === undefined ? "unclear" : "gone";
  }
}
