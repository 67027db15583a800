// Sessions, keys and If-Match over a store whose commits wait at a gate, and over clocks that are set.
// PROTOCOL.md §12.4, §12.5, §14 to §16, §18
import { afterEach, describe, expect, test } from "vitest";
import type { AppendCommand } from "../core/append.ts";
import type { KeyDefaults, KeyPolicy } from "../core/keys.ts";
import type { Offset, ProducerId, StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import {
  appendCommand,
  createCommand,
  keyClaim,
  producerClaim,
  sessionClaim,
  joinedText,
} from "../../testing/commands.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import type { AppendOutcome } from "./outcomes.ts";

const A = "/a" as StreamName;
const P = "p" as ProducerId;
const HOUR_MS = 3_600_000;
const START_MS = 1_800_000_000_000;

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

interface Bench {
  readonly engine: Engine;
  readonly clock: VirtualClock;
  readonly append: (text: string, parts?: Partial<AppendCommand>) => Promise<AppendOutcome>;
  readonly read: () => Promise<string>;
}

interface Parts {
  readonly startMs?: number;
  readonly keys?: Partial<KeyPolicy>;
  readonly keyDefaults?: KeyDefaults;
}

async function openBench(store: Store = openMemoryStore(), parts: Parts = {}): Promise<Bench> {
  const clock = createVirtualClock(parts.startMs ?? START_MS);
  const jsonRecordsEnd = (): undefined => undefined;
  const { keyDefaults } = parts;
  const defaults = keyDefaults === undefined ? {} : { keyDefaults };
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd, ...defaults });
  opened.push(engine);
  const none = { windowSeconds: undefined, countMax: undefined, overflow: undefined };
  const keys =
    parts.keys === undefined ? undefined : { ...none, isFromContent: false, ...parts.keys };
  if (!engine.world.streams.has(A)) await engine.create(createCommand(A, { keys }));
  return {
    engine,
    clock,
    append: (text, more) => engine.append(A, appendCommand(text, more)),
    async read() {
      const look = await engine.look(A);
      if (look.kind !== "found") return look.kind;
      return joinedText((await engine.read(look.state, 0 as Offset, 1_000_000)).appends);
    },
  };
}

/** The stream is there, and every commit from now on waits. */
async function openGatedBench(parts: Parts = {}): Promise<Bench & { readonly store: GatedStore }> {
  const inner = openMemoryStore();
  await openBench(inner, parts);
  const store = openGatedStore(inner);
  return { ...(await openBench(store, parts)), store };
}

const keyed = (key: string, content = "x"): Partial<AppendCommand> => ({
  key: keyClaim(key, content),
});
const kindOf = async (outcome: Promise<AppendOutcome>): Promise<string> => (await outcome).kind;

/** Twenty equal requests, and the answer to the nineteen that lose. */
const TWINS: readonly [what: string, parts: Partial<AppendCommand>, others: object][] = [
  ["one key", keyed("k"), { kind: "replayed", end: 1 }],
  ["one session", { producer: sessionClaim("p", "s", 0) }, { kind: "duplicate", end: 1 }],
  ["one tail", { expectedTail: 0 as Offset }, { kind: "tail_moved", tail: 1 }],
];

