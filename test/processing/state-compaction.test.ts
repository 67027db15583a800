// A pipeline compacts the changelogs of its state: what is left is the state, at every moment, and it does not grow with
// the changes. Decision 0147
import { afterEach, describe, expect, test } from "vitest";
import type { Connection } from "../../src/client/processing/connection.ts";
import { KeyedState } from "../../src/client/processing/state.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { fill, INPUT, type Numbered, untilDone, valuesOf } from "./pipeline-kit.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

const LOG = "/v1/stream/state";
const OWNER = { group: "g", stream: INPUT, life: "one" };
const { signal } = new AbortController();

const stages: ProcessingStage[] = [];
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()));
});

async function onStage(): Promise<ProcessingStage> {
  const stage = await openStage();
  stages.push(stage);
  return stage;
}

async function restored(hapax: Connection, owner = OWNER): Promise<KeyedState> {
  const state = new KeyedState();
  await state.restore(hapax.stream(LOG), owner, signal, async (offset) => {
    const { offsets } = await hapax.transaction((tx) => {
      tx.expect(LOG, { offset });
      tx.append(LOG, owner);
    });
    return offsets.get(LOG);
  });
  return state;
}

/** Reads a changelog by its description alone. */
async function folded(hapax: Connection): Promise<ReadonlyMap<string, unknown>> {
  const state = new Map<string, unknown>();
  for (const record of await valuesOf<Readonly<Record<string, unknown>>>(hapax, LOG)) {
    if (typeof record["key"] === "string") {
      if (record["value"] === undefined) state.delete(record["key"]);
      else state.set(record["key"], record["value"]);
    } else if (record["continues"] === undefined) state.clear();
  }
  return state;
}

async function bytesOf(hapax: Connection): Promise<number> {
  const { offset, earliestOffset = "_0" } = await hapax.stream(LOG).head();
  const count = (text: string): number => Number(text.split("_")[1]);
  return count(offset) - count(earliestOffset);
}

const keysOf = (state: KeyedState, among: readonly string[]): Map<string, unknown> =>
  new Map(among.filter((key) => state.has(key)).map((key) => [key, state.get(key)]));

const KEYS = Array.from({ length: 60 }, (_, n) => `key ${String(n)} é`);

