// A snapshot is taken piece by piece while the world changes, and the world is made again from it.
import fc from "fast-check";
import { expect, test } from "vitest";
import { keyClaim } from "../../testing/commands.ts";
import type { Change } from "./change.ts";
import { type GroupBookImage, imageOfGroups } from "./group-image.ts";
import type { Cursor, GroupState, GroupChange, GroupTaken } from "./group-state.ts";
import type { KeyWindowView } from "../../base/key-window.ts";
import {
  decideKnownKey,
  decideNewKey,
  firstAliveOf,
  type KeyDefaults,
  windowMsOf,
} from "./keys.ts";
import { decideProducer, type MutableProducer, type ProducerState } from "./producer.ts";
import { decideEnding } from "./retention.ts";
import { type KeyImage, Restoration, type StreamImage, type WorldParts } from "./restore.ts";
import type { StreamState } from "./stream.ts";
import { imageOfBook } from "./subscription-image.ts";
import type {
  Epoch,
  Offset,
  ProducerId,
  Sequence,
  SessionNonce,
  RunId,
  StreamId,
  StreamName,
  TimeMs,
} from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

/** The pieces of a snapshot, in the order in which they were taken. */
type Piece =
  | { readonly kind: "version"; readonly version: number }
  | { readonly kind: "stream"; readonly image: StreamImage }
  | {
      readonly kind: "producer";
      readonly stream: StreamId;
      readonly id: ProducerId;
      readonly state: MutableProducer;
    }
  | {
      readonly kind: "keys";
      readonly stream: StreamId;
      readonly first: number;
      readonly from: number;
      readonly keys: readonly KeyImage[];
    };

interface Snapshot {
  readonly begunAt: number;
  readonly pieces: Piece[];
  readonly blocks: Iterator<readonly Piece[]>;
  /** How many streams the next block has. */
  blockStreams: number;
  parts: WorldParts | undefined;
}

const NAMES = ["/a", "/b", "/c"] as StreamName[];
const KEY_DEFAULTS: KeyDefaults = { windowSeconds: 3, countMax: 9, overflow: "evict" };
/** More producers or keys than this follow their stream in blocks of this size, at later moments. */
const INLINE_MAX = 2;

/** A possible history of changes, chosen by numbers. */
class Story {
  readonly world = createWorld();
  readonly changes: Change[] = [];

  get atMs(): TimeMs {
    return ((this.changes.length + 1) * 100) as TimeMs;
  }

  tell(choice: number): void {
    const name = NAMES[choice % NAMES.length] ?? NAMES[0];
    if (name === undefined) return;
    const state = this.world.streams.get(name);
    const step = Math.floor(choice / NAMES.length);
    if (step % 8 === 7) this.#administer(step);
    else if (step % 8 === 6) this.#group(step);
    else if (state === undefined) this.#create(name, step);
    else if (step % 16 === 0 && !state.isDeleted) {
      for (const change of decideEnding(this.world.byId, state, this.atMs)) this.#apply(change);
    } else if (step % 16 === 1) this.#apply({ kind: "touched", atMs: this.atMs, stream: state.id });
    else if (step % 16 === 4) this.#reset(state, step);
    else if (step % 16 === 5) this.#evict(state);
    else if (step % 16 === 6) this.#retain(state, step);
    else this.#append(state, step);
  }

