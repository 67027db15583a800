/**
 * Groups: every call is one synchronous step of streams/core/group-decide.ts, and is answered when what it speaks of is
 * durable. There are no timers: claims decide what is over. PROTOCOL.md §20.
 */

import { assert } from "../../base/assert.ts";
import {
  type CommitRefusal,
  decideGroupClaim,
  decideCommit,
  decideGroupStart,
  decideGroup,
  decideGroupReset,
  decideJoin,
  decideLeave,
  decideGroupRelease,
  followedBy,
  type GroupCreation,
  handOverOf,
  type LeaseCommit,
  type MemberLost,
  type ResetDecision,
} from "../core/group-decide.ts";
import type {
  Cursor,
  GroupState,
  GroupChange,
  GroupId,
  GroupSettings,
  GroupOrigin,
  LeaseToken,
  MemberId,
} from "../core/group-state.ts";
import { lifeOf } from "../core/stream.ts";
import type { Offset, StreamName, TimeMs } from "../core/types.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { Random } from "../../base/random.ts";
import type { Act } from "./acts.ts";
import type { Boundaries } from "./boundaries.ts";
import type { CommitBatch } from "./commit.ts";
import { asBeginning, findTrimmed, fromBeginning, isAskedInOneStep } from "./group-origins.ts";
import { FirstNames } from "./listing.ts";
import { type CountLimits, NamespaceCounts } from "./namespace-counts.ts";
import type { Slices } from "./turn-budget.ts";
import type { Writer } from "./writer.ts";

export interface NoGroup {
  readonly kind: "group_missing";
}

export interface LeaseView {
  readonly stream: StreamName;
  /** Of the stream: `lifeOf`. */
  readonly life: string;
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
  /** Of the stream: `lifeOf`. */
  readonly life: string;
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

const COUNT_LIMITS: CountLimits = {
  what: "groups",
  withoutNamespace: LIMITS.groupsMax,
  perNamespace: LIMITS.namespaceGroupsMax,
  inAll: LIMITS.serverGroupsMax,
};
const MISSING: NoGroup = { kind: "group_missing" };

export interface GroupParts {
  readonly writer: Writer;
  readonly boundaries: Boundaries;
  readonly random: Random;
}

export class Groups {
  readonly #writer: Writer;
  readonly #boundaries: Boundaries;
  readonly #random: Random;
  /** Groups that have every stream that they follow. */
  readonly #filled = new Set<GroupId>();
  readonly #counts: NamespaceCounts;

  constructor({ writer, boundaries, random }: GroupParts) {
    this.#writer = writer;
    this.#boundaries = boundaries;
    this.#random = random;
    this.#counts = new NamespaceCounts(COUNT_LIMITS, this.#book.byId.keys());
  }

