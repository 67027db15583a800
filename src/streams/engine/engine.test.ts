// The engine over a store whose commits wait at a gate: every answer is asked for while the state that it
// speaks of is still on its way to the disk. PROTOCOL.md §2, §6
import { afterEach, describe, expect, test } from "vitest";
import type { AppendCommand } from "../core/append.ts";
import type { CreateCommand } from "../core/create.ts";
import type { Offset, StreamName } from "../core/types.ts";
import { isHapaxError } from "../../base/errors.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import { appendCommand, createCommand, producerClaim, joinedText } from "../../testing/commands.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";

const A = "/a" as StreamName;
const B = "/b" as StreamName;
const FORK_OF_A = { sourceName: A, anchor: undefined, subOffset: 0 };

interface Bench {
  readonly engine: Engine;
  readonly clock: VirtualClock;
  append(text: string, parts?: Parameters<typeof appendCommand>[1]): Promise<{ kind: string }>;
  create(name: string, parts?: Parameters<typeof createCommand>[1]): Promise<{ kind: string }>;
  /** The text that a reader gets of a stream, from its start. */
  read(name: StreamName): Promise<string>;
}

function bench(store: Store): Bench {
  const clock = createVirtualClock(1_000_000);
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  return {
    engine,
    clock,
    append: async (text, parts) => engine.append(A, appendCommand(text, parts)),
    create: async (name, parts) => engine.create(createCommand(name, parts)),
    async read(name) {
      const look = await engine.look(name);
      if (look.kind !== "found") return look.kind;
      return joinedText((await engine.read(look.state, 0 as Offset, 1_000_000)).appends);
    },
  };
}

interface GatedBench extends Bench {
  readonly store: GatedStore;
  /** Lets commits through until the promise settles. */
  durably<T>(promise: Promise<T>): Promise<T>;
}

function gatedBench(inner: Store = openMemoryStore()): GatedBench {
  const store = openGatedStore(inner);
  async function durably<T>(promise: Promise<T>): Promise<T> {
    const watched = watch(promise);
    for (await turn(); watched.isWaiting; await turn()) await store.release();
    return promise;
  }
  return { ...bench(store), store, durably };
}

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

type Ask = (bench: GatedBench) => Promise<{ kind: string }>;
const claimed = (epoch: number, sequence: number): Partial<AppendCommand> => ({
  producer: producerClaim("p", epoch, sequence),
});
const append =
  (text: string, parts: Partial<AppendCommand> = {}): Ask =>
  ({ engine }) =>
    engine.append(A, appendCommand(text, parts));
const create =
  (name: string, parts: Parameters<typeof createCommand>[1] = {}): Ask =>
  ({ engine }) =>
    engine.create(createCommand(name, parts));
const remove =
  (name: StreamName): Ask =>
  ({ engine }) =>
    engine.delete(name);
const forkOfA: Partial<CreateCommand> = { fork: FORK_OF_A };

