/**
 * Reads what a directory has for the replay of its journal: snapshots, segments and STORE. Refuses what does not belong
 * together.
 */

import { HapaxError } from "../../../base/errors.ts";
import { damage } from "../journal/bytes.ts";
import type { KnownFrame } from "../journal/chain.ts";
import {
  decodeSegmentHeader,
  requireKnownFormat,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import {
  type FrameSource,
  type LogContents,
  otherStore,
  type RecoveryProgress,
  type ReplayedLog,
  replayLog,
} from "../journal/replay.ts";
import { findFrameBehind, scanSegment } from "../journal/scan.ts";
import type { Disk } from "./disk.ts";
import { parseSegmentName, type Segment, segmentName, SPARE_NAME } from "./segments.ts";
import { parseSnapshotName, snapshotName, UNFINISHED_SNAPSHOT } from "./snapshot-file.ts";
import { readStoreMark, STORE_NAME, type StoreMark, UNFINISHED_STORE } from "./store-file.ts";

/** The name of a file that is there until a copy into the directory is finished. */
export const UNFINISHED_COPY = "COPY";

/** What a directory has, and the world that follows from it. */
export interface Recovered extends ReplayedLog {
  readonly segments: readonly Segment[];
  readonly spares: readonly string[];
  /** Files of snapshots that were never finished. */
  readonly unfinished: readonly string[];
  /** Undefined if the directory is new. */
  readonly mark: StoreMark | undefined;
}

type FoundSegment = Segment & {
  /** The size of the file when the segment was begun. */
  readonly bytesWhole: number;
};

/**
 * Recovers, and only reads. It names left-over files; code that opens the store for writing removes them.
 * `mayLackData` is for the tools: they show what is lost with a missing segment.
 */
export async function recover(
  disk: Disk,
  onProgress: RecoveryProgress,
  mayLackData = false,
): Promise<Recovered> {
  const names = await disk.list();
  if (names.includes(UNFINISHED_COPY)) {
    const what =
      "a copy or a restore into the directory is not finished: run hapax copy or restore again, or empty it";
    throw new HapaxError("directory_unusable", what);
  }
  const mark = mayLackData ? undefined : await readStoreMark(disk, names);
  const segments = await readSegments(disk, names, mark?.id);
  const images = names
    .map(parseSnapshotName)
    .filter((lsn) => lsn !== undefined)
    .sort((one, other) => other - one);
  if (mark === undefined && !mayLackData && segments.length + images.length > 0) {
    throw damage(STORE_NAME, 0, "it is missing; hapax repair makes it anew");
  }
  const contents = new DirectoryContents(disk, images, segments, mark);
  const replayed = await replayLog(contents, onProgress, mayLackData);
  if (mark !== undefined) requireEnd(mark, segments, replayed.nextLsn);
  return {
    ...replayed,
    segments,
    spares: names.filter((name) => SPARE_NAME.test(name)),
    unfinished: names.filter((name) => UNFINISHED_SNAPSHOT.test(name) || name === UNFINISHED_STORE),
    mark,
  };
}

class DirectoryContents implements LogContents {
  readonly images: readonly number[];
  readonly segments: readonly FoundSegment[];
  readonly storeId: string | undefined;
  readonly known: readonly KnownFrame[];
  readonly #disk: Disk;

  constructor(
    disk: Disk,
    images: readonly number[],
    segments: readonly FoundSegment[],
    mark: StoreMark | undefined,
  ) {
    this.#disk = disk;
    this.images = images;
    this.segments = segments;
    this.storeId = mark?.id;
    this.known = mark === undefined ? [] : [{ lsn: mark.lsn, crc: mark.crc, by: STORE_NAME }];
  }

  imageName(lsn: number): string {
    return snapshotName(lsn);
  }

  openImage(lsn: number) {
    return this.#disk.open(snapshotName(lsn), "read");
  }

  async openSegment(segment: FoundSegment): Promise<FrameSource> {
    const { name, salt, bytes, bytesWhole } = segment;
    const file = await this.#disk.open(name, "read");
    if (bytes < bytesWhole) {
      await file.close();
      const what = `the file has ${bytes} of ${bytesWhole} bytes: its end is missing`;
      throw damage(name, bytes, what);
    }
    return {
      scan: (firstLsn, take, from) => scanSegment(file, salt, firstLsn, take, from),
      findBehind: ({ end, nextLsn }) => findFrameBehind(file, salt, end, nextLsn),
      close: () => file.close(),
    };
  }
}

/** ID2: checks that the journal reaches as far as STORE says. */
function requireEnd(mark: StoreMark, segments: readonly Segment[], nextLsn: number): void {
  const last = segments.at(-1);
  if ((last?.number ?? 0) < mark.segment) {
    throw damage(segmentName(mark.segment), 0, "the end of the journal is missing: this segment");
  }
  if (nextLsn <= mark.lsn) {
    const what = `the end of the journal is missing: LSN ${nextLsn} to ${mark.lsn}`;
    throw damage(last?.name ?? "the journal", last?.end ?? 0, what);
  }
}

/** Reads the headers. `storeId` is undefined if it is not known. */
export async function readSegments(
  disk: Disk,
  names: readonly string[],
  storeId: string | undefined,
): Promise<FoundSegment[]> {
  const segments: FoundSegment[] = [];
  for (const name of names) {
    const number = parseSegmentName(name);
    if (number === undefined) continue;
    const file = await disk.open(name, "read");
    try {
      const bytes = await file.size();
      const block = await file.read(0, SEGMENT_HEADER_BYTES);
      requireKnownFormat(name, block);
      const header = decodeSegmentHeader(block);
      if (header === undefined) throw damage(name, 0, "the header is not whole");
      if (header.number !== number) throw damage(name, 16, `it is segment ${header.number}`);
      if (storeId !== undefined && header.storeId !== storeId) {
        throw damage(name, 56, otherStore(header.storeId, storeId));
      }
      const { firstLsn, salt, crcBefore, bytes: bytesWhole } = header;
      segments.push({ number, name, firstLsn, salt, crcBefore, bytes, bytesWhole, end: bytes });
    } finally {
      await file.close();
    }
  }
  return segments.sort((one, other) => one.number - other.number);
}
