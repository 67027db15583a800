// Compares windows of keys with a plain list, and checks every row of the tables of PROTOCOL.md §16.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { appendCommand, createCommand, keyClaim, RUN } from "../../testing/commands.ts";
import { type AppendCommand, type AppendDecision, decideAppend } from "./append.ts";
import { decideCreate } from "./create.ts";
import { KEY_DEFAULTS, type KeyClaim, type KeyDefaults, type KeyPolicy } from "./keys.ts";
import type { StreamState } from "./stream.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const A = "/a" as StreamName;
const HOUR_MS = 3_600_000;

const policyOf = (parts: Partial<KeyPolicy>): KeyPolicy => ({
  windowSeconds: undefined,
  countMax: undefined,
  overflow: undefined,
  isFromContent: false,
  ...parts,
});

class Stream {
  readonly #world: World = createWorld();
  readonly #defaults: KeyDefaults;
  atMs = 1_800_000_000_000;
  /** How much of the stream is durable; undefined: all of it. */
  durableTail: number | undefined;

  constructor(keys?: Partial<KeyPolicy>, defaults: KeyDefaults = KEY_DEFAULTS) {
    this.#defaults = defaults;
    const command = createCommand(A, { keys: keys === undefined ? undefined : policyOf(keys) });
    const { nextId } = this.#world;
    const created = decideCreate(undefined, undefined, command, nextId, RUN, this.atMs as TimeMs);
    if (created.kind !== "created") throw new Error(created.kind);
    for (const change of created.changes) applyChange(this.#world, change);
  }

  get state(): StreamState {
    const state = this.#world.streams.get(A);
    if (state === undefined) throw new Error("there is no stream");
    return state;
  }

  /** The first and the next ordinal of the window. Undefined without a window. */
  get window(): readonly [number, number] | undefined {
    const window = this.state.keys?.window;
    return window === undefined ? undefined : [window.first, window.next];
  }

  send(
    key: KeyClaim | undefined,
    text: string,
    parts: Partial<AppendCommand> = {},
  ): AppendDecision {
    const durableTail = (this.durableTail ?? this.state.tail) as Offset;
    const command = appendCommand(text, { ...parts, key });
    const scene = { defaults: this.#defaults, durableTail };
    const decision = decideAppend(this.state, command, this.atMs as TimeMs, scene);
    if (decision.kind === "accepted") applyChange(this.#world, decision.change);
    return decision;
  }

  /** Appends one byte under each key. */
  add(...keys: readonly string[]): AppendDecision[] {
    return keys.map((key) => this.send(keyClaim(key, key), "x"));
  }

  kinds(...keys: readonly string[]): string[] {
    return this.add(...keys).map(({ kind }) => kind);
  }
}

describe("a key", () => {
  test("KD1 with the same content is a duplicate, answered with the end of its original", () => {
    const stream = new Stream();
    expect(stream.send(keyClaim("k", "one"), "one")).toMatchObject({ kind: "accepted", tail: 3 });
    stream.send(undefined, "more");
    stream.atMs += 1000;
    expect(stream.send(keyClaim("k", "one"), "one")).toEqual({
      kind: "replayed",
      end: 3,
      isClosed: false,
      ageMs: 1000,
      windowMs: 24 * HOUR_MS,
    });
    expect(stream.state.tail).toBe(7);
  });

  test("KD1 with other content is refused, and the first content stays", () => {
    const stream = new Stream();
    stream.send(keyClaim("k", "one"), "one");
    expect(stream.send(keyClaim("k", "two"), "two")).toEqual({ kind: "key_reused" });
    expect(stream.send(keyClaim("k", "one"), "one").kind).toBe("replayed");
  });

  test("KD1 A4 is still a duplicate on a closed stream, where a new key is refused", () => {
    const stream = new Stream();
    stream.send(keyClaim("k", "one"), "one");
    stream.send(keyClaim("close", ""), "", { closes: true });
    for (const [key, content] of [
      ["k", "one"],
      ["close", ""],
    ] as const) {
      const told = stream.send(keyClaim(key, content), content, { closes: key === "close" });
      expect(told).toMatchObject({ kind: "replayed", end: 3, isClosed: true });
    }
    expect(stream.send(keyClaim("k", "two"), "two")).toEqual({ kind: "key_reused" });
    expect(stream.send(keyClaim("new", "x"), "x")).toEqual({ kind: "closed", tail: 3 });
    expect(stream.send(keyClaim("new", ""), "", { closes: true })).toMatchObject({
      kind: "already_closed",
    });
  });

  test("KD1 that is the content counts only on streams that want that", () => {
    const content = { isContent: true };
    const plain = new Stream();
    for (const _ of [1, 2]) {
      expect(plain.send(keyClaim("x", "x", content), "x").kind).toBe("accepted");
    }
    expect(plain.window).toBeUndefined();
    plain.send(undefined, "", { closes: true });
    expect(plain.send(keyClaim("x", "x", content), "x").kind).toBe("closed");
    const keyed = new Stream({ isFromContent: true });
    expect(keyed.send(keyClaim("x", "x", content), "x").kind).toBe("accepted");
    expect(keyed.send(keyClaim("x", "x", content), "x")).toMatchObject({
      kind: "replayed",
      end: 1,
    });
    expect(keyed.send(keyClaim("y", "y", content), "y").kind).toBe("accepted");
    expect(keyed.send(keyClaim("named", "x"), "x").kind).toBe("accepted");
    keyed.send(undefined, "", { closes: true });
    expect(keyed.send(keyClaim("x", "x", content), "x").kind).toBe("replayed");
  });
});

describe("a window", () => {
  test("KD2 remembers a key for its time, to the millisecond", () => {
    const stream = new Stream({ windowSeconds: 10 });
    stream.add("k");
    stream.atMs += 9_999;
    expect(stream.kinds("k")).toEqual(["replayed"]);
    stream.atMs += 1;
    expect(stream.kinds("k", "k")).toEqual(["accepted", "replayed"]);
    expect(stream.window).toEqual([1, 2]);
  });

  test("KD2 a retry does not make its key younger", () => {
    const stream = new Stream({ windowSeconds: 10 });
    stream.add("k");
    stream.atMs += 6_000;
    expect(stream.kinds("k")).toEqual(["replayed"]);
    stream.atMs += 6_000;
    expect(stream.kinds("k")).toEqual(["accepted"]);
  });

  test("KD2 that is full evicts its oldest key, and a retry of that is new", () => {
    const stream = new Stream({ countMax: 3, overflow: "evict" });
    expect(stream.kinds("a", "b", "c", "d")).toEqual(Array.from({ length: 4 }, () => "accepted"));
    expect(stream.window).toEqual([1, 4]);
    expect(stream.kinds("b", "c", "d")).toEqual(["replayed", "replayed", "replayed"]);
    expect(stream.kinds("a")).toEqual(["accepted"]);
    expect(stream.window).toEqual([2, 5]);
  });

  test("KD2 that is full and rejects says when there is room", () => {
    const stream = new Stream({ countMax: 2, overflow: "reject", windowSeconds: 10 });
    stream.add("a");
    stream.atMs += 3000;
    stream.add("b");
    stream.atMs += 1000;
    expect(stream.add("c")).toEqual([{ kind: "key_window_full", retryAfterMs: 6000 }]);
    expect(stream.kinds("a", "b")).toEqual(["replayed", "replayed"]);
    stream.atMs += 5999;
    expect(stream.add("c")).toEqual([{ kind: "key_window_full", retryAfterMs: 1 }]);
    stream.atMs += 1;
    expect(stream.kinds("c", "b")).toEqual(["accepted", "replayed"]);
    expect(stream.window).toEqual([1, 3]);
  });

  test("KD2 never evicts an entry whose own append is not durable", () => {
    const stream = new Stream({ countMax: 2, overflow: "evict" });
    stream.durableTail = 0;
    stream.add("a", "b");
    expect(stream.add("c")).toEqual([{ kind: "key_window_full", retryAfterMs: 0 }]);
    expect(stream.kinds("a", "b")).toEqual(["replayed", "replayed"]);
    stream.durableTail = 1;
    expect(stream.kinds("c", "d")).toEqual(["accepted", "key_window_full"]);
    stream.durableTail = 2;
    expect(stream.kinds("d")).toEqual(["accepted"]);
    expect(stream.window).toEqual([2, 4]);
  });

  test("KD2 remembers a key beyond its time while its own append is not durable", () => {
    const stream = new Stream({ windowSeconds: 1 });
    stream.durableTail = 0;
    stream.add("a", "b");
    stream.atMs += 5000;
    expect(stream.kinds("a", "c", "a")).toEqual(["replayed", "accepted", "replayed"]);
    expect(stream.window).toEqual([0, 3]);
    stream.durableTail = 1;
    expect(stream.kinds("b", "d", "a")).toEqual(["replayed", "accepted", "accepted"]);
    expect(stream.window).toEqual([1, 5]);
  });

  test("KD2 has the server's settings where the stream has none", () => {
    const defaults = { windowSeconds: 10, countMax: 2, overflow: "reject" } as const;
    for (const stream of [new Stream(undefined, defaults), new Stream({}, defaults)]) {
      expect(stream.kinds("a", "b", "c")).toEqual(["accepted", "accepted", "key_window_full"]);
      stream.atMs += 10_000;
      expect(stream.kinds("a")).toEqual(["accepted"]);
    }
    const own = new Stream({ countMax: 3, overflow: "evict", windowSeconds: 60 }, defaults);
    expect(own.kinds("a", "b", "c", "d")).toEqual(Array.from({ length: 4 }, () => "accepted"));
    own.atMs += 59_999;
    expect(own.kinds("b")).toEqual(["replayed"]);
  });
});

describe("a key that carries its time", () => {
  const timed = (stream: Stream, key: string, ageMs: number): AppendDecision =>
    stream.send(keyClaim(key, key, { timeMs: stream.atMs - ageMs }), "x");

  test("KD3 is refused when it is older than the window and not in it", () => {
    const stream = new Stream({ windowSeconds: 10 });
    expect(timed(stream, "old", 10_000)).toEqual({ kind: "key_expired", windowMs: 10_000 });
    expect(timed(stream, "young", 9_999).kind).toBe("accepted");
    stream.atMs += 9_999;
    // The key's own time is long before its arrival. The window keeps it by the time of its arrival.
    expect(timed(stream, "young", 19_998).kind).toBe("replayed");
    stream.atMs += 1;
    expect(timed(stream, "young", 19_999).kind).toBe("key_expired");
  });

  test("KD3 is never stored twice, however often its entry is pushed out after its time", () => {
    const stream = new Stream({ windowSeconds: 10, countMax: 1 });
    const born = stream.atMs;
    const send = (): string => stream.send(keyClaim("k", "k", { timeMs: born }), "x").kind;
    expect(send()).toBe("accepted");
    stream.atMs += 10_000;
    expect(send()).toBe("key_expired");
    stream.add("other");
    expect(send()).toBe("key_expired");
  });

  test("KD3 is refused as such on a closed stream too: it may have been stored", () => {
    const stream = new Stream({ windowSeconds: 10 });
    stream.send(undefined, "", { closes: true });
    expect(timed(stream, "old", 10_000).kind).toBe("key_expired");
    expect(timed(stream, "young", 1).kind).toBe("closed");
  });
});

test("KD4 A3 a refused append leaves the window as it was, and its key is free", () => {
  const stream = new Stream({ countMax: 2, overflow: "evict", windowSeconds: 10 });
  stream.send(undefined, "x", { streamSeq: "m" });
  stream.add("a", "b");
  stream.atMs += 10_000;
  const refused: readonly [Partial<AppendCommand>, string][] = [
    [{ contentType: "text/html" }, "content_type_mismatch"],
    [{ expectedTail: 0 as Offset }, "tail_moved"],
    [{ expectedTail: "none" }, "tail_moved"],
    [{ streamSeq: "a" }, "sequence_regression"],
  ];
  for (const [parts, kind] of refused) {
    expect(stream.send(keyClaim("k", "x"), "x", parts).kind).toBe(kind);
    expect(stream.window).toEqual([0, 2]);
  }
  expect(stream.send(keyClaim("k", "other"), "other").kind).toBe("accepted");
  expect(stream.window).toEqual([2, 3]);
});

test("A1 a full window is the last thing that an append is refused for", () => {
  const stream = new Stream({ countMax: 1, overflow: "reject" });
  stream.send(keyClaim("a", "a"), "a", { streamSeq: "m" });
  const send = (parts: Partial<AppendCommand>): string =>
    stream.send(keyClaim("b", "b"), "b", parts).kind;
  expect(send({ streamSeq: "a" })).toBe("sequence_regression");
  expect(send({ expectedTail: 0 as Offset })).toBe("tail_moved");
  expect(send({ contentType: "text/html" })).toBe("content_type_mismatch");
  expect(send({})).toBe("key_window_full");
});

interface Entry {
  readonly key: string;
  readonly content: string;
  readonly atMs: number;
  readonly end: number;
}

describe("any history", () => {
  const step = fc.record({
    key: fc.nat(11).map((index) => `k${index}`),
    content: fc.nat(4).map((index) => (index === 0 ? "other" : "usual")),
    passedMs: fc.oneof(fc.constant(0), fc.nat(1500)),
    undurable: fc.nat(3),
  });
  const policy = fc.record({
    windowSeconds: fc.integer({ min: 1, max: 5 }),
    countMax: fc.integer({ min: 1, max: 6 }),
    overflow: fc.constantFrom("evict" as const, "reject" as const),
  });

  /** Decides from a plain list of all remembered entries. Changes the list as the window must change. */
  function judge(list: Entry[], now: Entry, keys: KeyPolicy, durableTail: number): string {
    const { windowSeconds = 0, countMax = 0, overflow } = keys;
    const isAlive = ({ atMs, end }: Entry): boolean =>
      now.atMs - atMs < windowSeconds * 1000 || end > durableTail;
    const known = list.find((entry) => entry.key === now.key && isAlive(entry));
    if (known !== undefined) {
      return known.content === now.content ? `replayed ${known.end}` : "key_reused";
    }
    const alive = list.filter(isAlive);
    if (alive.length >= countMax) {
      if (overflow === "reject") return "key_window_full";
      const pushed = alive.splice(0, alive.length - countMax + 1);
      if (pushed.some(({ end }) => end > durableTail)) return "key_window_full";
    }
    list.splice(0, list.length, ...alive, now);
    return `accepted ${now.end}`;
  }

  test("G15 KD1 KD2 KD4 every answer is the one that a plain list of the stored keys gives", () => {
    fc.assert(
      fc.property(policy, fc.array(step, { maxLength: 80 }), (keys, steps) => {
        const stream = new Stream(keys);
        const list: Entry[] = [];
        for (const { key, content, passedMs, undurable } of steps) {
          stream.atMs += passedMs;
          const { tail } = stream.state;
          // Never less than before: durable data stays durable.
          stream.durableTail = Math.max(stream.durableTail ?? 0, tail - undurable);
          const now = { key, content, atMs: stream.atMs, end: tail + 1 };
          const expected = judge(list, now, policyOf(keys), stream.durableTail);
          const decision = stream.send(keyClaim(key, content), "x");
          const detail =
            decision.kind === "replayed"
              ? ` ${decision.end}`
              : decision.kind === "accepted"
                ? ` ${decision.tail}`
                : "";
          if (`${decision.kind}${detail}` !== expected) expect(decision).toBe(expected);
          const [first, next] = stream.window ?? [0, 0];
          if (next - first !== list.length) expect(next - first).toBe(list.length);
        }
      }),
      { numRuns: 1000 },
    );
  });
});
