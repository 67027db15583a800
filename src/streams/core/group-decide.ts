/**
 * Decides what a group answers: who joins, who gets which stream, whose commit counts. Pure: time is an argument.
 * PROTOCOL.md §20.
 *
 *   GD1  the shares of the live members differ by at most one, unless a member wants less;
 *   GD2  a claim gives free streams only: those without a holder, those whose holder is not live, and those whose
 *        time to be handed over has passed;
 *   GD3  a claim asks back only as many streams as the members below their share can use;
 *   GD4  a commit or release changes something only with the newest token of its stream, and by its holder;
 *   GD5  a refused call changes nothing;
 *   GD6  a position is between two records: a position inside a record would deliver committed data again.
 */

import { Glob } from "../../base/glob.ts";
import type {
  Cursor,
  GroupState,
  GroupBook,
  GroupChange,
  GroupClaimed,
  GroupCommitted,
  GroupId,
  GroupReset,
  GroupSettings,
  GroupOrigin,
  LeaseToken,
  Member,
  MemberId,
} from "./group-state.ts";
import { decideNumber } from "./numbers.ts";
import { type IsBoundary, isSystemStream, type StreamState, type StreamsByName } from "./stream.ts";
import { earliestOf } from "./trim.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";
import type { World } from "./world.ts";

/** Most streams that one claim gives, and that it asks back. The rest follows with the next claims. */
export const GRANTED_MAX = 2000;
export const ASKED_MAX = 1000;

export type GroupCreation =
  | { readonly kind: "created"; readonly change: GroupChange }
  | { readonly kind: "exists" }
  | { readonly kind: "conflict"; readonly reason: string }
  | PositionRefusal;

/** Why a group cannot begin or continue at a position. */
export type PositionRefusal =
  | { readonly kind: "beyond_tail" | "inside_record"; readonly stream: StreamName }
  | { readonly kind: "trimmed"; readonly stream: StreamName; readonly earliest: Offset };

export function decideGroup(
  world: Pick<World, "groups" | "streams" | "byId">,
  id: GroupId,
  settings: GroupSettings,
  atMs: TimeMs,
  isBoundary: IsBoundary,
): GroupCreation {
  const { groups, streams } = world;
  const existing = groups.byId.get(id);
  if (existing !== undefined) {
    const reason = findDifference(existing.settings, settings);
    return reason === undefined ? { kind: "exists" } : { kind: "conflict", reason };
  }
  const cursors: [StreamName, Offset][] = [];
  const isFollowed = followedBy(settings);
  const named = new Set(settings.streams);
  const candidates = settings.pattern === undefined ? pick(streams, named) : streams.values();
  for (const state of candidates) {
    if (!isFollowed(state)) continue;
    const offset = offsetAt(settings.start, world, state, isBoundary);
    if (typeof offset !== "number") return offset;
    cursors.push([state.name, offset]);
  }
  return { kind: "created", change: { kind: "group_created", atMs, group: id, settings, cursors } };
}

/** Whether a group with these settings follows a stream. */
export function followedBy(
  settings: Pick<GroupSettings, "pattern" | "streams">,
): (state: StreamState) => boolean {
  const glob = settings.pattern === undefined ? undefined : new Glob(settings.pattern);
  const named = new Set(settings.streams);
  return ({ name, isDeleted }) =>
    !isDeleted && !isSystemStream(name) && (named.has(name) || glob?.matches(name) === true);
}

/**
 * Decides where a group begins on a stream, or why it cannot. Undefined: the group does not follow the stream, or
 * already has it.
 */
export function decideGroupStart(
  world: Pick<World, "groups" | "byId">,
  group: Pick<GroupState, "id" | "settings" | "cursors">,
  state: StreamState,
  isBoundary: IsBoundary,
): Offset | PositionRefusal | undefined {
  const { id, settings, cursors } = group;
  const { name } = state;
  if (state.isDeleted || isSystemStream(name) || cursors.has(name)) return undefined;
  const { named, globs } = world.groups;
  const isNamed = named.get(name)?.has(id) === true;
  if (!isNamed && globs.get(id)?.matches(name) !== true) return undefined;
  return offsetAt(settings.start, world, state, isBoundary);
}

function* pick(streams: StreamsByName, names: ReadonlySet<StreamName>): Generator<StreamState> {
  for (const name of names) {
    const state = streams.get(name);
    if (state !== undefined) yield state;
  }
}

