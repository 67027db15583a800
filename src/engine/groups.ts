/**
 * Groups: every call is one synchronous step of core/group-decide.ts, and is answered when what it speaks of is
 * durable. There are no timers: claims decide what is over. PROTOCOL.md §20.
 */

import {
  type CommitDecision,
  type CommitRefusal,
  decideClaim,
  decideCommit,
  decideGroup,
  decideGroupReset,
  decideJoin,
  decideLeave,
  decideRelease,
  type GroupCreation,
  handOverOf,
  type LeaseCommit,
  type MemberLost,
  type ResetDecision,
} from "../core/group-decide.ts";
import type {
  Cursor,
  Group,
  GroupChange,
  GroupId,
  GroupSettings,
  GroupStart,
  LeaseToken,
  MemberId,
} from "../core/group-state.ts";
import type { Offset, StreamName, TimeMs } from "../core/types.ts";
import { HapaxError } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import type { Engine } from "./engine.ts";
import { firstNames } from "./listing.ts";

export interface NoGroup {
  readonly kind: "group_missing";
}

export interface LeaseView {
  readonly stream: StreamName;
  readonly token: LeaseToken;
  readonly offset: Offset;
}

export interface ClaimView {
  readonly kind: "claimed";
  readonly leases: readonly LeaseView[];
  readonly handOver: readonly StreamName[];
  readonly leaseMs: number;
  readonly share: number;
}

export interface CommitView {
  readonly kind: "committed";
  readonly leaseMs: number;
  readonly handOver: readonly StreamName[];
}

export interface CursorView extends Cursor {
  readonly tail: Offset;
}

export interface GroupSummary {
  readonly id: GroupId;
  readonly members: number;
  readonly streams: number;
  /** Bytes between the committed offsets and the tails. */
  readonly lag: number;
}

/** What all groups have together. */
export interface GroupTotals {
  readonly groups: number;
  readonly members: number;
  readonly lag: number;
}

export interface GroupView {
  readonly id: GroupId;
  readonly settings: GroupSettings;
  readonly createdAtMs: TimeMs;
  readonly nowMs: TimeMs;
  readonly members: readonly {
    readonly id: MemberId;
    readonly leases: number;
    readonly expiresAtMs: TimeMs;
  }[];
  readonly cursors: readonly CursorView[];
}

const MISSING: NoGroup = { kind: "group_missing" };

export class GroupEngine {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  async create(id: GroupId, settings: GroupSettings): Promise<GroupCreation> {
    const { byId } = this.#book;
    if (!byId.has(id) && byId.size >= LIMITS.groupsMax) {
      throw new HapaxError("too_many", `there are ${LIMITS.groupsMax} groups already`);
    }
    const { streams } = this.#engine.world;
    const decision = decideGroup(this.#book, streams, id, settings, this.#engine.nowMs());
    await this.#submit(decision.kind === "created" ? [decision.change] : []);
    return decision;
  }

  /** Deleting what is not there is no error. */
  async delete(id: GroupId): Promise<void> {
    const atMs = this.#engine.nowMs();
    await this.#submit(this.#book.byId.has(id) ? [{ kind: "group_deleted", atMs, group: id }] : []);
  }

  async join(
    id: GroupId,
    name: string,
  ): Promise<
    { readonly kind: "joined"; readonly member: MemberId; readonly leaseMs: number } | NoGroup
  > {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    const change = decideJoin(this.#book, group, name, this.#engine.nowMs());
    await this.#submit([change]);
    return { kind: "joined", member: change.member, leaseMs: group.settings.leaseMs };
  }

  async claim(
    id: GroupId,
    member: MemberId,
    max: number,
  ): Promise<ClaimView | MemberLost | NoGroup> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    const decision = decideClaim(this.#book, group, member, max, this.#engine.nowMs());
    if (decision.kind === "member_lost") return this.#settled(decision);
    const durable = this.#submit([decision.change]);
    const leases: LeaseView[] = [];
    for (const stream of group.members.get(member)?.holds ?? []) {
      const cursor = group.cursors.get(stream);
      if (cursor !== undefined) leases.push({ stream, token: cursor.token, offset: cursor.offset });
    }
    const handOver = handOverOf(group, member);
    await durable;
    const { leaseMs } = group.settings;
    return { kind: "claimed", leases, handOver, leaseMs, share: decision.share };
  }

  async commit(
    id: GroupId,
    member: MemberId,
    commits: readonly LeaseCommit[],
  ): Promise<CommitView | CommitRefusal | NoGroup> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    const decision: CommitDecision = decideCommit(
      group,
      member,
      commits,
      this.#engine.world.streams,
      this.#engine.nowMs(),
    );
    if (decision.kind !== "committed") return this.#settled(decision);
    const durable = this.#submit([decision.change]);
    const handOver = handOverOf(group, member);
    await durable;
    return { kind: "committed", leaseMs: group.settings.leaseMs, handOver };
  }

