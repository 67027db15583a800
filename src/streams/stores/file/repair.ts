/**
 * Plans a repair: what can be done about damage, and what it would cost. Planning touches nothing. A plan is first
 * tried on a view of the directory. It can be carried out only if the journal opens afterwards.
 *
 *   - a plan changes nothing; carrying it out keeps every original in a folder of its own, and deletes nothing;
 *   - the plan lists what would be lost, and it is lost only if the caller names the LSN to cut at;
 *   - an interrupted repair can be made again from the start.
 */

import { isHapaxError } from "../../../base/errors.ts";
import type { StreamId } from "../../core/types.ts";
import type { World } from "../../core/world.ts";
import type { Disk } from "./disk.ts";
import type { StoreProblem, ProblemKind } from "../journal/problem.ts";
import { recover, type Recovered } from "./recovery.ts";
import { placedRecordsOf, type ScannedFrame } from "../journal/scan.ts";
import { snapshotName } from "./snapshot-file.ts";
import { encodeStoreFile, latestMark, type StoreMark } from "./store-file.ts";
import { type DirectorySurvey, followerLsn, scanWholeSegment, surveyDirectory } from "./survey.ts";
import { type Verification, verifyDisk } from "./verification.ts";
import { type Cut, viewOf } from "./view.ts";

export type RepairAction =
  /** Moves a file out of the way. */
  | { readonly kind: "set_aside"; readonly file: string; readonly why: string }
  /** Writes the whole copy of a segment's header over the damaged one. */
  | {
      readonly kind: "restore_header";
      readonly file: string;
      readonly fromCopyAt: number;
      readonly toCopyAt: number;
    }
  /**
   * Writes zeros from the position on, up to the size that the file should have. A copy of the whole file is kept.
   */
  | {
      readonly kind: "cut";
      readonly file: string;
      readonly position: number;
      readonly bytes: number;
      readonly lsn: number;
    }
  /** Adds zeros to a file that is too short. The missing part is known to have been zeros. */
  | { readonly kind: "lengthen"; readonly file: string; readonly bytes: number }
  /** Writes both copies of STORE. */
  | { readonly kind: "write_store"; readonly mark: StoreMark; readonly why: string };

/** What a stream loses by a cut. */
export interface StreamLoss {
  readonly path: string;
  readonly records: number;
  readonly bytes: number;
  /** Creations, deletions and the like. */
  readonly otherChanges: number;
}

export interface CutPlan {
  readonly lsn: number;
  readonly lastLsn: number;
  /** Readable frames that would be lost. Damaged frames do not count. */
  readonly framesReadable: number;
  readonly losses: readonly StreamLoss[];
  /** Changes of subscriptions, groups and signing keys. */
  readonly otherChanges: number;
  readonly actions: readonly RepairAction[];
  /** Why the journal does not open after this cut, if so. */
  readonly obstacle: string | undefined;
}

export interface RepairPlan {
  readonly verification: Verification;
  /** The first problems; `verification.problems` counts all. */
  readonly problems: readonly StoreProblem[];
  /** The actions that lose nothing. */
  readonly actions: readonly RepairAction[];
  /** The server starts after these actions. */
  readonly startsAfter: boolean;
  /** The cut that loses something. Present if nothing else helps, or if an LSN was named. */
  readonly cut: CutPlan | undefined;
  /** Streams that have lost data, which no repair brings back. */
  readonly lostData: readonly StoreProblem[];
}

const PROBLEMS_MAX = 10_000;

