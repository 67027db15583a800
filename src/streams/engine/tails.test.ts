import { describe, expect, test } from "vitest";
import type { StreamState } from "../core/stream.ts";
import type { Offset, StreamId, StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand, joinedText } from "../../testing/commands.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { turn } from "../../../test/kits/watch.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { StreamAdvance } from "./commit.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import { type TailEvent, Tails } from "./tails.ts";

const A = "/a" as StreamName;
const ONE = 1 as StreamId;

function advanceOf(stream: number): StreamAdvance {
  const zero = 0 as Offset;
  const rest = { isClosed: false, isGone: false, appends: [] };
  return { stream: stream as StreamId, start: zero, tail: zero, ...rest };
}

/** A clock whose turns a test takes one by one. */
function steppedClock() {
  const turns: (() => void)[] = [];
  const after = (_: number, run: () => void) => {
    turns.push(run);
    return () => undefined;
  };
  return { clock: { ...createVirtualClock(), after }, turns };
}

describe("the list of readers", () => {
  test("tells each reader of a stream once, and those of other streams nothing", () => {
    const tails = new Tails(createVirtualClock(), () => undefined);
    const told: string[] = [];
    tails.listen(ONE, () => told.push("one"));
    tails.listen(ONE, () => told.push("two"));
    tails.listen(2 as StreamId, () => told.push("other"));
    tails.publish([advanceOf(1)]);
    tails.publish([advanceOf(3)]);
    expect(told).toEqual(["one", "two"]);
  });

  test("a reader that leaves, also twice, receives nothing more and leaves nothing behind", () => {
    const tails = new Tails(createVirtualClock(), () => undefined);
    const told: string[] = [];
    const leave = tails.listen(ONE, () => told.push("left"));
    tails.listen(ONE, () => told.push("stays"));
    expect(tails.count).toBe(2);
    leave();
    leave();
    expect([tails.count, tails.hasListeners(ONE)]).toEqual([1, true]);
    tails.publish([advanceOf(1)]);
    expect(told).toEqual(["stays"]);
  });

  test("readers may leave and come while an append is delivered", () => {
    const tails = new Tails(createVirtualClock(), () => undefined);
    const told: string[] = [];
    const leave = tails.listen(ONE, () => {
      told.push("first");
      leave();
      tails.listen(ONE, () => told.push("late"));
    });
    tails.listen(ONE, () => told.push("second"));
    tails.publish([advanceOf(1)]);
    expect(told).toEqual(["first", "second"]);
    tails.publish([advanceOf(1)]);
    expect(told).toEqual(["first", "second", "second", "late"]);
    expect([tails.count, tails.hasListeners(2 as StreamId)]).toEqual([2, false]);
  });

  test("one turn tells as many as its bytes allow, and the others follow in order", () => {
    const { clock, turns } = steppedClock();
    const tails = new Tails(clock, () => undefined);
    const told: string[] = [];
    for (let index = 0; index < 40; index += 1) {
      tails.listen(ONE, ({ tail }) => told.push(`${tail}:${index}`));
    }
    const appends: [Uint8Array] = [new Uint8Array(256 * 1024)];
    const from = (start: number): StreamAdvance => ({
      ...advanceOf(1),
      start: start as Offset,
      tail: (start + 1) as Offset,
      appends,
    });
    tails.publish([from(0)]);
    const perTurn = told.length;
    expect(perTurn).toBeLessThanOrEqual(LIMITS.turnBytesMax / appends[0].length);
    expect(perTurn).toBeGreaterThan(1);
    // An append that comes meanwhile waits for its turn. A reader that leaves meanwhile receives nothing more.
    tails.publish([from(1)]);
    expect(told.length).toBe(perTurn);
    for (let count = 2, next = turns.shift(); next !== undefined; count += 1) {
      next();
      expect(told.length).toBeLessThanOrEqual(count * perTurn);
      next = turns.shift();
    }
    const everybody = Array.from({ length: 40 }, (_, index) => index);
    expect(told).toEqual([1, 2].flatMap((tail) => everybody.map((index) => `${tail}:${index}`)));
  });

  test("a reader that leaves before its turn receives nothing more", () => {
    const { clock, turns } = steppedClock();
    const tails = new Tails(clock, () => undefined);
    const told: number[] = [];
    const leaves = Array.from({ length: 40 }, (_, index) =>
      tails.listen(ONE, () => told.push(index)),
    );
    tails.publish([{ ...advanceOf(1), appends: [new Uint8Array(1024 * 1024)] }]);
    const soFar = told.length;
    for (const leave of leaves.slice(soFar)) leave();
    for (let next = turns.shift(); next !== undefined; next = turns.shift()) next();
    expect(told.length).toBe(soFar);
  });

  test("appends that come faster than readers take them are not kept: readers read the store instead", () => {
    const { clock, turns } = steppedClock();
    const tails = new Tails(clock, () => undefined);
    const events = new Set<TailEvent>();
    for (let index = 0; index < 100; index += 1) tails.listen(ONE, (event) => events.add(event));
    const bytes = 1024 * 1024;
    for (let index = 0; index < 100; index += 1) {
      const [start, tail] = [(index * bytes) as Offset, ((index + 1) * bytes) as Offset];
      tails.publish([{ ...advanceOf(1), start, tail, appends: [new Uint8Array(bytes)] }]);
    }
    for (let next = turns.shift(); next !== undefined; next = turns.shift()) next();
    const whole = [...events].filter(({ appends }) => appends.length > 0);
    // One telling sends them there for all that comes until its turn.
    expect(events.size).toBeLessThanOrEqual(whole.length + 2);
    expect(whole.length).toBeLessThanOrEqual(LIMITS.tellingBytesMax / bytes);
    // No reader can stand where such an event begins, and each learns the newest tail.
    for (const { appends, start } of events) expect(appends.length === 0).toBe(start < 0);
    expect(Math.max(...[...events].map(({ tail }) => tail))).toBe(100 * bytes);
  });

  test("so are small ones, when each of very many readers has to be remembered for each of them", () => {
    const { clock, turns } = steppedClock();
    const tails = new Tails(clock, () => undefined);
    const events = new Set<TailEvent>();
    let last: TailEvent | undefined;
    const readers = 5000;
    for (let index = 0; index < readers; index += 1) {
      tails.listen(ONE, (event) => {
        events.add(event);
        last = event;
      });
    }
    for (let index = 0; index < 1000; index += 1) {
      const [start, tail] = [index as Offset, (index + 1) as Offset];
      tails.publish([{ ...advanceOf(1), start, tail, appends: [new Uint8Array(1)] }]);
    }
    tails.publish([{ ...advanceOf(1), isGone: true }]);
    for (let next = turns.shift(); next !== undefined; next = turns.shift()) next();
    expect(events.size).toBeLessThanOrEqual(LIMITS.tellingBytesMax / (8 * readers) + 2);
    expect(last?.isGone).toBe(true);
  });

  test("readers of other streams do not wait for all that one stream has to tell", () => {
    const { clock, turns } = steppedClock();
    const tails = new Tails(clock, () => undefined);
    const told: number[] = [];
    for (let index = 0; index < 100; index += 1) tails.listen(ONE, () => undefined);
    tails.listen(2 as StreamId, ({ tail }) => told.push(tail));
    for (let index = 1; index <= 10; index += 1) {
      tails.publish([{ ...advanceOf(1), appends: [new Uint8Array(1024 * 1024)] }]);
      tails.publish([{ ...advanceOf(2), tail: index as Offset }]);
    }
    let count = 0;
    for (; told.length < 10; count += 1) turns.shift()?.();
    expect(told).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(count).toBeLessThanOrEqual(20);
  });
});