describe("requests that come together", () => {
  test.each(TWINS)(
    "G3 W2 none of 20 with %s is answered before the commit, and one is accepted",
    async (_what, parts, others) => {
      const { append, store, read } = await openGatedBench();
      const sent = Array.from({ length: 20 }, () => watch(append("x", parts)));
      await store.arrival();
      await turn();
      expect(sent.filter(({ isWaiting }) => !isWaiting)).toEqual([]);
      await store.release();
      await turn();
      expect(sent[0]?.value).toMatchObject({ kind: "accepted", tail: 1 });
      for (const { value } of sent.slice(1)) expect(value).toMatchObject(others);
      expect(await read()).toBe("x");
    },
  );

  const refusals: readonly [
    what: string,
    first: Partial<AppendCommand>,
    Partial<AppendCommand>,
    object,
  ][] = [
    ["key_reused", keyed("k", "other"), keyed("k"), { kind: "key_reused" }],
    [
      "gap in a session",
      { producer: sessionClaim("p", "s", 0) },
      { producer: sessionClaim("p", "s", 2) },
      { kind: "gap", expected: 1, received: 2 },
    ],
    [
      "fenced by a session",
      { producer: sessionClaim("p", "s", 0) },
      { producer: producerClaim("p", 0, 1) },
      { kind: "fenced", currentEpoch: 0 },
    ],
    [
      "epoch_exhausted",
      { producer: producerClaim("p", Number.MAX_SAFE_INTEGER, 0) },
      { producer: sessionClaim("p", "s", 0) },
      { kind: "epoch_exhausted" },
    ],
  ];
  test.each(refusals)("G3 %s waits for what it speaks of", async (_what, first, second, told) => {
    const { append, store } = await openGatedBench();
    void append("x", first);
    const refused = watch(append("x", second));
    await store.arrival();
    await turn();
    expect(refused.isWaiting).toBe(true);
    await store.release();
    await turn();
    expect(refused.value).toEqual(told);
  });

  test("G3 a request for a path that an uncommitted stream has taken is answered when that stream is durable", async () => {
    const { engine, store } = await openGatedBench();
    const name = "/new";
    const sent = ["mine", "yours"].map((text) =>
      watch(engine.create(createCommand(name, { isNew: true, text }))),
    );
    await store.arrival();
    await turn();
    expect(sent.map(({ isWaiting }) => isWaiting)).toEqual([true, true]);
    await store.release();
    await turn();
    expect(sent.map(({ value }) => value)).toMatchObject([
      { kind: "created", tail: 4 },
      { kind: "present", tail: 4, isClosed: false },
    ]);
  });

  test("KD1 W2 a failed commit takes the replays of its keys with it", async () => {
    const { append, store, read } = await openGatedBench();
    const sent = [1, 2, 3].map(() => watch(append("x", keyed("k"))));
    await store.arrival();
    store.refuse(new Error("the disk is gone"));
    await turn();
    for (const { error } of sent) expect(error).toMatchObject({ code: "writes_stopped" });
    expect(await read()).toBe("");
  });
});

describe("keys", () => {
  test("KD2 an uncommitted entry is not pushed out; once it is durable, it can be", async () => {
    const { append, store } = await openGatedBench({ keys: { countMax: 2 } });
    const first = ["a", "b"].map((key) => watch(append("x", keyed(key))));
    const full = watch(append("x", keyed("c")));
    const again = watch(append("x", keyed("a")));
    await store.arrival();
    await turn();
    expect([...first, full, again].some(({ isWaiting }) => !isWaiting)).toBe(false);
    await store.release();
    await turn();
    expect(full.value).toEqual({ kind: "key_window_full", retryAfterMs: 0 });
    expect(again.value).toMatchObject({ kind: "replayed", end: 1 });
    store.open();
    expect(await kindOf(append("x", keyed("c")))).toBe("accepted");
    expect(await kindOf(append("x", keyed("b")))).toBe("replayed");
    expect(await kindOf(append("x", keyed("a")))).toBe("accepted");
  });

  test("KD4 a refused append does not consume its key", async () => {
    const { append, read } = await openBench();
    const moved = { ...keyed("k"), expectedTail: 7 as Offset };
    expect(await kindOf(append("x", moved))).toBe("tail_moved");
    expect(await kindOf(append("x", { ...keyed("k"), contentType: "text/html" }))).toBe(
      "content_type_mismatch",
    );
    expect(await kindOf(append("y", keyed("k", "y")))).toBe("accepted");
    expect(await kindOf(append("x", keyed("k")))).toBe("key_reused");
    expect(await read()).toBe("y");
  });

  test("KD1 content is a key where the stream says so", async () => {
    const { engine, append, read } = await openBench(undefined, { keys: { isFromContent: true } });
    expect(engine.isKeyedByContent(A)).toBe(true);
    expect(engine.isKeyedByContent("/b" as StreamName)).toBe(false);
    const content = (text: string): Partial<AppendCommand> => ({
      key: keyClaim(text, text, { isContent: true }),
    });
    const kinds = ["x", "y", "x"].map((text) => kindOf(append(text, content(text))));
    expect(await Promise.all(kinds)).toEqual(["accepted", "accepted", "replayed"]);
    expect(await read()).toBe("xy");
  });

  test("KD2 a stream without options has those of the server", async () => {
    const keyDefaults = { windowSeconds: 1, countMax: 1, overflow: "reject" } as const;
    const { append, clock } = await openBench(undefined, { keyDefaults });
    expect(await kindOf(append("x", keyed("a")))).toBe("accepted");
    expect(await append("x", keyed("b"))).toEqual({ kind: "key_window_full", retryAfterMs: 1000 });
    clock.advance(1000);
    expect(await kindOf(append("x", keyed("b")))).toBe("accepted");
  });
});