/** Plans a repair. Refuses a `cutAtLsn` above the first damaged frame, because a journal has no holes. */
export async function planRepair(
  writable: Disk,
  cutAtLsn: number | undefined,
  onProgress: (bytes: number, bytesTotal: number) => Promise<void>,
): Promise<RepairPlan> {
  const disk = viewOf(writable, new Set());
  const problems: StoreProblem[] = [];
  const verification = await verifyDisk(disk, {
    onProgress,
    onProblem: async (problem) => {
      if (problems.length < PROBLEMS_MAX) problems.push(problem);
      await Promise.resolve();
    },
  });
  const survey = await surveyDirectory(disk);
  const actions = [...findActions(survey, problems), ...findStoreActions(survey)];
  const shortFile = await findLengthening(disk, survey);
  if (shortFile !== undefined) actions.push(shortFile.action);
  const hidden = new Set(setAsideBy(actions));
  const changes = { cut: shortFile?.cut, store: storeAfter(actions) };
  const startsAfter = (await tryRecover(viewOf(disk, hidden, changes))).obstacle === undefined;
  const firstDamaged = findFirstDamaged(survey, problems, verification);
  const cutLsn = cutAtLsn ?? (startsAfter ? undefined : firstDamaged);
  const cut =
    cutLsn === undefined ? undefined : await planCut(disk, survey, hidden, cutLsn, firstDamaged);
  const lostData = problems.filter(({ kind }) => kind === "data");
  return { verification, problems, actions, startsAfter, cut, lostData };
}

function findActions(survey: DirectorySurvey, problems: readonly StoreProblem[]): RepairAction[] {
  const actions: RepairAction[] = [];
  for (const { name, header, copies } of survey.segments) {
    if (header === undefined) {
      const why = copies.find(({ fault }) => fault?.includes("store") === true)?.fault;
      const unread = "neither copy of its header is whole";
      actions.push({ kind: "set_aside", file: name, why: why ?? unread });
      continue;
    }
    const good = copies.find(({ fault }) => fault === undefined)?.at ?? 0;
    for (const { at, fault } of copies) {
      if (fault === undefined) continue;
      actions.push({ kind: "restore_header", file: name, fromCopyAt: good, toCopyAt: at });
    }
  }
  for (const { kind, file, what, stopsServer } of problems) {
    // A snapshot that goes beyond the journal is whole. It proves that frames are missing, and stays.
    if (kind === "snapshot" && !stopsServer) actions.push({ kind: "set_aside", file, why: what });
  }
  return actions;
}

/** If STORE is missing, the segments say which store it is. */
function findStoreActions({ store, storeId, segments }: DirectorySurvey): RepairAction[] {
  if (latestMark(store ?? []) !== undefined || storeId === undefined) return [];
  if (segments.length === 0) return [];
  const mark = newMark(storeId, 0, 0, 0);
  return [{ kind: "write_store", mark, why: "it is missing or damaged" }];
}

/**
 * The epoch of a directory whose STORE is lost is not known. No process has reached this one, so it is above the lost
 * one.
 */
const EPOCH_AFTER_LOSS = 2 ** 32;

function newMark(id: string, segment: number, lsn: number, crc: number): StoreMark {
  const owner = "0".repeat(16);
  return { id, epoch: EPOCH_AFTER_LOSS, owner, segment, lsn, crc, isClosed: false };
}

function storeAfter(actions: readonly RepairAction[]): Buffer | undefined {
  const action = actions.findLast(({ kind }) => kind === "write_store");
  return action?.kind === "write_store" ? encodeStoreFile(action.mark) : undefined;
}

/** Finds a last segment that lost only zeros: STORE knows the last frame, and it is there. */
async function findLengthening(disk: Disk, { segments, store }: DirectorySurvey) {
  const mark = latestMark(store ?? []);
  const last = segments.at(-1);
  if (last?.header === undefined || mark === undefined || !mark.isClosed) return undefined;
  const { name, header } = last;
  if (last.bytes >= header.bytes) return undefined;
  const scan = await scanWholeSegment(disk, { ...last, header }, undefined, () => undefined);
  if (scan.damage.length > 0 || scan.nextLsn !== mark.lsn + 1) return undefined;
  const action: RepairAction = { kind: "lengthen", file: name, bytes: header.bytes };
  return { action, cut: { name, position: scan.end, bytes: header.bytes } };
}

function setAsideBy(actions: readonly RepairAction[]): string[] {
  return actions.flatMap((action) => (action.kind === "set_aside" ? [action.file] : []));
}

