/**
 * PORT. A store keeps streams durable. It decides nothing: the rules live in core/.
 *
 * A store opens with the world that it has kept. The engine decides on that world, applies each change to it at once,
 * and hands the changes to `commit` in the same order. So what is durable is always a prefix of what was decided, and
 * after a crash the store makes the same world again from its prefix.
 *
 * Contract, held by testing/store-conformance.ts against every implementation:
 *   S1  a commit is all or nothing, and resolves only once it is as durable as `supports` says;
 *   S2  commits take effect in the order of the calls; the engine runs one commit at a time;
 *   S3  a commit that rejects is final: the store takes no further commit, reads go on;
 *   S4  a read returns whole appends, from the one that holds `from`, and never bytes at or after `to`;
 *   S5  a read stops after `bytesMax`, but always returns at least one append if there is one;
 *   S6  the data of a removed stream is gone, and a later stream never shows it;
 *   S7  after close every call rejects with `store_closed`;
 *   S8  the store owns what it keeps: a caller may reuse its buffers once the commit has resolved;
 *   S9  data that was trimmed may be gone: a read there returns what is kept, or nothing, and never an error. From
 *       the offset of the trim on everything is as before;
 *   S13 a seek returns where the first append begins, of those that begin in [from, to), whose change has this time or a
 *       later one; `to` if there is none. It returns the same after a restart, and after the store has moved its data.
 *
 * A store that several processes can open, one after the other (`takeOver` of the conformance suite):
 *   S10 once another process has taken the store over, a commit rejects with `shard_moved`, and nothing that it holds is
 *       stored after that. Reads of what was stored before may go on;
 *   S11 an outcome that is unknown (a lost connection, a lost answer) is settled inside `commit`: it resolves only if the
 *       changes are in the store, as durable as `supports` says, and once;
 *   S12 the process that takes over finds everything that was acknowledged, and goes on where it ends.
 */

import type { Change } from "./core/change.ts";
import type { Offset, StreamId, TimeMs } from "./core/types.ts";
import type { World } from "./core/world.ts";

/** Keeps streams. Its contract stands at the head of `store.ts`. */
export interface Store {
  readonly supports: StoreSupport;
  /**
   * Optional. What the clock of the place that keeps the store said when it was opened, in milliseconds since 1970. Journal time
   * begins there, and not at the wall clock of this machine, which may not be the one that wrote before.
   */
  readonly openedAtMs?: number;
  /** The state of all streams. The store recovers it when it opens; then the engine changes it. */
  readonly world: World;
  /** The room that is left. The store keeps it current, and the engine looks at it before every write. */
  readonly room: StoreRoom;
  commit(changes: readonly Change[]): Promise<void>;
  read(stream: StreamId, from: Offset, to: Offset, bytesMax: number): Promise<Page>;
  /** Finds the first append that was stored at a time or later. Times never go back within a stream, so halving finds it. */
  seek(stream: StreamId, from: Offset, to: Offset, atMs: TimeMs): Promise<Offset>;
  /**
   * Optional. Returns at least 128 random bits as text: the same whenever the store is opened, kept apart from its data. The keys
   * that sign webhooks are made from it. Without it they are new at each start, and tokens of earlier wakes are refused.
   */
  secret?(): Promise<string>;
  /** Optional. The salt of the first of these keys, for stores that must have the same ones. Default: random. */
  readonly signingSalt?: string;
  /**
   * Optional. Begins a backup of the state between two commits, and keeps this state until the backup is released. Everything
   * that was acknowledged before the call is in it. Without it `hapax backup` answers `unsupported`.
   */
  backup?(): Promise<StoreBackup>;
  /** Returns the sizes at this moment, for metrics. */
  stats(): StoreStats;
  close(): Promise<void>;
}

/** The room of a store, as it is now. */
export interface StoreRoom {
  /**
   * How many bytes of data a commit can certainly still take. The engine refuses writes beyond it. Below zero, a
   * change without data fits only if it frees room; below minus one, no change fits.
   */
  readonly bytes: number;
}

/** Sizes of a store. */
export interface StoreStats {
  /** Bytes of stored appends. */
  readonly liveBytes: number;
  /** Bytes of the files, or of memory, that hold them. */
  readonly fileBytes: number;
  /** How long it took to open the store. */
  readonly recoveryMs: number;
}

/** A journal at one instant. docs/formats/backup.md has the form in which it is kept. */
export interface StoreBackup {
  /** 32 hexadecimal digits. */
  readonly storeId: string;
  /** The last commit that is in it, and the checksum of its frame. */
  readonly lsn: number;
  readonly crc: number;
  /** How many changes the world had. */
  readonly changes: number;
  /** Oldest first. */
  readonly segments: readonly BackupSegment[];
  readonly images: readonly BackupImage[];
  /** Reads bytes before the end of a segment. Throws `backup_over` if the store had to give up what the backup holds. */
  readSegment(number: number, position: number, length: number): Promise<Uint8Array>;
  readImage(lsn: number, position: number, length: number): Promise<Uint8Array>;
  /** May be called again. */
  release(): void;
}

/** A segment as it is at the instant of a backup. Number and salt name its content up to any end. */
export interface BackupSegment {
  readonly number: number;
  readonly firstLsn: number;
  readonly salt: number;
  /** CRC of the frame before its first one. */
  readonly crcBefore: number;
  /** Where its last frame ends. */
  readonly end: number;
}

/** A snapshot: the state at this LSN. */
export interface BackupImage {
  readonly lsn: number;
  readonly bytes: number;
}

/** What a store promises. The server compares it with its options before it starts. */
export interface StoreSupport {
  /**
   * `replicated`: a commit survives the loss of the machine that has it. `fsync`: survives a power cut. `os`:
   * survives the process. `memory`: none of these.
   */
  readonly durability: "replicated" | "fsync" | "os" | "memory";
}

/** Consecutive appends of one stream. The pieces are shared and must not be changed. */
export interface Page {
  readonly start: Offset;
  readonly appends: readonly Uint8Array[];
  /** Optional. Call it when you are done with `appends`; the store may then reuse their memory for another page. */
  readonly release?: () => void;
}