  #create(name: StreamName, step: number): void {
    const sources = [...this.world.streams.values()].filter(({ isDeleted }) => !isDeleted);
    const source = step % 3 === 0 ? sources[step % Math.max(1, sources.length)] : undefined;
    const fork =
      source === undefined
        ? undefined
        : {
            source: source.id,
            sourceName: source.name,
            anchor: source.tail,
            subOffset: 0,
            at: source.tail,
            inheritsExpiry: true,
          };
    const expiry = { kind: "never" } as const;
    const stream = this.world.nextId;
    const contentType = "text/plain";
    const policy = { windowSeconds: 2, countMax: 5, overflow: undefined, isFromContent: true };
    const keys = step % 2 === 0 ? policy : undefined;
    const { atMs } = this;
    this.#apply({
      kind: "created",
      atMs,
      stream,
      run: (step + 1) as RunId,
      name,
      contentType,
      expiry,
      fork,
      keys,
    });
  }

  #append(state: StreamState, step: number): void {
    if (state.isClosed || state.isDeleted) return;
    const kind = step % 3;
    const producer = kind === 1 ? this.#mark(state, step) : undefined;
    const key = kind === 2 ? this.#key(state, step) : undefined;
    if (kind > 0 && producer === undefined && key === undefined) return;
    this.#apply({
      kind: "appended",
      atMs: this.atMs,
      stream: state.id,
      data: new Uint8Array(1 + (step % 5)),
      closes: step % 256 === 255,
      producer,
      streamSeq: step % 5 === 0 ? String(this.changes.length).padStart(6, "0") : undefined,
      key,
    });
  }

  /** The next append of one of five producers: in its epoch, in a new one, or in a session. */
  #mark(state: StreamState, step: number) {
    const id = `p${step % 5}` as ProducerId;
    const known = state.producers?.get(id);
    const session = step % 4 === 0 ? undefined : (`n${step % 7}` as SessionNonce);
    const isNew = session === undefined ? step % 8 === 0 : session !== known?.session;
    const sequence = (isNew ? 0 : (known?.lastSequence ?? -1) + 1) as Sequence;
    const epoch = ((known?.epoch ?? 0) + (isNew ? 1 : 0)) as Epoch;
    const claim = { id, sequence, session, epoch: session === undefined ? epoch : undefined };
    const decision = decideProducer(known, claim, step);
    return decision.kind === "accepted" ? decision.mark : undefined;
  }

  /** One of twelve keys. A window has fewer, so a key can come again after it was evicted. */
  #key({ keys }: StreamState, step: number) {
    const claim = keyClaim(`key ${step % 12}`, "content");
    const scene = { defaults: KEY_DEFAULTS, durableTail: Infinity as Offset };
    const known = decideKnownKey(keys, claim, scene, false, this.atMs);
    if (known !== undefined) return undefined;
    const decision = decideNewKey(keys, claim, scene, this.atMs);
    return "kind" in decision ? undefined : decision;
  }

  #reset(state: StreamState, step: number): void {
    const producer = `p${step % 5}` as ProducerId;
    const known = state.producers?.get(producer);
    if (known === undefined || state.isDeleted) return;
    const resets = known.resets + 1;
    const { atMs } = this;
    this.#apply({ kind: "producer_reset", atMs, stream: state.id, producer, resets });
  }

  /** A rule, or a cut anywhere: also of a source under its forks. */
  #retain({ id: stream, tail, isDeleted }: StreamState, step: number): void {
    const { atMs } = this;
    if (isDeleted) return;
    const rule = {
      seconds: step % 7 || undefined,
      bytes: step % 50 || undefined,
      dropsNeeded: true,
    };
    if (step % 3 === 0) this.#apply({ kind: "retention_set", atMs, stream, rule });
    else if (step % 5 === 0) {
      const key = `k${step % 3}`;
      const changelog = { key, tombstone: undefined, lagSeconds: step % 9 };
      this.#apply({ kind: "compaction_set", atMs, stream, rule: step % 2 ? changelog : undefined });
    } else this.#apply({ kind: "trimmed", atMs, stream, to: (step % (tail + 1)) as Offset });
  }

  #evict({ id: stream, keys, isDeleted }: StreamState): void {
    if (keys?.window === undefined || isDeleted) return;
    const { atMs } = this;
    const evictTo = firstAliveOf(keys.window, windowMsOf(keys.policy, KEY_DEFAULTS), atMs);
    this.#apply({ kind: "keys_evicted", atMs, stream, evictTo });
  }

  #administer(step: number): void {
    const { atMs } = this;
    const subscription = `s${step % 2}`;
    const stream = NAMES[0];
    if (stream === undefined) return;
    const existing = this.world.subscriptions.byId.get(subscription);
    if (existing === undefined) {
      const way = { kind: "webhook", url: "https://example.com" } as const;
      const settings = {
        way,
        pattern: "/**",
        streams: [stream],
        leaseMs: 1,
        description: undefined,
      };
      const links = [{ stream, isExplicit: true, isGlob: false, acked: undefined }];
      const generation = this.world.subscriptions.generationFloor;
      this.#apply({
        kind: "subscription_created",
        atMs,
        subscription,
        settings,
        generation,
        links,
      });
    } else if (existing.phase.kind === "idle") {
      const generation = existing.generation + 1;
      const tails = [[stream, 0 as Offset]] as const;
      const leaseUntilMs = atMs;
      const wakeId = `w${generation}`;
      this.#apply({
        kind: "subscription_woken",
        atMs,
        subscription,
        wakeId,
        generation,
        tails,
        leaseUntilMs,
      });
    } else if (step % 3 === 0) this.#apply({ kind: "subscription_deleted", atMs, subscription });
    else this.#apply({ kind: "signing_key_added", atMs, key: `key ${atMs}` });
  }

  /** One of two groups: it is created, works and is deleted. */
  #group(step: number): void {
    const { atMs } = this;
    const id = `g${step % 3 === 0 ? 0 : 1}`;
    const group = this.world.groups.byId.get(id);
    if (group === undefined) {
      const streams = [...this.world.streams.values()].filter(({ isDeleted }) => !isDeleted);
      const settings = {
        ...(step % 5 < 2
          ? { pattern: undefined, streams: NAMES, jobs: true }
          : { pattern: "/*", streams: [] }),
        start: { kind: "beginning" },
        leaseMs: 9,
      } as const;
      const cursors = streams.map(({ name }) => [name, 0 as Offset] as const);
      this.#apply({ kind: "group_created", atMs, group: id, settings, cursors });
      return;
    }
    const change = groupChange(group, this.world.groups.nextToken, Math.floor(step / 8), atMs);
    if (change !== undefined) this.#apply(change);
  }

  #apply(change: Change): void {
    applyChange(this.world, change);
    this.changes.push(change);
  }
}

