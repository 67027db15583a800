/** What the tables of a shard have for the replay of its journal. Every row is checked: PostgreSQL may not do so itself. */

import { damage } from "../journal/bytes.ts";
import type { KnownFrame } from "../journal/chain.ts";
import {
  alignFrame,
  decodeFrameHeader,
  FRAME_HEADER_BYTES,
  isFrameValid,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import type { FrameSource, LogContents, ReplaySegment } from "../journal/replay.ts";
import type { ScannedFrame, ScanEnd } from "../journal/scan.ts";
import type { ByteSource } from "../journal/segment-log.ts";
import {
  type FrameMark,
  type FrameRow,
  type ImageRow,
  PART_BYTES,
  type ReleaseMark,
  type SegmentRow,
  type ShardTables,
} from "./tables.ts";

/** A segment as it was found. */
export interface TableSegment extends ReplaySegment {
  readonly salt: number;
}

export function segmentTable(number: number): string {
  return `hapax_seg_${number}`;
}

export function imageTable(lsn: number): string {
  return `hapax_image ${lsn}`;
}

export class TableContents implements LogContents {
  readonly storeId: string;
  readonly known: readonly KnownFrame[];
  readonly images: readonly number[];
  readonly segments: readonly TableSegment[];
  /** Set by the replay: the last frame that was read. */
  last: FrameMark | undefined;
  readonly #tables: ShardTables;
  readonly #images: ReadonlyMap<number, ImageRow>;

  private constructor(
    tables: ShardTables,
    storeId: string,
    found: {
      readonly images: readonly ImageRow[];
      readonly segments: readonly TableSegment[];
      readonly released: ReleaseMark | undefined;
    },
  ) {
    this.#tables = tables;
    this.storeId = storeId;
    this.known = found.released === undefined ? [] : [{ ...found.released, by: "hapax_shard" }];
    this.images = found.images.map(({ lsn }) => lsn);
    this.#images = new Map(found.images.map((image) => [image.lsn, image]));
    this.segments = found.segments;
  }

  /**
   * Lists what there is. An owner calls it only after its takeover was acknowledged: then nothing of it can vanish. `known`: an
   * earlier list, from which the ends of complete segments are taken.
   */
  static async list(
    tables: ShardTables,
    storeId: string,
    known?: TableContents,
  ): Promise<TableContents> {
    const rows = await tables.segments();
    const complete = new Map(known?.segments.slice(0, -1).map(({ number, end }) => [number, end]));
    const segments: TableSegment[] = [];
    for (const row of rows) {
      segments.push(segmentOf(row, complete.get(row.number) ?? (await tables.endOf(row.number))));
    }
    const images = await tables.images();
    const released = await tables.released();
    return new TableContents(tables, storeId, { images, segments, released });
  }

  /** Bytes of the images, and how many there are of each. */
  imageBytes(lsn: number): number {
    return this.#images.get(lsn)?.bytes ?? 0;
  }

  imageName(lsn: number): string {
    return imageTable(lsn);
  }

  openImage(lsn: number): Promise<ByteSource> {
    const image = this.#images.get(lsn);
    if (image === undefined) throw damage(imageTable(lsn), 0, "it is missing");
    return Promise.resolve(new ImageSource(this.#tables, image));
  }

  openSegment(segment: TableSegment): Promise<FrameSource> {
    return Promise.resolve({
      scan: (firstLsn, take, from) => this.#scan(segment, firstLsn, take, from),
      // Rows are whole or absent, so a place without a valid frame is damage wherever it is. The scan throws then.
      findBehind: () => Promise.resolve(undefined),
      close: () => Promise.resolve(),
    });
  }

  async #scan(
    segment: TableSegment,
    firstLsn: number,
    take: (frame: ScannedFrame) => void,
    from?: number,
  ): Promise<ScanEnd> {
    let nextLsn = firstLsn;
    const joiner = new FrameJoiner(segment, from);
    for (;;) {
      const rows = await this.#tables.frames(segment.number, joiner.end);
      if (rows.length === 0) break;
      for (const row of rows) {
        const frame = joiner.add(row);
        if (frame === undefined) continue;
        const { lsn } = frame.header;
        if (lsn !== nextLsn || row.lsn !== lsn) {
          throw damage(segment.name, frame.position, `it has LSN ${lsn}, not ${nextLsn}`);
        }
        take(frame);
        nextLsn += 1;
        const { position } = frame;
        this.last = { segment: segment.number, position, lsn, epoch: row.epoch };
      }
    }
    joiner.finish();
    return { end: joiner.end, nextLsn, isTorn: false };
  }
}

/** `endOfRows`: 0 if there are none. */
function segmentOf(row: SegmentRow, endOfRows: number): TableSegment {
  const { number, firstLsn, salt, crcBefore } = row;
  const end = Math.max(endOfRows, SEGMENT_HEADER_BYTES);
  return { number, name: segmentTable(number), firstLsn, salt, crcBefore, bytes: end, end };
}

/** Puts rows together to frames. Throws `data_damaged` at what does not fit. */
export class FrameJoiner {
  readonly #segment: Pick<TableSegment, "name" | "salt">;
  #parts: Buffer[] = [];
  #bytes = 0;
  /** Where the next row must begin. */
  end: number;

  constructor(segment: Pick<TableSegment, "name" | "salt">, from = SEGMENT_HEADER_BYTES) {
    this.#segment = segment;
    this.end = from;
  }

  add({ position, bytes }: FrameRow): ScannedFrame | undefined {
    const { name, salt } = this.#segment;
    if (position !== this.end) throw damage(name, this.end, "a row is missing");
    const part = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#parts.push(part);
    this.#bytes += part.length;
    this.end += part.length;
    const [first = part] = this.#parts;
    const header = decodeFrameHeader(first, 0, Number.MAX_SAFE_INTEGER);
    const start = this.end - this.#bytes;
    if (header === undefined) throw damage(name, start, "a row has no frame");
    const size = alignFrame(FRAME_HEADER_BYTES + header.payloadBytes);
    if (this.#bytes < size) return undefined;
    const whole = this.#parts.length === 1 ? first : Buffer.concat(this.#parts);
    if (this.#bytes > size || !isFrameValid(whole, 0, header, salt)) {
      throw damage(name, start, `LSN ${header.lsn} does not match its checksum`);
    }
    this.#parts = [];
    this.#bytes = 0;
    const bytesOfFrame = whole.subarray(0, FRAME_HEADER_BYTES + header.payloadBytes);
    return { header, position: start, bytes: bytesOfFrame };
  }

  finish(): void {
    if (this.#bytes > 0) {
      throw damage(this.#segment.name, this.end - this.#bytes, "a frame is not whole");
    }
  }
}

/** The bytes of an image, part by part. It keeps the last part, because an image is read from front to back. */
export class ImageSource implements ByteSource {
  readonly #tables: ShardTables;
  readonly #image: ImageRow;
  #part = -1;
  #bytes: Uint8Array = new Uint8Array();

  constructor(tables: ShardTables, image: ImageRow) {
    this.#tables = tables;
    this.#image = image;
  }

  size(): Promise<number> {
    return Promise.resolve(this.#image.bytes);
  }

  async read(position: number, length: number): Promise<Buffer> {
    const end = Math.min(position + length, this.#image.bytes);
    const pieces: Uint8Array[] = [];
    for (let at = position; at < end;) {
      const part = Math.floor(at / PART_BYTES);
      const bytes = await this.#load(part);
      const from = at - part * PART_BYTES;
      const piece = bytes.subarray(from, from + end - at);
      if (piece.length === 0) throw damage(imageTable(this.#image.lsn), at, "its end is missing");
      pieces.push(piece);
      at += piece.length;
    }
    return Buffer.concat(pieces);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  async #load(part: number): Promise<Uint8Array> {
    if (this.#part === part) return this.#bytes;
    const bytes = await this.#tables.imagePart(this.#image, part);
    if (bytes === undefined) {
      throw damage(imageTable(this.#image.lsn), part * PART_BYTES, "a part is missing");
    }
    this.#part = part;
    this.#bytes = bytes;
    return bytes;
  }
}
