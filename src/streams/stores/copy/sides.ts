/**
 * PORTS, inside the copy: where frames and snapshots come from, and where they go. A directory and the tables of a database have
 * the same segments, positions and bytes, so that both sides can be compared.
 */

import type { ScannedFrame } from "../journal/scan.ts";
import type { ByteSource } from "../journal/segment-log.ts";

/** What a segment says of itself. */
export interface CopiedSegment {
  readonly number: number;
  readonly firstLsn: number;
  readonly salt: number;
  readonly crcBefore: number;
  /** Where its last frame ends. */
  readonly end: number;
}

export interface CopiedImage {
  readonly lsn: number;
  readonly bytes: number;
}

export interface EndFrame {
  readonly lsn: number;
  readonly crc: number;
}

export interface CopySide {
  /** What people know it by, without a password. */
  readonly name: string;
  /** Oldest first. */
  segments(): Promise<readonly CopiedSegment[]>;
  /** The frames of a segment from a position on, a few at a time. Throws `data_damaged` at the first that is not valid. */
  frames(segment: CopiedSegment, from: number): AsyncIterable<readonly ScannedFrame[]>;
  images(): Promise<readonly CopiedImage[]>;
  openImage(image: CopiedImage): Promise<ByteSource>;
}

export interface CopySource extends CopySide {
  readonly storeId: string;
  /** How often the store was opened, here and where it was before: larger than that of everything it was copied from. */
  readonly incarnation: number;
  /** What the keys that sign webhooks are made from. Undefined: there is none yet. */
  readonly secret: string | undefined;
  /** The last frame that must be there. */
  readonly mark: EndFrame | undefined;
  /** Gives the store up: a server may open it. `last`: its last frame. */
  close(last: EndFrame | undefined): Promise<void>;
}

/** What of an interrupted copy is there, and stays. */
export interface CopyTarget extends CopySide {
  /** Makes a segment, if it is not there. Resolves with the place from which on frames are missing. */
  addSegment(segment: CopiedSegment): Promise<number>;
  /** Writes frames at the end of a segment. */
  addFrames(segment: CopiedSegment, frames: AsyncIterable<readonly ScannedFrame[]>): Promise<void>;
  dropSegment(number: number): Promise<void>;
  addImage(image: CopiedImage, bytes: ByteSource): Promise<void>;
  dropImage(lsn: number): Promise<void>;
  /** Makes a store of what was copied. Before it no server opens it. */
  finish(source: CopySource, last: EndFrame): Promise<void>;
  /** Ends the work. Without `finish` before, a later copy goes on. */
  close(): Promise<void>;
}