// The window is measured by the steady clock.
describe("a wall clock that is set", () => {
  const KEYS = { windowSeconds: 3600 };

  test("G16 KD2 back by an hour or on by two changes no decision about a key", async () => {
    const { append, clock } = await openBench(undefined, { keys: KEYS });
    const timed = (key: string, timeMs: number): Partial<AppendCommand> => ({
      key: keyClaim(key, "x", { timeMs }),
    });
    await append("x", keyed("k"));
    await append("x", timed("born", START_MS));
    for (const jumpMs of [-HOUR_MS, 2 * HOUR_MS, 2 * HOUR_MS, -5 * HOUR_MS]) {
      clock.jump(jumpMs);
      expect(await kindOf(append("x", keyed("k")))).toBe("replayed");
      expect(await kindOf(append("x", timed("born", START_MS)))).toBe("replayed");
      // One that has not come before is as old as it says, by the same clock.
      expect(await kindOf(append("x", timed(`old ${jumpMs}`, START_MS - HOUR_MS)))).toBe(
        "key_expired",
      );
      clock.advance(60_000);
    }
    // An hour of the steady clock, and the thousandth that it may be slower by.
    clock.advance(HOUR_MS - 4 * 60_000 - 5_000);
    expect(await kindOf(append("x", keyed("k")))).toBe("replayed");
    clock.advance(10_000);
    expect(await kindOf(append("x", timed("born", START_MS)))).toBe("key_expired");
    expect(await kindOf(append("x", keyed("k")))).toBe("accepted");
  });

  test("KD2 is believed at a start, but never before the latest stored time", async () => {
    const store = openMemoryStore();
    const before = await openBench(store, { keys: KEYS });
    await before.append("x", keyed("k"));
    before.clock.advance(HOUR_MS / 2);
    await before.append("x", keyed("later"));
    // Engines over the same store stand for restarts: they know only what the store knows.
    const setBack = await openBench(store, { startMs: START_MS - 10 * HOUR_MS });
    expect(await kindOf(setBack.append("x", keyed("k")))).toBe("replayed");
    const setOn = await openBench(store, { startMs: START_MS + HOUR_MS });
    expect(await kindOf(setOn.append("x", keyed("k")))).toBe("accepted");
    expect(await kindOf(setOn.append("x", keyed("later")))).toBe("replayed");
  });
});

