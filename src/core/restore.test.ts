// RS1: a snapshot is taken piece by piece while the world goes on, and the world is made again from it.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Change } from "./change.ts";
import { decideEnding } from "./retention.ts";
import { Restoration, type StreamImage, type WorldParts } from "./restore.ts";
import type { StreamState } from "./stream.ts";
import { imageOfBook } from "./subscription-image.ts";
import type { Epoch, Offset, ProducerId, Sequence, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

/** What a snapshot consists of, in the order in which it was taken. */
type Piece =
  | { readonly kind: "version"; readonly version: number }
  | {
      readonly kind: "stream";
      readonly image: StreamImage;
      readonly producers: StreamState["producers"];
    };

interface Snapshot {
  readonly begunAt: number;
  readonly pieces: Piece[];
  readonly states: Iterator<StreamState>;
  isDone: boolean;
  parts: WorldParts | undefined;
}

const NAMES = ["/a", "/b", "/c"] as StreamName[];

/** A history of changes that could have happened, chosen by numbers. */
class Story {
  readonly world = createWorld();
  readonly changes: Change[] = [];

  get atMs(): TimeMs {
    return (this.changes.length + 1) as TimeMs;
  }

  tell(choice: number): void {
    const name = NAMES[choice % NAMES.length] ?? NAMES[0];
    if (name === undefined) return;
    const state = this.world.streams.get(name);
    const step = Math.floor(choice / NAMES.length);
    if (step % 8 === 7) this.#administer(step);
    else if (state === undefined) this.#create(name, step);
    else if (step % 4 === 0 && !state.isDeleted) {
      for (const change of decideEnding(this.world.byId, state, this.atMs)) this.#apply(change);
    } else if (step % 4 === 1) this.#apply({ kind: "touched", atMs: this.atMs, stream: state.id });
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
    this.#apply({ kind: "created", atMs: this.atMs, stream, name, contentType, expiry, fork });
  }

  #append(state: StreamState, step: number): void {
    if (state.isClosed || state.isDeleted) return;
    const id = `p${step % 3}` as ProducerId;
    const known = state.producers?.get(id);
    const sequence = ((known?.lastSequence ?? -1) + 1) as Sequence;
    this.#apply({
      kind: "appended",
      atMs: this.atMs,
      stream: state.id,
      data: new Uint8Array(1 + (step % 5)),
      closes: step % 16 === 15,
      producer: step % 2 === 0 ? undefined : { id, epoch: 0 as Epoch, sequence },
      streamSeq: step % 5 === 0 ? String(this.changes.length).padStart(6, "0") : undefined,
    });
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

  #apply(change: Change): void {
    applyChange(this.world, change);
    this.changes.push(change);
  }
}

function begin(story: Story): Snapshot {
  const states = story.world.byId.values();
  const begunAt = story.world.version;
  return { begunAt, pieces: [], states, isDone: false, parts: undefined };
}

/** One block: some streams, or, when all have been looked at, the rest of the world. */
function takeBlock(snapshot: Snapshot, world: World, count: number): void {
  if (snapshot.isDone) {
    const { version, nextId, timeMs, signingKeys } = world;
    const image = JSON.stringify(imageOfBook(world.subscriptions));
    const subscriptions = JSON.parse(image) as WorldParts["subscriptions"];
    snapshot.parts = { version, nextId, timeMs, signingKeys: [...signingKeys], subscriptions };
    return;
  }
  snapshot.pieces.push({ kind: "version", version: world.version });
  for (let taken = 0; taken < count; taken += 1) {
    const next = snapshot.states.next();
    if (next.done === true) {
      snapshot.isDone = true;
      return;
    }
    const { producers, forkCount: _forkCount, ...image } = next.value;
    const copy = producers === undefined ? undefined : new Map(producers);
    snapshot.pieces.push({ kind: "stream", image, producers: copy });
  }
}

function restore(snapshot: Snapshot, changes: readonly Change[]): World {
  const world = createWorld();
  const restoration = new Restoration(world);
  for (const piece of snapshot.pieces) {
    if (piece.kind === "version") {
      restoration.imagesAt(piece.version);
      continue;
    }
    restoration.stream(piece.image);
    for (const [id, state] of piece.producers ?? [])
      restoration.producer(piece.image.id, id, state);
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

/** Without the memo of subscriptions, and whatever the order in which streams came back. */
function plain(world: World): unknown {
  const { subscriptions, byId, ...rest } = world;
  const { settledStreams: _memo, globs, ...book } = subscriptions;
  const streams = [...byId].sort(([one], [other]) => one - other);
  return { ...rest, streams, names: world.streams, book, globs: [...globs.keys()] };
}

const choices = fc.array(fc.nat(10_000), { minLength: 0, maxLength: 40 });

test("RS1 images of any moments and the changes since the first make the same world again", () => {
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
    { numRuns: 2000 },
  );
});

test("RS1 of several lives of one path within a snapshot, only the last one comes back", () => {
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

test("RS1 a restoration is not complete before the changes have caught up with its images", () => {
  const story = new Story();
  story.tell(0);
  const restoration = new Restoration(createWorld());
  restoration.imagesAt(story.world.version);
  restoration.begin(0);
  restoration.finishImages();
  expect(restoration.isComplete).toBe(false);
});
