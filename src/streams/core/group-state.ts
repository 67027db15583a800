/**
 * The words of groups: what one is, and what can happen to it, as plain data. The rules are in group.ts and
 * group-decide.ts. PROTOCOL.md §20.
 */

import type { Glob } from "../../base/glob.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";

export type GroupId = string;
/** Given once: the name that the member chose, and random letters. */
export type MemberId = string;
/** Number of a lease. A higher one fences every lower one; none is given twice. */
export type LeaseToken = number;

/** Where a group begins on the streams that it finds. */
export type GroupStart =
  | { readonly kind: "beginning" }
  | { readonly kind: "tail" }
  | { readonly kind: "offset"; readonly offset: Offset };

export interface GroupSettings {
  /** Over absolute names. */
  readonly pattern: string | undefined;
  /** The streams that were named: sorted, each once. They need not exist. */
  readonly streams: readonly StreamName[];
  readonly start: GroupStart;
  readonly leaseMs: number;
}

/** How far a group has come on one life of a stream, and who works on it. */
export interface Cursor {
  readonly stream: StreamName;
  readonly offset: Offset;
  /** The last token that was given for it; 0 if none was. */
  readonly token: LeaseToken;
  /** It holds nothing if it is no member any more. */
  readonly holder: MemberId | undefined;
  /** Asked back: from then on the stream is free for others, whatever its holder does. */
  readonly askedUntilMs: TimeMs | undefined;
  /** The stream is closed, and committed to its end. */
  readonly isFinished: boolean;
}

export interface Member {
  readonly id: MemberId;
  /** Its number: members are in the order in which they joined. */
  readonly ordinal: LeaseToken;
  /** Until then it counts as live. */
  readonly expiresAtMs: TimeMs;
  /** It has claimed: before that it has no share. */
  readonly isActive: boolean;
  /** Most streams that it wants. */
  readonly max: number;
  readonly holds: ReadonlySet<StreamName>;
}

export interface Group {
  readonly id: GroupId;
  readonly settings: GroupSettings;
  readonly createdAtMs: TimeMs;
  readonly cursors: ReadonlyMap<StreamName, Cursor>;
  readonly members: ReadonlyMap<MemberId, Member>;
  /** Streams without a holder that are not finished. */
  readonly free: ReadonlySet<StreamName>;
  /**
   * What members held when they went: free too. Their cursors still name the member, which is no member any more, so
   * that leaving costs the same however much is held.
   */
  readonly left: ReadonlyMap<MemberId, ReadonlySet<StreamName>>;
  /** Streams whose holder is asked for them. */
  readonly asked: ReadonlySet<StreamName>;
  /** Cursors that are not finished: what is shared out. */
  readonly openCount: number;
}

/** All groups. Read-only for everybody but `applyGroup`. */
export interface GroupBook {
  readonly byId: ReadonlyMap<GroupId, Group>;
  readonly globs: ReadonlyMap<GroupId, Glob>;
  /** The groups that name a stream, which need not exist. */
  readonly named: ReadonlyMap<StreamName, ReadonlySet<GroupId>>;
  /** The next token, and the number of the next member. It only grows. */
  readonly nextToken: LeaseToken;
}

interface GroupChangeBase {
  readonly atMs: TimeMs;
  readonly group: GroupId;
}

export interface GroupCreated extends GroupChangeBase {
  readonly kind: "group_created";
  readonly settings: GroupSettings;
  readonly cursors: readonly (readonly [StreamName, Offset])[];
}

/** More streams that were there when the group was made: a creation over very many goes in slices. */
export interface GroupFound extends GroupChangeBase {
  readonly kind: "group_found";
  readonly cursors: readonly (readonly [StreamName, Offset])[];
}

export interface GroupDeleted extends GroupChangeBase {
  readonly kind: "group_deleted";
}

export interface GroupJoined extends GroupChangeBase {
  readonly kind: "group_joined";
  readonly member: MemberId;
  readonly ordinal: LeaseToken;
  readonly expiresAtMs: TimeMs;
}

/** One claim and all that follows from it. What it drops comes first, what it asks back comes last. */
export interface GroupClaimed extends GroupChangeBase {
  readonly kind: "group_claimed";
  readonly member: MemberId;
  readonly max: number;
  readonly expiresAtMs: TimeMs;
  /** Members that were not live any more. */
  readonly dropped: readonly MemberId[];
  readonly granted: readonly (readonly [StreamName, LeaseToken])[];
  readonly asked: readonly (readonly [StreamName, TimeMs])[];
  /** Asked back before, and no longer. */
  readonly kept: readonly StreamName[];
}

export interface GroupCommitted extends GroupChangeBase {
  readonly kind: "group_committed";
  readonly member: MemberId;
  readonly expiresAtMs: TimeMs;
  readonly offsets: readonly (readonly [StreamName, Offset])[];
  /** Of these, the ones that are finished with it. */
  readonly finished: readonly StreamName[];
}

export interface GroupReleased extends GroupChangeBase {
  readonly kind: "group_released";
  readonly streams: readonly StreamName[];
}

export interface GroupLeft extends GroupChangeBase {
  readonly kind: "group_left";
  readonly member: MemberId;
}

/** An administrator moved offsets: the leases of these streams are over. */
export interface GroupReset extends GroupChangeBase {
  readonly kind: "group_reset";
  readonly offsets: readonly (readonly [StreamName, Offset])[];
}

/** Anything that can happen to a group. Plain JSON data. */
export type GroupChange =
  | GroupCreated
  | GroupFound
  | GroupDeleted
  | GroupJoined
  | GroupClaimed
  | GroupCommitted
  | GroupReleased
  | GroupLeft
  | GroupReset;
