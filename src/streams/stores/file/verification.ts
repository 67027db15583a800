/**
 * Verifies a directory: every checksum and every entry of the index, in one pass over the files.
 *
 * Recovery makes the world and the index. Then every frame of every segment is read in order, and each data record is
 * compared with the index. So the check does not depend on what a snapshot says.
 *
 *   - a sound directory has no problem, also right after a kill: a torn end is not damage;
 *   - a changed byte that has any effect is a problem with its file, its offset and what it means;
 *   - every byte of every stream, from its fork point to its tail, is in exactly one valid record; only a stream
 *     that the server keeps for itself may lack its beginning.
 */

import { isHapaxError } from "../../../base/errors.ts";
import { Chain, type KnownFrame } from "../journal/chain.ts";
import type { Disk } from "./disk.ts";
import type { SegmentHeader } from "../journal/format.ts";
import { describeLink, FrameCheck } from "../journal/frame-check.ts";
import { IndexCheck } from "../journal/index-check.ts";
import { type StoreProblem, storeProblem } from "../journal/problem.ts";
import { LastFile } from "./last-file.ts";
import { otherStore } from "../journal/replay.ts";
import { recover, type Recovered } from "./recovery.ts";
import { segmentName } from "./segments.ts";
import { snapshotName } from "./snapshot-file.ts";
import { scanSnapshot, type SnapshotScan } from "../journal/snapshot-scan.ts";
import { latestMark, STORE_NAME } from "./store-file.ts";
import {
  type DamagedRange,
  type DirectorySurvey,
  followerLsn,
  scanWholeSegment,
  type SegmentFile,
  surveyDirectory,
} from "./survey.ts";
import { viewOf } from "./view.ts";

import type { Verification, VerificationEvents } from "../journal/verification.ts";

export type { StoreProblem } from "../journal/problem.ts";
export type { Verification } from "../journal/verification.ts";

/** Verifies a directory. Reads everything once and recovers once. Memory: the world and its index, as in a server. */
export async function verifyDisk(disk: Disk, events: VerificationEvents): Promise<Verification> {
  return new Verifier(disk, events).run();
}

type ReadableSegment = SegmentFile & { readonly header: SegmentHeader };

class Verifier {
  readonly #disk: Disk;
  readonly #events: VerificationEvents;
  #bytes = 0;
  #bytesTotal = 0;
  #problems = 0;
  #frames = 0;
  #records = 0;
  #torn: Verification["torn"];
  #nextLsn = 1;
  /** Behind the last frame of the segment that was read last. */
  #end = 0;
  #replayLsn = 1;
  #refusal: string | undefined;
  #index: IndexCheck | undefined;
  #chain = new Chain([]);

  constructor(disk: Disk, events: VerificationEvents) {
    this.#disk = viewOf(disk, new Set());
    this.#events = events;
  }

  async run(): Promise<Verification> {
    const survey = await surveyDirectory(this.#disk);
    this.#bytesTotal = await this.#countBytes(survey);
    await this.#checkStore(survey);
    for (const segment of survey.segments) await this.#checkHeader(segment);
    const snapshots: SnapshotScan[] = [];
    for (const lsn of survey.snapshots) {
      snapshots.push(await this.#checkSnapshot(lsn, survey.storeId));
    }
    const recovered = await this.#recover(survey);
    if (recovered !== undefined) {
      const { world, index } = recovered;
      this.#index = new IndexCheck(world, index, new LastFile(this.#disk));
    }
    this.#chain = new Chain(knownFrames(survey, snapshots));
    await this.#checkJournal(survey, snapshots);
    await this.#checkReach(snapshots, recovered);
    await this.#checkEnd(survey);
    if (this.#index !== undefined) {
      for await (const problem of this.#index.finish()) await this.#report(problem);
    }
    if (this.#refusal !== undefined && this.#problems === 0) {
      const meaning = "the server does not start on this directory";
      const what = this.#refusal;
      await this.#report(
        storeProblem({
          kind: "refused",
          file: "the journal",
          offset: 0,
          what,
          meaning,
          stopsServer: true,
        }),
      );
    }
    return {
      problems: this.#problems,
      refusal: this.#refusal,
      torn: this.#torn,
      segments: survey.segments.length,
      frames: this.#frames,
      records: this.#records,
      snapshots: snapshots.length,
      blocks: snapshots.reduce((sum, { blocks }) => sum + blocks, 0),
      streams: recovered?.world.byId.size ?? 0,
      extents: this.#index?.extents ?? 0,
      bytes: this.#bytes,
      isIndexChecked: recovered !== undefined,
      nextLsn: this.#nextLsn,
    };
  }

  async #report(problem: StoreProblem): Promise<void> {
    this.#problems += 1;
    await this.#events.onProblem(problem);
  }

  async #advance(bytes: number): Promise<void> {
    this.#bytes += bytes;
    await this.#events.onProgress(this.#bytes, this.#bytesTotal);
  }