/** What is durable, what is decided but not committed, what is then asked, and what must be answered after the commit. */
const WAITING: readonly [
  title: string,
  durable: readonly Ask[],
  inFlight: Ask,
  asked: Ask,
  answer: object,
][] = [
  [
    "W2 accepted behind an append",
    [create(A)],
    append("x"),
    append("y"),
    { kind: "accepted", tail: 2 },
  ],
  [
    "W2 duplicate of an uncommitted original",
    [create(A)],
    append("x", claimed(0, 0)),
    append("x", claimed(0, 0)),
    { kind: "duplicate", end: 1 },
  ],
  [
    "gap after an uncommitted sequence",
    [create(A)],
    append("x", claimed(0, 0)),
    append("z", claimed(0, 2)),
    { kind: "gap", expected: 1, received: 2 },
  ],
  [
    "fenced by an uncommitted epoch",
    [create(A), append("x", claimed(0, 0))],
    append("y", claimed(1, 0)),
    append("z", claimed(0, 1)),
    { kind: "fenced", currentEpoch: 1 },
  ],
  [
    "epoch_start behind an uncommitted epoch",
    [create(A)],
    append("x", claimed(0, 0)),
    append("y", claimed(1, 7)),
    { kind: "epoch_start", received: 7 },
  ],
  [
    "conflict with an uncommitted Stream-Seq",
    [create(A)],
    append("x", { streamSeq: "b" }),
    append("y", { streamSeq: "a" }),
    { kind: "sequence_regression", last: "b" },
  ],
  [
    "conflict with the type of a stream that is being created",
    [],
    create(A),
    append("y", { contentType: "text/html" }),
    { kind: "content_type_mismatch" },
  ],
  [
    "closed by an uncommitted close",
    [create(A)],
    append("x", { closes: true }),
    append("y"),
    { kind: "closed", tail: 1 },
  ],
  [
    "closing again behind an uncommitted close",
    [create(A)],
    append("", { closes: true }),
    append("", { closes: true }),
    { kind: "already_closed" },
  ],
  [
    "missing after an uncommitted delete, for an append",
    [create(A)],
    remove(A),
    append("x"),
    { kind: "missing" },
  ],
  [
    "missing after an uncommitted delete, for a delete",
    [create(A)],
    remove(A),
    remove(A),
    { kind: "missing" },
  ],
  [
    "missing after an uncommitted delete, for a look",
    [create(A)],
    remove(A),
    ({ engine }) => engine.look(A),
    { kind: "missing" },
  ],
  [
    "gone after an uncommitted soft delete",
    [create(A), create(B, forkOfA)],
    remove(A),
    append("x"),
    { kind: "gone" },
  ],
  ["exists, of a stream that is being created", [], create(A), create(A), { kind: "exists" }],
  [
    "exists, of a stream that is being written",
    [create(A)],
    append("x"),
    create(A),
    { kind: "exists" },
  ],
  [
    "conflict with a stream that is being created",
    [],
    create(A),
    create(A, { isClosed: true }),
    { kind: "conflict" },
  ],
  [
    "in_use after an uncommitted soft delete",
    [create(A), create(B, forkOfA)],
    remove(A),
    create(A),
    { kind: "in_use" },
  ],
  [
    "source_missing after an uncommitted delete",
    [create(A)],
    remove(A),
    create(B, forkOfA),
    { kind: "source_missing" },
  ],
  [
    "source_deleted after an uncommitted soft delete",
    [create(A), create("/c", forkOfA)],
    remove(A),
    create(B, forkOfA),
    { kind: "source_deleted" },
  ],
  [
    "a look at a stream that is being created",
    [],
    create(A, { text: "body" }),
    ({ engine }) => engine.look(A),
    { kind: "found", tail: 4 },
  ],
];

describe("an answer waits for the state it speaks of", () => {
  test.each(WAITING)("%s", async (_title, durable, inFlight, asked, answer) => {
    const gated = gatedBench();
    opened.push(gated.engine);
    for (const step of durable) await gated.durably(step(gated));
    const first = watch(inFlight(gated));
    await gated.store.arrival();
    const second = watch(asked(gated));
    await turn();
    await turn();
    expect([first.isWaiting, second.isWaiting]).toEqual([true, true]);
    while (gated.store.waiting.length > 0) {
      await gated.store.release();
      await turn();
    }
    expect(second.error).toBeUndefined();
    expect(second.value).toMatchObject(answer);
  });

  test.each(WAITING)("%s, and fails with it", async (_title, durable, inFlight, asked) => {
    const gated = gatedBench();
    opened.push(gated.engine);
    for (const step of durable) await gated.durably(step(gated));
    const first = watch(inFlight(gated));
    await gated.store.arrival();
    const second = watch(asked(gated));
    gated.store.refuse(new Error("no more disk"));
    await turn();
    expect(isHapaxError(first.error, "writes_stopped")).toBe(true);
    expect(isHapaxError(second.error, "writes_stopped")).toBe(true);
  });

  // A proxy that repeats a request must not be told "stored" before it is.
  test("G3 W2 none of 20 identical requests is answered before the commit, and one is accepted", async () => {
    const gated = gatedBench();
    opened.push(gated.engine);
    await gated.durably(gated.create(A));
    const answers = Array.from({ length: 20 }, () => watch(gated.append("x", claimed(0, 0))));
    await gated.store.arrival();
    await turn();
    expect(answers.every(({ isWaiting }) => isWaiting)).toBe(true);
    await gated.store.release();
    await turn();
    expect(answers.map(({ value }) => value?.kind)).toEqual([
      "accepted",
      ...answers.slice(1).map(() => "duplicate"),
    ]);
    expect(await gated.read(A)).toBe("x");
  });
});

// A tail that is read and written in two steps gives one offset to many.
test("G6 W1 1,000 concurrent appends get 1,000 distinct consecutive offsets", async () => {
  const made = bench(openMemoryStore());
  opened.push(made.engine);
  await made.create(A);
  const outcomes = await Promise.all(
    Array.from({ length: 1000 }, () => made.engine.append(A, appendCommand("x"))),
  );
  const tails = outcomes.map((outcome) => ("tail" in outcome ? outcome.tail : -1));
  expect(tails).toEqual(tails.map((_, index) => index + 1));
});

