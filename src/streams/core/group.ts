/**
 * The state of groups, and the only code that changes it. The decisions are in group-decide.ts. PROTOCOL.md §20.
 *
 *   - a token is given once: tokens and members are numbered by one counter that only grows, and is never below the
 *     clock (numbers.ts);
 *   - a stream has at most one holder, and only the newest token of a stream counts;
 *   - a committed offset never goes back, unless an administrator resets it;
 *   - a job is open from the time that it is first given until it is done, and the offset is that of the first one;
 *   - a job that was trimmed is open no more, and what was trimmed is never given;
 *   - the offset of a deleted stream never counts for the stream that is created after it;
 *   - a stream that a group names or matches is in the group from its creation on.
 */

import type { StreamCreated } from "./change.ts";
import { Glob } from "../../base/glob.ts";
import { GlobIndex } from "./glob-index.ts";
import type {
  Cursor,
  GroupState,
  GroupBook,
  GroupChange,
  GroupClaimed,
  GroupCommitted,
  GroupCreated,
  GroupId,
  GroupJoined,
  GroupReset,
  GroupSettled,
  GroupTaken,
  Job,
  JobWindow,
  Member,
  MemberId,
} from "./group-state.ts";
import { isSystemStream } from "./stream.ts";
import { assert } from "../../base/assert.ts";
import { OFFSET_ZERO, type Offset, type StreamName } from "./types.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type MutableCursor = Mutable<Cursor>;
type MutableWindow = Mutable<Omit<JobWindow, "open">> & { readonly open: Map<Offset, Job> };
export type MutableMember = Mutable<Omit<Member, "holds">> & { readonly holds: Set<StreamName> };
export type MutableGroup = Mutable<
  Omit<GroupState, "cursors" | "members" | "free" | "left" | "asked">
> & {
  readonly cursors: Map<StreamName, MutableCursor>;
  readonly members: Map<MemberId, MutableMember>;
  readonly free: Set<StreamName>;
  readonly left: Map<MemberId, Set<StreamName>>;
  readonly asked: Set<StreamName>;
};
export type MutableGroupBook = Mutable<Omit<GroupBook, "byId" | "globs" | "named">> & {
  readonly byId: Map<GroupId, MutableGroup>;
  readonly globs: GlobIndex<GroupId>;
  readonly named: Map<StreamName, Set<GroupId>>;
};

export function createGroupBook(): GroupBook {
  const book: MutableGroupBook = {
    byId: new Map(),
    globs: new GlobIndex(),
    named: new Map(),
    nextToken: 1,
    jobCount: 0,
  };
  return book;
}

/** Adds a group that has no cursor and no member yet. */
export function addGroup(
  book: MutableGroupBook,
  group: Pick<GroupState, "id" | "settings" | "createdAtMs">,
): MutableGroup {
  const { id, settings, createdAtMs } = group;
  const added: MutableGroup = {
    id,
    settings,
    createdAtMs,
    cursors: new Map(),
    members: new Map(),
    free: new Set(),
    left: new Map(),
    asked: new Set(),
    openCount: 0,
    jobCount: 0,
  };
  book.byId.set(id, added);
  if (settings.pattern !== undefined) book.globs.set(id, new Glob(settings.pattern));
  for (const stream of settings.streams) {
    const ids = book.named.get(stream);
    if (ids === undefined) book.named.set(stream, new Set([id]));
    else ids.add(id);
  }
  return added;
}