async function openEngine(): Promise<{ engine: Engine; store: GatedStore; state: StreamState }> {
  const store = openGatedStore(openMemoryStore());
  const engine = new WholeEngine({
    store,
    clock: createVirtualClock(),
    jsonRecordsEnd: () => undefined,
  });
  const creation = engine.create(createCommand(A));
  await store.arrival();
  await store.release();
  await creation;
  const state = engine.world.streams.get(A);
  if (state === undefined) throw new Error("the stream is missing");
  return { engine, store, state };
}

test("G10 W4 every reader receives all durable data in order without holes, in 300 schedules", async () => {
  for (let seed = 0; seed < 300; seed += 1) {
    const random = createSeededRandom(seed);
    const { engine, store, state } = await openEngine();
    const readers: { from: number; events: TailEvent[] }[] = [];
    let text = "";
    for (let step = 0; step < 30; step += 1) {
      const choice = random.below(4);
      if (choice === 0) {
        const events: TailEvent[] = [];
        engine.listen(state, (event) => {
          expect(event.tail, `seed ${seed}`).toBe(engine.durableTail(state));
          events.push(event);
        });
        // The look at the tail and the registration are one synchronous step.
        readers.push({ from: engine.durableTail(state), events });
      } else if (choice === 1 && store.waiting.length > 0) await store.release();
      else {
        text += step;
        void engine.append(A, appendCommand(`${step}`));
      }
      if (random.below(2) === 0) await turn();
    }
    store.open();
    await engine.append(A, appendCommand("", { closes: true }));
    for (const { from, events } of readers) {
      const told = events.flatMap(({ appends }) => appends);
      expect(joinedText(told), `seed ${seed}`).toBe(text.slice(from));
      let tail = from;
      for (const event of events) {
        expect(event.start, `seed ${seed}`).toBe(tail);
        ({ tail } = event);
      }
      expect(events.map(({ isClosed }) => isClosed).indexOf(true)).toBe(events.length - 1);
    }
    await engine.close();
  }
});