/** Returns a possible change of a group in its present state, if there is one of that kind. */
function groupChange(
  { id: group, settings, members, cursors, free }: GroupState,
  next: number,
  step: number,
  atMs: TimeMs,
): GroupChange | undefined {
  const expiresAtMs = (atMs + 500) as TimeMs;
  const base = { atMs, group };
  const [member] = [...members.values()].slice(step % Math.max(1, members.size));
  const names = [...cursors.keys()];
  const stream = names[step % Math.max(1, names.length)];
  if (step % 31 === 30) return { ...base, kind: "group_deleted" };
  if (member === undefined) {
    return { ...base, kind: "group_joined", member: `m#${next}`, ordinal: next, expiresAtMs };
  }
  if (step % 13 === 12) return { ...base, kind: "group_left", member: member.id };
  const claim = { ...base, kind: "group_claimed", member: member.id, max: 2, expiresAtMs } as const;
  const nothing = { dropped: [], granted: [], asked: [], kept: [] };
  const [first] = free;
  if (step % 5 === 0 && first !== undefined && settings.jobs !== true) {
    return { ...claim, ...nothing, granted: [[first, next]] };
  }
  if (stream === undefined) return undefined;
  const cursor = cursors.get(stream);
  if (settings.jobs === true && cursor !== undefined) {
    return jobChange({ ...base, member: member.id, expiresAtMs }, cursor, next, step);
  }
  if (step % 5 === 1 && cursor?.holder !== undefined) {
    return cursor.askedUntilMs === undefined
      ? { ...claim, ...nothing, asked: [[stream, expiresAtMs]] }
      : { ...claim, ...nothing, kept: [stream] };
  }
  if (step % 5 === 2) return { ...base, kind: "group_released", streams: [stream] };
  if (step % 5 === 3) {
    return { ...base, kind: "group_reset", offsets: [[stream, (step % 7) as Offset]] };
  }
  const offset = ((cursor?.offset ?? 0) + 1) as Offset;
  const finished = step % 2 === 0 ? [stream] : [];
  const committed = { ...base, kind: "group_committed", member: member.id, expiresAtMs } as const;
  return { ...committed, offsets: [[stream, offset]], finished };
}

