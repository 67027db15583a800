/**
 * Jobs: gives single records of streams to the members of a group, and takes back what is done. Records are looked up
 * between two decisions, and what has changed meanwhile is left out. PROTOCOL.md §20.5.
 *
 *   - a worker learns of a job when its attempt is durable;
 *   - calls of one group that take are done one after the other: so none looks up what another one is about to get.
 */

import { assert } from "../../base/assert.ts";
import { Turns } from "../../base/turns.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { MemberLost } from "../core/group-decide.ts";
import type { GroupId, GroupState, LeaseToken, MemberId } from "../core/group-state.ts";
import {
  decideSettle,
  decideJobs,
  findUnseen,
  type JobClaim,
  type JobLater,
  type JobPlan,
  type JobRecord,
  lookAtOpen,
  type OpenJobs,
  planTake,
  type SettleDecision,
} from "../core/job-decide.ts";
import { isJson, lifeOf, type StreamState } from "../core/stream.ts";
import { earliestOf } from "../core/trim.ts";
import type { Offset, StreamName } from "../core/types.ts";
import type { RecordsEnd } from "./fork-source.ts";
import type { NoGroup } from "./groups.ts";
import type { Page } from "../store.ts";
import { readAcrossForks } from "./reading.ts";
import type { Tails } from "./tails.ts";
import type { Writer } from "./writer.ts";

/** The group gives streams and not jobs. */
export interface NoJobs {
  readonly kind: "no_jobs";
}

export interface TakenJob {
  readonly stream: StreamName;
  /** Of the stream: `lifeOf`. */
  readonly life: string;
  readonly offset: Offset;
  readonly end: Offset;
  readonly attempt: number;
  /** The record as it is stored, of JSON without the comma behind it. */
  readonly data: Uint8Array;
  readonly isJson: boolean;
}

export interface TakeView {
  readonly kind: "taken";
  /** 0 if there are no jobs. */
  readonly token: LeaseToken;
  readonly jobs: readonly TakenJob[];
  readonly leaseMs: number;
  /** Nothing new is given before others are done. */
  readonly isFull: boolean;
}

export interface SettleView {
  readonly kind: "settled";
  readonly lost: readonly JobClaim[];
  readonly leaseMs: number;
}

export interface TakeCommand {
  readonly member: MemberId;
  readonly max: number;
  /** The token of the last answer that the worker has. */
  readonly seen: LeaseToken;
  /** The worker has gone: nothing more is looked up for it. */
  readonly isGone?: () => boolean;
}

/** Bytes of records that are read at once to find the next ones. */
const LOOK_BYTES = 64 * 1024;
/** What no event tells is looked at this often: members whose time is over, and streams that are created anew. */
const LOOK_AGAIN_MS = 1000;
/** A look that finds something where taking has just found nothing. */
const SOON_MS = 10;

const ROOM = { openMax: LIMITS.jobsOpenMax, allMax: LIMITS.serverJobsOpenMax };

interface FoundRecord extends JobRecord {
  readonly life: string;
  readonly data: Uint8Array;
  readonly isJson: boolean;
}

/** Whole appends of a stream, up to `end`. */
interface HeldPage extends Required<Page> {
  readonly state: StreamState;
  readonly end: number;
}

export interface JobParts {
  readonly writer: Writer;
  readonly tails: Tails;
  readonly jsonRecordsEnd: RecordsEnd;
}

export class Jobs {
  readonly #writer: Writer;
  readonly #tails: Tails;
  readonly #jsonRecordsEnd: RecordsEnd;
  readonly #turns = new WeakMap<GroupState, Turns>();
  readonly #watchers = new WeakMap<GroupState, Set<() => void>>();
  /** Good for one version of the world: all workers that wait look at the same moment, and there may be thousands of both. */
  readonly #looks = new WeakMap<GroupState, OpenJobs & { readonly version: number }>();

  constructor({ writer, tails, jsonRecordsEnd }: JobParts) {
    this.#writer = writer;
    this.#tails = tails;
    this.#jsonRecordsEnd = jsonRecordsEnd;
  }