/** A reader as long-poll does it: look, then either answer or wait to be told. */
function nextTail(engine: Engine, state: StreamState, from: Offset): Promise<Offset> {
  const { tail } = engine.view(state);
  if (tail > from) return Promise.resolve(tail);
  return new Promise((resolve) => {
    const leave = engine.listen(state, (event) => {
      leave();
      resolve(event.tail);
    });
  });
}

test("no schedule of looks, appends and commits loses a wake-up", async () => {
  for (let seed = 0; seed < 500; seed += 1) {
    const random = createSeededRandom(seed);
    const { engine, store, state } = await openEngine();
    let seen = 0 as Offset;
    const follow = async (): Promise<void> => {
      while (seen < 20) {
        const look = await engine.look(A);
        if (look.kind !== "found") throw new Error("the stream is missing");
        // Between the look above and the wait below other requests run.
        for (let pause = random.below(3); pause > 0; pause -= 1) await Promise.resolve();
        seen = await nextTail(engine, state, seen);
      }
    };
    const following = follow();
    for (let sent = 0; sent < 20;) {
      if (store.waiting.length > 0 && random.below(2) === 0) await store.release();
      else {
        sent += 1;
        void engine.append(A, appendCommand("x"));
      }
      for (let pause = random.below(4); pause > 0; pause -= 1) await Promise.resolve();
    }
    store.open();
    await engine.settled();
    await turn();
    expect([seed, seen]).toEqual([seed, 20]);
    await following;
    expect(engine.liveReaders).toBe(0);
    await engine.close();
  }
});

test("G4 W4 looks, reads and lists stay at the durable state until a write is committed", async () => {
  const { engine, store, state } = await openEngine();
  const textNow = async (): Promise<string> =>
    joinedText((await engine.read(state, 0 as Offset, 1000)).appends);
  void engine.append(A, appendCommand("durable"));
  await store.arrival();
  await store.release();
  void engine.append(A, appendCommand("+flight", { closes: true }));
  void engine.create(createCommand("/b"));
  await store.arrival();
  expect(await engine.look(A)).toMatchObject({ tail: 7, isClosed: false });
  expect(await textNow()).toBe("durable");
  expect(engine.list("", "", 9).found).toMatchObject([{ tail: 7, isClosed: false }]);
  await store.release();
  await turn();
  expect(await engine.look(A)).toMatchObject({ tail: 14, isClosed: true });
  expect(await textNow()).toBe("durable+flight");
  const listed = (...query: Parameters<Engine["list"]>): string[] =>
    engine.list(...query).found.map(({ state }) => state.name);
  expect(listed("", "", 9)).toEqual(["/a", "/b"]);
  expect([listed("", "/a", 9), listed("/b", "", 9), listed("", "", 1)]).toEqual([
    ["/b"],
    ["/b"],
    ["/a"],
  ]);
  await engine.close();
});

test("W4 a reader learns that its stream has gone when that is durable", async () => {
  const { engine, store, state } = await openEngine();
  const told: boolean[] = [];
  engine.listen(state, ({ isGone }) => told.push(isGone));
  void engine.delete(A);
  await store.arrival();
  await turn();
  expect(told).toEqual([]);
  await store.release();
  await turn();
  expect(told).toEqual([true]);
  await engine.close();
});
