/**
 * What a group is, and the one place that changes it. The decisions are in group-decide.ts. PROTOCOL.md §20.
 *
 *   GR1  a token is given once: tokens and members are numbered by one counter that only grows;
 *   GR2  a stream has at most one holder, and only the newest token of a stream counts;
 *   GR3  a committed offset never goes back, unless an administrator resets it;
 *   GR4  no offset of a deleted stream is ever held against the stream created after it;
 *   GR5  a stream that a group names or matches is in the group from its creation on.
 */

import type { StreamCreated } from "./change.ts";
import { Glob } from "./glob.ts";
import type {
  Cursor,
  Group,
  GroupBook,
  GroupChange,
  GroupClaimed,
  GroupCommitted,
  GroupCreated,
  GroupId,
  GroupJoined,
  GroupReset,
  Member,
  MemberId,
} from "./group-state.ts";
import { isSystemStream } from "./stream.ts";
import { assert, OFFSET_ZERO, type Offset, type StreamName } from "./types.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type MutableCursor = Mutable<Cursor>;
export type MutableMember = Mutable<Omit<Member, "holds">> & { readonly holds: Set<StreamName> };
export type MutableGroup = Mutable<Omit<Group, "cursors" | "members" | "free">> & {
  readonly cursors: Map<StreamName, MutableCursor>;
  readonly members: Map<MemberId, MutableMember>;
  readonly free: Set<StreamName>;
};
export type MutableGroupBook = Mutable<Omit<GroupBook, "byId" | "globs">> & {
  readonly byId: Map<GroupId, MutableGroup>;
  readonly globs: Map<GroupId, Glob>;
};

export function createGroupBook(): GroupBook {
  const book: MutableGroupBook = { byId: new Map(), globs: new Map(), nextToken: 1 };
  return book;
}

/** A group that has no cursor and no member yet. */
export function addGroup(
  book: MutableGroupBook,
  group: Pick<Group, "id" | "settings" | "createdAtMs">,
): MutableGroup {
  const { id, settings, createdAtMs } = group;
  const added: MutableGroup = {
    id,
    settings,
    createdAtMs,
    cursors: new Map(),
    members: new Map(),
    free: new Set(),
    openCount: 0,
  };
  book.byId.set(id, added);
  if (settings.pattern !== undefined) book.globs.set(id, new Glob(settings.pattern));
  return added;
}

export function applyGroup(readonlyBook: GroupBook, change: GroupChange): void {
  // The cast opens the door that the types keep shut for everybody else.
  const book = readonlyBook as unknown as MutableGroupBook;
  switch (change.kind) {
    case "group_created":
      applyCreated(book, change);
      return;
    case "group_deleted":
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
    case "group_reset":
      applyReset(groupOf(book, change.group), change);
      return;
    default:
      change satisfies never;
  }
}

/** GR5: the groups that this stream belongs to find it. */
export function applyStreamFound(readonlyBook: GroupBook, change: StreamCreated): void {
  const book = readonlyBook as unknown as MutableGroupBook;
  if (isSystemStream(change.name)) return;
  for (const group of book.byId.values()) {
    const isFollowed =
      group.settings.streams.includes(change.name) ||
      book.globs.get(group.id)?.matches(change.name) === true;
    if (isFollowed) addCursor(group, change.name, OFFSET_ZERO);
  }
}

/** GR4: the stream of this name is gone, and with it what the groups knew of it. */
export function applyStreamLost(readonlyBook: GroupBook, stream: StreamName): void {
  const book = readonlyBook as unknown as MutableGroupBook;
  for (const group of book.byId.values()) {
    const cursor = group.cursors.get(stream);
    if (cursor === undefined) continue;
    release(group, stream);
    if (!cursor.isFinished) group.openCount -= 1;
    group.free.delete(stream);
    group.cursors.delete(stream);
  }
}

function groupOf(book: MutableGroupBook, id: GroupId): MutableGroup {
  const group = book.byId.get(id);
  assert(group !== undefined, `GR1 a change names no group: id=${id}`);
  return group;
}

function applyCreated(book: MutableGroupBook, change: GroupCreated): void {
  const { group: id, settings, atMs } = change;
  assert(!book.byId.has(id), `GR1 a group is created twice: id=${id}`);
  const group = addGroup(book, { id, settings, createdAtMs: atMs });
  for (const [stream, offset] of change.cursors) addCursor(group, stream, offset);
}

function addCursor(group: MutableGroup, stream: StreamName, offset: Offset): void {
  assert(!group.cursors.has(stream), `GR5 a stream joins twice: group=${group.id}`);
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
  assert(ordinal >= book.nextToken, `GR1 a number is given twice: group=${group.id}`);
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
    assert(token >= book.nextToken, `GR1 a token is given twice: group=${group.id}`);
    book.nextToken = token + 1;
    // GR2: whoever held it until now holds an old token.
    release(group, stream);
    const cursor = cursorOf(group, stream);
    cursor.token = token;
    cursor.holder = member.id;
    member.holds.add(stream);
    group.free.delete(stream);
  }
  for (const [stream, untilMs] of change.asked) cursorOf(group, stream).askedUntilMs = untilMs;
  for (const stream of change.kept) cursorOf(group, stream).askedUntilMs = undefined;
}

function applyCommitted(group: MutableGroup, change: GroupCommitted): void {
  renew(memberOf(group, change.member), change.expiresAtMs);
  for (const [stream, offset] of change.offsets) {
    const cursor = cursorOf(group, stream);
    assert(offset >= cursor.offset, `GR3 an offset goes back: group=${group.id}`);
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

function applyReset(group: MutableGroup, change: GroupReset): void {
  for (const [stream, offset] of change.offsets) {
    const cursor = cursorOf(group, stream);
    release(group, stream);
    cursor.offset = offset;
    if (!cursor.isFinished) continue;
    cursor.isFinished = false;
    group.free.add(stream);
    group.openCount += 1;
  }
}

/** The lease of this stream is over; its token stays used. */
function release(group: MutableGroup, stream: StreamName): void {
  const cursor = cursorOf(group, stream);
  cursor.askedUntilMs = undefined;
  if (cursor.holder === undefined) return;
  group.members.get(cursor.holder)?.holds.delete(stream);
  cursor.holder = undefined;
  if (!cursor.isFinished) group.free.add(stream);
}

function drop(group: MutableGroup, id: MemberId): void {
  const member = group.members.get(id);
  if (member === undefined) return;
  for (const stream of member.holds) release(group, stream);
  group.members.delete(id);
}

/** A member is live until the latest time that it was told. */
function renew(member: MutableMember, expiresAtMs: Member["expiresAtMs"]): void {
  if (expiresAtMs > member.expiresAtMs) member.expiresAtMs = expiresAtMs;
}

function cursorOf(group: MutableGroup, stream: StreamName): MutableCursor {
  const cursor = group.cursors.get(stream);
  assert(cursor !== undefined, `GR5 a change names a stream outside the group: group=${group.id}`);
  return cursor;
}

function memberOf(group: MutableGroup, id: MemberId): MutableMember {
  const member = group.members.get(id);
  assert(member !== undefined, `GR1 a change names no member: group=${group.id}`);
  return member;
}