  async #countBytes({ segments, snapshots }: DirectorySurvey): Promise<number> {
    let bytes = segments.reduce((sum, segment) => sum + segment.bytes, 0);
    for (const lsn of snapshots) {
      const file = await this.#disk.open(snapshotName(lsn), "read");
      bytes += await file.size();
      await file.close();
    }
    return bytes;
  }

  /** A crash may have interrupted the write of one copy, so only the loss of both is damage. */
  async #checkStore({ store, segments, snapshots }: DirectorySurvey): Promise<void> {
    if (latestMark(store ?? []) !== undefined || segments.length + snapshots.length === 0) return;
    const what = store === undefined ? "it is missing" : "neither copy matches its checksum";
    const meaning = "which store this is, and where its journal ends, is not known for sure";
    const file = STORE_NAME;
    await this.#report(
      storeProblem({ kind: "store", file, offset: 0, what, meaning, stopsServer: true }),
    );
  }

  /** ID2: checks that the journal reaches as far as STORE says. */
  async #checkEnd({ store, segments }: DirectorySurvey): Promise<void> {
    const mark = latestMark(store ?? []);
    const last = segments.at(-1);
    if (mark === undefined) return;
    const isSegmentMissing = (last?.number ?? 0) < mark.segment;
    if (!isSegmentMissing && this.#nextLsn > mark.lsn) return;
    const lsn = this.#nextLsn;
    const what = isSegmentMissing
      ? `the end of the journal is missing: it was in this segment, LSN ${Math.max(lsn, mark.lsn)} and after`
      : `the end of the journal is missing: LSN ${lsn} to ${mark.lsn}`;
    const meaning = "what it contained was acknowledged, and is lost unless the file is put back";
    const file = isSegmentMissing ? segmentName(mark.segment) : (last?.name ?? "the journal");
    const offset = isSegmentMissing ? 0 : this.#end;
    await this.#report(
      storeProblem({ kind: "missing_end", file, offset, lsn, what, meaning, stopsServer: true }),
    );
  }

  async #checkHeader({ name, header, copies }: SegmentFile): Promise<void> {
    for (const { at, fault } of copies) {
      if (fault === undefined) continue;
      const what = `a copy of the header: ${fault}`;
      const stopsServer = header === undefined;
      const kind = stopsServer ? "header" : "header_copy";
      const meaning = stopsServer
        ? "without a header no frame in it can be read"
        : "the other copy is used; nothing is lost";
      await this.#report(
        storeProblem({ kind, file: name, offset: at, what, meaning, stopsServer }),
      );
    }
  }

  async #checkSnapshot(lsn: number, storeId: string | undefined): Promise<SnapshotScan> {
    const name = snapshotName(lsn);
    const scan = await scanSnapshot(await this.#disk.open(name, "read"), name);
    await this.#advance(scan.bytes);
    let { fault } = scan;
    if (fault === undefined && scan.head?.lsn !== lsn) {
      fault = { offset: 0, what: `it is the snapshot of LSN ${scan.head?.lsn}` };
    }
    const id = scan.head?.storeId;
    if (fault === undefined && id !== undefined && storeId !== undefined && id !== storeId) {
      fault = { offset: 0, what: otherStore(id, storeId) };
    }
    if (fault !== undefined) {
      const meaning = "it is not used; recovery takes an older one, or all frames";
      await this.#report(storeProblem({ kind: "snapshot", file: name, lsn, meaning, ...fault }));
    }
    return { ...scan, fault };
  }

  /** Recovers what the server would know, if necessary without the segments that cannot be read. */
  async #recover({ segments }: DirectorySurvey): Promise<Recovered | undefined> {
    const unreadable = segments.filter(({ header }) => header === undefined);
    const hidden = new Set(unreadable.map(({ name }) => name));
    try {
      return await recover(this.#disk, () => undefined);
    } catch (error) {
      if (!isHapaxError(error, "data_damaged")) throw error;
      this.#refusal = error.message;
    }
    try {
      return await recover(viewOf(this.#disk, hidden), () => undefined, true);
    } catch (error) {
      if (!isHapaxError(error, "data_damaged")) throw error;
      return undefined;
    }
  }

  async #checkJournal(survey: DirectorySurvey, snapshots: readonly SnapshotScan[]): Promise<void> {
    const whole = snapshots.filter(({ fault }) => fault === undefined);
    const replayLsn = (whole[0]?.head?.lsn ?? 0) + 1;
    const fallbackLsn = (whole.at(-1)?.head?.lsn ?? 0) + 1;
    const replayFrom = survey.segments.findLast(
      ({ header }) => header !== undefined && header.firstLsn <= replayLsn,
    );
    const replayNumber = replayFrom?.number ?? 0;
    this.#replayLsn = replayLsn;
    let previous: ReadableSegment | undefined;
    for (const [at, segment] of survey.segments.entries()) {
      const { header } = segment;
      if (header === undefined) {
        await this.#advance(segment.bytes);
        continue;
      }
      const follower = followerLsn(survey.segments, at);
      await this.#checkGap(previous, { ...segment, header }, fallbackLsn);
      await this.#checkSegment(
        { ...segment, header },
        follower,
        segment.number >= replayNumber,
        at === survey.segments.length - 1,
      );
      previous = { ...segment, header };
    }
  }

  /** Segments from the older snapshot on must follow each other. Before it there are gaps where room was freed. */
  async #checkGap(
    previous: ReadableSegment | undefined,
    segment: ReadableSegment,
    fallbackLsn: number,
  ): Promise<void> {
    const { firstLsn } = segment.header;
    const isNext = segment.number === (previous?.number ?? 0) + 1;
    const expected = previous === undefined ? fallbackLsn : this.#nextLsn;
    if (firstLsn <= fallbackLsn || (isNext && firstLsn === expected)) return;
    const name = segmentName(isNext ? segment.number : segment.number - 1);
    const what = `frames are missing: LSN ${expected} to ${firstLsn - 1}`;
    const meaning = "what they contain is lost unless the file is put back";
    const stopsServer = firstLsn > this.#replayLsn;
    await this.#report(
      storeProblem({
        kind: "missing_segment",
        file: name,
        offset: 0,
        lsn: expected,
        what,
        meaning,
        stopsServer,
      }),
    );
  }

  async #checkSegment(
    segment: ReadableSegment,
    follower: number | undefined,
    isReplayed: boolean,
    isLast: boolean,
  ): Promise<void> {
    const found: StoreProblem[] = [];
    const { name, header } = segment;
    if (segment.bytes < header.bytes) found.push(describeShort(segment, isReplayed));
    const link = this.#chain.segment(name, header);
    if (link !== undefined) found.push(describeLink(name, 52, header.firstLsn, link, isReplayed));
    const check = new FrameCheck(segment, this.#index, found, this.#replayLsn, this.#chain);
    const scan = await scanWholeSegment(this.#disk, segment, follower, (frame) => {
      check.take(frame);
    });
    for (const range of scan.damage) found.push(describeDamage(segment.name, range, isReplayed));
    found.push(
      ...(this.#index?.endOfSegment(segment.number, segment.name, scan.damage.length > 0) ?? []),
    );
    for (const problem of found) await this.#report(problem);
    this.#frames += scan.frames;
    this.#records += check.records;
    this.#nextLsn = scan.nextLsn;
    this.#end = scan.end;
    if (isLast && scan.isTorn) this.#torn = { file: segment.name, position: scan.end };
    await this.#advance(segment.bytes);
  }

  /** Checks that a snapshot does not know more than the journal. */
  async #checkReach(
    snapshots: readonly SnapshotScan[],
    recovered: Recovered | undefined,
  ): Promise<void> {
    for (const { name, head, end, fault } of snapshots) {
      if (fault !== undefined || head === undefined || end === undefined) continue;
      const isAhead = head.lsn >= this.#nextLsn;
      const knowsMore = recovered !== undefined && end.version > recovered.world.version;
      if (!isAhead && !knowsMore) continue;
      const what = `it goes beyond the journal, which ends at LSN ${this.#nextLsn - 1}`;
      const meaning = "the end of the journal is missing";
      const { lsn } = head;
      await this.#report(
        storeProblem({
          kind: "snapshot",
          file: name,
          offset: 0,
          lsn,
          what,
          meaning,
          stopsServer: true,
        }),
      );
    }
  }
}

