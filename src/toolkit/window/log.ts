/**
 * PORT. The log that a window stands in front of. `objectLog` is one; write your own for a log that has no ids.
 *
 *   - entries are stored with their ids and the time of their batch, and are read back with them;
 *   - entries of a segment have rising numbers, and a reader gets all of them in order;
 *   - segments have rising numbers. A log may remove the oldest ones, and no others;
 *   - `open` fences: after it has resolved, no earlier writer can store anything. A writer that was fenced gets `fenced`;
 *   - a batch of a log with `positions: "client"` is stored whole or not at all, at the position that the window chose. A
 *     second call with the same position and batch is `stored` too;
 *   - a log with `positions: "log"` chooses positions itself, and may store a part of a batch before it rejects.
 */

import type { LogPosition } from "../rules/window.ts";

/** An entry: its id, if it has one, and its bytes. */
export interface WindowEntry {
  readonly id: string | undefined;
  readonly bytes: Uint8Array;
}

/** Entries that are stored together. `atMs` is log time: it never goes back from one batch to the next. */
export interface LogBatch {
  readonly atMs: number;
  readonly entries: readonly WindowEntry[];
}

/** A batch of a segment. Its entries have the numbers from `start` on. */
export interface StoredBatch extends LogBatch {
  readonly start: number;
}

/** A part of a log. */
export interface LogSegment {
  readonly segment: number;
  /** No entry can follow in it. */
  readonly isSealed: boolean;
  /** No entry of it is later, in log time. Undefined: not known. With it a window skips old segments. */
  readonly endedAtMs?: number | undefined;
  /**
   * The writer that began it: a text that no other writer has. Undefined: not known. With it a window refuses the snapshots of
   * another log.
   */
  readonly writer?: string | undefined;
}

/** The segments of a log, and how far it was removed. */
export interface LogExtent {
  /** The segments, oldest first. */
  readonly segments: readonly LogSegment[];
  /** Log time up to which entries were removed. Undefined: none were. */
  readonly removedToMs?: number | undefined;
}

/** The writer that opens a log. */
export interface WindowWriter {
  /** The token of its lease: a log refuses a writer whose token is less than one it has seen. Undefined: it has no lease. */
  readonly token: number | undefined;
  /** How far each segment was read. So the log need not search for its end from the beginning. */
  readonly readTo: ReadonlyMap<number, number>;
  /** The newest log time that the writer has read. */
  readonly newestMs: number;
}

/** The writer of a log whose positions the window chooses. */
export interface ClientPositions {
  /** Rises with each writer. */
  readonly epoch: number;
  /** Returns where the next batch goes. May begin a new segment. */
  next(): Promise<LogPosition | "fenced">;
  append(position: LogPosition, batch: LogBatch): Promise<"stored" | "fenced">;
}

/** The writer of a log that chooses positions itself. */
export interface LogPositions {
  /** Rises with each writer. */
  readonly epoch: number;
  /** Returns the positions of the entries, in their order. */
  append(batch: LogBatch): Promise<readonly LogPosition[] | "fenced">;
  /**
   * Resolves when no earlier `append` can be stored any more. The window calls it after an `append` has rejected, before it
   * checks whether the entries were stored. To implement it, close the connection, or wait until every request has timed
   * out.
   */
  settle(): Promise<void>;
}

/** The members that all logs have. */
interface ReadableLog {
  /** Segments follow each other in log time. False: they are written side by side, as partitions are. */
  readonly isOrdered: boolean;
  extent(): Promise<LogExtent>;
  /** Reads the batches of a segment. `start` is where a batch begins, or is the end of the segment. */
  read(segment: number, start: number): AsyncIterable<StoredBatch>;
}

/**
 * A log in which the window chooses the position of each batch, so that a retry writes to the same position.
 */
export interface ClientLog extends ReadableLog {
  readonly positions: "client";
  open(writer: WindowWriter): Promise<ClientPositions>;
}

/** A log that chooses positions itself, such as a partition of Kafka. */
export interface ServerLog extends ReadableLog {
  readonly positions: "log";
  open(writer: WindowWriter): Promise<LogPositions>;
}

/** A log that a window can stand in front of. */
export type WindowLog = ClientLog | ServerLog;