export function applyGroup(readonlyBook: GroupBook, change: GroupChange): void {
  // The cast gives write access. The types make the book read-only for all other code.
  const book = readonlyBook as unknown as MutableGroupBook;
  switch (change.kind) {
    case "group_created":
      applyCreated(book, change);
      return;
    case "group_found":
      for (const [stream, offset] of change.cursors) {
        addCursor(groupOf(book, change.group), stream, offset);
      }
      return;
    case "group_deleted":
      forgetNames(book, groupOf(book, change.group));
      book.jobCount -= groupOf(book, change.group).jobCount;
      book.byId.delete(change.group);
      book.globs.delete(change.group);
      return;
    case "group_joined":
      applyJoined(book, groupOf(book, change.group), change);
      return;
    case "group_claimed":
      applyClaimed(book, groupOf(book, change.group), change);
      return;
    case "group_committed":
      applyCommitted(groupOf(book, change.group), change);
      return;
    case "group_released":
      for (const stream of change.streams) release(groupOf(book, change.group), stream);
      return;
    case "group_left":
      drop(groupOf(book, change.group), change.member);
      return;
    case "group_taken":
      applyTaken(book, groupOf(book, change.group), change);
      return;
    case "group_settled":
      applySettled(book, groupOf(book, change.group), change);
      return;
    case "group_reset":
      applyReset(book, groupOf(book, change.group), change);
      return;
    default:
      change satisfies never;
  }
}

/** Adds the new stream to the groups that it belongs to. A fork of a trimmed stream begins later. */
export function applyStreamFound(
  readonlyBook: GroupBook,
  { name }: StreamCreated,
  earliest = OFFSET_ZERO,
): void {
  const book = readonlyBook as unknown as MutableGroupBook;
  if (isSystemStream(name)) return;
  for (const group of followersOf(book, name)) addCursor(group, name, earliest);
}

/** Returns where the groups stand that follow the stream. */
export function cursorsAt(book: GroupBook, stream: StreamName): readonly (Cursor | undefined)[] {
  // The cast gives the index of patterns. Nothing is written.
  const followers = followersOf(book as unknown as MutableGroupBook, stream);
  return followers.map(({ cursors }) => cursors.get(stream));
}

/** Returns the groups that name or match the stream. No other group has a cursor of it. */
function followersOf(book: MutableGroupBook, stream: StreamName): readonly MutableGroup[] {
  if (book.byId.size === 0) return [];
  const ids = new Set([...(book.named.get(stream) ?? []), ...book.globs.matching(stream)]);
  return Array.from(ids, (id) => groupOf(book, id));
}

function forgetNames(book: MutableGroupBook, group: MutableGroup): void {
  for (const stream of group.settings.streams) {
    const ids = book.named.get(stream);
    ids?.delete(group.id);
    if (ids?.size === 0) book.named.delete(stream);
  }
}

/** Removes what the groups knew of a stream that is gone. */
export function applyStreamLost(readonlyBook: GroupBook, stream: StreamName): void {
  const book = readonlyBook as unknown as MutableGroupBook;
  for (const group of followersOf(book, stream)) {
    const cursor = group.cursors.get(stream);
    if (cursor === undefined) continue;
    release(group, stream);
    forgetJobs(book, group, cursor);
    if (!cursor.isFinished) group.openCount -= 1;
    group.free.delete(stream);
    group.cursors.delete(stream);
  }
}

/**
 * Groups of jobs give up what cannot be read any more: no worker could end it, and it would stay open. Other groups
 * stay where they are, and their members are refused.
 */
export function applyStreamTrimmed(
  readonlyBook: GroupBook,
  stream: StreamName,
  earliest: Offset,
): void {
  const book = readonlyBook as unknown as MutableGroupBook;
  for (const group of followersOf(book, stream)) {
    const cursor = group.cursors.get(stream);
    if (group.settings.jobs !== true || cursor === undefined) continue;
    if (cursor.offset < earliest) dropJobs(book, group, cursor, earliest);
  }
}

function groupOf(book: MutableGroupBook, id: GroupId): MutableGroup {
  const group = book.byId.get(id);
  assert(group !== undefined, `a change names no group: id=${id}`);
  return group;
}

