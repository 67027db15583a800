// Named alarms on the one alarm of an object, in a real workerd: thrown, lost, late, early, twice, and over crashes.
import { afterAll, beforeAll, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { eventually, type ShopStage, startShop } from "./shop-stage.ts";

const reason = whyNoWorkerd();
const HOUR_MS = 3_600_000;
let stage: ShopStage;

beforeAll(async () => {
  if (reason === undefined) stage = await startShop();
}, 60_000);

afterAll(() => stage.stop());

const inWorkerd = (name: string, run: () => Promise<void>): void => {
  test(name, { timeout: 120_000 }, async (context) => {
    requirePart(context, reason === undefined ? "workerd" : undefined, reason ?? "");
    await run();
  });
};

const countOf = async (name: string): Promise<number> => (await stage.effects(name)).length;

/** Until an object has done so many things; then a moment longer, in which there must be no more. */
async function expectCount(name: string, count: number): Promise<void> {
  await eventually(
    () => countOf(name),
    (seen) => {
      expect(seen).toBe(count);
    },
    60_000,
  );
  await stage.shop(name).json("/fire");
  expect(await countOf(name)).toBe(count);
}

inWorkerd("G67 work that throws seven times is tried again, and counts once", async () => {
  const object = stage.shop("seven");
  await object.json("/fail", { n: 7 });
  await object.json("/set", { id: "tick", ms: 0 });
  await expectCount("seven", 1);
  expect(await object.json("/metrics")).toMatchObject({ alarmsFailed: 7 });
  const { named } = await object.json<Alarms>("/alarms");
  expect(named.map(([name]) => name)).not.toContain("tick");
});

inWorkerd(
  "G67 an alarm that was deleted behind the object's back comes back at the next wake",
  async () => {
    const object = stage.shop("deleted");
    const lose = async (): Promise<void> => {
      await object.json("/loseAlarm");
      expect(await object.json("/alarms")).toMatchObject({ platform: null });
      await object.evict();
      await object.json("/life");
    };
    await object.json("/set", { id: "tick", ms: 60_000 });
    await lose();
    const { named, platform } = await object.json<Alarms>("/alarms");
    expect(platform).toBe(new Map(named).get("tick"));
    await object.json("/set", { id: "tick", ms: 300 });
    await lose();
    await expectCount("deleted", 1);
  },
);

inWorkerd("G67 an alarm that fires an hour late runs once, also one that repeats", async () => {
  const object = stage.shop("late");
  await object.json("/set", { id: "tick", ms: HOUR_MS });
  await object.json("/every", { id: "beat", ms: 60_000 });
  await object.json("/back", { id: "tick", ms: 2 * HOUR_MS });
  await object.json("/back", { id: "beat", ms: HOUR_MS });
  await object.json("/fire");
  await object.json("/fire");
  const effects = await stage.effects("late");
  expect(effects.map((effect) => effect.replace(/\d{10,}/, "T"))).toEqual([
    "tick T",
    "beat, missed 59",
  ]);
  const { named } = await object.json<Alarms>("/alarms");
  const [beat] = named.filter(([name]) => name === "beat");
  expect(beat?.[1]).toBeGreaterThan(Date.now());
  expect(await object.json("/metrics")).toMatchObject({ alarmsLate: 2 });
});

inWorkerd("G67 an alarm that fires early or twice does nothing, and stays set", async () => {
  const object = stage.shop("early");
  await object.json("/set", { id: "tick", ms: 700 });
  await object.json("/fire");
  await object.json("/fire");
  expect(await countOf("early")).toBe(0);
  expect(await object.json("/alarms")).toMatchObject({ platform: expect.any(Number) as number });
  await expectCount("early", 1);
});

inWorkerd(
  "G67 wakes do not move an alarm: it fires at its time, however often the object wakes",
  async () => {
    const object = stage.shop("wakes");
    await object.json("/set", { id: "tick", ms: 600 });
    const { platform } = await object.json<Alarms>("/alarms");
    for (let wake = 0; wake < 3; wake += 1) {
      await object.evict();
      expect((await object.json<Alarms>("/alarms")).platform ?? platform).toBe(platform);
    }
    await expectCount("wakes", 1);
  },
);

inWorkerd(
  "G67 work that awaits, and is lost between its effect and its end, counts once by its identity",
  async () => {
    const object = stage.shop("between");
    // The effect is committed; the note that the alarm has ended is not.
    await object.json("/set", { id: "call", ms: 0, stop: "object.committed" });
    await stage.stopped("object.committed");
    await stage.host.restart();
    await expectCount("between", 1);
  },
);

inWorkerd("G67 many names share the one alarm of the object, over a crash", async () => {
  const object = stage.shop("many");
  for (const [id, ms] of [
    ["tick", 400],
    ["beat", 100],
    ["call", 250],
  ] as const)
    await object.json("/set", { id, ms });
  await stage.host.restart();
  await expectCount("many", 3);
});

interface Alarms {
  readonly named: readonly (readonly [string, number])[];
  readonly platform: number | null;
}
