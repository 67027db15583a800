/**
 * Counts what the streams of a namespace hold: how many there are, and the bytes of their appends. Quotas of storage are compared
 * with these numbers in the step that stages a change, so that two requests cannot both take the last place. PROTOCOL.md §21.9.
 *
 *   - a namespace is counted from the world when it is asked for the first time, in slices, and then follows every staged change;
 *   - a stream counts from its creation until its data is free: one that was deleted and has forks counts on;
 *   - a fork counts the bytes of its own appends. Those before its fork point count for its source;
 *   - streams that the server keeps for itself do not count, and neither does what was trimmed;
 *   - a namespace without streams that no request uses is forgotten: counting it again costs nothing.
 */

import { assert } from "../../base/assert.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Change } from "../core/change.ts";
import { isSystemStream, type StreamState } from "../core/stream.ts";
import { ownBytes } from "../core/trim.ts";
import type { StreamId, StreamName } from "../core/types.ts";
import type { World } from "../core/world.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { Slices } from "./turn-budget.ts";

/** Quotas that are about what is stored. */
export type StorageQuota = "streams" | "stored_bytes";

/** Empty namespaces that are kept before the unused ones are looked for. */
const EMPTY_MAX = 1000;
/** Streams of which is remembered who counts them. */
const KNOWN_MAX = 10_000;

/** What one namespace holds. Undefined as its path: all streams. */
export class Holding {
  readonly path: string | undefined;
  streams = 0;
  bytes = 0;
  /** Requests that look at it. It is not forgotten meanwhile. */
  users = 0;
  /** Names up to this one have been counted. Undefined: all. */
  #countedTo: string | undefined = "";

  constructor(path: string | undefined) {
    this.path = path;
  }

  get isCounted(): boolean {
    return this.#countedTo === undefined;
  }

  /** Whether a change of this stream changes the numbers now. One that the count has not reached is counted later. */
  includes(name: StreamName): boolean {
    const to = this.#countedTo;
    return to === undefined || name === this.path || name <= to;
  }

  /** Counts all streams of the namespace. A generator: it can rest between two names, while the world changes. */
  *count({ streams, names }: World): Generator<void, void, undefined> {
    const { path } = this;
    const own = path === undefined ? undefined : streams.get(path as StreamName);
    if (own !== undefined) this.#add(own);
    const beginning = path === undefined ? "" : `${path}/`;
    this.#countedTo = beginning;
    for (;;) {
      // Names may come and go at every rest, so that it begins anew behind the last one.
      const name = nextName(names.from(this.#countedTo), this.#countedTo);
      if (name === undefined || !name.startsWith(beginning)) break;
      const state = streams.get(name);
      if (state !== undefined && !isSystemStream(name)) this.#add(state);
      this.#countedTo = name;
      yield;
    }
    this.#countedTo = undefined;
  }

  #add(state: StreamState): void {
    this.streams += 1;
    this.bytes += ownBytes(state);
  }
}

/** What a command may add to a holding. */
export class Allowance {
  readonly #holding: Holding;
  readonly #streamsMax: number;
  readonly #bytesMax: number;
  readonly #onRefused: (quota: StorageQuota) => void;

  constructor(
    holding: Holding,
    limits: { readonly streamsMax: number; readonly storedBytesMax: number },
    onRefused: (quota: StorageQuota) => void,
  ) {
    this.#holding = holding;
    this.#streamsMax = limits.streamsMax;
    this.#bytesMax = limits.storedBytesMax;
    this.#onRefused = onRefused;
  }

  /**
   * Refuses a change that was decided and is not staged yet. What adds nothing is never refused: a retry, a close, a stream that
   * is there already.
   */
  admit(streams: number, bytes: number): void {
    const holding = this.#holding;
    assert(holding.isCounted, "a quota is compared with a namespace that is not counted");
    if (streams > 0 && holding.streams + streams > this.#streamsMax) {
      throw this.#refusal("streams", this.#streamsMax);
    }
    if (bytes > 0 && holding.bytes + bytes > this.#bytesMax) {
      throw this.#refusal("stored_bytes", this.#bytesMax);
    }
  }

  /**
   * Refuses a claim of a subscription: the server writes a wake event when the claim is given back, and cannot refuse it then. Events
   * may go a little beyond the quota, so that work can be claimed although the storage is used up.
   */
  admitClaim(): void {
    const holding = this.#holding;
    assert(holding.isCounted, "a quota is compared with a namespace that is not counted");
    if (holding.bytes >= this.#bytesMax + LIMITS.wakeBytesBeyondQuota) {
      throw this.#refusal("stored_bytes", this.#bytesMax);
    }
  }

