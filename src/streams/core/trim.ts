/**
 * How the old data of a stream goes: by its rule of retention, or by a cut. PROTOCOL.md §23.
 *
 *   - a trim moves the earliest offset forward, up to the tail at most, and changes no other offset;
 *   - a rule by age trims nothing younger than its seconds, one by bytes leaves the newest. With both, data goes as soon as
 *     one of the two lets it go;
 *   - what a group, a subscription or a fork still needs stays, unless the rule or the cut drops it;
 *   - where a rule may cut is known from the changes alone: marks between appends, a bounded number of a stream.
 *
 * An age is counted in journal time. A rule that a stream gets later counts the age of older data from that moment on.
 */

import { assert } from "../../base/assert.ts";
import type { RetentionSet, StreamTrimmed } from "./change.ts";
import type { StreamState } from "./stream.ts";
import { type Offset, OFFSET_ZERO, type TimeMs } from "./types.ts";
import type { MutableStream, World } from "./world.ts";

/** What a stream keeps by itself. Without a number there is no limit of that kind. */
export interface RetentionRule {
  readonly seconds: number | undefined;
  readonly bytes: number | undefined;
  /** Trims also what groups, subscriptions and forks still need. */
  readonly dropsNeeded: boolean;
}

/** A place between two appends. What is before it was appended at `atMs` or earlier. */
export interface TrimMark {
  readonly offset: Offset;
  readonly atMs: TimeMs;
}

/** What a stream knows of its retention. One that was never trimmed and has no rule knows nothing. */
export interface Retained {
  /** What is before it was trimmed. */
  readonly earliest: Offset;
  readonly rule: RetentionRule | undefined;
  /** Oldest first. */
  readonly marks: readonly TrimMark[];
  /** The last append, or the moment at which the rule was set. */
  readonly lastAtMs: TimeMs;
}

/** Who still needs data. */
export interface Needed {
  readonly from: Offset;
  readonly by: "group" | "subscription" | "fork";
}

export type TrimDecision =
  | { readonly kind: "trimmed"; readonly change: StreamTrimmed }
  /** It was trimmed there before. */
  | { readonly kind: "unchanged" }
  | { readonly kind: "needed"; readonly needed: Needed };

/** A part of a rule that a mark may be away from the one before it. */
const GRAIN = 16;
/** A rule alone leaves at most 2 × GRAIN of them. More come together only while data is needed. */
export const MARKS_MAX = 64;

type Streams = Pick<World, "byId">;
type Followers = Pick<World, "byId" | "groups" | "subscriptions" | "rules">;

/** What the stream itself has lost. A fork may have lost more: see `earliestOf`. */
export function ownEarliest(state: StreamState): Offset {
  return state.retained?.earliest ?? OFFSET_ZERO;
}

/** The first offset at which the stream can be read. `own` says how far a stream itself was trimmed. */
export function earliestOf({ byId }: Streams, state: StreamState, own = ownEarliest): Offset {
  let earliest = own(state);
  let { fork } = state;
  // What a fork reads of its source ends where the fork begins, and what that reads of its own source before.
  for (let end = fork?.at; fork !== undefined && end !== undefined;) {
    const source = byId.get(fork.source);
    if (source === undefined) break;
    earliest = Math.max(earliest, Math.min(end, own(source))) as Offset;
    ({ fork } = source);
    if (fork !== undefined) end = Math.min(end, fork.at) as Offset;
  }
  return earliest;
}

/** The first offset that is still needed, and by whom. A fork needs everything before its fork point. */
export function neededFrom(world: Followers, state: StreamState): Needed | undefined {
  let needed: Needed | undefined;
  if (state.forkCount > 0) needed = { from: earliestOf(world, state), by: "fork" };
  for (const id of world.subscriptions.byStream.get(state.name) ?? []) {
    const link = world.subscriptions.byId.get(id)?.links.get(state.name);
    const from = link?.acked ?? OFFSET_ZERO;
    if (link !== undefined && (needed === undefined || from < needed.from)) {
      needed = { from, by: "subscription" };
    }
  }
  for (const cursor of world.rules.groups.cursorsAt(world.groups, state.name)) {
    if (cursor !== undefined && (needed === undefined || cursor.offset < needed.from)) {
      needed = { from: cursor.offset, by: "group" };
    }
  }
  return needed;
}

/** Decides a cut before `to`, which is between two appends. */
export function decideTrim(
  world: Followers,
  state: StreamState,
  to: Offset,
  dropsNeeded: boolean,
  atMs: TimeMs,
): TrimDecision {
  assert(to <= state.tail, `a trim goes beyond the tail: to=${to} tail=${state.tail}`);
  if (to <= ownEarliest(state)) return { kind: "unchanged" };
  const needed = dropsNeeded ? undefined : neededFrom(world, state);
  if (needed !== undefined && needed.from < to) return { kind: "needed", needed };
  return { kind: "trimmed", change: { kind: "trimmed", atMs, stream: state.id, to } };
}