describe("a failed commit", () => {
  const STEPS = 6;

  // For every k: an answer that says "stored" is true, and no other answer follows it.
  test.each(
    Array.from({ length: STEPS }, (_, index) => index + 1).flatMap((k) => [
      [k, false] as const,
      [k, true] as const,
    ]),
  )("W3 at commit %d (written all the same: %s) is never a success", async (k, isWritten) => {
    const store = openFaultyStore(openMemoryStore(), { failCommit: k, isWritten });
    const made = bench(store);
    opened.push(made.engine);
    let stored = "";
    for (let index = 0; index < STEPS; index += 1) {
      const outcome = watch(
        index === 0 ? made.create(A) : made.append(`${index};`, claimed(0, index - 1)),
      );
      await turn();
      expect(outcome.isWaiting).toBe(false);
      if (index < k - 1) {
        expect(outcome.value?.kind).toBe(index === 0 ? "created" : "accepted");
        if (index > 0) stored += `${index};`;
      } else {
        expect(isHapaxError(outcome.error, "writes_stopped")).toBe(true);
      }
    }
    expect(store.commits).toBe(k);
    if (k > 1) expect(await made.read(A)).toBe(stored);
    else await expect(made.read(A)).rejects.toMatchObject({ code: "writes_stopped" });
    const retry = made.append("1;", claimed(0, 0));
    await expect(retry).rejects.toMatchObject({ code: "writes_stopped" });
    await expect(made.create(B)).rejects.toMatchObject({ code: "writes_stopped" });
    expect(made.engine.stopped).toBeDefined();
  });

  test("W3 takes the four appends that were queued behind it with it", async () => {
    const gated = gatedBench();
    opened.push(gated.engine);
    await gated.durably(gated.create(A));
    const first = watch(gated.append("0", claimed(0, 0)));
    await gated.store.arrival();
    const queued = [1, 2, 3, 4].map((sequence) =>
      watch(gated.append(`${sequence}`, claimed(0, sequence))),
    );
    const events: unknown[] = [];
    const look = await gated.engine.look(A);
    if (look.kind === "found") gated.engine.listen(look.state, (event) => events.push(event));
    gated.store.refuse(new Error("no more disk"));
    await turn();
    for (const { error } of [first, ...queued]) {
      expect(isHapaxError(error, "writes_stopped")).toBe(true);
    }
    expect([gated.store.waiting.length, events.length]).toEqual([0, 0]);
    expect(await gated.read(A)).toBe("");
  });

  test("W3 a failed read is the reader's alone: writes and other reads go on", async () => {
    const store = openFaultyStore(openMemoryStore());
    const made = bench(store);
    opened.push(made.engine);
    await made.create(A, { text: "x" });
    store.failNextRead();
    await expect(made.read(A)).rejects.toThrow("on purpose");
    expect((await made.append("y")).kind).toBe("accepted");
    expect(await made.read(A)).toBe("xy");
  });
});

describe("a full store", () => {
  test("W1 is refused before anything is decided, loses nothing and recovers by itself", async () => {
    const gated = gatedBench(openMemoryStore({ bytesMax: 10 }));
    opened.push(gated.engine);
    await gated.durably(gated.create(A));
    await gated.durably(gated.create(B, { text: "1234" }));
    const first = watch(gated.append("56", claimed(0, 0)));
    await gated.store.arrival();
    // Bytes that are not committed yet take room too.
    const refused = gated.append("789AB", claimed(0, 1));
    await expect(refused).rejects.toMatchObject({ code: "store_full" });
    await expect(gated.create("/c", { text: "789AB" })).rejects.toMatchObject({
      code: "store_full",
    });
    await gated.store.release();
    await turn();
    expect(first.value?.kind).toBe("accepted");
    await gated.durably(gated.engine.delete(B));
    expect(await gated.durably(gated.append("789AB", claimed(0, 1)))).toMatchObject({
      kind: "accepted",
      tail: 7,
    });
    expect(await gated.read(A)).toBe("56789AB");
  });

  test("W1 a close, which has no bytes, is still possible", async () => {
    const made = bench(openMemoryStore({ bytesMax: 2 }));
    opened.push(made.engine);
    await made.create(A, { text: "ab" });
    expect((await made.append("", { closes: true })).kind).toBe("accepted");
  });
});