/** Problems that mean that frames at the end are gone. */
const END_MISSING: ReadonlySet<ProblemKind> = new Set(["snapshot", "shortened", "missing_end"]);

function findFirstDamaged(
  survey: DirectorySurvey,
  problems: readonly StoreProblem[],
  { nextLsn }: Verification,
): number | undefined {
  const lsns = problems
    .filter(({ kind, stopsServer }) => stopsServer && kind !== "snapshot")
    .flatMap(({ lsn }) => (lsn === undefined ? [] : [lsn]));
  // A snapshot is ahead of the journal, or the last segment has no header: the end is missing.
  const isEndMissing =
    problems.some(({ kind, stopsServer }) => END_MISSING.has(kind) && stopsServer) ||
    survey.segments.at(-1)?.header === undefined;
  if (isEndMissing && survey.segments.length > 0) lsns.push(nextLsn);
  return lsns.length === 0 ? undefined : Math.min(...lsns);
}

async function tryRecover(disk: Disk): Promise<{
  readonly recovered: Recovered | undefined;
  readonly obstacle: string | undefined;
}> {
  try {
    return { recovered: await recover(disk, () => undefined), obstacle: undefined };
  } catch (error) {
    if (!isHapaxError(error, "data_damaged")) throw error;
    return { recovered: undefined, obstacle: error.message };
  }
}

async function planCut(
  disk: Disk,
  survey: DirectorySurvey,
  alreadyHidden: ReadonlySet<string>,
  lsn: number,
  firstDamaged: number | undefined,
): Promise<CutPlan> {
  const lost = await findLost(disk, survey, lsn);
  const nothing = { ...lost.plan, losses: [], actions: [] };
  if (firstDamaged !== undefined && lsn > firstDamaged) {
    const obstacle = `LSN ${firstDamaged} is damaged: a cut must be there or before`;
    return { ...nothing, obstacle };
  }
  if (lost.cut === undefined) {
    return { ...nothing, obstacle: `there is no LSN ${lsn} in the journal` };
  }
  const hidden = new Set([...alreadyHidden, ...lost.later]);
  const aside: RepairAction[] = lost.later
    .filter((file) => !alreadyHidden.has(file))
    .map((file) => ({ kind: "set_aside", file, why: `it is behind LSN ${lsn}` }));
  const obstacles = new Set<string>();
  const mark = markAfterCut(survey, lost.cut.segment, lsn, lost.crcBefore);
  const store = encodeStoreFile(mark);
  // A snapshot may contain what the cut removes, also if it was begun before. Then the next older one is tried.
  for (const snapshot of [undefined, ...survey.snapshots]) {
    const file = snapshot === undefined ? undefined : snapshotName(snapshot);
    if (file !== undefined && !hidden.has(file)) {
      hidden.add(file);
      aside.push({ kind: "set_aside", file, why: "it knows what is cut away" });
    }
    const attempt = await tryRecover(viewOf(disk, hidden, { cut: lost.cut, store }));
    if (attempt.obstacle !== undefined) obstacles.add(attempt.obstacle);
    if (attempt.recovered === undefined) continue;
    const { name: cutFile, position, bytes } = lost.cut;
    const why = `the journal ends before LSN ${lsn}`;
    // STORE comes last: until then a server refuses a directory that is cut only in part.
    const actions: RepairAction[] = [
      ...aside,
      { kind: "cut", file: cutFile, position, bytes, lsn },
      { kind: "write_store", mark, why },
    ];
    const losses = nameLosses(lost.byStream, lost.names, attempt.recovered.world);
    return { ...lost.plan, losses, actions, obstacle: undefined };
  }
  return { ...nothing, obstacle: [...obstacles].join("; ") };
}

