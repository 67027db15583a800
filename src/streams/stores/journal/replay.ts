/**
 * Makes a world of what a log has kept: the newest whole image, then every frame after it, with core's `applyChange`.
 *
 *   RC3  everything that was acknowledged is in the world and in the index again, and nothing that was not written;
 *   RC4  damage is refused with place and LSN; what is not understood is not deleted.
 */

import { Restoration } from "../../core/restore.ts";
import { createWorld, type World } from "../../core/world.ts";
import { HapaxError, isHapaxError } from "../../../base/errors.ts";
import { damage } from "./bytes.ts";
import { Chain, type KnownFrame } from "./chain.ts";
import { ExtentIndex } from "./extents.ts";
import { Placement } from "./placement.ts";
import { placedRecordsOf, type ScannedFrame, type ScanEnd } from "./scan.ts";
import type { ByteSource, JournalSegment } from "./segment-log.ts";
import type { SnapshotHead } from "./snapshot-format.ts";
import { ownEarliest } from "../../core/trim.ts";
import { readSnapshot } from "./snapshot-reading.ts";

/** What a log has, to be read once, when it is opened. */
export interface LogContents {
  /** Undefined if it is not known. */
  readonly storeId: string | undefined;
  /** Frames that something else than the journal names. */
  readonly known: readonly KnownFrame[];
  /** LSNs of the images, newest first. */
  readonly images: readonly number[];
  /** Oldest first. */
  readonly segments: readonly ReplaySegment[];
  imageName(lsn: number): string;
  openImage(lsn: number): Promise<ByteSource>;
  /** Throws `data_damaged` if the segment has lost its end. */
  openSegment(segment: ReplaySegment): Promise<FrameSource>;
}

export interface ReplaySegment extends JournalSegment {
  /** CRC of the frame before its first one. */
  readonly crcBefore: number;
  /** Set by the replay: where the last frame ends. */
  end: number;
}

/** The frames of a segment. */
export interface FrameSource {
  /** Calls `take` for each frame from `from` on, or for all; stops at the first place without a valid one. */
  scan(firstLsn: number, take: (frame: ScannedFrame) => void, from?: number): Promise<ScanEnd>;
  /** Finds a valid frame behind the place at which the scan stopped: then that place is damaged. */
  findBehind(scan: ScanEnd): Promise<{ readonly lsn: number } | undefined>;
  close(): Promise<void>;
}

export interface ReplayedLog {
  readonly world: World;
  readonly index: ExtentIndex;
  /** LSNs of the used image and of older ones, newest first. */
  readonly snapshots: readonly number[];
  readonly nextLsn: number;
  /** CRC of the last frame; 0 if there is none. */
  readonly lastCrc: number;
  readonly report: RecoveryReport;
}

/** The report of opening a journal: which snapshot was used, and what was replayed after it. */
export interface RecoveryReport {
  /** LSN of the snapshot that was used, if any. */
  readonly snapshotLsn: number | undefined;
  readonly frames: number;
  readonly changes: number;
  readonly bytes: number;
  /** The journal ended with an incomplete frame, which was never acknowledged. */
  readonly torn: { readonly file: string; readonly position: number } | undefined;
  /** Snapshots that could not be used, and why. */
  readonly warnings: readonly string[];
}

/** Called from time to time with the bytes read so far and the bytes in all. */
export type RecoveryProgress = (bytes: number, bytesTotal: number) => void;

interface Base {
  readonly world: World;
  readonly index: ExtentIndex;
  readonly restoration: Restoration;
  readonly snapshotLsn: number | undefined;
  readonly snapshotCrc: number;
  readonly warnings: readonly string[];
}

/** Replays a log, and only reads. `mayLackData` is for the tools: they show what is lost with a missing segment. */
export async function replayLog(
  contents: LogContents,
  onProgress: RecoveryProgress,
  mayLackData = false,
): Promise<ReplayedLog> {
  const replay = await LogReplay.begin(contents, mayLackData);
  await replay.advance(contents, onProgress);
  return replay.finish(contents);
}

/** A replay that may go on with what the log has got since. After an error it has played whole frames, and may go on too. */
export class LogReplay {
  readonly #base: Base;
  readonly #chain: Chain | undefined;
  readonly #player: Player;
  /** Images that were there at the beginning, and could not be read. */
  readonly #unreadable: ReadonlySet<number>;
  readonly #marks: ReplayMark[] = [];
  #nextLsn: number;
  /** The last frame that was played. */
  #last: PlayedFrame | undefined;
  /** The frame at which this advance has begun. */
  #continued: PlayedFrame | undefined;
  #torn: RecoveryReport["torn"];

  private constructor(base: Base, contents: LogContents, mayLackData: boolean) {
    this.#base = base;
    this.#chain = mayLackData ? undefined : chainOf(base, contents);
    this.#nextLsn = (base.snapshotLsn ?? 0) + 1;
    this.#player = new Player(base);
    this.#unreadable = new Set(contents.images.filter((lsn) => lsn > (base.snapshotLsn ?? -1)));
  }

