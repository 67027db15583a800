// Group commit over a gate: what is decided, what is durable, and who may know of it.
import { describe, expect, test } from "vitest";
import type { Offset, StreamName } from "../core/types.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import { appended, created, ended } from "../../testing/store-case-kit.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import { type StreamAdvance, CommitBatch, GroupCommit } from "./commit.ts";
import { Room } from "./room.ts";
import type { Change } from "../core/change.ts";
import type { Store } from "../store.ts";

const NAME = "/case/1" as StreamName;

interface Bench {
  readonly commit: GroupCommit;
  readonly room: Room;
  readonly landed: CommitBatch[];
  readonly stage: (...changes: readonly Change[]) => CommitBatch;
}

function bench(store: Store): Bench {
  const landed: CommitBatch[] = [];
  const commit = new GroupCommit(store, (batch) => landed.push(batch));
  return {
    commit,
    room: new Room(store.room, commit),
    landed,
    stage(...changes) {
      const batch = commit.begin();
      for (const change of changes) commit.stage(batch, change);
      return batch;
    },
  };
}

function stateIn(store: Store) {
  const state = store.world.streams.get(NAME);
  if (state === undefined) throw new Error("the stream is missing");
  return state;
}

async function gatedBench(): Promise<Bench & { readonly store: GatedStore }> {
  const store = openGatedStore(openMemoryStore());
  const made = bench(store);
  made.stage(created(1));
  await store.arrival();
  await store.release();
  await turn();
  return { ...made, store };
}

test("W1 a staged change is in the world at once, and not yet durable", async () => {
  const { store, commit, stage } = await gatedBench();
  stage(appended(1, "abc"));
  const state = stateIn(store);
  expect([state.tail, commit.durableTail(state)]).toEqual([3, 0]);
  stage(appended(1, "", { closes: true }));
  expect([state.isClosed, commit.isDurablyClosed(state)]).toEqual([true, false]);
  await store.arrival();
  await store.release();
  await turn();
  expect([commit.durableTail(state), commit.isDurablyClosed(state)]).toEqual([3, true]);
});

test("G1 W2 a batch is done when its commit has resolved, and not before", async () => {
  const { store, commit, stage } = await gatedBench();
  const done = watch(stage(appended(1, "abc")).done);
  const settled = watch(commit.settled());
  await store.arrival();
  await turn();
  expect([done.isWaiting, settled.isWaiting]).toEqual([true, true]);
  await store.release();
  await turn();
  expect([done.isWaiting, settled.isWaiting]).toEqual([false, false]);
});

test("W2 what arrives while a batch is being written goes together with the next one", async () => {
  const { store, stage } = await gatedBench();
  stage(appended(1, "first"));
  await store.arrival();
  for (let index = 0; index < 100; index += 1) stage(appended(1, "x"));
  await store.release();
  await store.arrival();
  expect(store.waiting.map((changes) => changes.length)).toEqual([100]);
});

test("W2 the answer about a stream waits for the newest batch that touches it", async () => {
  const { store, commit, stage } = await gatedBench();
  const state = stateIn(store);
  expect(commit.underWay(NAME, state)).toBeUndefined();
  const first = stage(appended(1, "a"));
  expect(commit.underWay(NAME, state)).toBe(first);
  await store.arrival();
  const second = stage(appended(1, "b"));
  expect(second).not.toBe(first);
  expect(commit.underWay(NAME, state)).toBe(second);
  expect(commit.underWay("/case/other" as StreamName, undefined)).toBeUndefined();
  await store.release();
  expect(commit.underWay(NAME, state)).toBe(second);
  await store.arrival();
  await store.release();
  await turn();
  expect(commit.underWay(NAME, state)).toBeUndefined();
});

test("W2 a name is busy from the stage of its creation or removal to their commit", async () => {
  const { store, commit, stage } = await gatedBench();
  const removal = stage(ended("removed", 1));
  expect(commit.lifecycle(NAME)).toBe(removal);
  await store.arrival();
  const creation = stage(created(2, { name: NAME }));
  expect(commit.lifecycle(NAME)).toBe(creation);
  await store.release();
  await turn();
  expect(commit.lifecycle(NAME)).toBe(creation);
  await store.release();
  await turn();
  expect(commit.lifecycle(NAME)).toBeUndefined();
});