/** The same store in a later epoch, whose journal ends before the cut. */
function markAfterCut(
  { store, storeId }: DirectorySurvey,
  segment: number,
  lsn: number,
  crcBefore: number,
): StoreMark {
  const mark = newMark(storeId ?? "", segment, lsn - 1, crcBefore);
  const epoch = latestMark(store ?? [])?.epoch;
  return epoch === undefined ? mark : { ...mark, epoch: epoch + 1 };
}

interface Loss {
  records: number;
  bytes: number;
  otherChanges: number;
}

class LossCount {
  readonly byStream = new Map<StreamId, Loss>();
  readonly names = new Map<StreamId, string>();
  frames = 0;
  otherChanges = 0;

  add(frame: ScannedFrame): void {
    this.frames += 1;
    try {
      for (const { record } of placedRecordsOf(frame)) {
        if (record.kind === "moved") continue;
        const { change } = record;
        if (change.kind === "created") this.names.set(change.stream, change.name);
        if (!("stream" in change) || typeof change.stream === "string") {
          this.otherChanges += 1;
          continue;
        }
        const loss = this.#of(change.stream);
        if (change.kind === "appended") {
          loss.records += 1;
          loss.bytes += change.data.length;
        } else loss.otherChanges += 1;
      }
    } catch {
      // Its records cannot be told apart. Verification has reported the frame.
      this.otherChanges += 1;
    }
  }

  #of(stream: StreamId): Loss {
    const found = this.byStream.get(stream);
    if (found !== undefined) return found;
    const loss = { records: 0, bytes: 0, otherChanges: 0 };
    this.byStream.set(stream, loss);
    return loss;
  }
}

/** Finds the LSN, the files behind it, and what the frames from it on contain. */
async function findLost(disk: Disk, survey: DirectorySurvey, lsn: number) {
  const loss = new LossCount();
  const later: string[] = [];
  let cut: (Cut & { readonly segment: number }) | undefined;
  let lastLsn = lsn - 1;
  let crcBefore = 0;
  const readable = survey.segments.filter(({ header }) => header !== undefined);
  const home = readable.findLast(({ header }) => (header?.firstLsn ?? 0) <= lsn);
  for (const [at, segment] of survey.segments.entries()) {
    if (home === undefined || segment.number < home.number) continue;
    if (segment.number > home.number) later.push(segment.name);
    const { header } = segment;
    if (header === undefined) continue;
    let position: number | undefined;
    if (header.firstLsn === lsn) crcBefore = header.crcBefore;
    const follower = followerLsn(survey.segments, at);
    const scan = await scanWholeSegment(disk, { ...segment, header }, follower, (frame) => {
      if (frame.header.lsn === lsn - 1) crcBefore = frame.header.crc;
      if (frame.header.lsn < lsn) return;
      if (frame.header.lsn === lsn) position = frame.position;
      loss.add(frame);
    });
    lastLsn = Math.max(lastLsn, scan.nextLsn - 1);
    if (segment !== home) continue;
    const damagedAt = scan.damage.find((range) => range.firstLsn === lsn)?.position;
    const endAt = scan.nextLsn === lsn ? scan.end : undefined;
    const at0 = damagedAt ?? position ?? endAt;
    if (at0 === undefined) continue;
    cut = { name: segment.name, position: at0, bytes: header.bytes, segment: segment.number };
  }
  const plan = {
    lsn,
    lastLsn,
    framesReadable: loss.frames,
    otherChanges: loss.otherChanges,
  };
  // The newest first: until the last one is gone, recovery still sees the damage.
  return {
    plan,
    cut,
    crcBefore,
    later: later.reverse(),
    byStream: loss.byStream,
    names: loss.names,
  };
}

function nameLosses(
  byStream: ReadonlyMap<StreamId, Loss>,
  names: ReadonlyMap<StreamId, string>,
  world: World,
): StreamLoss[] {
  const losses: StreamLoss[] = [];
  for (const [stream, loss] of byStream) {
    const path = world.byId.get(stream)?.name ?? names.get(stream) ?? `stream ${stream}`;
    losses.push({ path, ...loss });
  }
  return losses.sort((one, other) => other.bytes - one.bytes);
}