  /** Reads the newest image that is whole. */
  static async begin(contents: LogContents, mayLackData = false): Promise<LogReplay> {
    return new LogReplay(await loadBase(contents), contents, mayLackData);
  }

  get nextLsn(): number {
    return this.#nextLsn;
  }

  /**
   * Plays the frames that it has not played. The last frame that it has played must still be there: it may have been read from a
   * database that has lost it since.
   */
  async advance(contents: LogContents, onProgress: RecoveryProgress): Promise<void> {
    const { segments } = contents;
    const last = this.#last;
    this.#continued = last;
    for (const known of contents.known) this.#chain?.expect(known);
    const fromLsn = last?.lsn ?? this.#nextLsn;
    const first = segments.findLastIndex((segment) => segment.firstLsn <= fromLsn);
    if (first === -1 && (segments.length > 0 || this.#nextLsn > 1)) {
      throw damage(segments[0]?.name ?? "the journal", 0, `LSN ${fromLsn} is missing`);
    }
    const wanted = first === -1 ? [] : segments.slice(first);
    const bytesTotal = wanted.reduce((sum, segment) => sum + segment.bytes, 0);
    let nextLsn = wanted[0]?.firstLsn ?? fromLsn;
    let bytesBefore = 0;
    for (const [at, segment] of wanted.entries()) {
      if (segment.firstLsn !== nextLsn) {
        throw damage(segment.name, 24, `it starts at LSN ${segment.firstLsn}, not ${nextLsn}`);
      }
      const progress = (position: number): void => onProgress(bytesBefore + position, bytesTotal);
      nextLsn = await this.#playSegment(contents, segment, wanted[at + 1], progress);
      bytesBefore += segment.bytes;
    }
    if (nextLsn < this.#nextLsn) {
      const name = wanted.at(-1)?.name ?? "the journal";
      if (last === undefined) throw damage(name, 0, `it ends before LSN ${this.#nextLsn}`);
      throw damage(name, last.position, `it has lost LSN ${last.lsn}`);
    }
    this.#base.restoration.forgetImages();
    this.#mark(contents.images);
  }

  /** Ends the replay. `contents` are those that it was advanced with last. */
  finish(contents: LogContents): ReplayedLog {
    const { world, index, snapshotLsn, warnings } = this.#base;
    this.#player.finish();
    if (this.#chain !== undefined) requireSegments(index, contents.segments);
    // A snapshot that could not be read must not count as one of the two that are kept.
    const snapshots = contents.images.filter((lsn) => !this.#unreadable.has(lsn));
    const { frames, changes, bytes } = this.#player;
    const before = this.#marks.findLast(({ lsn }) => lsn <= (snapshots[0] ?? 0));
    return {
      world,
      index,
      snapshots,
      nextLsn: this.#nextLsn,
      lastCrc: this.#chain?.lastCrc ?? 0,
      report: {
        snapshotLsn,
        frames: frames - (before?.frames ?? 0),
        changes: changes - (before?.changes ?? 0),
        bytes: bytes - (before?.bytes ?? 0),
        torn: this.#torn,
        warnings,
      },
    };
  }

  /** Plays what a segment has. Returns the LSN behind it. */
  async #playSegment(
    contents: LogContents,
    segment: ReplaySegment,
    next: ReplaySegment | undefined,
    onProgress: (position: number) => void,
  ): Promise<number> {
    const last = this.#last?.segment === segment.number ? this.#last : undefined;
    const source = await contents.openSegment(segment);
    try {
      if (last === undefined) {
        requireLink(segment.name, 52, this.#chain?.segment(segment.name, segment));
      }
      const scan = await source.scan(
        last?.lsn ?? segment.firstLsn,
        (frame) => {
          this.#play(frame, segment);
          onProgress(frame.position);
        },
        last?.position,
      );
      const behind = next === undefined ? await source.findBehind(scan) : undefined;
      if (behind !== undefined || (next !== undefined && next.firstLsn !== scan.nextLsn)) {
        const proof = behind?.lsn ?? next?.firstLsn ?? 0;
        throw damage(segment.name, scan.end, `LSN ${scan.nextLsn} is not valid, LSN ${proof} is`);
      }
      segment.end = scan.end;
      const isTorn = next === undefined && scan.isTorn;
      this.#torn = isTorn ? { file: segment.name, position: scan.end } : undefined;
      return scan.nextLsn;
    } finally {
      await source.close();
    }
  }

  #play(frame: ScannedFrame, segment: ReplaySegment): void {
    const { lsn, crc } = frame.header;
    requireLink(segment.name, frame.position, this.#chain?.frame(segment.name, lsn, crc));
    const before = this.#continued;
    if (before?.lsn === lsn && (before.crc !== crc || before.segment !== segment.number)) {
      throw damage(segment.name, frame.position, `LSN ${lsn} is another frame than it was`);
    }
    if (lsn >= this.#nextLsn) {
      this.#player.play(frame, segment);
      this.#nextLsn = lsn + 1;
    }
    this.#last = { segment: segment.number, position: frame.position, lsn, crc };
  }

  /** Notes what was played so far: a snapshot that comes later may cover it. */
  #mark([newest = 0]: readonly number[]): void {
    const lsn = this.#nextLsn - 1;
    const marks = this.#marks;
    if (marks.at(-1)?.lsn === lsn) return;
    while ((marks[1]?.lsn ?? Infinity) <= newest) marks.shift();
    if (marks.length >= MARKS_MAX) marks.splice(1, MARKS_MAX / 2);
    const { frames, changes, bytes } = this.#player;
    marks.push({ lsn, frames, changes, bytes });
  }
}

/** What had been played when the last frame was this one. */
interface ReplayMark {
  readonly lsn: number;
  readonly frames: number;
  readonly changes: number;
  readonly bytes: number;
}

interface PlayedFrame {
  readonly segment: number;
  readonly position: number;
  readonly lsn: number;
  readonly crc: number;
}

const MARKS_MAX = 1024;

/** ID1: the frames that the image and the log's own mark name. */
function chainOf({ snapshotLsn, snapshotCrc }: Base, contents: LogContents): Chain {
  const known: KnownFrame[] = [];
  if (snapshotLsn !== undefined) {
    known.push({ lsn: snapshotLsn, crc: snapshotCrc, by: contents.imageName(snapshotLsn) });
  }
  return new Chain([...known, ...contents.known]);
}

async function loadBase(contents: LogContents): Promise<Base> {
  const { images, segments, storeId } = contents;
  const warnings: string[] = [];
  for (const lsn of images) {
    const base = emptyBase(warnings);
    const name = contents.imageName(lsn);
    let head: SnapshotHead;
    try {
      const file = await contents.openImage(lsn);
      head = await readSnapshot(file, name, base.restoration, base.index);
    } catch (error) {
      if (!isHapaxError(error, "data_damaged")) throw error;
      warnings.push(error.message);
      continue;
    }
    // A whole snapshot of another store is no damage to skip: two stores were mixed.
    if (storeId !== undefined && head.storeId !== storeId) {
      throw damage(name, 0, otherStore(head.storeId, storeId));
    }
    return { ...base, snapshotLsn: head.lsn, snapshotCrc: head.crc };
  }
  const [first] = segments;
  const isWhole = first === undefined ? images.length === 0 : first.firstLsn === 1;
  if (!isWhole) {
    const why = warnings.length === 0 ? "there is no snapshot" : warnings.join("; ");
    throw damage(
      first?.name ?? "the journal",
      0,
      `the journal does not go back far enough: ${why}`,
    );
  }
  return emptyBase(warnings);
}

function emptyBase(warnings: readonly string[]): Base {
  const world = createWorld();
  const index = new ExtentIndex();
  const restoration = new Restoration(world);
  return { world, index, restoration, snapshotLsn: undefined, snapshotCrc: 0, warnings };
}

function requireLink(name: string, offset: number, fault: string | undefined): void {
  if (fault !== undefined) throw damage(name, offset, fault);
}

export function otherStore(found: string, expected: string): string {
  return `it belongs to the store ${found}, STORE says ${expected}`;
}

/** Applies frames to the world and to the index. */
class Player {
  readonly #base: Base;
  frames = 0;
  changes = 0;
  bytes = 0;

  constructor(base: Base) {
    this.#base = base;
  }

  play(frame: ScannedFrame, segment: JournalSegment): void {
    const { header } = frame;
    const { restoration, index } = this.#base;
    const placement = new Placement();
    let { ordinal } = header;
    try {
      if (ordinal !== this.#base.world.version) {
        throw new HapaxError("data_damaged", `change ${this.#base.world.version} is missing`);
      }
      for (const { record, at, bytes } of placedRecordsOf(frame)) {
        placement.record(record, at, bytes);
        if (record.kind === "moved") continue;
        restoration.replay(record.change, ordinal);
        ordinal += 1;
      }
      placement.apply(index, segment.number, frame.position);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw damage(segment.name, frame.position, `LSN ${header.lsn}: ${reason}`, error);
    }
    this.frames += 1;
    this.changes += ordinal - header.ordinal;
    this.bytes += frame.bytes.length;
  }

  finish(): void {
    if (!this.#base.restoration.isComplete) {
      throw damage("the journal", 0, "it ends before what its snapshot contains");
    }
    const { world, index } = this.#base;
    for (const stream of index.trimmed) {
      const state = world.byId.get(stream);
      const first = index.streams.get(stream)?.first;
      if (state === undefined || first === undefined || first <= ownEarliest(state)) continue;
      throw damage("the snapshot", 0, `stream ${stream} lacks data that was not trimmed`);
    }
  }
}

function requireSegments(index: ExtentIndex, segments: readonly JournalSegment[]): void {
  const known = new Set(segments.map(({ number }) => number));
  for (const number of index.segments()) {
    if (!known.has(number)) throw damage(`segment ${number}`, 0, "it holds data but is missing");
  }
}