  #refusal(quota: StorageQuota, limit: number): HapaxError {
    this.#onRefused(quota);
    return new HapaxError("storage_quota_exceeded", `quota=${quota} limit=${limit}`);
  }
}

export class Holdings {
  readonly #world: World;
  readonly #slices: () => Slices;
  readonly #byPath = new Map<string | undefined, Holding>();
  readonly #counting = new Map<Holding, Promise<Holding>>();
  /** Which holdings count a stream. They never change while no holding comes or goes. */
  readonly #known = new Map<StreamId, readonly Holding[]>();
  #sweepAt = EMPTY_MAX;

  constructor(world: World, slices: () => Slices) {
    this.#world = world;
    this.#slices = slices;
  }

  /** All namespaces that are counted. */
  get all(): Iterable<Holding> {
    return this.#byPath.values();
  }

  /** The holding of a namespace, or of all streams, once it is counted. The caller gives it back with `close`. */
  open(path: string | undefined): Holding | Promise<Holding> {
    let holding = this.#byPath.get(path);
    if (holding === undefined) {
      if (this.#byPath.size >= this.#sweepAt) this.#sweep();
      holding = new Holding(path);
      this.#byPath.set(path, holding);
      this.#known.clear();
    }
    holding.users += 1;
    return holding.isCounted ? holding : this.#count(holding);
  }

  close(holding: Holding): void {
    holding.users -= 1;
    assert(holding.users >= 0, "a holding is closed twice");
  }

  /** A change is about to be applied to the world. */
  note(change: Change): void {
    if (this.#byPath.size === 0) return;
    switch (change.kind) {
      case "created":
        this.#add(change.stream, change.name, 1, 0);
        return;
      case "appended": {
        const bytes = change.data.length;
        const state = bytes === 0 ? undefined : this.#world.byId.get(change.stream);
        if (state !== undefined) this.#add(state.id, state.name, 0, bytes);
        return;
      }
      case "trimmed": {
        const state = this.#world.byId.get(change.stream);
        if (state === undefined) return;
        const from = state.tail - ownBytes(state);
        if (change.to > from) this.#add(state.id, state.name, 0, from - change.to);
        return;
      }
      case "removed": {
        const state = this.#world.byId.get(change.stream);
        if (state === undefined) return;
        this.#add(state.id, state.name, -1, -ownBytes(state));
        this.#known.delete(state.id);
        return;
      }
      default:
    }
  }

  #add(id: StreamId, name: StreamName, streams: number, bytes: number): void {
    for (const holding of this.#holdingsOf(id, name)) {
      if (!holding.includes(name)) continue;
      holding.streams += streams;
      holding.bytes += bytes;
      assert(holding.streams >= 0 && holding.bytes >= 0, "a namespace holds less than nothing");
    }
  }

  #holdingsOf(id: StreamId, name: StreamName): readonly Holding[] {
    let found = this.#known.get(id);
    if (found !== undefined) return found;
    found = this.#find(name);
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    this.#known.set(id, found);
    return found;
  }

  /** Looks at the name and every path above it. */
  #find(name: StreamName): readonly Holding[] {
    if (isSystemStream(name)) return [];
    const found: Holding[] = [];
    const all = this.#byPath.get(undefined);
    if (all !== undefined) found.push(all);
    for (let path: string = name; path !== ""; path = path.slice(0, path.lastIndexOf("/"))) {
      const holding = this.#byPath.get(path);
      if (holding !== undefined) found.push(holding);
    }
    return found;
  }

  /** In the same step if it is soon done. */
  #count(holding: Holding): Holding | Promise<Holding> {
    const running = this.#counting.get(holding);
    if (running !== undefined) return running;
    const slices = this.#slices();
    const steps = holding.count(this.#world);
    const isDone = (): boolean => {
      while (slices.take()) if (steps.next().done === true) return true;
      return false;
    };
    if (isDone()) return holding;
    const rest = async (): Promise<Holding> => {
      do await slices.turn();
      while (!isDone());
      this.#counting.delete(holding);
      return holding;
    };
    const counting = rest();
    this.#counting.set(holding, counting);
    return counting;
  }

  #sweep(): void {
    for (const [path, holding] of this.#byPath) {
      if (holding.users === 0 && holding.streams === 0) this.#byPath.delete(path);
    }
    this.#known.clear();
    this.#sweepAt = Math.max(EMPTY_MAX, 2 * this.#byPath.size);
  }
}

function nextName(names: Iterable<StreamName>, after: string): StreamName | undefined {
  for (const name of names) if (name !== after) return name;
  return undefined;
}