/** ID1: the frames that STORE and the whole snapshots name. */
function knownFrames(survey: DirectorySurvey, snapshots: readonly SnapshotScan[]): KnownFrame[] {
  const known: KnownFrame[] = [];
  for (const { name, head, fault } of snapshots) {
    if (fault === undefined && head !== undefined) known.push({ ...head, by: name });
  }
  const mark = latestMark(survey.store ?? []);
  if (mark !== undefined) known.push({ lsn: mark.lsn, crc: mark.crc, by: STORE_NAME });
  return known;
}

function describeShort(
  { name, bytes, header }: ReadableSegment,
  stopsServer: boolean,
): StoreProblem {
  const what = `the file has ${bytes} of ${header.bytes} bytes`;
  const meaning = "its end is missing, and with it what was written there";
  return storeProblem({ kind: "shortened", file: name, offset: bytes, what, meaning, stopsServer });
}

function describeDamage(file: string, range: DamagedRange, isReplayed: boolean): StoreProblem {
  const { position, end, firstLsn, lastLsn } = range;
  const frames =
    lastLsn > firstLsn ? `frames LSN ${firstLsn} to ${lastLsn}` : `frame LSN ${firstLsn}`;
  const what =
    lastLsn >= firstLsn
      ? `${frames} cannot be read (${end - position} bytes), frames behind can`
      : `${end - position} bytes before LSN ${firstLsn} are no frame`;
  const meaning = isReplayed
    ? "the server does not start; hapax repair shows the choices"
    : "a snapshot has its state; data that is lost with it is listed as such";
  const stopsServer = isReplayed;
  return storeProblem({
    kind: "frames",
    file,
    offset: position,
    lsn: firstLsn,
    what,
    meaning,
    stopsServer,
  });
}
