/**
 * The whole state that decisions read, and the only code that changes it.
 *
 * `applyChange` changes the world in place. A stream may have a million producers, so a copy of its state for every
 * append would cost more than the append. In exchange the types are read-only everywhere else, so no other code can
 * write.
 *
 *   - a world is a function of the changes applied to it, in order;
 *   - journal time never goes back;
 *   - a stream's fork count is the number of streams that name it as their source.
 */

import type {
  StreamAppended,
  Change,
  StreamCreated,
  StreamRemoved,
  StreamTrimmed,
} from "./change.ts";
import type { BookRules } from "./books.ts";
import { applyCompactionRule } from "./compaction.ts";
import type { GroupBook } from "./group-state.ts";
import { FIRST_INCARNATION, type Incarnation } from "../../base/incarnation.ts";
import { IdMap } from "../../base/id-map.ts";
import { KeyWindow } from "../../base/key-window.ts";
import type { StoredKey, MutableStreamKeys } from "./keys.ts";
import { NameIndex } from "./name-index.ts";
import { applyProducer, applyReset, type MutableProducer } from "./producer.ts";
import type { StreamState } from "./stream.ts";
import type { SubscriptionBook } from "./subscription-state.ts";
import { applyRule, applyTrim, earliestOf, markTail, ownEarliest } from "./trim.ts";
import { WHOLE_BOOKS } from "./whole-books.ts";
import { assert } from "../../base/assert.ts";
import {
  advance,
  OFFSET_ZERO,
  type Offset,
  type ProducerId,
  type StreamId,
  type StreamName,
  type TimeMs,
} from "./types.ts";

/** The whole state that decisions read. Only `applyChange` writes it. */
export interface World {
  readonly streams: ReadonlyMap<StreamName, StreamState>;
  readonly byId: ReadonlyMap<StreamId, StreamState>;
  /** The names of `streams`, in order. */
  readonly names: Pick<NameIndex<StreamName>, "from" | "size">;
  /** The id of the next stream. */
  readonly nextId: StreamId;
  /** How many changes have been applied: the ordinal of the next one. */
  readonly version: number;
  /** Journal time: the latest time of any change. */
  readonly timeMs: TimeMs;
  readonly subscriptions: SubscriptionBook;
  readonly groups: GroupBook;
  /** The rules of its books. */
  readonly rules: BookRules;
  /** The salts of the keys that sign: oldest first, and the last one signs. No secrets. */
  readonly signingKeys: readonly string[];
  /** How often the data went back in time. */
  readonly incarnation: Incarnation;
}

export type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
export type MutableStream = Mutable<Omit<StreamState, "producers" | "keys">> & {
  producers: Map<ProducerId, MutableProducer> | undefined;
  keys: MutableStreamKeys | undefined;
};
export type MutableWorld = Mutable<Omit<World, "streams" | "byId" | "names" | "signingKeys">> & {
  readonly names: NameIndex<StreamName>;
  readonly streams: Map<StreamName, MutableStream>;
  readonly byId: IdMap<StreamId, MutableStream>;
  readonly signingKeys: string[];
};

/** Creates an empty world: without streams, groups and subscriptions. */
export function createWorld(): World {
  return createWorldOf(WHOLE_BOOKS);
}

/** Creates an empty world with the rules that its program has. */
export function createWorldOf(rules: BookRules): World {
  const world: MutableWorld = {
    streams: new Map(),
    byId: new IdMap(),
    names: new NameIndex(),
    nextId: 1 as StreamId,
    version: 0,
    timeMs: 0 as TimeMs,
    subscriptions: rules.subscriptions.create(),
    groups: rules.groups.create(),
    rules,
    signingKeys: [],
    incarnation: FIRST_INCARNATION,
  };
  return world;
}

/** Applies a decided change to the world, in place. */
export function applyChange(readonlyWorld: World, change: Change): void {
  // The cast gives write access. The types make the world read-only for all other code.
  const world = readonlyWorld as unknown as MutableWorld;
  world.version += 1;
  if (change.atMs > world.timeMs) world.timeMs = change.atMs;
  switch (change.kind) {
    case "created":
      applyCreated(world, change);
      world.rules.groups.found(world.groups, change, ownEarliest(streamOf(world, change.stream)));
      return;
    case "appended":
      applyAppended(streamOf(world, change.stream), change);
      return;
    case "deleted":
      streamOf(world, change.stream).isDeleted = true;
      applyGone(world, streamOf(world, change.stream).name);
      return;
    case "removed":
      applyRemoved(world, change);
      return;
    case "touched":
      streamOf(world, change.stream).accessedAtMs = change.atMs;
      return;
    case "producer_reset": {
      const state = streamOf(world, change.stream).producers?.get(change.producer);
      if (state !== undefined) applyReset(state, change.resets);
      return;
    }
    case "keys_evicted":
      streamOf(world, change.stream).keys?.window?.evictTo(change.evictTo);
      return;
    case "trimmed":
      applyTrimmed(world, streamOf(world, change.stream), change);
      return;
    case "retention_set":
      applyRule(streamOf(world, change.stream), change);
      return;
    case "compaction_set":
      applyCompactionRule(streamOf(world, change.stream), change);
      return;
    case "signing_key_added":
      world.signingKeys.push(change.key);
      return;
    case "incarnation_begun":
      world.incarnation = { number: change.number, mark: change.mark };
      return;
    case "group_created":
    case "group_found":
    case "group_deleted":
    case "group_joined":
    case "group_claimed":
    case "group_committed":
    case "group_released":
    case "group_left":
    case "group_taken":
    case "group_settled":
    case "group_reset":
      world.rules.groups.apply(world.groups, change);
      return;
    default:
      world.rules.subscriptions.apply(world.subscriptions, change);
  }
}