/** Decides what the stream's own rule trims now. As much as is allowed and not needed. */
export function decideRetention(world: Followers, state: StreamState, atMs: TimeMs): TrimDecision {
  const goal = goalOf(state, atMs);
  if (goal === undefined) return { kind: "unchanged" };
  const { rule, marks = [] } = state.retained ?? {};
  const all = decideTrim(world, state, goal, rule?.dropsNeeded === true, atMs);
  if (all.kind !== "needed") return all;
  const { from } = all.needed;
  const part = marks.findLast(({ offset }) => offset <= from && offset <= goal);
  return part === undefined || part.offset <= ownEarliest(state)
    ? all
    : decideTrim(world, state, part.offset, false, atMs);
}

/** How far the rule would trim if nothing were needed. Undefined: it trims nothing now. */
function goalOf({ retained, tail }: StreamState, atMs: TimeMs): Offset | undefined {
  const { rule, marks = [], lastAtMs = atMs } = retained ?? {};
  if (retained === undefined || rule === undefined) return undefined;
  const { seconds, bytes } = rule;
  const limitMs = seconds === undefined ? -Infinity : atMs - seconds * 1000;
  const limit = bytes === undefined ? -Infinity : tail - bytes;
  const isOver = (mark: TrimMark): boolean => mark.atMs <= limitMs || mark.offset <= limit;
  const goal = lastAtMs <= limitMs ? tail : marks.findLast((mark) => isOver(mark))?.offset;
  return goal === undefined || goal <= retained.earliest ? undefined : goal;
}

/** Whether the append from `start` to the tail has moved a mark out of the bytes that the rule keeps. */
export function isMarkFreed({ retained, tail }: StreamState, start: Offset): boolean {
  const bytes = retained?.rule?.bytes;
  if (retained === undefined || bytes === undefined) return false;
  return retained.marks.some(({ offset }) => offset > start - bytes && offset <= tail - bytes);
}

/** When the age of the oldest data is over. Undefined: nothing goes by its age. */
export function retentionDueMs({ retained, tail }: StreamState): TimeMs | undefined {
  const seconds = retained?.rule?.seconds;
  if (retained === undefined || seconds === undefined || retained.earliest === tail) {
    return undefined;
  }
  const next = retained.marks.find(({ offset }) => offset > retained.earliest);
  return ((next?.atMs ?? retained.lastAtMs) + seconds * 1000) as TimeMs;
}

/** A trim that was replayed twice changes nothing. */
export function applyTrim(stream: MutableStream, { to, atMs }: StreamTrimmed): void {
  assert(to <= stream.tail, `a trim goes beyond the tail: id=${stream.id}`);
  const before = stream.retained;
  if (before !== undefined && to <= before.earliest) return;
  const marks = before?.marks.filter(({ offset }) => offset > to) ?? [];
  const { rule, lastAtMs = atMs } = before ?? {};
  stream.retained = { earliest: to, rule, marks, lastAtMs };
}

/** A first rule begins without marks: nothing is known of the age of what is there. A later one goes on with them. */
export function applyRule(stream: MutableStream, { rule, atMs }: RetentionSet): void {
  const before = stream.retained;
  const earliest = before?.earliest ?? OFFSET_ZERO;
  if (rule === undefined && earliest === OFFSET_ZERO) stream.retained = undefined;
  else if (rule !== undefined && before?.rule !== undefined) stream.retained = { ...before, rule };
  else stream.retained = { earliest, rule, marks: [], lastAtMs: atMs };
}

/** An append follows at the tail. Before it there may be a new mark. */
export function markTail(stream: MutableStream, retained: Retained, atMs: TimeMs): void {
  const { earliest, rule, marks, lastAtMs } = retained;
  if (rule === undefined) return;
  const last = marks.at(-1);
  const isNew = stream.tail > (last?.offset ?? earliest) && isAway(rule, last, stream.tail, atMs);
  const mark = { offset: stream.tail, atMs: lastAtMs };
  const nextAtMs = Math.max(lastAtMs, atMs) as TimeMs;
  stream.retained = {
    earliest,
    rule,
    marks: isNew ? thin([...marks, mark]) : marks,
    lastAtMs: nextAtMs,
  };
}

function isAway(rule: RetentionRule, last: TrimMark | undefined, tail: Offset, atMs: TimeMs) {
  if (last === undefined) return true;
  const { seconds = Infinity, bytes = Infinity } = rule;
  return atMs - last.atMs >= (seconds * 1000) / GRAIN || tail - last.offset >= bytes / GRAIN;
}

/** Data that is needed for long gathers marks: every other one goes, and what is trimmed later goes in larger parts. */
function thin(marks: readonly TrimMark[]): readonly TrimMark[] {
  return marks.length <= MARKS_MAX ? marks : marks.filter((_, at) => at % 2 === 0);
}

export function isSameRule(one: RetentionRule | undefined, other: RetentionRule): boolean {
  return (
    one?.seconds === other.seconds &&
    one?.bytes === other.bytes &&
    (one?.dropsNeeded ?? false) === other.dropsNeeded
  );
}

/** Bytes of its own that a stream still has. A fork reads what is before its fork point from its source. */
export function ownBytes(state: StreamState): number {
  return state.tail - Math.max(state.fork?.at ?? OFFSET_ZERO, ownEarliest(state));
}