/** A job is given for the first time, ends or waits. */
function jobChange(
  base: Pick<GroupTaken, "atMs" | "group" | "member" | "expiresAtMs">,
  { stream, offset, jobs }: Cursor,
  token: number,
  step: number,
): GroupChange {
  const [job] = [...(jobs?.open.values() ?? [])].slice(step % Math.max(1, jobs?.open.size ?? 0));
  if (job === undefined || step % 5 < 2) {
    const from = jobs?.next ?? offset;
    const given = [stream, from, (from + 1) as Offset, 1] as const;
    return { ...base, kind: "group_taken", dropped: [], token, jobs: [given] };
  }
  const waiting = [stream, job.offset, base.atMs, job.attempts] as const;
  return step % 5 === 2
    ? { ...base, kind: "group_settled", done: [], later: [waiting] }
    : { ...base, kind: "group_settled", done: [[stream, job.offset]], later: [] };
}

function begin({ world }: Story): Snapshot {
  const snapshot: Snapshot = {
    begunAt: world.version,
    pieces: [],
    blocks: takeStreams(world, () => snapshot.blockStreams),
    blockStreams: 1,
    parts: undefined,
  };
  return snapshot;
}

/**
 * Takes the streams. Each block is of one moment. Parts that do not fit into the block of their stream follow at
 * later moments.
 */
function* takeStreams(world: World, blockStreams: () => number): Generator<readonly Piece[]> {
  let block: Piece[] = [];
  let count = 0;
  for (const state of world.byId.values()) {
    if (count === 0) block.push({ kind: "version", version: world.version });
    const { forkCount: _forkCount, producers, keys, ...image } = state;
    block.push({ kind: "stream", image: { ...image, keyPolicy: keys?.policy } });
    const window = keys?.window;
    const hasManyKeys = window !== undefined && window.next - window.first > INLINE_MAX;
    const hasManyProducers = (producers?.size ?? 0) > INLINE_MAX;
    if (!hasManyKeys && window !== undefined) block.push(takeKeys(state.id, window, window.first));
    if (!hasManyProducers) {
      for (const entry of producers ?? []) block.push(takeProducer(state, entry));
    }
    count += 1;
    if (count < blockStreams() && !hasManyKeys && !hasManyProducers) continue;
    yield block;
    block = [];
    count = 0;
    if (hasManyProducers) yield* takeProducers(state);
    if (hasManyKeys) yield* takeAllKeys(state.id, window);
  }
  // At this moment it is true that there is no other stream.
  if (count === 0) block.push({ kind: "version", version: world.version });
  yield block;
}

function* takeProducers(state: StreamState): Generator<readonly Piece[]> {
  let block: Piece[] = [];
  for (const entry of state.producers ?? []) {
    block.push(takeProducer(state, entry));
    if (block.length < INLINE_MAX) continue;
    yield block;
    block = [];
  }
  yield block;
}

function takeProducer(
  state: StreamState,
  [id, found]: readonly [ProducerId, ProducerState],
): Piece {
  // A copy, because the live state is changed in place.
  return {
    kind: "producer",
    stream: state.id,
    id,
    state: structuredClone(found) as MutableProducer,
  };
}

function* takeAllKeys(
  id: StreamId,
  window: KeyWindowView<Offset, TimeMs>,
): Generator<readonly Piece[]> {
  const goal = window.next;
  for (let from = window.first, isDone = false; !isDone;) {
    const piece = takeKeys(id, window, Math.max(from, window.first));
    from = piece.from + piece.keys.length;
    isDone = from >= goal;
    yield [piece];
  }
}

function takeKeys(stream: StreamId, window: KeyWindowView<Offset, TimeMs>, from: number) {
  const keys: KeyImage[] = [];
  const to = Math.min(window.next, from + INLINE_MAX);
  for (let ordinal = from; ordinal < to; ordinal += 1) {
    const [end, atMs] = [window.endOf(ordinal), window.timeOf(ordinal)];
    keys.push({ mark: window.markOf(ordinal), end, atMs });
  }
  return { kind: "keys", stream, first: window.first, from, keys } as const;
}