/** Removes the stream from what its followers know. */
function applyGone(world: MutableWorld, name: StreamName): void {
  world.rules.subscriptions.gone(world.subscriptions, name);
  world.rules.groups.lost(world.groups, name);
}

function applyTrimmed(world: MutableWorld, stream: MutableStream, change: StreamTrimmed): void {
  applyTrim(stream, change);
  const { groups, streams, rules } = world;
  rules.groups.trimmed(groups, stream.name, earliestOf(world, stream));
  if (stream.forkCount === 0) return;
  // A fork has lost what it read of this stream. Groups of jobs name their streams.
  for (const name of groups.named.keys()) {
    const state = streams.get(name);
    if (state?.fork !== undefined) rules.groups.trimmed(groups, name, earliestOf(world, state));
  }
}

function streamOf(world: MutableWorld, id: StreamId): MutableStream {
  const stream = world.byId.get(id);
  assert(stream !== undefined, `a change names a stream that does not exist: id=${id}`);
  return stream;
}

function applyCreated(world: MutableWorld, change: StreamCreated): void {
  const { stream: id, name, fork, atMs } = change;
  assert(!world.streams.has(name), `a stream is created twice: id=${id}`);
  const state: MutableStream = {
    id,
    run: change.run,
    name,
    contentType: change.contentType,
    expiry: change.expiry,
    fork,
    createdAtMs: atMs,
    tail: fork?.at ?? OFFSET_ZERO,
    isClosed: false,
    isDeleted: false,
    forkCount: 0,
    lastStreamSeq: undefined,
    producers: undefined,
    keys: change.keys === undefined ? undefined : { policy: change.keys, window: undefined },
    accessedAtMs: atMs,
    retained: undefined,
    compaction: undefined,
  };
  world.streams.set(name, state);
  world.names.add(name);
  world.byId.set(id, state);
  if (id >= world.nextId) world.nextId = (id + 1) as StreamId;
  if (fork === undefined) return;
  const source = streamOf(world, fork.source);
  source.forkCount += 1;
  // The fork begins where its source can be read.
  const earliest = Math.min(fork.at, earliestOf(world, source)) as Offset;
  if (earliest === OFFSET_ZERO) return;
  state.retained = { earliest, rule: undefined, marks: [], lastAtMs: atMs };
}

function applyAppended(stream: MutableStream, change: StreamAppended): void {
  const { producer, streamSeq, key, atMs } = change;
  assert(!stream.isClosed, `A2 an append follows a close: id=${stream.id}`);
  if (stream.retained !== undefined && change.data.length > 0) {
    markTail(stream, stream.retained, atMs);
  }
  stream.tail = advance(stream.tail, change.data.length);
  if (change.closes) stream.isClosed = true;
  if (streamSeq !== undefined) stream.lastStreamSeq = streamSeq;
  if (atMs > stream.accessedAtMs) stream.accessedAtMs = atMs;
  if (key !== undefined) applyKey(stream, key, atMs);
  if (producer === undefined) return;
  stream.producers ??= new Map();
  const before = stream.producers.get(producer.id);
  const after = applyProducer(before, producer, stream.tail);
  if (before === undefined) stream.producers.set(producer.id, after);
}

function applyKey(stream: MutableStream, key: StoredKey, atMs: TimeMs): void {
  stream.keys ??= { policy: undefined, window: undefined };
  const window = (stream.keys.window ??= new KeyWindow(key.ordinal));
  // The image in a snapshot may be later than the replay, and already have the key.
  if (key.ordinal < window.next) return;
  window.evictTo(key.evictTo);
  window.add(key.mark, stream.tail, atMs);
}

function applyRemoved(world: MutableWorld, change: StreamRemoved): void {
  const stream = streamOf(world, change.stream);
  assert(stream.forkCount === 0, `a stream is removed under its forks: id=${stream.id}`);
  world.byId.delete(stream.id);
  if (world.streams.get(stream.name) === stream) {
    world.streams.delete(stream.name);
    world.names.delete(stream.name);
  }
  applyGone(world, stream.name);
  // A snapshot is written while the world changes. In a world made from it the source may already be gone.
  const source = stream.fork === undefined ? undefined : world.byId.get(stream.fork.source);
  if (source !== undefined) source.forkCount -= 1;
}
