/** What a program sees of the store in PostgreSQL. */

import type { Store } from "../../store.ts";
import type { JournalOptions, JournalStats } from "../journal/journal-store.ts";
import type { RecoveryReport } from "../journal/replay.ts";
import type { PostgresNotices } from "./clients.ts";

/** Options of the store in PostgreSQL. The defaults prefer safety to speed. */
export interface PostgresStoreOptions extends JournalOptions {
  /**
   * What a commit survives. `replicated`: the loss of the primary; the server must wait for a synchronous standby.
   * `fsync`: a power cut, but perhaps not a failover. `os`: the end of this process, on a server that may lose the rest.
   * The store refuses to open on a server that promises less. Default `replicated`.
   */
  readonly durability?: "replicated" | "fsync" | "os";
  /**
   * Set to `storage` if the storage below PostgreSQL is replicated (Aurora, Multi-AZ instances, AlloyDB): then
   * `replicated` needs no synchronous standby. The store cannot check that.
   */
  readonly replication?: "standby" | "storage";
  /** The schema that has the tables. It is made if it is missing. Default `hapax`. */
  readonly schema?: string;
  /** The name of this server in the database: unique among the servers that use it. Default: random. */
  readonly node?: string;
  /**
   * What to do if another server owns the streams. `refuse`: look for `leaseMs` whether it is alive, and throw `shard_owned`
   * if it is. `wait`: take over as soon as it is gone, however long that takes. `now`: take over from a living one.
   * Default `refuse`.
   */
  readonly takeover?: "refuse" | "wait" | "now";
  /** How long an owner may give no sign of life before another one takes over. Default 5,000. */
  readonly leaseMs?: number;
  /**
   * The most bytes that frames and snapshots may take. Beyond that, writes get `store_full`. Default: no limit.
   */
  readonly bytesMax?: number;
  /** Size of a table of frames in bytes. Default 64 MiB. */
  readonly segmentBytes?: number;
  /** How long a statement may have no answer before another connection is tried. Default 30,000. */
  readonly answerMs?: number;
  /** Receives the warnings of the server. Needed if you pass a `sql` of your own. See `PostgresNotices`. */
  readonly notices?: PostgresNotices;
  /** Ends the wait for another owner. */
  readonly signal?: AbortSignal;
  /** Called when another server has taken over, or the database has gone back. Writes have stopped then. */
  readonly onLost?: (error: Error) => void;
}

/** Sizes and counts of a store in PostgreSQL at this moment. */
export interface PostgresStoreStats extends JournalStats {
  readonly epoch: number;
  /** Writes with an unknown outcome that were settled later. */
  readonly settled: number;
  /** Confirmations that were needed for that. */
  readonly barriers: number;
}

/** A store in PostgreSQL. See `openPostgresStore`. */
export interface PostgresStore extends Store {
  readonly recovery: RecoveryReport;
  /** The number of this ownership. It grows each time that the streams change their owner. */
  readonly epoch: number;
  stats(): PostgresStoreStats;
  /** Writes a snapshot now and frees the space that nothing needs. */
  maintain(): Promise<void>;
}
