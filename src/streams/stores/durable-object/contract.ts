/** What a program sees of the store in an object. No types of Node: a Worker is compiled without them. */

import type { Clock } from "../../../base/clock.ts";
import type { Random } from "../../../base/random.ts";
import type { Store, StoreStats } from "../../store.ts";

/** The report of opening the store of an object: which snapshot was used, and what was replayed after it. */
export interface ObjectRecovery {
  /** LSN of the snapshot that was used, if any. */
  readonly snapshotLsn: number | undefined;
  /** Commits that were replayed after it. */
  readonly frames: number;
  /** Rows that were read, as they are billed. */
  readonly rowsRead: number;
  /** Snapshots that could not be used, and why. */
  readonly warnings: readonly string[];
}

/** Options of a store in an object. All are optional. */
export interface DurableObjectStoreOptions {
  /** The size that the platform allows a database, in bytes. Beyond that, writes get `store_full`. Default 10 GB. */
  readonly databaseBytesMax?: number;
  /**
   * After how many commits a snapshot is written. An object that wakes reads at most about as many commits.
   * Default 1,000.
   */
  readonly snapshotCommits?: number;
  /**
   * After how many bytes of commits a snapshot is written; never less than the size of the last snapshot. Default
   * 4 MiB.
   */
  readonly snapshotBytes?: number;
  readonly clock?: Clock;
  readonly random?: Random;
  /** Called when a snapshot fails, or could not be used. No data is lost by that. */
  readonly onWarning?: (warning: string) => void;
}

/** Sizes of a store in an object at this moment. */
export interface DurableObjectStoreStats extends StoreStats {
  readonly commits: number;
  readonly snapshots: number;
  /** Rows read and written since the store was opened, as they are billed. */
  readonly rowsRead: number;
  readonly rowsWritten: number;
}

/** A store in a Durable Object. See `openDurableObjectStore`. */
export interface DurableObjectStore extends Store {
  readonly recovery: ObjectRecovery;
  stats(): DurableObjectStoreStats;
  /** Writes a snapshot now, and moves the data of the commits before it to pages. */
  maintain(): Promise<void>;
}