  async release(
    id: GroupId,
    member: MemberId,
    leases: readonly { readonly stream: StreamName; readonly token: LeaseToken }[],
  ): Promise<NoGroup | { readonly kind: "released" }> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    await this.#submit(decideRelease(group, member, leases, this.#engine.nowMs()));
    return { kind: "released" };
  }

  async leave(id: GroupId, member: MemberId): Promise<NoGroup | { readonly kind: "left" }> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    await this.#submit(decideLeave(group, member, this.#engine.nowMs()));
    return { kind: "left" };
  }

  /** Undefined `only`: all streams of the group. */
  async reset(
    id: GroupId,
    only: StreamName | undefined,
    to: GroupStart,
  ): Promise<ResetDecision | NoGroup> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    const { streams } = this.#engine.world;
    const decision = decideGroupReset(group, only, to, streams, this.#engine.nowMs());
    await this.#submit(decision.kind === "reset" ? [decision.change] : []);
    return decision;
  }

  /** In the order of their names, after `after`. */
  list(after: string, count: number): Promise<readonly GroupSummary[]> {
    const { byId } = this.#book;
    const found: GroupSummary[] = [];
    for (const id of firstNames(byId.keys(), after, count, () => true)) {
      const group = byId.get(id);
      if (group !== undefined) found.push(this.#summary(group));
    }
    return this.#settled(found);
  }

  describe(id: GroupId, after: string, count: number): Promise<GroupView | undefined> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(undefined);
    const { settings, createdAtMs } = group;
    const members = [...group.members.values()]
      .filter(({ isActive }) => isActive)
      .map(({ id: member, holds, expiresAtMs }) => ({
        id: member,
        leases: holds.size,
        expiresAtMs,
      }));
    const cursors: CursorView[] = [];
    for (const stream of firstNames(group.cursors.keys(), after, count, () => true)) {
      const cursor = group.cursors.get(stream);
      if (cursor !== undefined) cursors.push({ ...cursor, tail: this.#tail(stream, cursor) });
    }
    const nowMs = this.#engine.nowMs();
    return this.#settled({ id, settings, createdAtMs, nowMs, members, cursors });
  }

  /** Looks at every cursor. */
  totals(): GroupTotals {
    let members = 0;
    let lag = 0;
    for (const group of this.#book.byId.values()) {
      const summary = this.#summary(group);
      members += summary.members;
      lag += summary.lag;
    }
    return { groups: this.#book.byId.size, members, lag };
  }

  get #book() {
    return this.#engine.world.groups;
  }

  #summary(group: Group): GroupSummary {
    let lag = 0;
    for (const [stream, cursor] of group.cursors) lag += this.#tail(stream, cursor) - cursor.offset;
    let members = 0;
    for (const { isActive } of group.members.values()) if (isActive) members += 1;
    return { id: group.id, members, streams: group.cursors.size, lag };
  }

  #tail(stream: StreamName, cursor: Cursor): Offset {
    const state = this.#engine.world.streams.get(stream);
    return state === undefined ? cursor.offset : this.#engine.durableTail(state);
  }

  #submit(changes: readonly GroupChange[]): Promise<void> {
    if (changes.length > 0) this.#engine.admit(0);
    return this.#engine.submit(changes);
  }

  /** The outcome, once everything that was decided so far is durable. */
  async #settled<T>(outcome: T): Promise<T> {
    await this.#engine.settled();
    return outcome;
  }
}