/** GD6 */
function offsetAt(
  start: GroupOrigin,
  world: Pick<World, "byId">,
  state: StreamState,
  isBoundary: IsBoundary,
): Offset | PositionRefusal {
  const earliest = earliestOf(world, state);
  if (start.kind === "beginning") return earliest;
  if (start.kind === "tail") return state.tail;
  if (start.offset > state.tail) return { kind: "beyond_tail", stream: state.name };
  if (start.offset < earliest) return { kind: "trimmed", stream: state.name, earliest };
  if (!isBoundary(state, start.offset)) return { kind: "inside_record", stream: state.name };
  return start.offset;
}

function findDifference(one: GroupSettings, other: GroupSettings): string | undefined {
  if (one.pattern !== other.pattern) return "pattern";
  if (one.streams.join("\n") !== other.streams.join("\n")) return "streams";
  if (JSON.stringify(one.start) !== JSON.stringify(other.start)) return "start";
  if (one.jobs !== other.jobs) return "jobs";
  return one.leaseMs === other.leaseMs ? undefined : "leaseMs";
}

/** Decides a join. `nonce` makes the member's id new, also after a restore with a wrong clock. */
export function decideJoin(
  book: GroupBook,
  group: GroupState,
  name: string,
  nonce: string,
  atMs: TimeMs,
): Extract<GroupChange, { kind: "group_joined" }> {
  const ordinal = decideNumber(book.nextToken, atMs);
  const member = `${name}-${nonce}`;
  const expiresAtMs = (atMs + group.settings.leaseMs) as TimeMs;
  return { kind: "group_joined", atMs, group: group.id, member, ordinal, expiresAtMs };
}

export interface MemberLost {
  readonly kind: "member_lost";
}

export type GroupClaimDecision =
  | { readonly kind: "claimed"; readonly change: GroupClaimed; readonly share: number }
  | MemberLost;

const MEMBER_LOST: MemberLost = { kind: "member_lost" };

export function decideGroupClaim(
  book: GroupBook,
  group: GroupState,
  id: MemberId,
  max: number,
  atMs: TimeMs,
): GroupClaimDecision {
  const member = group.members.get(id);
  if (member === undefined) return MEMBER_LOST;
  const { leaseMs } = group.settings;
  const dropped: MemberId[] = [];
  const live: Member[] = [];
  for (const other of group.members.values()) {
    if (other.id !== id && other.expiresAtMs <= atMs) dropped.push(other.id);
    else if (other.id === id) live.push({ ...other, max, isActive: true });
    else if (other.isActive) live.push(other);
  }
  const shares = shareOut(group.openCount, live);
  const share = shares.get(id) ?? 0;
  const gone = new Set(dropped);
  const missing = Math.min(Math.max(0, share - member.holds.size), GRANTED_MAX);
  const granted: [StreamName, LeaseToken][] = [];
  let token = decideNumber(book.nextToken, atMs);
  for (const stream of missing === 0 ? [] : findFree(group, id, gone, atMs)) {
    granted.push([stream, token]);
    token += 1;
    if (granted.length === missing) break;
  }
  const given = new Set(granted.map(([stream]) => stream));
  const freeLeft = countFree(group, id, gone, atMs) - granted.length;
  const wanted = askedCounts(group, live, shares, given, freeLeft, id);
  const untilMs = (atMs + leaseMs) as TimeMs;
  const { asked, kept } = adjustAsked(group, wanted, given, untilMs);
  const expiresAtMs = untilMs;
  const change: GroupClaimed = {
    kind: "group_claimed",
    atMs,
    group: group.id,
    member: id,
    max,
    expiresAtMs,
    dropped,
    granted,
    asked,
    kept,
  };
  return { kind: "claimed", change, share };
}

/** GD1: shares the streams out equally, in the order of joining. The others share what a member does not want. */
export function shareOut(count: number, members: readonly Member[]): ReadonlyMap<MemberId, number> {
  const shares = new Map<MemberId, number>();
  let open = members.toSorted((one, other) => one.ordinal - other.ordinal);
  let left = count;
  for (;;) {
    const each = Math.floor(left / Math.max(1, open.length));
    const modest = open.filter(({ max }) => max <= each);
    if (modest.length === 0) break;
    for (const { id, max } of modest) {
      shares.set(id, max);
      left -= max;
    }
    open = open.filter(({ max }) => max > each);
  }
  const each = Math.floor(left / Math.max(1, open.length));
  const more = left - each * open.length;
  for (const [index, { id }] of open.entries()) shares.set(id, each + (index < more ? 1 : 0));
  return shares;
}

/**
 * GD2: yields the streams that this member may get, in no promised order. It looks only at as many as the caller
 * takes.
 */