/** Takes one block: some of the streams, or, after all streams, the rest of the world. */
function takeBlock(snapshot: Snapshot, world: World, count: number): void {
  snapshot.blockStreams = count;
  const next = snapshot.blocks.next();
  if (next.done !== true) {
    snapshot.pieces.push(...next.value);
    return;
  }
  const { version, nextId, timeMs, signingKeys, incarnation } = world;
  const image = JSON.stringify(imageOfBook(world.subscriptions));
  const subscriptions = JSON.parse(image) as WorldParts["subscriptions"];
  const groups = JSON.parse(JSON.stringify(imageOfGroups(world.groups))) as GroupBookImage;
  snapshot.parts = {
    version,
    nextId,
    timeMs,
    signingKeys: [...signingKeys],
    incarnation,
    subscriptions,
    groups,
  };
}

function restore(snapshot: Snapshot, changes: readonly Change[]): World {
  const world = createWorld();
  const restoration = new Restoration(world);
  for (const piece of snapshot.pieces) {
    if (piece.kind === "version") restoration.imagesAt(piece.version);
    else if (piece.kind === "stream") restoration.stream(piece.image);
    else if (piece.kind === "producer")
      restoration.producer(piece.stream, piece.id, structuredClone(piece.state));
    else restoration.keys(piece.stream, piece.first, piece.from, piece.keys);
  }
  restoration.begin(snapshot.begunAt);
  if (snapshot.parts !== undefined) restoration.parts(snapshot.parts);
  restoration.finishImages();
  for (let ordinal = snapshot.begunAt; ordinal < changes.length; ordinal += 1) {
    const change = changes[ordinal];
    if (change !== undefined) restoration.replay(change, ordinal);
  }
  expect(restoration.isComplete).toBe(true);
  return world;
}

/**
 * Returns the world without the memo of subscriptions, and in an order that does not depend on how streams came back.
 */
function plain(world: World): unknown {
  const { subscriptions, groups, byId, ...rest } = world;
  const { settledStreams: _memo, globs, ...book } = subscriptions;
  const streams = [...byId.values()]
    .sort((one, other) => one.id - other.id)
    .map((state) => ({ ...state, keys: plainKeys(state) }));
  const names = new Map([...world.streams].map(([name, { id }]) => [name, id]));
  const globsOfGroups = [...groups.globs.keys()];
  // The image, because only the live book distinguishes free streams from those of members that have left.
  const allGroups = imageOfGroups(groups).groups;
  const openCounts = [...groups.byId.values()].map(({ openCount }) => openCount);
  const jobCounts = [...groups.byId.values()].map(({ jobCount }) => jobCount);
  const { nextToken } = groups;
  return {
    ...rest,
    streams,
    names,
    book,
    globs: [...globs.keys()],
    globsOfGroups,
    allGroups,
    openCounts,
    jobCounts: [groups.jobCount, ...jobCounts],
    nextToken,
  };
}

/** A window does not show its entries, so they are read one by one. */
function plainKeys({ keys }: StreamState): unknown {
  const window = keys?.window;
  if (window === undefined) return keys;
  const entries: unknown[] = [];
  for (let ordinal = window.first; ordinal < window.next; ordinal += 1) {
    const mark = window.markOf(ordinal);
    expect(window.find(mark)).toBe(ordinal);
    entries.push([ordinal, mark, window.endOf(ordinal), window.timeOf(ordinal)]);
  }
  return { policy: keys?.policy, first: window.first, next: window.next, entries };
}

const choices = fc.array(fc.nat(10_000), { minLength: 0, maxLength: 40 });

test("images of any moments and the changes since the first make the same world again", () => {
  fc.assert(
    fc.property(
      choices,
      fc.array(fc.record({ blockStreams: fc.integer({ min: 1, max: 2 }), between: choices })),
      choices,
      (before, blocks, after) => {
        const story = new Story();
        for (const choice of before) story.tell(choice);
        const snapshot = begin(story);
        for (const { blockStreams, between } of blocks) {
          takeBlock(snapshot, story.world, blockStreams);
          for (const choice of between) story.tell(choice);
        }
        while (snapshot.parts === undefined) takeBlock(snapshot, story.world, 1);
        for (const choice of after) story.tell(choice);
        const restored = restore(snapshot, story.changes);
        expect(plain(restored)).toEqual(plain(story.world));
      },
    ),
    { numRuns: 1000 },
  );
}, 20_000);