  async create(id: GroupId, settings: GroupSettings): Promise<GroupCreation> {
    const check = this.#boundaries.check();
    for (;;) {
      const { byId } = this.#book;
      const { world } = this.#writer;
      const isLarge = settings.pattern !== undefined && world.names.size > LIMITS.turnStreamsMax;
      const isSliced = isLarge && !isAskedInOneStep(settings.start);
      const isZero = isSliced && settings.start.kind === "offset" && !byId.has(id);
      const refusal = isZero ? await findTrimmed(this.#writer, followedBy(settings)) : undefined;
      if (refusal !== undefined) return this.#settled(refusal);
      if (!byId.has(id)) this.#counts.admit(id);
      const streams = isSliced ? new Map() : world.streams;
      const { isBoundary } = check;
      const atMs = this.#writer.nowMs();
      const decision = decideGroup({ ...world, streams }, id, settings, atMs, isBoundary);
      if (check.isOpen) {
        await check.learn();
        continue;
      }
      const durable = this.#submit(decision.kind === "created" ? [decision.change] : []);
      assert(decision.kind !== "created" || byId.has(id), "GD5 a group is made and is not there");
      if (decision.kind === "created") this.#counts.add(id);
      if (decision.kind === "created" && !isSliced) this.#filled.add(id);
      // One that was found may be of a run that ended in the middle of it.
      if (decision.kind !== "conflict") await this.#fill(id);
      await durable;
      return decision;
    }
  }

  /** Streams that the group follows and does not have yet join it, in slices. Doing it again changes nothing. */
  async #fill(id: GroupId): Promise<void> {
    const group = this.#book.byId.get(id);
    if (group === undefined || this.#filled.has(id)) return;
    const slices = this.#writer.slices();
    const begun = fromBeginning(group);
    let cursors: [StreamName, Offset][] = [];
    const join = (): void => {
      const atMs = this.#writer.nowMs();
      if (cursors.length > 0) {
        void this.#submit([{ kind: "group_found", atMs, group: id, cursors }]);
      }
      cursors = [];
    };
    for (const state of this.#writer.world.streams.values()) {
      if (!slices.take() || cursors.length === LIMITS.turnStreamsMax) {
        // In the turn in which it was decided.
        join();
        await slices.turn();
        if (this.#book.byId.get(id) !== group) return;
      }
      const offset = decideGroupStart(this.#writer.world, begun, state, () => true);
      if (typeof offset === "number") cursors.push([state.name, offset]);
    }
    join();
    this.#filled.add(id);
    await this.#writer.settled();
  }

  /** Deleting what is not there is no error. */
  async delete(id: GroupId, act?: Act): Promise<void> {
    act?.guard();
    const atMs = this.#writer.nowMs();
    this.#filled.delete(id);
    const isThere = this.#book.byId.has(id);
    const changes: GroupChange[] = isThere ? [{ kind: "group_deleted", atMs, group: id }] : [];
    if (act === undefined) {
      const durable = this.#submit(changes);
      if (isThere) this.#counts.remove(id);
      await durable;
      return;
    }
    const batch = this.#stage(changes);
    if (isThere) this.#counts.remove(id);
    act.note({}, batch); // It may be all that there is to store.
    await batch.done;
  }

  async join(
    id: GroupId,
    name: string,
  ): Promise<
    { readonly kind: "joined"; readonly member: MemberId; readonly leaseMs: number } | NoGroup
  > {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    const change = decideJoin(this.#book, group, name, this.#random.id(), this.#writer.nowMs());
    const durable = this.#submit([change]);
    assert(group.members.has(change.member), "GD4 a member has joined and is not there");
    await durable;
    return { kind: "joined", member: change.member, leaseMs: group.settings.leaseMs };
  }

  async claim(
    id: GroupId,
    member: MemberId,
    max: number,
  ): Promise<ClaimView | MemberLost | NoGroup> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    const decision = decideGroupClaim(this.#book, group, member, max, this.#writer.nowMs());
    if (decision.kind === "member_lost") return this.#settled(decision);
    const durable = this.#submit([decision.change]);
    const handOver = handOverOf(group, member);
    const [leases] = await Promise.all([this.#leasesOf(group, member), durable]);
    const { leaseMs } = group.settings;
    this.#writer.meter?.claimed();
    return { kind: "claimed", leases, handOver, leaseMs, share: decision.share };
  }

  /** All that a member holds: of one moment, unless it is very much. */
  async #leasesOf(group: GroupState, member: MemberId): Promise<readonly LeaseView[]> {
    const slices = this.#writer.slices();
    // What is lost and given again meanwhile comes twice: the later one counts.
    const leases = new Map<StreamName, LeaseView>();
    for (const stream of group.members.get(member)?.holds ?? []) {
      if (!slices.take()) await slices.turn();
      const cursor = group.cursors.get(stream);
      const life = this.#life(stream);
      if (cursor?.holder !== member || life === undefined) continue;
      leases.set(stream, { stream, life, token: cursor.token, offset: cursor.offset });
    }
    // What was read in later turns may not be durable yet.
    if (!slices.isWhole) await this.#writer.settled();
    return [...leases.values()];
  }

  async commit(
    id: GroupId,
    member: MemberId,
    commits: readonly LeaseCommit[],
  ): Promise<CommitView | CommitRefusal | NoGroup> {
    const check = this.#boundaries.check();
    for (;;) {
      const group = this.#book.byId.get(id);
      if (group === undefined) return this.#settled(MISSING);
      const { streams } = this.#writer.world;
      const atMs = this.#writer.nowMs();
      const decision = decideCommit(group, member, commits, streams, atMs, check.isBoundary);
      if (check.isOpen) {
        await check.learn();
        continue;
      }
      if (decision.kind !== "committed") return this.#refuseCommit(decision);
      const durable = this.#submit([decision.change]);
      const handOver = handOverOf(group, member);
      await durable;
      this.#writer.meter?.settled(commits.length, 0);
      return { kind: "committed", leaseMs: group.settings.leaseMs, handOver };
    }
  }

  async #refuseCommit(refusal: CommitRefusal): Promise<CommitRefusal> {
    await this.#writer.settled();
    if (refusal.kind === "lease_lost") this.#writer.meter?.settled(0, refusal.streams.length);
    return refusal;
  }

  async release(
    id: GroupId,
    member: MemberId,
    leases: readonly { readonly stream: StreamName; readonly token: LeaseToken }[],
  ): Promise<NoGroup | { readonly kind: "released" }> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    await this.#submit(decideGroupRelease(group, member, leases, this.#writer.nowMs()));
    return { kind: "released" };
  }

  async leave(id: GroupId, member: MemberId): Promise<NoGroup | { readonly kind: "left" }> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(MISSING);
    await this.#submit(decideLeave(group, member, this.#writer.nowMs()));
    return { kind: "left" };
  }

  /** Undefined `only`: all streams of the group. */
  async reset(
    id: GroupId,
    only: StreamName | undefined,
    to: GroupOrigin,
    act?: Act,
  ): Promise<ResetDecision | NoGroup> {
    const check = this.#boundaries.check();
    for (;;) {
      const group = this.#book.byId.get(id);
      if (group === undefined) return this.#settled(MISSING);
      const isLarge = only === undefined && group.cursors.size > LIMITS.turnStreamsMax;
      if (isLarge && !isAskedInOneStep(to)) return this.#resetAll(group, to, act);
      const { world } = this.#writer;
      const atMs = this.#writer.nowMs();
      const named = only === undefined ? undefined : [only];
      const decision = decideGroupReset(group, named, to, world, atMs, check.isBoundary);
      if (check.isOpen) {
        await check.learn();
        continue;
      }
      if (decision.kind !== "reset") return this.#settled(decision);
      act?.guard();
      const batch = this.#stage([decision.change]);
      act?.note({ streams: decision.change.offsets.length }, batch);
      await batch.done;
      return decision;
    }
  }

  /**
   * In slices: one that is cut short has moved a part, and the request that comes again moves all. The key is written down with
   * the last slice; from then on no other request of the key moves anything.
   */
  async #resetAll(group: GroupState, to: GroupOrigin, act?: Act): Promise<ResetDecision | NoGroup> {
    const [{ id, cursors }, start] = [group, asBeginning(to)];
    if (to.kind === "offset") {
      const refusal = await findTrimmed(this.#writer, ({ name }) => cursors.has(name));
      const isThere = this.#book.byId.get(id) === group;
      if (refusal !== undefined || !isThere) return this.#settled(refusal ?? MISSING);
    }
    const slices = this.#writer.slices();
    const offsets: (readonly [StreamName, Offset])[] = [];
    let part: StreamName[] = [];
    const move = (): void => {
      act?.guard();
      // Some may have gone since the last turn.
      const there = part.filter((stream) => group.cursors.has(stream));
      const atMs = this.#writer.nowMs();
      const decision = decideGroupReset(group, there, start, this.#writer.world, atMs, () => true);
      part = [];
      if (decision.kind !== "reset" || decision.change.offsets.length === 0) return;
      offsets.push(...decision.change.offsets);
      void this.#submit([decision.change]);
    };
    for (const stream of group.cursors.keys()) {
      if (part.length === LIMITS.turnStreamsMax) {
        move();
        await slices.turn();
        if (this.#book.byId.get(id) !== group) break;
      }
      part.push(stream);
    }
    if (this.#book.byId.get(id) === group) {
      move();
      act?.note({ streams: offsets.length }, this.#writer.begin());
    }
    const atMs = this.#writer.nowMs();
    return this.#settled({
      kind: "reset",
      change: { kind: "group_reset", atMs, group: id, offsets },
    });
  }

  /** Those that are shown, in the order of their names, after `after`. */
  async list(
    after: string,
    count: number,
    isShown: (id: GroupId, settings: GroupSettings) => boolean | Promise<boolean>,
  ): Promise<readonly GroupSummary[]> {
    const { byId } = this.#book;
    const names = new FirstNames<GroupId>(after, count);
    const slices = this.#writer.slices();
    for (const [id, { settings }] of byId) {
      if (!slices.take()) await slices.turn();
      const shown = isShown(id, settings);
      if (shown === true || (shown !== false && (await shown))) names.add(id);
    }
    const found: GroupSummary[] = [];
    for (const id of names.take()) {
      const group = byId.get(id);
      if (group !== undefined) found.push(await this.#summary(group, slices));
    }
    return this.#settled(found);
  }

  async describe(id: GroupId, after: string, count: number): Promise<GroupView | undefined> {
    const group = this.#book.byId.get(id);
    if (group === undefined) return this.#settled(undefined);
    const slices = this.#writer.slices();
    const names = new FirstNames<StreamName>(after, count);
    for (const stream of group.cursors.keys()) {
      if (!slices.take()) await slices.turn();
      names.add(stream);
    }
    const { settings, createdAtMs } = group;
    const members = [...group.members.values()]
      .filter(({ isActive }) => isActive)
      .map(({ id: member, holds, expiresAtMs }) => ({
        id: member,
        leases: holds.size,
        expiresAtMs,
      }));
    const cursors: CursorView[] = [];
    for (const stream of names.take()) {
      const cursor = group.cursors.get(stream);
      const life = this.#life(stream);
      if (cursor === undefined || life === undefined) continue;
      // A cursor may still name a member that has left.
      const isHeld = cursor.holder !== undefined && group.members.has(cursor.holder);
      const holder = isHeld ? cursor.holder : undefined;
      cursors.push({ ...cursor, holder, life, tail: this.#tail(stream, cursor) });
    }
    const nowMs = this.#writer.nowMs();
    return this.#settled({ id, settings, createdAtMs, nowMs, members, cursors });
  }

  /** Looks at every cursor, in slices. `isMeant`: which groups, by their kept names. */
  async totals(isMeant: (id: GroupId) => boolean = () => true): Promise<GroupTotals> {
    const slices = this.#writer.slices();
    let groups = 0;
    let members = 0;
    let lag = 0;
    for (const group of this.#book.byId.values()) {
      if (!slices.take()) await slices.turn();
      if (!isMeant(group.id)) continue;
      groups += 1;
      const summary = await this.#summary(group, slices);
      members += summary.members;
      lag += summary.lag;
    }
    return { groups, members, lag };
  }

  get #book() {
    return this.#writer.world.groups;
  }

  async #summary(group: GroupState, slices: Slices): Promise<GroupSummary> {
    let lag = 0;
    for (const [stream, cursor] of group.cursors) {
      if (!slices.take()) await slices.turn();
      lag += this.#tail(stream, cursor) - cursor.offset;
    }
    let members = 0;
    for (const { isActive } of group.members.values()) if (isActive) members += 1;
    return { id: group.id, members, streams: group.cursors.size, lag };
  }

  #life(stream: StreamName): string | undefined {
    const state = this.#writer.world.streams.get(stream);
    return state === undefined ? undefined : lifeOf(state, this.#writer.world);
  }

  #tail(stream: StreamName, cursor: Cursor): Offset {
    const state = this.#writer.world.streams.get(stream);
    return state === undefined ? cursor.offset : this.#writer.durableTail(state);
  }

  #submit(changes: readonly GroupChange[]): Promise<void> {
    if (changes.length > 0) this.#writer.room.admit(0);
    return this.#writer.submit(changes);
  }

  /** The same, as a batch that more can join in this step. */
  #stage(changes: readonly GroupChange[]): CommitBatch {
    if (changes.length > 0) this.#writer.room.admit(0);
    const batch = this.#writer.begin();
    for (const change of changes) this.#writer.stage(change, batch);
    return batch;
  }

  /** The outcome, once everything that was decided so far is durable. */
  async #settled<T>(outcome: T): Promise<T> {
    await this.#writer.settled();
    return outcome;
  }
}