function* findFree(
  group: GroupState,
  id: MemberId,
  dropped: ReadonlySet<MemberId>,
  atMs: TimeMs,
): Generator<StreamName, void, undefined> {
  yield* group.free;
  for (const streams of group.left.values()) yield* streams;
  for (const other of dropped) yield* group.members.get(other)?.holds ?? [];
  yield* findOverdue(group, id, dropped, atMs);
}

function countFree(
  group: GroupState,
  id: MemberId,
  dropped: ReadonlySet<MemberId>,
  atMs: TimeMs,
): number {
  let count = group.free.size;
  for (const streams of group.left.values()) count += streams.size;
  for (const other of dropped) count += group.members.get(other)?.holds.size ?? 0;
  for (const _ of findOverdue(group, id, dropped, atMs)) count += 1;
  return count;
}

/** Yields the streams of live members whose time to be handed over has passed. */
function* findOverdue(
  group: GroupState,
  id: MemberId,
  dropped: ReadonlySet<MemberId>,
  atMs: TimeMs,
): Generator<StreamName, void, undefined> {
  for (const stream of group.asked) {
    const { holder, askedUntilMs } = group.cursors.get(stream) ?? {};
    if (holder === undefined || holder === id || dropped.has(holder)) continue;
    if (askedUntilMs !== undefined && askedUntilMs <= atMs) yield stream;
  }
}

/** GD3: counts how many streams each member has to hand over. */
function askedCounts(
  group: GroupState,
  live: readonly Member[],
  shares: ReadonlyMap<MemberId, number>,
  given: ReadonlySet<StreamName>,
  freeLeft: number,
  claimer: MemberId,
): ReadonlyMap<MemberId, number> {
  const over: { readonly id: MemberId; readonly excess: number }[] = [];
  let short = 0;
  for (const member of live) {
    const { id } = member;
    let count = group.members.get(id)?.holds.size ?? 0;
    if (id === claimer) count += given.size;
    else for (const stream of given) if (member.holds.has(stream)) count -= 1;
    const excess = count - (shares.get(id) ?? 0);
    if (excess > 0) over.push({ id, excess });
    else short -= excess;
  }
  let wanted = Math.min(Math.max(0, short - freeLeft), ASKED_MAX);
  const counts = new Map<MemberId, number>();
  for (const { id, excess } of over.toSorted((one, other) => other.excess - one.excess)) {
    const count = Math.min(excess, wanted);
    if (count > 0) counts.set(id, count);
    wanted -= count;
  }
  return counts;
}

/**
 * Decides which streams to ask back. Streams that were asked back before come first, so that a member that is handing
 * one over can go on.
 */
function adjustAsked(
  group: GroupState,
  wanted: ReadonlyMap<MemberId, number>,
  given: ReadonlySet<StreamName>,
  untilMs: TimeMs,
): { readonly asked: readonly [StreamName, TimeMs][]; readonly kept: readonly StreamName[] } {
  const left = new Map(wanted);
  const kept: StreamName[] = [];
  for (const stream of group.asked) {
    const holder = group.cursors.get(stream)?.holder;
    if (holder === undefined || given.has(stream)) continue;
    const count = left.get(holder) ?? 0;
    if (count > 0) left.set(holder, count - 1);
    else kept.push(stream);
  }
  const asked: [StreamName, TimeMs][] = [];
  for (const [id, count] of left) {
    if (count === 0) continue;
    const others: StreamName[] = [];
    for (const stream of group.members.get(id)?.holds ?? []) {
      if (!given.has(stream) && !group.asked.has(stream)) others.push(stream);
    }
    // The newest ones: a member keeps the streams that it has held for long.
    for (const stream of others.slice(-count)) asked.push([stream, untilMs]);
  }
  return { asked, kept };
}

/** What the holder of a lease commits. */
export interface LeaseCommit {
  readonly stream: StreamName;
  readonly token: LeaseToken;
  /** Undefined: only a sign of life. */
  readonly offset: Offset | undefined;
}

export type CommitRefusal =
  | MemberLost
  | { readonly kind: "lease_lost"; readonly streams: readonly StreamName[] }
  | { readonly kind: "offset_regressed"; readonly stream: StreamName; readonly offset: Offset }
  | { readonly kind: "beyond_tail"; readonly stream: StreamName; readonly tail: Offset }
  | { readonly kind: "inside_record"; readonly stream: StreamName };

export type CommitDecision =
  | { readonly kind: "committed"; readonly change: GroupCommitted }
  | CommitRefusal;

