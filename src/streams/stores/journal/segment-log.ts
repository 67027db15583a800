/**
 * PORT, inside the stores that have a journal: where the frames of a journal and the images of its world are kept. A
 * directory of files is one, tables of a database are another.
 *
 * A frame has a place: the number of its segment, and the position of its first byte there. Segments exist so that old
 * frames can be given up together.
 *
 *   - an append is all or nothing, and durable when it resolves; frames are appended one after the other;
 *   - an append that rejects is final: the caller appends nothing more;
 *   - the number of a segment is never used twice, so bytes of a retired segment never count as bytes of another;
 *   - an image is there whole, or not at all.
 */

import type { BackupSegment, StoreRoom } from "../../store.ts";
import type { Frame } from "./frame.ts";
import type { ReadBuffers } from "./read-buffers.ts";

/** Reads the bytes of frames. */
export interface SegmentReader {
  /** Memory for reads. */
  readonly buffers: ReadBuffers;
  /** The name of a segment in messages about it. */
  nameOf(segment: number): string;
  /** Reads up to `length` bytes; fewer only at the end of the segment. Throws `data_damaged` if the segment is gone. */
  read(segment: number, position: number, length: number, into?: Buffer): Promise<Buffer>;
}

export interface SegmentLog extends SegmentReader {
  /** 32 hexadecimal digits: the store that the frames and images belong to. */
  readonly storeId: string;
  /** The room for data, kept current. */
  readonly room: StoreRoom;
  readonly space: LogSpace;
  /** Begins to write, after the last frame that was replayed. `onFull`: called when room is short, and again until there is some. */
  start(onFull: () => void): Promise<void>;
  /**
   * Appends a frame of so many bytes. `seal` completes it with the salt of its segment, once there is room for it.
   * Resolves with its place when it is durable.
   */
  append<Sealed extends SealedFrame>(
    bytes: number,
    seal: (salt: number) => Sealed,
  ): Promise<Sealed & FramePlace>;
  /** Oldest first. The last one is being written. */
  segments(): readonly JournalSegment[];
  /** Gives a segment up. Nothing reads its frames any more. */
  retire(segment: number): Promise<void>;
  /** Keeps what `write` writes as the image of the world at this LSN, once `write` has resolved. */
  putImage(lsn: number, write: (sink: ImageSink) => Promise<void>): Promise<void>;
  dropImage(lsn: number): Promise<void>;
  /** Optional: what backups read. A log without it is in the backups of the place that keeps it. */
  readonly copies?: LogCopies;
  /** `isWhole`: no append has failed, so the last frame is known to be the last one. */
  close(isWhole: boolean): Promise<void>;
}

/** What a backup of a log reads, beside its frames. */
export interface LogCopies {
  /** Oldest first, as they are now. */
  segments(): readonly BackupSegment[];
  openImage(lsn: number): Promise<ByteSource>;
}

export type SealedFrame = Pick<Frame, "buffers" | "bytes" | "crc">;

export interface FramePlace {
  readonly segment: number;
  readonly position: number;
}

export interface JournalSegment {
  readonly number: number;
  readonly name: string;
  readonly firstLsn: number;
  /** What it takes where it is kept. */
  readonly bytes: number;
}

/** The room of a log, for the work that frees some. */
export interface LogSpace {
  /** There was no room for the next segment. */
  readonly isFull: boolean;
  /** Bytes that the log takes. */
  readonly fileBytes: number;
  /** How much compaction may write. */
  moveRoomBytes(): number;
  /** Whether a frame of this size has room that deletes do not need. */
  hasRoomToMove(frameBytes: number): Promise<boolean>;
  /** Runs the writing of an image, on a full log with the room that other preparations would take. */
  forImage(write: () => Promise<void>): Promise<void>;
  /** Makes room for the next segment in the background. */
  prepare(): void;
  /** From now on no append waits for room: it gets room at once, or an error. */
  stopWaiting(): void;
}

/** Takes the bytes of an image, in order. */
export interface ImageSink {
  write(bytes: Uint8Array): Promise<void>;
}

/** Bytes that can be read in any order: a segment, or an image. */
export interface ByteSource {
  size(): Promise<number>;
  /** Reads up to `length` bytes from `position`; fewer only at the end. */
  read(position: number, length: number): Promise<Buffer>;
  close(): Promise<void>;
}