describe("a failed commit", () => {
  test.each([1, 2, 3, 4, 5])("W3 at commit %d is the last one that is tried", async (k) => {
    const store = openFaultyStore(openMemoryStore(), { failCommit: k });
    const { commit, room, stage, landed } = bench(store);
    const batches: CommitBatch[] = [];
    for (let index = 0; index < 5; index += 1) {
      try {
        batches.push(index === 0 ? stage(created(1)) : stage(appended(1, "x")));
      } catch (error) {
        expect(error).toBe(commit.stopped);
      }
      await turn();
    }
    const outcomes = await Promise.allSettled(batches.map(({ done }) => done));
    expect(outcomes.map(({ status }) => status)).toEqual(
      outcomes.map((_, index) => (index < k - 1 ? "fulfilled" : "rejected")),
    );
    expect(batches).toHaveLength(k);
    expect(landed).toEqual(batches.slice(0, k - 1));
    expect(store.commits).toBe(k);
    expect(() => commit.begin()).toThrow(expect.objectContaining({ code: "writes_stopped" }));
    expect(() => room.admit(0)).toThrow(expect.objectContaining({ code: "writes_stopped" }));
  });

  // The lock is not freed between the failure and what was queued behind it.
  test("W3 takes every batch that waited behind it with it", async () => {
    const { store, commit, stage, landed } = await gatedBench();
    const full = Array.from({ length: LIMITS.batchChangesMax }, () => appended(1, ""));
    const batches = Array.from({ length: 5 }, () => stage(...full));
    const watched = batches.map(({ done }) => watch(done));
    await store.arrival();
    store.refuse(new Error("no more disk"));
    await turn();
    expect(watched.map(({ isWaiting }) => isWaiting)).toEqual(watched.map(() => false));
    for (const { error } of watched) expect(error).toBe(commit.stopped);
    expect(commit.stopped).toMatchObject({
      code: "writes_stopped",
      cause: { message: "no more disk" },
    });
    expect([landed.length, store.waiting.length]).toEqual([1, 0]);
  });

  test.each([
    ["an object without a prototype", Object.create(null)],
    ["an error whose message throws", hostileError()],
    ["nothing", undefined],
  ])("W3 stops the writes by any reason: %s", async (_, reason) => {
    const store = { ...openMemoryStore(), commit: () => Promise.reject(reason) };
    const { commit, stage } = bench(store);
    const first = stage(created(1));
    await expect(first.done).rejects.toMatchObject({ code: "writes_stopped" });
    expect(commit.stopped?.code).toBe("writes_stopped");
  });

  test("G9 W3 leaves readers at the durable state, for good", async () => {
    const { store, commit, stage } = await gatedBench();
    stage(appended(1, "durable"));
    await store.arrival();
    stage(appended(1, "lost", { closes: true }));
    await store.release();
    await store.arrival();
    store.refuse(new Error("no more disk"));
    await turn();
    const state = stateIn(store);
    expect([commit.durableTail(state), commit.isDurablyClosed(state)]).toEqual([7, false]);
    expect(state.tail).toBe(11);
  });
});

test("W4 readers learn of every byte once, in order, and only after its commit", async () => {
  for (let seed = 0; seed < 100; seed += 1) {
    const random = createSeededRandom(seed);
    const { store, commit, stage, landed } = await gatedBench();
    const state = stateIn(store);
    let text = "";
    for (let step = 0; step < 40; step += 1) {
      if (store.waiting.length > 0 && random.below(3) === 0) await store.release();
      else {
        const piece = "abcdefgh".slice(0, 1 + random.below(8));
        text += piece;
        stage(appended(1, piece));
      }
      if (random.below(2) === 0) await turn();
      const told = landed.flatMap(({ advances }) => [...advances.values()]);
      expect(commit.durableTail(state), `seed ${seed}`).toBe(told.at(-1)?.tail ?? 0);
    }
    store.open();
    await commit.settled();
    const told: StreamAdvance[] = landed.flatMap(({ advances }) => [...advances.values()]);
    let tail = 0;
    for (const advance of told) {
      expect(advance.start, `seed ${seed}`).toBe(tail);
      tail += advance.appends.reduce((sum, append) => sum + append.length, 0);
      expect(advance.tail, `seed ${seed}`).toBe(tail);
    }
    expect(tail, `seed ${seed}`).toBe(text.length);
  }
});

describe("limits", () => {
  test("W2 a batch takes no further step once it has its number of changes", async () => {
    const { store, stage } = await gatedBench();
    stage(appended(1, ""));
    await store.arrival();
    for (let index = 0; index < 2 * LIMITS.batchChangesMax + 5; index += 1)
      stage(ended("touched", 1));
    const sizes: number[] = [];
    for (let count = 0; count < 4; count += 1) {
      await store.arrival();
      sizes.push(store.waiting[0]?.length ?? 0);
      await store.release();
    }
    expect(sizes).toEqual([1, LIMITS.batchChangesMax, LIMITS.batchChangesMax, 5]);
  });

  test("W2 a batch takes no further step once it has its number of bytes", async () => {
    const { store, stage } = await gatedBench();
    stage(appended(1, ""));
    await store.arrival();
    const megabyte = new Uint8Array(1024 * 1024);
    for (let index = 0; index < 20; index += 1) stage(appended(1, megabyte));
    const sizes: number[] = [];
    for (let count = 0; count < 4; count += 1) {
      await store.arrival();
      sizes.push(store.waiting[0]?.length ?? 0);
      await store.release();
    }
    expect(sizes).toEqual([1, 8, 8, 4]);
  });

  test("bytes that wait for the disk are counted, and given back when they are durable", async () => {
    const { store, commit, room, stage } = await gatedBench();
    const data = new Uint8Array(16 * 1024 * 1024);
    while (stateIn(store).tail < LIMITS.pendingBytesMax) {
      room.admit(data.length);
      stage(appended(1, data));
    }
    const refusal = expect.objectContaining({ code: "too_many" });
    expect(() => room.admit(1)).toThrow(refusal);
    expect(() => room.admit(0)).not.toThrow();
    await store.arrival();
    await store.release();
    await turn();
    expect(() => room.admit(data.length)).not.toThrow();
    expect(() => room.admit(data.length + 1)).toThrow(refusal);
    expect(commit.durableTail(stateIn(store))).toBe(data.length as Offset);
  });
});

function hostileError(): Error {
  return Object.defineProperty(new Error("hostile"), "message", {
    get() {
      throw new Error("its message cannot be read");
    },
  });
}