describe("an answer about producers", () => {
  test("waits until it is durable: a producer, the list, and a reset", async () => {
    const { engine, append, store } = await openGatedBench();
    void append("one", { producer: sessionClaim("p", "s", 0) });
    const asked = [
      watch<unknown>(engine.producer(A, P)),
      watch<unknown>(engine.producers(A, "", 10)),
    ];
    const reset = watch(engine.resetProducer(A, P));
    const after = [
      watch<unknown>(engine.producer(A, P)),
      watch<unknown>(engine.producers(A, "", 10)),
    ];
    await store.arrival();
    await turn();
    expect([...asked, reset, ...after].some(({ isWaiting }) => !isWaiting)).toBe(false);
    await store.release();
    await turn();
    const view = { id: P, epoch: 0, lastSequence: 0, end: 3, hasSession: true };
    expect(asked.map(({ value }) => value)).toEqual([view, [view]]);
    expect(reset.value).toEqual({ kind: "reset", before: view });
    expect(after.map(({ value }) => value)).toEqual([undefined, []]);
  });

  test("is not told when the commit fails", async () => {
    const { engine, append, store } = await openGatedBench();
    const sent = watch(append("one", { producer: producerClaim("p", 0, 0) }));
    const told = watch(engine.producer(A, P));
    const reset = watch(engine.resetProducer(A, P));
    await store.arrival();
    store.refuse(new Error("the disk is gone"));
    await turn();
    for (const { error } of [sent, told, reset]) {
      expect(error).toMatchObject({ code: "writes_stopped" });
    }
  });

  test("a refusal that a reset has caused waits for the reset", async () => {
    const { engine, append, store } = await openGatedBench();
    const sent = append("one", { producer: sessionClaim("p", "s", 0) });
    await store.arrival();
    await store.release();
    await sent;
    const reset = watch(engine.resetProducer(A, P));
    const fenced = watch(append("two", { producer: sessionClaim("p", "s", 1) }));
    await store.arrival();
    await turn();
    expect([reset.isWaiting, fenced.isWaiting]).toEqual([true, true]);
    await store.release();
    await turn();
    expect(fenced.value).toEqual({ kind: "fenced", currentEpoch: 0 });
  });

  test("names the last append of each, in the order of the ids, a page at a time", async () => {
    const { engine, append } = await openBench();
    for (const id of ["c", "a", "d", "b"]) {
      await append(id, { producer: producerClaim(id, 2, 0) });
    }
    await append("more", { producer: producerClaim("b", 2, 1) });
    await append("again", { producer: sessionClaim("c", "s", 0) });
    await engine.resetProducer(A, "d" as ProducerId);
    const page = async (after: string, count: number): Promise<unknown> => {
      const told = await engine.producers(A, after, count);
      return "kind" in told ? told.kind : told.map((view) => Object.values(view));
    };
    expect(await page("", 2)).toEqual([
      ["a", 2, 0, 2, false],
      ["b", 2, 1, 8, false],
    ]);
    expect(await page("b", 2)).toEqual([["c", 3, 0, 13, true]]);
    expect(await page("c", 2)).toEqual([]);
    expect(await engine.producer(A, "unknown" as ProducerId)).toBeUndefined();
    expect(await engine.producer("/b" as StreamName, P)).toBeUndefined();
  });

  test("says of streams and producers that are not there that they are not", async () => {
    const { engine, append } = await openBench();
    const missing = "/b" as StreamName;
    expect(await engine.producers(missing, "", 10)).toEqual({ kind: "missing" });
    expect(await engine.resetProducer(missing, P)).toEqual({ kind: "missing" });
    expect(await engine.resetProducer(A, P)).toEqual({ kind: "producer_missing" });
    await append("x", { producer: producerClaim("p", 0, 0) });
    const fork = { sourceName: A, anchor: undefined, subOffset: 0 };
    await engine.create(createCommand("/fork", { fork }));
    await engine.delete(A);
    expect(await engine.producers(A, "", 10)).toEqual({ kind: "gone" });
    expect(await engine.resetProducer(A, P)).toEqual({ kind: "gone" });
  });
});

describe("a reset", () => {
  test("P5 makes room after the last epoch, and leaves sessions fenced", async () => {
    const { engine, append, read } = await openBench();
    const session = (nonce: string, sequence: number): Partial<AppendCommand> => ({
      producer: sessionClaim("p", nonce, sequence),
    });
    await append("a", session("s", 0));
    await append("b", { producer: producerClaim("p", Number.MAX_SAFE_INTEGER, 0) });
    expect(await kindOf(append("x", session("t", 0)))).toBe("epoch_exhausted");
    expect(await engine.resetProducer(A, P)).toMatchObject({
      kind: "reset",
      before: { epoch: Number.MAX_SAFE_INTEGER, lastSequence: 0, end: 2, hasSession: false },
    });
    expect(await engine.resetProducer(A, P)).toEqual({ kind: "producer_missing" });
    expect(await kindOf(append("x", session("s", 0)))).toBe("fenced");
    expect(await kindOf(append("c", session("t", 0)))).toBe("accepted");
    expect(await kindOf(append("c", session("t", 0)))).toBe("duplicate");
    await engine.resetProducer(A, P);
    expect(await kindOf(append("x", session("t", 1)))).toBe("fenced");
    expect(await kindOf(append("d", { producer: producerClaim("p", 0, 0) }))).toBe("accepted");
    expect(await read()).toBe("abcd");
  });
});
