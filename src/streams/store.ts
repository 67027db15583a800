/**
 * PORT. A store keeps streams durable. It decides nothing: the rules live in core/.
 *
 * A store is opened with the world that it has kept. The engine decides on that world, applies each change
 * to it at once, and hands the changes to `commit` in the same order; so what is durable is always a
 * prefix of what was decided, and after a crash the store makes the same world again from its prefix.
 *
 * Contract, held by testing/store-conformance.ts against every implementation:
 *   S1  a commit is all or nothing, and resolves only once it is as durable as `supports` says;
 *   S2  commits take effect in the order of the calls; the engine has one under way at a time;
 *   S3  a commit that rejects is final: the store takes no further commit, reads go on;
 *   S4  a read answers whole appends, from the one that holds `from`, and never bytes at or after `to`;
 *   S5  a read stops after `bytesMax`, but always answers at least one append if there is one;
 *   S6  the data of a removed stream is gone, and a later stream never shows it;
 *   S7  after close every call rejects with `store_closed`;
 *   S8  the store owns what it keeps: a caller may reuse its buffers once the commit has resolved;
 *   S9  what a stream was trimmed of may be gone: a read there answers what is kept, or nothing, and never with an
 *       error. From the offset of the trim on all is as before.
 */

import type { Change } from "./core/change.ts";
import type { Offset, StreamId } from "./core/types.ts";
import type { World } from "./core/world.ts";

/** Where streams are kept. The contract S1 to S9 stands at the head of this file. */
export interface Store {
  readonly supports: StoreSupport;
  /** What is known: recovered when the store was opened, moved on by the engine since. */
  readonly world: World;
  /**
   * Bytes that can still be committed for certain. The engine refuses writes beyond it. Below zero not
   * even a change without data fits, unless it frees room; below minus one not even that.
   */
  roomBytes(): number;
  commit(changes: readonly Change[]): Promise<void>;
  read(stream: StreamId, from: Offset, to: Offset, bytesMax: number): Promise<Page>;
  /** Sizes at this moment, for metrics. */
  stats(): StoreStats;
  close(): Promise<void>;
}

/** Sizes of a store. */
export interface StoreStats {
  /** Bytes of stored appends. */
  readonly liveBytes: number;
  /** Bytes of the files, or of memory, that hold them. */
  readonly fileBytes: number;
  /** How long opening the store took. */
  readonly recoveryMs: number;
}

/** What a store promises, as data. The server compares it with its settings before it starts. */
export interface StoreSupport {
  /** `fsync`: survives a power cut. `os`: survives the process. `memory`: neither. */
  readonly durability: "fsync" | "os" | "memory";
}

/** Consecutive appends of one stream. The pieces are shared and must not be changed. */
export interface Page {
  readonly start: Offset;
  readonly appends: readonly Uint8Array[];
  /**
   * Says that nobody will look at the appends again, so that the store may use their memory for another page.
   * Nobody has to say it.
   */
  readonly release?: () => void;
}
