/**
 * A directory as one side of a copy. While a copy is not finished, the file COPY is there, and no server opens the directory.
 */

import fs from "node:fs";
import { join } from "node:path";
import { HapaxError } from "../../../base/errors.ts";
import { systemRandom } from "../../../base/random.ts";
import type { Disk } from "../file/disk.ts";
import { lockDirectory, lockForReading, isOfLock, type Lock } from "../file/lock.ts";
import { openNodeDisk } from "../file/node-disk.ts";
import { readSegments, UNFINISHED_COPY } from "../file/recovery.ts";
import { openSecret, SECRET_NAME, UNFINISHED_SECRET } from "../file/secret-file.ts";
import { segmentName } from "../file/segments.ts";
import { parseSnapshotName, putSnapshotFile, snapshotName } from "../file/snapshot-file.ts";
import { encodeStoreFile, readStoreMark, STORE_NAME, type StoreMark } from "../file/store-file.ts";
import { damage } from "../journal/bytes.ts";
import {
  alignFrame,
  decodeFrameHeader,
  encodeSegmentHeader,
  FORMAT_VERSION,
  FRAME_HEADER_BYTES,
  isFrameValid,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import { findFrameBehind, type ScannedFrame, scanSegment } from "../journal/scan.ts";
import type { ByteSource } from "../journal/segment-log.ts";
import type {
  CopiedImage,
  CopiedSegment,
  CopySide,
  CopySource,
  CopyTarget,
  EndFrame,
} from "./sides.ts";

const UNFINISHED_SEGMENT = "COPY.seg";
const WINDOW_BYTES = 4 * 1024 * 1024;

class DirectorySide implements CopySide {
  readonly name: string;
  protected readonly disk: Disk;
  /** Every change of a target goes through this list. */
  protected readonly known: CopiedSegment[];

  constructor(path: string, disk: Disk, known: CopiedSegment[]) {
    this.name = path;
    this.disk = disk;
    this.known = known;
  }

  segments(): Promise<readonly CopiedSegment[]> {
    return Promise.resolve(this.known);
  }

  async *frames(segment: CopiedSegment, from: number): AsyncGenerator<readonly ScannedFrame[]> {
    const name = segmentName(segment.number);
    const file = await this.disk.open(name, "read");
    try {
      let length = WINDOW_BYTES;
      for (let at = Math.max(from, SEGMENT_HEADER_BYTES); at < segment.end;) {
        const window = await file.read(at, Math.min(length, segment.end - at));
        const { frames, bytes, wanted } = framesIn(window, at, segment.salt);
        if (frames.length > 0) yield frames;
        else if (wanted <= window.length) {
          throw damage(name, at, "the frame does not match its checksum");
        }
        at += bytes;
        length = Math.max(WINDOW_BYTES, wanted);
      }
    } finally {
      await file.close();
    }
  }

  async images(): Promise<readonly CopiedImage[]> {
    const images: CopiedImage[] = [];
    for (const name of await this.disk.list()) {
      const lsn = parseSnapshotName(name);
      if (lsn === undefined) continue;
      const file = await this.disk.open(name, "read");
      images.push({ lsn, bytes: await file.size() });
      await file.close();
    }
    return images.toSorted((one, other) => other.lsn - one.lsn);
  }

  openImage({ lsn }: CopiedImage): Promise<ByteSource> {
    return this.disk.open(snapshotName(lsn), "read");
  }
}

/** The whole frames of a window. `wanted`: what the next one needs; 0 if there is none. */
function framesIn(window: Buffer, start: number, salt: number) {
  const frames: ScannedFrame[] = [];
  let at = 0;
  for (;;) {
    const header = decodeFrameHeader(window, at, Number.MAX_SAFE_INTEGER);
    if (header === undefined) {
      const isCut = window.length - at < FRAME_HEADER_BYTES;
      return { frames, bytes: at, wanted: isCut && at > 0 ? FRAME_HEADER_BYTES : 0 };
    }
    const size = FRAME_HEADER_BYTES + header.payloadBytes;
    if (at + size > window.length) return { frames, bytes: at, wanted: alignFrame(size) };
    if (!isFrameValid(window, at, header, salt)) return { frames, bytes: at, wanted: 0 };
    frames.push({ header, position: start + at, bytes: window.subarray(at, at + size) });
    at += alignFrame(size);
  }
}

/** Opens a directory to copy it. No server may own it. */
export async function openDirectorySource(path: string): Promise<CopySource> {
  const disk = openNodeDisk(path, true);
  const lock = await lockForReading(path);
  try {
    const names = await disk.list();
    requireFinished(names, path);
    const mark = await readStoreMark(disk, names);
    if (mark === undefined) throw new HapaxError("not_found", `no streams are kept in ${path}`);
    const segments: CopiedSegment[] = [];
    const found = await readSegments(disk, names, mark.id);
    for (const segment of found) {
      const { number, firstLsn, salt, crcBefore } = segment;
      const isLast = segment === found.at(-1);
      const end = await endOf(disk, segment, isLast);
      segments.push({ number, firstLsn, salt, crcBefore, end });
    }
    const secret = names.includes(SECRET_NAME) ? await (await openSecret(path)).get() : undefined;
    return new DirectorySource(path, disk, segments, mark, secret, lock);
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/** Where the frames end. An incomplete one at the end of the journal was never acknowledged, and is not copied. */
async function endOf(
  disk: Disk,
  {
    name,
    salt,
    firstLsn,
  }: { readonly name: string; readonly salt: number; readonly firstLsn: number },
  isLast: boolean,
): Promise<number> {
  const file = await disk.open(name, "read");
  try {
    const { end, nextLsn, isTorn } = await scanSegment(file, salt, firstLsn, () => undefined);
    const behind = await findFrameBehind(file, salt, end, nextLsn);
    if (behind !== undefined || (isTorn && !isLast)) {
      throw damage(name, end, `LSN ${nextLsn} is not valid; hapax verify says what it costs`);
    }
    return end;
  } finally {
    await file.close();
  }
}

class DirectorySource extends DirectorySide implements CopySource {
  readonly storeId: string;
  readonly incarnation: number;
  readonly mark: EndFrame;
  readonly secret: string | undefined;
  readonly #lock: Lock;

  constructor(
    path: string,
    disk: Disk,
    segments: CopiedSegment[],
    mark: StoreMark,
    secret: string | undefined,
    lock: Lock,
  ) {
    super(path, disk, segments);
    this.storeId = mark.id;
    this.incarnation = mark.epoch;
    this.mark = mark;
    this.secret = secret;
    this.#lock = lock;
  }

  close(): Promise<void> {
    return this.#lock.release();
  }
}

function requireFinished(names: readonly string[], path: string): void {
  if (!names.includes(UNFINISHED_COPY)) return;
  throw new HapaxError(
    "directory_unusable",
    `a copy into ${path} is not finished: finish it first`,
  );
}

/** Opens a directory to copy the store into it: a new or empty one, or one with the same copy, interrupted. */
export async function openDirectoryTarget(path: string, storeId: string): Promise<CopyTarget> {
  fs.mkdirSync(path, { recursive: true, mode: 0o700 });
  const disk = openNodeDisk(path, true);
  const lock = await lockDirectory(path);
  try {
    const names = await disk.list();
    const own = names.filter((name) => !isOfLock(name));
    if (own.includes(UNFINISHED_COPY)) {
      if (await mustMarkAnew(path, storeId)) await putMarker(path, disk, storeId);
    } else if (own.length > 0) {
      throw new HapaxError("directory_unusable", `${path} is not empty: nothing was changed`);
    } else await putMarker(path, disk, storeId);
    for (const name of own) {
      const isHalf = name.endsWith(".tmp") || name === UNFINISHED_SEGMENT;
      if (isHalf || name === UNFINISHED_SECRET) await disk.remove(name);
    }
    const found = await readSegments(disk, await disk.list(), storeId);
    const segments = found.map(({ number, firstLsn, salt, crcBefore, bytes: end }) => {
      return { number, firstLsn, salt, crcBefore, end };
    });
    return new DirectoryTarget(path, disk, segments, storeId, lock);
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/** Throws if it is another one. False: the mark is whole. */
async function mustMarkAnew(path: string, storeId: string): Promise<boolean> {
  const text = await fs.promises.readFile(join(path, UNFINISHED_COPY), "latin1");
  if (text.trim() === storeId) return false;
  if (text === "") return true; // A kill has left it empty, and nothing else was made.
  throw new HapaxError(
    "directory_unusable",
    `${path} has an unfinished copy of another store: nothing was changed`,
  );
}

async function putMarker(path: string, disk: Disk, storeId: string): Promise<void> {
  const file = await fs.promises.open(join(path, UNFINISHED_COPY), "w", 0o600);
  try {
    await file.writeFile(`${storeId}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await disk.syncDirectory();
}

class DirectoryTarget extends DirectorySide implements CopyTarget {
  readonly #storeId: string;
  readonly #lock: Lock;

  constructor(path: string, disk: Disk, segments: CopiedSegment[], storeId: string, lock: Lock) {
    super(path, disk, segments);
    this.#storeId = storeId;
    this.#lock = lock;
  }

  /** A segment gets its name when it is whole. One that has grown in the source is made anew. */
  async addSegment(segment: CopiedSegment): Promise<number> {
    const known = this.known.find(({ number }) => number === segment.number);
    if (known?.end === segment.end) return segment.end;
    if (known !== undefined) await this.dropSegment(segment.number);
    return 0;
  }

  async addFrames(
    segment: CopiedSegment,
    frames: AsyncIterable<readonly ScannedFrame[]>,
  ): Promise<void> {
    const file = await this.disk.open(UNFINISHED_SEGMENT, "create");
    try {
      const { number, firstLsn, salt, crcBefore, end: bytes } = segment;
      const place = { number, firstLsn, salt, crcBefore, bytes, storeId: this.#storeId };
      const header = { version: FORMAT_VERSION, ...place, timeMs: 0 };
      await file.write([encodeSegmentHeader(header)], 0);
      let end = SEGMENT_HEADER_BYTES;
      for await (const batch of frames) {
        for (const frame of batch) {
          const size = alignFrame(frame.bytes.length);
          const zeros = new Uint8Array(size - frame.bytes.length);
          await file.write([frame.bytes, zeros], frame.position);
          end = frame.position + size;
        }
      }
      if (end !== segment.end) throw damage(segmentName(number), end, "the source has changed");
      await file.sync();
    } finally {
      await file.close();
    }
    await this.disk.rename(UNFINISHED_SEGMENT, segmentName(segment.number));
    await this.disk.syncDirectory();
    this.known.push(segment);
    this.known.sort((one, other) => one.number - other.number);
  }

  async dropSegment(number: number): Promise<void> {
    await this.disk.remove(segmentName(number));
    this.known.splice(
      this.known.findIndex((segment) => segment.number === number),
      1,
    );
  }

  addImage({ lsn, bytes }: CopiedImage, source: ByteSource): Promise<void> {
    return putSnapshotFile(this.disk, lsn, async (sink) => {
      for (let at = 0; at < bytes; at += WINDOW_BYTES) {
        await sink.write(await source.read(at, Math.min(WINDOW_BYTES, bytes - at)));
      }
    });
  }

  dropImage(lsn: number): Promise<void> {
    return this.disk.remove(snapshotName(lsn));
  }

  async finish(source: CopySource, last: EndFrame): Promise<void> {
    if (source.secret !== undefined) await putSecret(this.name, source.secret);
    const mark: StoreMark = {
      id: source.storeId,
      epoch: source.incarnation + 1,
      owner: systemRandom.id().slice(0, 16),
      segment: this.known.at(-1)?.number ?? 0,
      ...last,
      isClosed: true,
    };
    await putFile(this.name, STORE_NAME, encodeStoreFile(mark));
    await this.disk.syncDirectory();
    await this.disk.remove(UNFINISHED_COPY);
    await this.disk.syncDirectory();
  }

  close(): Promise<void> {
    return this.#lock.release();
  }
}

/** Only its owner may read it. */
function putSecret(path: string, secret: string): Promise<void> {
  return putFile(path, SECRET_NAME, Buffer.from(`${secret}\n`, "latin1"));
}

async function putFile(path: string, name: string, bytes: Uint8Array): Promise<void> {
  const unfinished = join(path, `${name}.tmp`);
  await fs.promises.rm(unfinished, { force: true });
  const file = await fs.promises.open(unfinished, "wx", 0o600);
  try {
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
  await fs.promises.rename(unfinished, join(path, name));
}