test("of several lives of one path within a snapshot, only the last one comes back", () => {
  const story = new Story();
  const [name] = NAMES;
  expect(name).toBeDefined();
  story.tell(0);
  const snapshot = begin(story);
  // The first life ends before its image is taken; the second begins and ends unseen; the third stays.
  for (const choice of [0, 6, 0, 6]) story.tell(choice);
  while (snapshot.parts === undefined) takeBlock(snapshot, story.world, 1);
  expect(story.changes.filter(({ kind }) => kind === "created").length).toBeGreaterThan(2);
  expect(plain(restore(snapshot, story.changes))).toEqual(plain(story.world));
});

test("the stories have everything that a stream can know, taken at several moments", () => {
  const seen = { sessions: 0, resets: 0, evicted: 0, laterKeys: 0, laterProducers: 0 };
  const groupKinds = new Set<string>();
  for (let seed = 0; seed < 60; seed += 1) {
    const story = new Story();
    const tell = (from: number, to: number): void => {
      for (let at = from; at < to; at += 1)
        story.tell((at * at * 7919 + at * 104_729 + seed) % 10_007);
    };
    tell(0, 300);
    const snapshot = begin(story);
    for (let at = 300; snapshot.parts === undefined; at += 3) {
      takeBlock(snapshot, story.world, 1);
      tell(at, at + 3);
    }
    expect(plain(restore(snapshot, story.changes))).toEqual(plain(story.world));
    for (const { kind } of story.changes) if (kind.startsWith("group_")) groupKinds.add(kind);
    for (const { producers, keys } of story.world.byId.values()) {
      if ((keys?.window?.first ?? 0) > 0) seen.evicted += 1;
      for (const { replaced, resets } of producers?.values() ?? []) {
        if (replaced !== undefined) seen.sessions += 1;
        if (resets > 0) seen.resets += 1;
      }
    }
    const { pieces } = snapshot;
    // More parts of a kind in a row than are written with a stream.
    const isLater = (at: number, count: number): boolean =>
      pieces.slice(at - count, at).filter(({ kind }) => kind === pieces[at]?.kind).length === count;
    for (const [at, { kind }] of pieces.entries()) {
      if (kind === "keys" && at > 0 && isLater(at, 1)) seen.laterKeys += 1;
      if (kind === "producer" && at > 1 && isLater(at, INLINE_MAX)) seen.laterProducers += 1;
    }
  }
  for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(5);
  expect(groupKinds.size).toBe(10);
});

test("a key that was evicted between two blocks may be in the later one again", () => {
  const world = createWorld();
  const restoration = new Restoration(world);
  const contentType = "text/plain";
  applyChange(world, {
    kind: "created",
    atMs: 1 as TimeMs,
    stream: 1 as StreamId,
    run: 1 as RunId,
    name: "/a" as StreamName,
    contentType,
    expiry: { kind: "never" },
    fork: undefined,
    keys: undefined,
  });
  const image = (key: string, end: number): KeyImage => {
    return { mark: keyClaim(key, "content").mark, end: end as Offset, atMs: end as TimeMs };
  };
  restoration.keys(1 as StreamId, 0, 0, [image("a", 1), image("b", 2)]);
  restoration.keys(1 as StreamId, 1, 2, [image("c", 3), image("a", 4)]);
  const window = world.byId.get(1 as StreamId)?.keys?.window;
  expect([window?.first, window?.next]).toEqual([1, 4]);
  expect(window?.find(keyClaim("a", "content").mark)).toBe(3);
  // All of it was evicted, and more, before the next block.
  restoration.keys(1 as StreamId, 9, 9, [image("d", 9)]);
  expect([window?.next, world.byId.get(1 as StreamId)?.keys?.window?.first]).toEqual([4, 9]);
});

test("a restoration is not complete before the changes have caught up with its images", () => {
  const story = new Story();
  story.tell(0);
  const restoration = new Restoration(createWorld());
  restoration.imagesAt(story.world.version);
  restoration.begin(0);
  restoration.finishImages();
  expect(restoration.isComplete).toBe(false);
});
