/**
 * The types of groups: what a group is, and what can happen to it, as plain data. The rules are in group.ts and
 * group-decide.ts. PROTOCOL.md §20.
 */

import type { Glob } from "../../base/glob.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";

export type GroupId = string;
/** The name that the member chose, with random letters behind it. The server gives it once. */
export type MemberId = string;
/** Number of a lease. A higher number fences every lower one. The server gives each number once. */
export type LeaseToken = number;

/** Where a group begins on the streams that it finds. */
export type GroupOrigin =
  | { readonly kind: "beginning" }
  | { readonly kind: "tail" }
  | { readonly kind: "offset"; readonly offset: Offset };

export interface GroupSettings {
  /** Matches absolute names. */
  readonly pattern: string | undefined;
  /** The streams that the group names: sorted, each once. They need not exist. */
  readonly streams: readonly StreamName[];
  readonly start: GroupOrigin;
  readonly leaseMs: number;
  /** The group gives records to workers, and no streams to members (job-decide.ts). Default false. */
  readonly jobs?: boolean;
}

/** A record that a group of jobs has given to a worker, and that is not done. Never changed in place. */
export interface Job {
  readonly offset: Offset;
  /** Where the record ends. */
  readonly end: Offset;
  /** How often it was given, without the times that do not count. */
  readonly attempts: number;
  /** The token under which it was last given. */
  readonly token: LeaseToken;
  /** Its worker. One that is no longer a member has nothing. Undefined: the job waits. */
  readonly holder: MemberId | undefined;
  /** It is not given before. */
  readonly dueAtMs: TimeMs;
}

/**
 * The jobs of one stream. Those before `next` that are not in `open` are done, so that it does not matter in which order
 * how many are done.
 */
export interface JobWindow {
  /** No record from here on was ever given. */
  readonly next: Offset;
  /** By offset, in the order of offsets. */
  readonly open: ReadonlyMap<Offset, Job>;
}

/** How far a group has read one life of a stream, and which member works on it. */
export interface Cursor {
  readonly stream: StreamName;
  readonly offset: Offset;
  /** The last token that was given for this stream; 0 if there was none. */
  readonly token: LeaseToken;
  /** A holder that is no longer a member holds nothing. */
  readonly holder: MemberId | undefined;
  /**
   * The group has asked for the stream back. From this time on it is free for others, also if its holder keeps
   * working.
   */
  readonly askedUntilMs: TimeMs | undefined;
  /** The stream is closed, and the group has committed to its end. */
  readonly isFinished: boolean;
  /** Of a group of jobs, as soon as one was given. `offset` is that of the first job that is not done. */
  readonly jobs?: JobWindow | undefined;
}

export interface Member {
  readonly id: MemberId;
  /** The member's number. It gives the order in which members joined. */
  readonly ordinal: LeaseToken;
  /** The member counts as live until then. */
  readonly expiresAtMs: TimeMs;
  /** The member has claimed. Before its first claim it has no share. */
  readonly isActive: boolean;
  /** Most streams that the member wants. */
  readonly max: number;
  readonly holds: ReadonlySet<StreamName>;
}

export interface GroupState {
  readonly id: GroupId;
  readonly settings: GroupSettings;
  readonly createdAtMs: TimeMs;
  readonly cursors: ReadonlyMap<StreamName, Cursor>;
  readonly members: ReadonlyMap<MemberId, Member>;
  /** Streams without a holder that are not finished. */
  readonly free: ReadonlySet<StreamName>;
  /**
   * What members held when they left. These streams are free too. Their cursors still name the former member, so
   * leaving costs the same for any number of streams.
   */
  readonly left: ReadonlyMap<MemberId, ReadonlySet<StreamName>>;
  /** Streams that their holders are asked to hand over. */
  readonly asked: ReadonlySet<StreamName>;
  /** Number of cursors that are not finished. Members share these. */
  readonly openCount: number;
  /** Number of jobs of all streams that were given and are not done. */
  readonly jobCount: number;
}

/** All groups. Only `applyGroup` writes it. */
export interface GroupBook {
  readonly byId: ReadonlyMap<GroupId, GroupState>;
  readonly globs: ReadonlyMap<GroupId, Glob>;
  /** The groups that name a stream. The stream need not exist. */
  readonly named: ReadonlyMap<StreamName, ReadonlySet<GroupId>>;
  /** The next token, and the number of the next member. It only grows. */
  readonly nextToken: LeaseToken;
  /** The sum of `jobCount` of all groups. */
  readonly jobCount: number;
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

/** More streams that existed when the group was made. A creation over very many streams goes in slices. */
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

/** One claim and everything that follows from it. What it drops comes first, what it asks back comes last. */
export interface GroupClaimed extends GroupChangeBase {
  readonly kind: "group_claimed";
  readonly member: MemberId;
  readonly max: number;
  readonly expiresAtMs: TimeMs;
  /** Members that were no longer live. */
  readonly dropped: readonly MemberId[];
  readonly granted: readonly (readonly [StreamName, LeaseToken])[];
  readonly asked: readonly (readonly [StreamName, TimeMs])[];
  /** Streams that the group no longer asks back. */
  readonly kept: readonly StreamName[];
}

export interface GroupCommitted extends GroupChangeBase {
  readonly kind: "group_committed";
  readonly member: MemberId;
  readonly expiresAtMs: TimeMs;
  readonly offsets: readonly (readonly [StreamName, Offset])[];
  /** Those of these streams that are now finished. */
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

/** An administrator moved offsets. The leases of these streams end. */
export interface GroupReset extends GroupChangeBase {
  readonly kind: "group_reset";
  readonly offsets: readonly (readonly [StreamName, Offset])[];
}

/** One answer to a worker, and everything that follows from it. What it drops comes first. */
export interface GroupTaken extends GroupChangeBase {
  readonly kind: "group_taken";
  readonly member: MemberId;
  readonly expiresAtMs: TimeMs;
  /** Members that were no longer live. */
  readonly dropped: readonly MemberId[];
  /** Of all jobs of this answer. */
  readonly token: LeaseToken;
  /** Stream, offset, end, and how often it was given, including this time. New ones in the order of their offsets. */
  readonly jobs: readonly (readonly [StreamName, Offset, Offset, number])[];
}

/** Jobs that are done, and jobs that wait again. */
export interface GroupSettled extends GroupChangeBase {
  readonly kind: "group_settled";
  readonly member: MemberId;
  readonly expiresAtMs: TimeMs;
  readonly done: readonly (readonly [StreamName, Offset])[];
  /** Stream, offset, when it is due, and how often it counts as given. */
  readonly later: readonly (readonly [StreamName, Offset, TimeMs, number])[];
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
  | GroupTaken
  | GroupSettled
  | GroupReset;