function applyCreated(book: MutableGroupBook, change: GroupCreated): void {
  const { group: id, settings, atMs } = change;
  assert(!book.byId.has(id), `a group is created twice: id=${id}`);
  const group = addGroup(book, { id, settings, createdAtMs: atMs });
  for (const [stream, offset] of change.cursors) addCursor(group, stream, offset);
}

function addCursor(group: MutableGroup, stream: StreamName, offset: Offset): void {
  assert(!group.cursors.has(stream), `a stream joins twice: group=${group.id}`);
  group.cursors.set(stream, {
    stream,
    offset,
    token: 0,
    holder: undefined,
    askedUntilMs: undefined,
    isFinished: false,
  });
  group.free.add(stream);
  group.openCount += 1;
}

function applyJoined(book: MutableGroupBook, group: MutableGroup, change: GroupJoined): void {
  const { member: id, ordinal, expiresAtMs } = change;
  assert(ordinal >= book.nextToken, `a number is given twice: group=${group.id}`);
  book.nextToken = ordinal + 1;
  const holds = new Set<StreamName>();
  group.members.set(id, { id, ordinal, expiresAtMs, isActive: false, max: 0, holds });
}

function applyClaimed(book: MutableGroupBook, group: MutableGroup, change: GroupClaimed): void {
  for (const id of change.dropped) drop(group, id);
  const member = memberOf(group, change.member);
  renew(member, change.expiresAtMs);
  member.isActive = true;
  member.max = change.max;
  for (const [stream, token] of change.granted) {
    assert(token >= book.nextToken, `a token is given twice: group=${group.id}`);
    book.nextToken = token + 1;
    // The holder until now keeps an old token.
    release(group, stream);
    const cursor = cursorOf(group, stream);
    cursor.token = token;
    cursor.holder = member.id;
    member.holds.add(stream);
    group.free.delete(stream);
  }
  for (const [stream, untilMs] of change.asked) {
    cursorOf(group, stream).askedUntilMs = untilMs;
    group.asked.add(stream);
  }
  for (const stream of change.kept) keep(group, cursorOf(group, stream));
}

function applyCommitted(group: MutableGroup, change: GroupCommitted): void {
  renew(memberOf(group, change.member), change.expiresAtMs);
  for (const [stream, offset] of change.offsets) {
    const cursor = cursorOf(group, stream);
    assert(offset >= cursor.offset, `an offset goes back: group=${group.id}`);
    cursor.offset = offset;
  }
  for (const stream of change.finished) {
    const cursor = cursorOf(group, stream);
    if (cursor.isFinished) continue;
    release(group, stream);
    cursor.isFinished = true;
    group.free.delete(stream);
    group.openCount -= 1;
  }
}

function applyTaken(book: MutableGroupBook, group: MutableGroup, change: GroupTaken): void {
  for (const id of change.dropped) drop(group, id);
  const member = memberOf(group, change.member);
  renew(member, change.expiresAtMs);
  member.isActive = true;
  const { token } = change;
  assert(token >= book.nextToken, `a token is given twice: group=${group.id}`);
  book.nextToken = token + 1;
  for (const [stream, offset, end, attempts] of change.jobs) {
    const window = openWindow(cursorOf(group, stream));
    const isNew = offset === window.next;
    assert(isNew || window.open.has(offset), `a job is neither open nor next: group=${group.id}`);
    if (isNew) {
      window.next = end;
      count(book, group, 1);
    }
    const holder = member.id;
    window.open.set(offset, { offset, end, attempts, token, holder, dueAtMs: change.atMs });
  }
}

function applySettled(book: MutableGroupBook, group: MutableGroup, change: GroupSettled): void {
  const member = memberOf(group, change.member);
  renew(member, change.expiresAtMs);
  member.isActive = true;
  for (const [stream, offset, dueAtMs, attempts] of change.later) {
    const { open } = openWindow(cursorOf(group, stream));
    const job = open.get(offset);
    assert(job !== undefined, `a job that is not open waits: group=${group.id}`);
    open.set(offset, { ...job, attempts, dueAtMs, holder: undefined });
  }
  for (const [stream, offset] of change.done) {
    const cursor = cursorOf(group, stream);
    const { open, next } = openWindow(cursor);
    const isDone = open.delete(offset);
    assert(isDone, `a job that is not open is done: group=${group.id}`);
    count(book, group, -1);
    const [first = next] = open.keys();
    assert(first >= cursor.offset, `jobs go back: group=${group.id}`);
    cursor.offset = first;
  }
}

