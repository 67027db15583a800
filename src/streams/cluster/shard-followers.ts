/**
 * The warm copies that this node keeps of shards that other nodes own. Looks come one after the other, so that copies never take more
 * of the database than one reader.
 */

import type { Clock } from "../../base/clock.ts";
import type { ShardId } from "../core/placement.ts";
import type { ShardFollower } from "../stores/postgres/follower.ts";

/** After failures a look waits up to so many times as long. */
const WAIT_TIMES_MAX = 32;

interface Followed {
  readonly follower: ShardFollower;
  cancel: () => void;
  failures: number;
}

export interface ShardFollowersParts {
  readonly clock: Clock;
  /** Between two looks at a shard. */
  readonly lookMs: number;
  readonly open: (shard: ShardId) => ShardFollower;
}

export class ShardFollowers {
  readonly #parts: ShardFollowersParts;
  readonly #followed = new Map<ShardId, Followed>();
  #turn: Promise<void> = Promise.resolve();

  constructor(parts: ShardFollowersParts) {
    this.#parts = parts;
  }

  /** How many copies have something to go on with. */
  get warm(): number {
    return [...this.#followed.values()].filter(({ follower }) => follower.nextLsn !== undefined)
      .length;
  }

  /** Follows these shards from now on, and no others. */
  keep(wanted: ReadonlySet<ShardId>): void {
    for (const shard of this.#followed.keys()) {
      if (!wanted.has(shard)) this.take(shard)?.stop();
    }
    for (const shard of wanted) {
      if (this.#followed.has(shard)) continue;
      const follower = this.#parts.open(shard);
      const followed: Followed = { follower, cancel: () => undefined, failures: 0 };
      this.#followed.set(shard, followed);
      this.#look(shard, followed);
    }
  }

  /** Hands a copy over. */
  take(shard: ShardId): ShardFollower | undefined {
    const followed = this.#followed.get(shard);
    followed?.cancel();
    this.#followed.delete(shard);
    return followed?.follower;
  }

  #look(shard: ShardId, followed: Followed): void {
    const isOver = (): boolean => this.#followed.get(shard) !== followed;
    this.#turn = this.#turn.then(async () => {
      if (isOver()) return;
      try {
        await followed.follower.look();
        followed.failures = 0;
      } catch {
        // The database is away, or the copy begins anew. A takeover does not need it.
        followed.failures += 1;
      }
      if (isOver()) return;
      const times = Math.min(WAIT_TIMES_MAX, 2 ** followed.failures);
      followed.cancel = this.#parts.clock.after(this.#parts.lookMs * times, () => {
        this.#look(shard, followed);
      });
    });
  }
}
