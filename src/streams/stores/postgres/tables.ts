/**
 * PORT, inside the PostgreSQL store: the tables of one shard. Each call is one statement: all of it happens at one
 * moment, or nothing. A call rejects as a statement of a session does (session.ts).
 *
 * A *fenced write* carries the epoch of its writer, and happens only while the row of the shard has that epoch. So
 * nothing that an earlier owner has sent can take effect once there is a later one, however late it arrives.
 */

/** Where a frame lies, and which one it is. An owner writes one frame with an LSN, so these three name it. */
export interface FrameMark {
  readonly segment: number;
  readonly position: number;
  readonly lsn: number;
  readonly epoch: number;
}

export interface FrameWrite {
  readonly kind: "frame";
  readonly segment: number;
  readonly position: number;
  readonly lsn: number;
  readonly ordinal: number;
  /** The bytes, in the pieces that become rows. All but the last one have `PART_BYTES`. */
  readonly parts: readonly Uint8Array[];
  /** The frame before it. Its absence shows that the database has gone back. */
  readonly before: FrameMark | undefined;
}

export interface SegmentRow {
  readonly number: number;
  readonly firstLsn: number;
  readonly salt: number;
  /** CRC of the frame before its first one. */
  readonly crcBefore: number;
}

export type FencedWrite =
  | FrameWrite
  | { readonly kind: "segment"; readonly segment: SegmentRow }
  | { readonly kind: "retired"; readonly number: number }
  | {
      readonly kind: "image_part";
      readonly lsn: number;
      readonly part: number;
      readonly bytes: Uint8Array;
    }
  | { readonly kind: "image"; readonly lsn: number; readonly bytes: number }
  | { readonly kind: "image_dropped"; readonly lsn: number };

/** What a statement has done. */
export interface Done {
  /** The write happened now; or, for a confirmation, it has happened before and is there. */
  readonly isDone: boolean;
  /** The server has waited for everything that the store promises. */
  readonly isSure: boolean;
}

/** What a look at the tables found. It proves nothing about what is durable. */
export interface Sight {
  readonly epoch: number;
  /** The write is there. */
  readonly isThere: boolean;
  /** Something else is in its place. */
  readonly isTaken: boolean;
  /** The frame before it is there. */
  readonly hasBefore: boolean;
}

export interface Owner {
  readonly node: string;
  /** Random, new for each opening of the store. */
  readonly life: string;
}

export interface ShardState {
  readonly epoch: number;
  /** Undefined: the last owner has released the shard, or there was none. */
  readonly owner: Owner | undefined;
  /** Rises while the owner lives. Undefined: it has never given a sign. */
  readonly beat: number | undefined;
}

/** The last frame at the time of a clean release. */
export interface ReleaseMark {
  readonly lsn: number;
  readonly crc: number;
}

export interface ShardTables {
  /** Reads who owns the shard. */
  state(): Promise<ShardState>;
  /** Makes `owner` the owner with the next epoch, if the epoch is still this one. `timeMs`: the clock of the database. */
  take(epoch: number, owner: Owner): Promise<Done & { readonly timeMs: number }>;
  /** Gives the shard up, if the epoch is still this one. */
  release(epoch: number, mark: ReleaseMark | undefined): Promise<Done>;
  /** Gives a sign of life. Resolves with the epoch of the shard. It is not waited for by any standby. */
  beat(owner: Owner): Promise<number>;
  write(epoch: number, write: FencedWrite): Promise<Done>;
  /** Writes something, and with that proves that `write` is durable, if it is there. */
  confirm(epoch: number, write: FencedWrite): Promise<Done>;
  look(write: FencedWrite, epoch: number): Promise<Sight>;
  /** The frames of a segment from a position on, a few at a time. */
  frames(segment: number, from: number): Promise<readonly FrameRow[]>;
  /** Bytes of a segment. Fewer than `length` only at its end. */
  read(segment: number, position: number, length: number): Promise<readonly FramePiece[]>;
  /** Where a segment ends. */
  endOf(segment: number): Promise<number>;
  segments(): Promise<readonly SegmentRow[]>;
  images(): Promise<readonly ImageRow[]>;
  imagePart(image: ImageRow, part: number): Promise<Uint8Array | undefined>;
  released(): Promise<ReleaseMark | undefined>;
  /** Removes tables and rows that nothing names any more. May do less than everything. */
  sweep(epoch: number): Promise<void>;
}

export interface FrameRow {
  readonly position: number;
  readonly lsn: number;
  readonly epoch: number;
  readonly bytes: Uint8Array;
}

export interface FramePiece {
  readonly position: number;
  readonly bytes: Uint8Array;
}

export interface ImageRow {
  readonly lsn: number;
  readonly epoch: number;
  readonly bytes: number;
}

/** Size of the rows that a large frame or an image is cut into. A read of a row takes only what it needs. */
export const PART_BYTES = 1024 * 1024;
