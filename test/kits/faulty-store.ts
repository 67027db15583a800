/** A store that fails on purpose, at a place that the test chooses, and then keeps to S3. */

import type { Change } from "../../src/streams/core/change.ts";
import { HapaxError } from "../../src/base/errors.ts";
import type { Store } from "../../src/streams/store.ts";

/** When the store fails. Calls count from 1. */
export interface FaultPlan {
  /** This commit fails, and so does every later one. */
  readonly failCommit?: number;
  /** The failed commit reached the disk all the same. That is the worst case for a retry. */
  readonly isWritten?: boolean;
  /** This read fails. Later reads work again. */
  readonly failRead?: number;
}

/** A store whose commits and reads fail according to a plan. */
export interface FaultyStore extends Store {
  /** Number of calls so far, including failed ones. */
  readonly commits: number;
  readonly reads: number;
  /** Makes the next commit fail, also if the plan does not. */
  failNextCommit(): void;
  /** Makes the next read fail, also if the plan does not. */
  failNextRead(): void;
}

/** Wraps a store so that its k-th commit or read fails. After a failed commit it takes no other, but reads continue. */
export function openFaultyStore(inner: Store, plan: FaultPlan = {}): FaultyStore {
  let commits = 0;
  let reads = 0;
  let failCommit = plan.failCommit ?? Infinity;
  let failRead = plan.failRead ?? Infinity;

  async function commit(changes: readonly Change[]): Promise<void> {
    commits += 1;
    if (commits < failCommit) return inner.commit(changes);
    if (commits > failCommit) {
      throw new HapaxError("writes_stopped", `commit ${failCommit} failed before`);
    }
    if (plan.isWritten === true) await inner.commit(changes);
    throw new Error(`commit ${commits} fails on purpose`);
  }

  return {
    supports: inner.supports,
    world: inner.world,
    room: inner.room,
    stats: () => inner.stats(),
    get commits() {
      return commits;
    },
    get reads() {
      return reads;
    },
    commit,
    async read(stream, from, to, bytesMax) {
      reads += 1;
      if (reads === failRead) throw new Error(`read ${reads} fails on purpose`);
      return inner.read(stream, from, to, bytesMax);
    },
    seek: (...range) => inner.seek(...range),
    failNextCommit() {
      failCommit = Math.min(failCommit, commits + 1);
    },
    failNextRead() {
      failRead = reads + 1;
    },
    close: () => inner.close(),
  };
}