describe("a changelog", () => {
  test.each([1, 2])(
    "G148 gives the state at every commit, with kills at each step and trims that come late: seed %i",
    async (seed) => {
      const { direct } = await onStage();
      const random = createSeededRandom(seed);
      const model = new Map<string, unknown>();
      const late: string[] = [];
      let trims = 0;
      let state = await restored(direct);
      const kill = async (): Promise<void> => {
        state = await restored(direct);
        expect(keysOf(state, KEYS)).toEqual(model);
      };
      for (let step = 0; step < 800; step += 1) {
        const next = new Map(model);
        for (let n = 1 + random.below(4); n > 0; n -= 1) {
          // A few keys change all the time, and most do seldom.
          const hot = random.below(4) > 0 ? 8 : KEYS.length;
          const key = KEYS[random.below(hot)] ?? "";
          const value = { step, text: "v".repeat(random.below(900)) };
          if (random.below(6) === 0) {
            state.delete(key);
            next.delete(key);
          } else {
            state.set(key, value);
            next.set(key, value);
          }
        }
        state.keep();
        const mayRepeat = random.below(10) > 0;
        // The process ends before it has sent its transaction.
        if (random.below(40) === 0) {
          await kill();
          continue;
        }
        const { offsets } = await direct.transaction((tx) => {
          state.collect(tx, LOG, mayRepeat);
        });
        for (const [key, value] of next) model.set(key, value);
        for (const key of model.keys()) if (!next.has(key)) model.delete(key);
        // It ends before it knows of the answer, or gets an answer without offsets.
        if (random.below(40) === 0) {
          await kill();
          continue;
        }
        state.commit(random.below(20) === 0 ? undefined : offsets.get(LOG));
        await state.trim(async (before) => {
          trims += 1;
          if (random.below(5) === 0) late.push(before);
          else await direct.trim(LOG, before);
          if (random.below(5) === 0) throw new Error("its answer was lost");
        });
        if (random.below(30) === 0) {
          const before = late.pop();
          if (before !== undefined) await direct.trim(LOG, before);
        }
        if (step % 10 === 0) expect(await folded(direct)).toEqual(model);
        if (random.below(40) === 0) await kill();
      }
      await kill();
      expect(trims).toBeGreaterThan(3);
    },
    60_000,
  );

  test("G148 stays within twice its values and a constant, for keys that change alike and keys that seldom do", async () => {
    const { direct } = await onStage();
    for (const hot of [200, 10, 1]) {
      const state = await restored(direct);
      const random = createSeededRandom(hot);
      let largest = 0;
      const values = new Map<string, string>();
      for (let step = 0; step < 1500; step += 1) {
        const key = `k${String(step < 200 ? step : random.below(hot))}`;
        values.set(key, "v".repeat(400 + random.below(200)));
        state.set(key, values.get(key));
        state.keep();
        const { offsets } = await direct.transaction((tx) => {
          state.collect(tx, LOG, true);
        });
        state.commit(offsets.get(LOG));
        await state.trim((before) => direct.trim(LOG, before));
        if (step % 40 === 0) largest = Math.max(largest, await bytesOf(direct));
      }
      const needed = [...values].reduce(
        (sum, [key, text]) => sum + key.length + text.length + 20,
        0,
      );
      expect(needed).toBeGreaterThan(90_000);
      expect(largest).toBeLessThan(2 * needed + 100_000);
      expect(await folded(direct)).toEqual(values);
      await direct.stream(LOG).delete();
    }
  }, 60_000);

  test("G148 grows no more than without it if it cannot be trimmed, and is compacted when it can", async () => {
    const { direct } = await onStage();
    const state = await restored(direct);
    let asked = 0;
    let written = 0;
    const change = async (step: number, isAllowed: boolean): Promise<void> => {
      state.set(`k${String(step % 100)}`, "v".repeat(500));
      written += 525;
      state.keep();
      const { offsets } = await direct.transaction((tx) => {
        state.collect(tx, LOG, true);
      });
      state.commit(offsets.get(LOG));
      await state.trim(async (before) => {
        asked += 1;
        if (!isAllowed) throw new Error("403");
        await direct.trim(LOG, before);
      });
    };
    for (let step = 0; step < 1500; step += 1) await change(step, false);
    expect(asked).toBeLessThan(6);
    expect(await bytesOf(direct)).toBeLessThan(1.3 * written);
    for (let step = 0; step < 3000; step += 1) await change(step, true);
    expect(await bytesOf(direct)).toBeLessThan(250_000);
  }, 60_000);

  test("G148 of a life that is over goes, and the state of the next one begins empty", async () => {
    const { direct } = await onStage();
    let state = await restored(direct);
    const write = async (count: number): Promise<void> => {
      for (let step = 0; step < count; step += 1) {
        state.set(`k${String(step % 50)}`, "v".repeat(1000));
        state.keep();
        const { offsets } = await direct.transaction((tx) => {
          state.collect(tx, LOG, true);
        });
        state.commit(offsets.get(LOG));
        await state.trim((before) => direct.trim(LOG, before));
      }
    };
    await write(400);
    const next = { ...OWNER, life: "two" };
    state = await restored(direct, next);
    expect(state.has("k0")).toBe(false);
    await write(30);
    state = await restored(direct, next);
    expect([state.has("k0"), state.has("k40")]).toEqual([true, false]);
    await write(400);
    expect(await bytesOf(direct)).toBeLessThan(250_000);
    state = await restored(direct, next);
    expect(state.has("k40")).toBe(true);
  }, 60_000);
});

test("G148 a pipeline compacts its changelog, and the next process finds the state", async () => {
  const { direct } = await onStage();
  await fill(direct, INPUT, 2000);
  const counting = (count: number): Promise<void> =>
    untilDone<Numbered>(direct, count, {
      from: { streams: [INPUT] },
      group: "counts",
      batchMax: 5,
      state: { changelog: () => LOG },
      each: ({ n }, { state }) => {
        const key = `key ${String(n % 100)}`;
        const { count: before = 0 } = state.get<{ count: number }>(key) ?? {};
        state.set(key, { count: before + 1, text: "v".repeat(400) });
      },
    }).run();
  await counting(1500);
  await counting(500);
  expect(await bytesOf(direct)).toBeLessThan(250_000);
  const counts = [...(await folded(direct)).values()] as readonly { readonly count: number }[];
  expect(counts.map(({ count }) => count)).toEqual(Array.from({ length: 100 }, () => 20));
}, 60_000);
