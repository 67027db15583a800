/**
 * Decides what a group of jobs answers: which records a worker gets, and which of them are done or wait. Such a group gives
 * single records to its members, of any stream to any member. Pure: time is an argument. PROTOCOL.md §20.5.
 *
 *   - a job has at most one worker: it is given again only after it was put back, or when its worker is a member no more;
 *   - only its worker, under the token of that time, ends a job or puts it back;
 *   - a job is not given before it is due;
 *   - each time that a job is given counts as an attempt, before its worker learns of it; only a worker that puts it
 *     back may take that back;
 *   - records are given for the first time in the order of their stream, and none is left out;
 *   - a worker that asks again gets what it has and has not seen;
 *   - at most `openMax` jobs of a group are not done: beyond it nothing new is given.
 */

import type {
  Cursor,
  GroupBook,
  GroupSettled,
  GroupState,
  GroupTaken,
  Job,
  JobWindow,
  LeaseToken,
  MemberId,
} from "./group-state.ts";
import type { MemberLost } from "./group-decide.ts";
import { decideNumber } from "./numbers.ts";
import type { StreamsByName } from "./stream.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "./types.ts";

/** A record that was looked up for a worker. */
export interface JobRecord {
  readonly stream: StreamName;
  /** The stream in which it was found. Another one may be at the path by now. */
  readonly id: StreamId;
  readonly offset: Offset;
  readonly end: Offset;
}

/** What a worker may get at this moment; the records are still to be looked up. */
export interface JobPlan {
  /** Jobs that were given before, those first that are due for longest. */
  readonly due: readonly JobRecord[];
  /** Streams with records that were never given, and how many the group may give in all. */
  readonly fresh: readonly { readonly stream: StreamName; readonly from: Offset }[];
  readonly freshMax: number;
}

/** Bounds of what is not done. */
export interface JobRoom {
  /** Of one group. */
  readonly openMax: number;
  /** Of all groups. */
  readonly allMax: number;
}

const NO_JOBS: JobWindow["open"] = new Map();

export function windowOf({ jobs, offset }: Cursor): JobWindow {
  return jobs ?? { next: offset, open: NO_JOBS };
}

/** Whether a job has a worker that may end it. `except`: its own jobs count as given too. */
function isHeld(group: GroupState, job: Job, except: MemberId, atMs: TimeMs): boolean {
  if (job.holder === undefined) return false;
  const member = group.members.get(job.holder);
  // A member that did not call in time is dropped as soon as another one calls.
  return member !== undefined && (member.id === except || member.expiresAtMs > atMs);
}

/** What is known of all jobs of a group that were given and are not done. There may be many, and many workers that ask. */
export interface OpenJobs {
  /** When the next one can be given; undefined: there is none. Before that time no worker gets one of them. */
  readonly dueMs: TimeMs | undefined;
  /** Who has one, or had one before it was forgotten. */
  readonly holders: ReadonlySet<MemberId>;
}

/** Looks at each of them. */
export function lookAtOpen(group: GroupState): OpenJobs {
  const holders = new Set<MemberId>();
  let dueMs: TimeMs | undefined;
  for (const { jobs } of group.cursors.values()) {
    for (const job of jobs?.open.values() ?? []) {
      const holder = job.holder === undefined ? undefined : group.members.get(job.holder);
      if (job.holder !== undefined) holders.add(job.holder);
      const at = Math.max(job.dueAtMs, holder?.expiresAtMs ?? 0) as TimeMs;
      if (dueMs === undefined || at < dueMs) dueMs = at;
    }
  }
  return { dueMs, holders };
}

/** What a worker has been given and may not have received: an answer can be lost. */
export interface UnseenJobs {
  readonly token: LeaseToken;
  readonly records: readonly (JobRecord & { readonly attempts: number })[];
}

/** The jobs of the first answer after `seen` that its worker still has. */
export function findUnseen(
  group: GroupState,
  { holders }: OpenJobs,
  id: MemberId,
  seen: LeaseToken,
  idOf: (stream: StreamName) => StreamId | undefined,
): UnseenJobs | undefined {
  if (!holders.has(id)) return undefined;
  let token = Infinity;
  let records: UnseenJobs["records"][number][] = [];
  for (const { stream, jobs: window } of group.cursors.values()) {
    const life = idOf(stream);
    if (life === undefined) continue;
    for (const job of window?.open.values() ?? []) {
      if (job.holder !== id || job.token <= seen || job.token > token) continue;
      if (job.token < token) [token, records] = [job.token, []];
      const { offset, end, attempts } = job;
      records.push({ stream, id: life, offset, end, attempts });
    }
  }
  return records.length === 0 ? undefined : { token, records };
}