function openWindow(cursor: MutableCursor): MutableWindow {
  cursor.jobs ??= { next: cursor.offset, open: new Map() };
  return cursor.jobs as MutableWindow;
}

function count(book: MutableGroupBook, group: MutableGroup, jobs: number): void {
  group.jobCount += jobs;
  book.jobCount += jobs;
}

/** Their workers have lost them. */
function forgetJobs(book: MutableGroupBook, group: MutableGroup, cursor: MutableCursor): void {
  if (cursor.jobs === undefined) return;
  count(book, group, -cursor.jobs.open.size);
  cursor.jobs = undefined;
}

/** Those before `earliest` are gone, also those that a worker has. The group goes on with what is left. */
function dropJobs(
  book: MutableGroupBook,
  group: MutableGroup,
  cursor: MutableCursor,
  earliest: Offset,
): void {
  const window = openWindow(cursor);
  for (const offset of window.open.keys()) {
    if (offset >= earliest) break;
    window.open.delete(offset);
    count(book, group, -1);
  }
  if (window.next < earliest) window.next = earliest;
  const [first = window.next] = window.open.keys();
  cursor.offset = first;
}

function applyReset(book: MutableGroupBook, group: MutableGroup, change: GroupReset): void {
  for (const [stream, offset] of change.offsets) {
    const cursor = cursorOf(group, stream);
    release(group, stream);
    forgetJobs(book, group, cursor);
    cursor.offset = offset;
    if (!cursor.isFinished) continue;
    cursor.isFinished = false;
    group.free.add(stream);
    group.openCount += 1;
  }
}

/** Ends the lease of this stream. Its token stays used. */
function release(group: MutableGroup, stream: StreamName): void {
  const cursor = cursorOf(group, stream);
  keep(group, cursor);
  const { holder } = cursor;
  if (holder === undefined) return;
  group.members.get(holder)?.holds.delete(stream);
  const left = group.left.get(holder);
  left?.delete(stream);
  if (left?.size === 0) group.left.delete(holder);
  cursor.holder = undefined;
  if (!cursor.isFinished) group.free.add(stream);
}

/** Stops asking for the stream back. */
function keep(group: MutableGroup, cursor: MutableCursor): void {
  cursor.askedUntilMs = undefined;
  group.asked.delete(cursor.stream);
}

/** Removes the member at once. Its streams are free; they leave `left` when others get them. */
function drop(group: MutableGroup, id: MemberId): void {
  const member = group.members.get(id);
  if (member === undefined) return;
  group.members.delete(id);
  if (member.holds.size === 0) return;
  group.left.set(id, member.holds);
  for (const stream of group.asked) {
    const cursor = cursorOf(group, stream);
    if (cursor.holder === id) keep(group, cursor);
  }
}

/** Extends the life of a member. A time never becomes earlier. */
function renew(member: MutableMember, expiresAtMs: Member["expiresAtMs"]): void {
  if (expiresAtMs > member.expiresAtMs) member.expiresAtMs = expiresAtMs;
}

function cursorOf(group: MutableGroup, stream: StreamName): MutableCursor {
  const cursor = group.cursors.get(stream);
  assert(cursor !== undefined, `a change names a stream outside the group: group=${group.id}`);
  return cursor;
}

function memberOf(group: MutableGroup, id: MemberId): MutableMember {
  const member = group.members.get(id);
  assert(member !== undefined, `a change names no member: group=${group.id}`);
  return member;
}