export function decideCommit(
  group: GroupState,
  id: MemberId,
  commits: readonly LeaseCommit[],
  streams: StreamsByName,
  atMs: TimeMs,
  isBoundary: IsBoundary,
): CommitDecision {
  if (!group.members.has(id)) return MEMBER_LOST;
  const lost: StreamName[] = [];
  for (const commit of commits) {
    const isHeld = findLease(group, id, commit.stream, commit.token) !== undefined;
    if (!isHeld && !isFinal(group, commit)) lost.push(commit.stream);
  }
  if (lost.length > 0) return { kind: "lease_lost", streams: lost };
  const offsets = new Map<StreamName, Offset>();
  const finished = new Set<StreamName>();
  for (const { stream, offset } of commits) {
    const cursor = group.cursors.get(stream);
    const state = streams.get(stream);
    if (offset === undefined || cursor === undefined || state === undefined) continue;
    if (offset < cursor.offset) return { kind: "offset_regressed", stream, offset: cursor.offset };
    if (offset > state.tail) return { kind: "beyond_tail", stream, tail: state.tail };
    // GD6. The cursor's own position was checked when it was committed.
    if (offset !== cursor.offset && !isBoundary(state, offset)) {
      return { kind: "inside_record", stream };
    }
    // The same stream twice in one call: the further one counts, as if they had come in order.
    if (offset > (offsets.get(stream) ?? cursor.offset)) offsets.set(stream, offset);
    if (state.isClosed && offset === state.tail) finished.add(stream);
  }
  const expiresAtMs = (atMs + group.settings.leaseMs) as TimeMs;
  const change: GroupCommitted = {
    kind: "group_committed",
    atMs,
    group: group.id,
    member: id,
    expiresAtMs,
    offsets: [...offsets],
    finished: [...finished],
  };
  return { kind: "committed", change };
}

/**
 * Whether this repeats the commit that finished its stream. Such a member holds no lease any more, because of its own
 * commit.
 */
function isFinal(group: GroupState, { stream, token, offset }: LeaseCommit): boolean {
  const cursor = group.cursors.get(stream);
  return cursor?.isFinished === true && cursor.token === token && cursor.offset === offset;
}

/** Returns the cursor, if this is its current lease. */
export function findLease(
  group: GroupState,
  member: MemberId,
  stream: StreamName,
  token: LeaseToken,
): Cursor | undefined {
  // A cursor may still name a member that has left.
  if (!group.members.has(member)) return undefined;
  const cursor = group.cursors.get(stream);
  return cursor?.holder === member && cursor.token === token ? cursor : undefined;
}

/** Decides a release. A stream that the member does not hold any more needs none. */
export function decideGroupRelease(
  group: GroupState,
  member: MemberId,
  leases: readonly { readonly stream: StreamName; readonly token: LeaseToken }[],
  atMs: TimeMs,
): readonly GroupChange[] {
  const streams = new Set<StreamName>();
  for (const { stream, token } of leases) {
    if (findLease(group, member, stream, token) !== undefined) streams.add(stream);
  }
  if (streams.size === 0) return [];
  return [{ kind: "group_released", atMs, group: group.id, streams: [...streams] }];
}

export function decideLeave(
  group: GroupState,
  member: MemberId,
  atMs: TimeMs,
): readonly GroupChange[] {
  if (!group.members.has(member)) return [];
  return [{ kind: "group_left", atMs, group: group.id, member }];
}

export type ResetDecision =
  | { readonly kind: "reset"; readonly change: GroupReset }
  | { readonly kind: "stream_missing"; readonly stream: StreamName }
  | PositionRefusal;

/** Decides a reset. Undefined `only`: all streams of the group. */
export function decideGroupReset(
  group: GroupState,
  only: readonly StreamName[] | undefined,
  to: GroupOrigin,
  world: Pick<World, "streams" | "byId">,
  atMs: TimeMs,
  isBoundary: IsBoundary,
): ResetDecision {
  const missing = only?.find((stream) => !group.cursors.has(stream));
  if (missing !== undefined) return { kind: "stream_missing", stream: missing };
  const offsets: [StreamName, Offset][] = [];
  for (const stream of only ?? group.cursors.keys()) {
    const state = world.streams.get(stream);
    if (state === undefined) continue;
    const offset = offsetAt(to, world, state, isBoundary);
    if (typeof offset !== "number") return offset;
    offsets.push([stream, offset]);
  }
  return { kind: "reset", change: { kind: "group_reset", atMs, group: group.id, offsets } };
}

/** Returns the streams that a member holds and is asked to hand over. */
export function handOverOf(group: GroupState, id: MemberId): readonly StreamName[] {
  if (!group.members.has(id)) return [];
  return [...group.asked].filter((stream) => group.cursors.get(stream)?.holder === id);
}
