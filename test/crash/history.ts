/**
 * What a journal must have after any crash. One commit runs at a time, so that there are two worlds that recovery
 * may find: with and without the commit that was not answered. No third one.
 */

import type { Change } from "../../src/streams/core/change.ts";
import { KeyWindow } from "../../src/base/key-window.ts";
import type { Offset, StreamId } from "../../src/streams/core/types.ts";
import { applyChange, createWorld, type World } from "../../src/streams/core/world.ts";
import type { Store } from "../../src/streams/store.ts";

/** A world with its data: the plainest store that there is, to compare with. */
export class Shadow {
  readonly world: World = createWorld();
  readonly data = new Map<StreamId, Buffer[]>();

  apply(changes: readonly Change[]): void {
    for (const change of changes) {
      if (change.kind === "created") this.data.set(change.stream, []);
      if (change.kind === "appended" && change.data.length > 0) {
        this.data.get(change.stream)?.push(Buffer.from(change.data));
      }
      applyChange(this.world, change);
      if (change.kind === "removed") this.data.delete(change.stream);
    }
  }
}

/** Follows a store over its lives. */
export class History {
  #answered = new Shadow();
  #underWay: readonly Change[] | undefined;
  commits = 0;

  /** The same store, watched. */
  watch(store: Store): Store {
    return {
      supports: store.supports,
      world: store.world,
      room: store.room,
      stats: () => store.stats(),
      read: (stream, from, to, bytesMax) => store.read(stream, from, to, bytesMax),
      seek: (...range) => store.seek(...range),
      close: () => store.close(),
      commit: async (changes) => {
        if (this.#underWay !== undefined) throw new Error("two commits run at once");
        this.#underWay = changes;
        await store.commit(changes);
        this.#answered.apply(changes);
        this.commits += 1;
        this.#underWay = undefined;
      },
    };
  }

  /** Everything that was answered, byte for byte. */
  get answered(): Shadow {
    return this.#answered;
  }

  /** A recovered store is one of the two that it may be; from now on it is what it is. */
  async check(store: Store): Promise<void> {
    const found = describe(store.world);
    const withIt = this.#underWay;
    this.#underWay = undefined;
    if (found !== describe(this.#answered.world) && withIt !== undefined) {
      this.#answered.apply(withIt);
    }
    const expected = describe(this.#answered.world);
    if (found !== expected)
      throw new Error(`another world was recovered:${difference(found, expected)}`);
    await this.checkData(store);
  }

  async checkData(store: Store): Promise<void> {
    for (const [stream, appends] of this.#answered.data) {
      const start = this.#answered.world.byId.get(stream)?.fork?.at ?? 0;
      await checkStream(store, stream, start, appends);
    }
  }
}

/** Page by page, with the cuts between appends where they were. */
async function checkStream(
  store: Store,
  stream: StreamId,
  start: number,
  appends: readonly Buffer[],
): Promise<void> {
  const bytes = appends.reduce((sum, append) => sum + append.length, 0);
  const end = (start + bytes) as Offset;
  let position = start as Offset;
  let index = 0;
  while (position < end) {
    const page = await store.read(stream, position, end, 16_384);
    const where = `stream ${stream} at ${position}`;
    if (page.start !== position || page.appends.length === 0) throw new Error(`a hole in ${where}`);
    for (const append of page.appends) {
      if (appends[index]?.equals(append) !== true) throw new Error(`other data in ${where}`);
      position = (position + append.length) as Offset;
      index += 1;
    }
  }
  if (index !== appends.length) throw new Error(`stream ${stream} has appends without data`);
}

/** The world as text. An undefined member counts as absent. */
export function describe(world: World): string {
  const { streams, byId, nextId, timeMs, version, signingKeys, subscriptions } = world;
  const book = [...subscriptions.byId].sort(([one], [other]) => (one < other ? -1 : 1));
  return canonical({
    streams,
    byId: [...byId].sort(([one], [other]) => one - other),
    nextId,
    timeMs,
    version,
    signingKeys,
    book,
    byStream: subscriptions.byStream,
    globs: [...subscriptions.globs.keys()].sort(),
    generationFloor: subscriptions.generationFloor,
  });
}

/** A window keeps its entries to itself: they are asked for one by one. */
function entriesOf(window: KeyWindow): unknown {
  const { first, next } = window;
  const entries = Array.from({ length: next - first }, (_, index) => first + index).map(
    (ordinal) => [[...window.markOf(ordinal)], window.endOf(ordinal), window.timeOf(ordinal)],
  );
  return { first, next, entries };
}

function canonical(value: unknown): string {
  if (value instanceof KeyWindow) return canonical(entriesOf(value));
  if (value instanceof Set) return `(${[...value].map(canonical).toSorted().join()})`;
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "undefined";
  const entries: [unknown, unknown][] =
    value instanceof Map ? [...value.entries()] : Object.entries(value);
  const lines = entries
    .filter(([, item]) => item !== undefined)
    .map(([key, item]) => `${String(key)}:${canonical(item)}`);
  return `{${lines.toSorted().join()}}`;
}

function difference(found: string, expected: string): string {
  let at = 0;
  while (at < found.length && found[at] === expected[at]) at += 1;
  const from = Math.max(0, at - 120);
  return `\nfound    …${found.slice(from, at + 120)}\nexpected …${expected.slice(from, at + 120)}`;
}