/** Plans an answer of at most `max` jobs. `streams` are those that exist; their tails are those that are durable. */
export function planTake(
  book: GroupBook,
  group: GroupState,
  { dueMs = Infinity as TimeMs }: OpenJobs,
  member: MemberId,
  max: number,
  room: JobRoom,
  tailOf: (stream: StreamName) => { readonly id: StreamId; readonly tail: Offset } | undefined,
  atMs: TimeMs,
): JobPlan {
  const due: (JobRecord & { readonly dueAtMs: TimeMs })[] = [];
  const fresh: JobPlan["fresh"][number][] = [];
  for (const cursor of group.cursors.values()) {
    const { stream } = cursor;
    const found = tailOf(stream);
    if (found === undefined) continue;
    const { next, open } = windowOf(cursor);
    for (const job of dueMs > atMs ? [] : open.values()) {
      if (job.dueAtMs > atMs || isHeld(group, job, member, atMs)) continue;
      const { offset, end, dueAtMs } = job;
      due.push({ stream, id: found.id, offset, end, dueAtMs });
    }
    if (next < found.tail) fresh.push({ stream, from: next });
  }
  due.sort((one, other) => one.dueAtMs - other.dueAtMs);
  const left = Math.min(room.openMax - group.jobCount, room.allMax - book.jobCount);
  const freshMax = Math.max(0, Math.min(max - due.length, left));
  // Streams take turns: each answer moves the number of the next one.
  const first = fresh.length === 0 ? 0 : book.nextToken % fresh.length;
  const turned = [...fresh.slice(first), ...fresh.slice(0, first)];
  return { due: due.slice(0, max), fresh: freshMax === 0 ? [] : turned, freshMax };
}

export type TakeDecision =
  | { readonly kind: "taken"; readonly change: GroupTaken }
  | { readonly kind: "nothing" }
  | MemberLost;

/** Decides an answer. What has changed since the records were looked up is left out. */
export function decideJobs(
  book: GroupBook,
  group: GroupState,
  id: MemberId,
  records: readonly JobRecord[],
  streams: StreamsByName,
  atMs: TimeMs,
): TakeDecision {
  if (!group.members.has(id)) return { kind: "member_lost" };
  const jobs: GroupTaken["jobs"][number][] = [];
  const next = new Map<StreamName, Offset>();
  const given = new Set<Job>();
  for (const { stream, id: life, offset, end } of records) {
    const cursor = group.cursors.get(stream);
    if (cursor === undefined || streams.get(stream)?.id !== life) continue;
    const window = windowOf(cursor);
    const job = window.open.get(offset);
    if (job !== undefined) {
      if (given.has(job) || job.dueAtMs > atMs || isHeld(group, job, id, atMs)) continue;
      given.add(job);
      jobs.push([stream, offset, job.end, job.attempts + 1]);
    } else if (offset === (next.get(stream) ?? window.next)) {
      next.set(stream, end);
      jobs.push([stream, offset, end, 1]);
    }
  }
  if (jobs.length === 0) return { kind: "nothing" };
  const dropped: MemberId[] = [];
  for (const member of group.members.values()) {
    if (member.id !== id && member.expiresAtMs <= atMs) dropped.push(member.id);
  }
  const expiresAtMs = (atMs + group.settings.leaseMs) as TimeMs;
  const token = decideNumber(book.nextToken, atMs);
  const facts = { atMs, group: group.id, member: id, expiresAtMs, dropped, token };
  return { kind: "taken", change: { kind: "group_taken", ...facts, jobs } };
}

/** A job as its worker names it. */
export interface JobClaim {
  readonly stream: StreamName;
  readonly offset: Offset;
  readonly token: LeaseToken;
}

export interface JobLater extends JobClaim {
  readonly delayMs: number;
  /** Whether the attempt counts. */
  readonly isCounted: boolean;
}

export type SettleDecision =
  | {
      readonly kind: "settled";
      readonly change: GroupSettled;
      /** Jobs that another worker has, or has put back. Nothing was done to them. */
      readonly lost: readonly JobClaim[];
    }
  | MemberLost;

/** Decides what is done and what waits. A worker that has lost one job does not lose the others. */
export function decideSettle(
  group: GroupState,
  id: MemberId,
  done: readonly JobClaim[],
  later: readonly JobLater[],
  atMs: TimeMs,
): SettleDecision {
  if (!group.members.has(id)) return { kind: "member_lost" };
  const lost: JobClaim[] = [];
  const ended: [StreamName, Offset][] = [];
  const waiting: GroupSettled["later"][number][] = [];
  for (const claim of done) {
    const { stream, offset } = claim;
    if (findJob(group, id, claim) !== undefined) ended.push([stream, offset]);
    else if (!isDone(group, claim)) lost.push(claim);
  }
  for (const claim of later) {
    const job = findJob(group, id, claim);
    if (job === undefined) {
      lost.push(claim);
      continue;
    }
    const dueAtMs = (atMs + claim.delayMs) as TimeMs;
    waiting.push([claim.stream, claim.offset, dueAtMs, job.attempts - (claim.isCounted ? 0 : 1)]);
  }
  const expiresAtMs = (atMs + group.settings.leaseMs) as TimeMs;
  const facts = { atMs, group: group.id, member: id, expiresAtMs };
  return {
    kind: "settled",
    change: { kind: "group_settled", ...facts, done: ended, later: waiting },
    lost,
  };
}

/** The job, if this member has it under this token. */
export function findJob(group: GroupState, id: MemberId, claim: JobClaim): Job | undefined {
  const job = group.cursors.get(claim.stream)?.jobs?.open.get(claim.offset);
  const isOwn = job?.holder === id && job.token === claim.token && group.members.has(id);
  return isOwn ? job : undefined;
}

/** Whether a job was done before: the answer to a worker that says so again. */
function isDone(group: GroupState, { stream, offset }: JobClaim): boolean {
  const cursor = group.cursors.get(stream);
  if (cursor === undefined) return false;
  const { next, open } = windowOf(cursor);
  return offset < next && !open.has(offset);
}
