/**
 * Makes a world again from what a store has kept: images of its streams, and then the changes since.
 *
 * A store writes a snapshot while the world changes, so the images show different moments. Each image carries the
 * world's version at its moment. A change that the image already contains is not applied again.
 *
 *   - images of any moments, and all changes since the first, give the world that the changes alone give.
 */

import type { Change } from "./change.ts";
import type { Incarnation } from "../../base/incarnation.ts";
import { type KeyMark, KeyWindow } from "../../base/key-window.ts";
import type { KeyPolicy } from "./keys.ts";
import type { MutableProducer } from "./producer.ts";
import type { StreamState } from "./stream.ts";
import type { GroupBookImage } from "./group-image.ts";
import type { BookImage } from "./subscription-image.ts";
import type { Offset, ProducerId, StreamId, TimeMs } from "./types.ts";
import { applyChange, type MutableStream, type MutableWorld, type World } from "./world.ts";

export type StreamImage = Omit<StreamState, "forkCount" | "producers" | "keys"> & {
  readonly keyPolicy: KeyPolicy | undefined;
};

/** A key as a snapshot stores it. */
export interface KeyImage {
  readonly mark: KeyMark;
  readonly end: Offset;
  readonly atMs: TimeMs;
}

export interface WorldParts {
  /** The world's version when these parts were read. */
  readonly version: number;
  readonly nextId: StreamId;
  readonly timeMs: TimeMs;
  readonly signingKeys: readonly string[];
  readonly incarnation: Incarnation;
  readonly subscriptions: BookImage;
  readonly groups: GroupBookImage;
}

export class Restoration {
  readonly #world: MutableWorld;
  readonly #versions = new Map<StreamId, number>();
  /** Every stream that existed at this version has an image. A stream without one was gone before. */
  #imagesVersion = 0;
  #partsVersion = 0;
  #endVersion = 0;

  constructor(world: World) {
    // The cast gives write access. The types make the world read-only for all other code.
    this.#world = world as unknown as MutableWorld;
  }

  /** Starts the restore. `version` is the number of changes that the world had when the images were begun. */
  begin(version: number): void {
    this.#world.version = version;
  }

  /** Takes everything that is not a stream. The snapshot reads it after all streams. */
  parts(parts: WorldParts): void {
    const world = this.#world;
    world.rules.subscriptions.restore(world.subscriptions, parts.subscriptions);
    world.rules.groups.restore(world.groups, parts.groups);
    world.nextId = parts.nextId;
    world.timeMs = parts.timeMs;
    world.signingKeys.push(...parts.signingKeys);
    world.incarnation = parts.incarnation;
    this.#partsVersion = parts.version;
    this.#endVersion = Math.max(this.#endVersion, parts.version);
  }

  /** Says that images of this version follow. Images come in the order of creation; the last call has the rest. */
  imagesAt(version: number): void {
    this.#imagesVersion = version;
    this.#endVersion = Math.max(this.#endVersion, version);
  }

  stream(image: StreamImage): void {
    // Member by member: a spread would give each of a million streams a hidden class of its own.
    const state: MutableStream = {
      id: image.id,
      run: image.run,
      name: image.name,
      contentType: image.contentType,
      expiry: image.expiry,
      fork: image.fork,
      createdAtMs: image.createdAtMs,
      tail: image.tail,
      isClosed: image.isClosed,
      isDeleted: image.isDeleted,
      forkCount: 0,
      lastStreamSeq: image.lastStreamSeq,
      producers: undefined,
      keys:
        image.keyPolicy === undefined ? undefined : { policy: image.keyPolicy, window: undefined },
      accessedAtMs: image.accessedAtMs,
      retained: image.retained,
      compaction: image.compaction,
    };
    const world = this.#world;
    world.byId.set(state.id, state);
    // If two lives have one path, the later one owns it.
    const other = world.streams.get(state.name);
    if (other === undefined || other.id < state.id) world.streams.set(state.name, state);
    world.names.add(state.name);
    if (state.id >= world.nextId) world.nextId = (state.id + 1) as StreamId;
    this.#versions.set(state.id, this.#imagesVersion);
  }

  /** A later image of the same producer replaces the earlier one. */
  producer(stream: StreamId, id: ProducerId, state: MutableProducer): void {
    const found = this.#world.byId.get(stream);
    if (found === undefined) return;
    found.producers ??= new Map();
    found.producers.set(id, state);
  }

  /**
   * Takes keys of a window, from this ordinal on. A window may come in several calls, in order. Each call continues
   * where the last one ended, and drops what was evicted meanwhile.
   */
  keys(stream: StreamId, first: number, from: number, keys: Iterable<KeyImage>): void {
    const found = this.#world.byId.get(stream);
    if (found === undefined) return;
    found.keys ??= { policy: undefined, window: undefined };
    let { window } = found.keys;
    if (window === undefined || from > window.next) window = new KeyWindow(from);
    found.keys.window = window;
    // Evict before adding: a key that was evicted meanwhile may be among the new ones again.
    window.evictTo(first);
    for (const { mark, end, atMs } of keys) window.add(mark, end, atMs);
  }

  /** Ends the images. Counts the forks of each stream from the forks themselves. */
  finishImages(): void {
    for (const { fork } of this.#world.byId.values()) {
      const source = fork === undefined ? undefined : this.#world.byId.get(fork.source);
      if (source !== undefined) source.forkCount += 1;
    }
  }

  /** Whether the replayed changes have reached the version of all images. */
  get isComplete(): boolean {
    return this.#world.version >= this.#endVersion;
  }

  /** Frees what is only needed until the changes have reached the images. */
  forgetImages(): void {
    if (this.isComplete) this.#versions.clear();
  }

  /** Applies a change unless an image contains it. `ordinal` counts all changes of the world from 0. */
  replay(change: Change, ordinal: number): void {
    if (this.#isWanted(change, ordinal)) this.#apply(change, ordinal);
    this.#world.version = ordinal + 1;
    if (change.atMs > this.#world.timeMs) this.#world.timeMs = change.atMs;
  }

  #apply(change: Change, ordinal: number): void {
    const world = this.#world as unknown as World;
    const { subscriptions, groups, rules } = this.#world;
    // The books already contain what this change meant to the stream's followers, and what came after it.
    if (ordinal < this.#partsVersion) {
      this.#world.subscriptions = rules.subscriptions.create();
      this.#world.groups = rules.groups.create();
    }
    applyChange(world, change);
    this.#world.subscriptions = subscriptions;
    this.#world.groups = groups;
  }

  #isWanted(change: Change, ordinal: number): boolean {
    if (!("stream" in change) || typeof change.stream === "string") {
      return ordinal >= this.#partsVersion;
    }
    return ordinal >= (this.#versions.get(change.stream) ?? this.#imagesVersion);
  }
}