  async take(id: GroupId, command: TakeCommand): Promise<TakeView | MemberLost | NoGroup | NoJobs> {
    const group = this.#group(id);
    if (group === undefined) return this.#settled({ kind: "group_missing" });
    if (group.settings.jobs !== true) return this.#settled({ kind: "no_jobs" });
    let turns = this.#turns.get(group);
    if (turns === undefined) {
      turns = new Turns(1);
      this.#turns.set(group, turns);
    }
    return turns.run(() => this.#take(group, command));
  }

  async #take(
    group: GroupState,
    { member, max, seen, isGone = () => false }: TakeCommand,
  ): Promise<TakeView | MemberLost | NoGroup> {
    if (this.#group(group.id) !== group) return this.#settled({ kind: "group_missing" });
    if (!group.members.has(member)) return this.#settled({ kind: "member_lost" });
    const nothing = viewOf(group, 0, [], new Map());
    if (isGone()) return this.#settled(nothing);
    const open = this.#openOf(group);
    const unseen = findUnseen(group, open, member, seen, (stream) => this.#find(stream)?.id);
    if (unseen !== undefined) {
      const found = await this.#readAll(unseen.records, Infinity, isGone);
      const attempts = unseen.records.map((one) => [keyOf(one), one.attempts] as const);
      return this.#settled(viewOf(group, unseen.token, found, new Map(attempts)));
    }
    const plan = this.#plan(group, member, max);
    const found = await this.#lookUp(plan, isGone);
    // What it were given now would count as an attempt.
    if (isGone()) return this.#settled(nothing);
    const { groups, streams } = this.#writer.world;
    if (this.#group(group.id) !== group) return this.#settled({ kind: "group_missing" });
    const decision = decideJobs(groups, group, member, found, streams, this.#writer.nowMs());
    if (decision.kind === "member_lost") return this.#settled(decision);
    if (decision.kind === "nothing") {
      const isFull = plan.freshMax === 0 && plan.due.length < max;
      return this.#settled({ ...nothing, isFull });
    }
    this.#writer.room.admit(0);
    const { token, jobs } = decision.change;
    await this.#writer.submit([decision.change]);
    this.#writer.meter?.claimed();
    const attempts = jobs.map(
      ([stream, offset, , count]) => [keyOf({ stream, offset }), count] as const,
    );
    const view = viewOf(group, token, found, new Map(attempts));
    assert(view.jobs.length === jobs.length, "a job is given without its record");
    return view;
  }

  async settle(
    id: GroupId,
    member: MemberId,
    done: readonly JobClaim[],
    later: readonly JobLater[],
  ): Promise<SettleView | MemberLost | NoGroup | NoJobs> {
    const group = this.#group(id);
    if (group === undefined) return this.#settled({ kind: "group_missing" });
    if (group.settings.jobs !== true) return this.#settled({ kind: "no_jobs" });
    const decision: SettleDecision = decideSettle(group, member, done, later, this.#writer.nowMs());
    if (decision.kind !== "settled") return this.#settled(decision);
    this.#writer.room.admit(0);
    const durable = this.#writer.submit([decision.change]);
    if (later.length > 0) this.#wake(group);
    await durable;
    this.#writer.meter?.settled(decision.change.done.length, decision.lost.length);
    return { kind: "settled", lost: decision.lost, leaseMs: group.settings.leaseMs };
  }

  /** Calls `wake` when taking may give something, or somewhat earlier, until the returned function is called. */
  watch(id: GroupId, { member, max }: TakeCommand, wake: () => void): () => void {
    const group = this.#group(id);
    const stops: (() => void)[] = [];
    const stop = (): void => {
      for (const one of stops.splice(0)) one();
    };
    if (group === undefined) {
      stops.push(this.#writer.clock.after(SOON_MS, wake));
      return stop;
    }
    for (const stream of group.cursors.keys()) {
      const state = this.#find(stream);
      if (state !== undefined) stops.push(this.#tails.listen(state.id, wake));
    }
    const watchers = this.#watchers.get(group) ?? new Set();
    this.#watchers.set(group, watchers.add(wake));
    stops.push(() => watchers.delete(wake));
    const { due, fresh } = this.#plan(group, member, max);
    const isReady = due.length > 0 || fresh.length > 0;
    const dueMs = (this.#openOf(group).dueMs ?? Infinity) - this.#writer.nowMs();
    const pauseMs = isReady ? SOON_MS : Math.max(1, Math.min(LOOK_AGAIN_MS, dueMs));
    stops.push(this.#writer.clock.after(pauseMs, wake));
    return stop;
  }

  #wake(group: GroupState): void {
    for (const wake of [...(this.#watchers.get(group) ?? [])]) wake();
  }

  #openOf(group: GroupState): OpenJobs {
    const { version } = this.#writer.world;
    const known = this.#looks.get(group);
    if (known?.version === version) return known;
    const found = { ...lookAtOpen(group), version };
    this.#looks.set(group, found);
    return found;
  }

  #plan(group: GroupState, member: MemberId, max: number): JobPlan {
    const tailOf = (stream: StreamName) => {
      const state = this.#find(stream);
      return state === undefined
        ? undefined
        : { id: state.id, tail: this.#writer.durableTail(state) };
    };
    const { groups } = this.#writer.world;
    const open = this.#openOf(group);
    return planTake(groups, group, open, member, max, ROOM, tailOf, this.#writer.nowMs());
  }

  async #lookUp(plan: JobPlan, isGone: () => boolean): Promise<readonly FoundRecord[]> {
    const found = await this.#readAll(plan.due, LIMITS.pageBytesMax, isGone);
    let left = plan.freshMax;
    let bytes = sizeOf(found);
    for (const { stream, from } of plan.fresh) {
      if (left === 0 || (bytes > 0 && bytes >= LIMITS.pageBytesMax) || isGone()) break;
      const fresh = await this.#readFrom(stream, from, left);
      left -= fresh.length;
      bytes += sizeOf(fresh);
      found.push(...fresh);
    }
    return found;
  }

  /**
   * At least one, and then as many as there is room for. An append is read once for all of its records, and only one is held
   * at a time.
   */
  async #readAll(
    records: readonly JobRecord[],
    bytesMax: number,
    isGone: () => boolean,
  ): Promise<FoundRecord[]> {
    const wanted = firstOf(records, bytesMax);
    const found = new Map<string, FoundRecord>();
    const slices = this.#writer.slices();
    let held: HeldPage | undefined;
    try {
      for (const record of wanted.toSorted(byPlace)) {
        if (!slices.take()) await slices.turn();
        if (isGone()) break;
        if (held === undefined || !isInside(held, record)) {
          held?.release();
          held = undefined;
          held = await this.#open(record.stream, record.offset, 1);
        }
        if (held === undefined) continue;
        const [one] = this.#split(held, record.offset, 1);
        // Its stream may have gone meanwhile.
        if (one?.id === record.id && one.end === record.end) found.set(keyOf(record), one);
      }
    } finally {
      held?.release();
    }
    return wanted.flatMap((record) => found.get(keyOf(record)) ?? []);
  }

  async #readFrom(stream: StreamName, from: Offset, max: number): Promise<FoundRecord[]> {
    const page = await this.#open(stream, from, max === 1 ? 1 : LOOK_BYTES);
    if (page === undefined) return [];
    try {
      return this.#split(page, from, max);
    } finally {
      page.release();
    }
  }

  async #open(stream: StreamName, from: Offset, bytes: number): Promise<HeldPage | undefined> {
    const state = this.#find(stream);
    // It may have been trimmed since the plan.
    if (state === undefined || from < earliestOf(this.#writer.world, state)) return undefined;
    this.#writer.expiry.touch(state);
    const tail = this.#writer.durableTail(state);
    const page = await readAcrossForks(this.#writer.store, state, from, tail, bytes);
    let end: number = page.start;
    for (const { length } of page.appends) end += length;
    return { ...page, state, end };
  }

  #split({ state, start, appends }: HeldPage, from: Offset, max: number): FoundRecord[] {
    const found: FoundRecord[] = [];
    const { name: stream, id } = state;
    const life = lifeOf(state, this.#writer.world);
    const isText = isJson(state.contentType);
    let at: number = start;
    for (const append of appends) {
      const begin = at;
      for (let inside = Math.max(0, from - begin); inside < append.length && found.length < max;) {
        const rest = append.subarray(inside);
        const size = isText ? (this.#jsonRecordsEnd(rest, 1) ?? rest.length) : rest.length;
        const data = rest.slice(0, isText ? size - 1 : size);
        const offset = (begin + inside) as Offset;
        found.push({
          stream,
          id,
          life,
          offset,
          end: (offset + size) as Offset,
          data,
          isJson: isText,
        });
        inside += size;
      }
      at = begin + append.length;
    }
    return found;
  }

  #find(stream: StreamName): StreamState | undefined {
    const state = this.#writer.find(stream);
    return state?.isDeleted === true ? undefined : state;
  }

  #group(id: GroupId): GroupState | undefined {
    return this.#writer.world.groups.byId.get(id);
  }

  async #settled<T>(outcome: T): Promise<T> {
    await this.#writer.settled();
    return outcome;
  }
}

/** Of the found records, those that have an attempt. */
function viewOf(
  { settings }: GroupState,
  token: LeaseToken,
  found: readonly FoundRecord[],
  attempts: ReadonlyMap<string, number>,
): TakeView {
  const jobs: TakenJob[] = [];
  for (const record of found) {
    const attempt = attempts.get(keyOf(record));
    if (attempt !== undefined) jobs.push({ ...record, attempt });
  }
  return { kind: "taken", token, jobs, leaseMs: settings.leaseMs, isFull: false };
}

/** At least one. */
function firstOf(records: readonly JobRecord[], bytesMax: number): readonly JobRecord[] {
  let bytes = 0;
  const end = records.findIndex((record, at) => {
    bytes += record.end - record.offset;
    return at > 0 && bytes > bytesMax;
  });
  return end === -1 ? records : records.slice(0, end);
}

function byPlace(one: JobRecord, other: JobRecord): number {
  return one.id - other.id || one.offset - other.offset;
}

function isInside({ state, start, end }: HeldPage, { id, offset }: JobRecord): boolean {
  return state.id === id && offset >= start && offset < end;
}

function sizeOf(found: readonly FoundRecord[]): number {
  let bytes = 0;
  for (const { data } of found) bytes += data.length;
  return bytes;
}

function keyOf({ stream, offset }: Pick<JobRecord, "stream" | "offset">): string {
  return `${offset} ${stream}`;
}
