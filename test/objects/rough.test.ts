// Objects that are treated roughly, in a real workerd: imports that meet, exports of strangers, a storage that is emptied, many alarms,
// slow ones, rows that are refused after the work.
import { afterAll, beforeAll, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import {
  type ObjectsHost,
  startObjects,
  startStops,
  type Stops,
  type TestObject,
  whyNoWorkerd,
} from "../kits/workerd-objects.ts";
import {
  encodeChunk,
  hashOfChunk,
  NO_CHUNK,
} from "../../src/toolkit/durable-object/export-format.ts";
import { eventually } from "./shop-stage.ts";

const reason = whyNoWorkerd();
let host: ObjectsHost;
let stops: Stops;

beforeAll(async () => {
  if (reason !== undefined) return;
  stops = await startStops();
  const source = new URL("fixtures/rough.ts", import.meta.url);
  host = await startObjects({ source, classes: ["Rough"], texts: { STOPS: stops.url } });
}, 60_000);

afterAll(async () => {
  if (reason !== undefined) return;
  await host.stop();
  await stops.stop();
});

const inWorkerd = (name: string, run: (object: TestObject) => Promise<void>): void => {
  test(name, { timeout: 60_000 }, async (context) => {
    requirePart(context, reason === undefined ? "workerd" : undefined, reason ?? "");
    await run(host.object("Rough", name));
  });
};

const effects = (object: TestObject): Promise<string[]> => object.json("/effects");

inWorkerd("G69 of two imports that meet one is refused, and the other is whole", async (object) => {
  await object.json("/effect", { id: "old", n: 30, text: "x" });
  const older = await object.json<string[]>("/export");
  const before = await effects(object);
  await object.json("/sql", { text: "DELETE FROM effects" });
  await object.json("/effect", { id: "new", n: 30, text: "y" });
  const newer = await object.json<string[]>("/export");
  const after = await effects(object);
  expect(Math.min(older.length, newer.length)).toBeGreaterThan(4);
  const outcomes = await object.json<string[]>("/import", { chunks: [older, newer], ms: 15 });
  expect(outcomes.toSorted()).toEqual(["imported", "in_progress"]);
  const wanted = outcomes[0] === "imported" ? before : after;
  await object.abort();
  expect(await effects(object)).toEqual(wanted);
});

inWorkerd("G69 an export whose lines are not those of an export is refused", async (object) => {
  await object.json("/effect", { id: "mine", n: 2 });
  const before = await effects(object);
  const drop = "CREATE TABLE a (x); DROP TABLE a";
  const foreign: readonly (readonly string[])[] = [
    ["not JSON"],
    ["{}"],
    ["[]"],
    ['["end"]'],
    [JSON.stringify(["schema", "table", "a", drop]), '["end",0]'],
    [JSON.stringify(["schema", "table", "b", "CREATE TABLE a (x)"]), '["end",0]'],
    [JSON.stringify(["schema", "table", "a", "SELECT 1"]), '["end",0]'],
    ['["row",1]', '["end",1]'],
    ['["table","a",["x"],null]', '["row",["b","***"]]', '["end",1]'],
    ['["end",0]', '["key","k",1]'],
    ['["key","k",1]'],
  ];
  for (const lines of foreign) {
    const chunk = await encodeChunk(lines, NO_CHUNK, true);
    const chunks = [[Buffer.from(chunk).toString("base64")]];
    expect(await object.json("/import", { chunks }), lines.join("\n")).toEqual(["invalid_request"]);
    expect(await effects(object)).toEqual(before);
  }
  const first = await encodeChunk(['["key","k",1]'], NO_CHUNK, false);
  const last = await encodeChunk(['["end",0]'], hashOfChunk(first), true);
  const chunks = [[first, last].map((chunk) => Buffer.from(chunk).toString("base64"))];
  expect(await object.json("/import", { chunks })).toEqual(["imported"]);
});

inWorkerd("G66 work whose rows are refused is done again at once", async (object) => {
  const call = (text: string): Promise<unknown> => object.json("/elsewhere", { id: text, text });
  expect(await call("broken")).toMatchObject({ message: "the rows are refused" });
  expect(await call("broken")).toMatchObject({ result: "done", isDuplicate: false });
  expect(await call("broken")).toMatchObject({ result: "done", isDuplicate: true });
  expect(await effects(object)).toEqual(["broken"]);
  const large = await call("large");
  expect(large).toMatchObject({ code: "invalid_request" });
  expect(await call("large")).toEqual(large);
});

inWorkerd(
  "G66 an object whose storage was emptied goes on, and its alarm falls silent",
  async (object) => {
    expect(await object.json("/process", { id: "one" })).toMatchObject({ isDuplicate: false });
    await object.json("/empty");
    await object.json("/fire");
    expect(await object.json("/process", { id: "one" })).toMatchObject({ isDuplicate: false });
    expect(await object.json("/process", { id: "one" })).toMatchObject({ isDuplicate: true });
    await object.json("/empty");
    for (let again = 0; again < 3; again += 1) await object.json("/fire");
    expect(await object.json("/alarms")).toMatchObject({ named: [], platform: null });
  },
);

inWorkerd("G67 of many alarms that are due at once a hundred run at a time", async (object) => {
  await object.json("/setMany", { n: 400 });
  await eventually(
    () => effects(object),
    (seen) => {
      expect(seen).toHaveLength(400);
    },
    40_000,
  );
  expect(await object.json("/runningMost")).toBeLessThanOrEqual(100);
  expect(await object.json("/alarms")).toMatchObject({ named: [] });
});

inWorkerd("G67 slow work of one alarm does not hold up the others", async (object) => {
  await object.json("/set", { id: "slow", ms: 0 });
  const go = await stops.reached("slow");
  // One fails twice first, and one is set when the slow one runs already.
  await object.json("/set", { id: "quick", ms: 20 });
  await object.json("/set", { id: "beat", ms: 100 });
  await eventually(
    () => effects(object),
    (seen) => {
      expect(seen.toSorted()).toEqual(["beat", "quick", "slow begins"]);
    },
    10_000,
  );
  // A second alarm of the platform does not begin it again.
  await object.json("/fire");
  go();
  await eventually(
    () => effects(object),
    (seen) => {
      expect(seen.filter((one) => one.startsWith("slow"))).toEqual(["slow begins", "slow ends"]);
    },
  );
  expect(stops.count("slow")).toBe(1);
});

inWorkerd("G66 made anew for each call, it still has one effect for a key", async (object) => {
  const first = object.json("/fresh", { id: "one" });
  const go = await stops.reached("fresh");
  expect(await object.json("/fresh", { id: "one" })).toMatchObject({ code: "in_progress" });
  go();
  expect(await first).toMatchObject({ isDuplicate: false });
  expect(await object.json("/fresh", { id: "one" })).toMatchObject({ isDuplicate: true });
  expect(await effects(object)).toEqual(["one"]);
  expect(stops.count("fresh")).toBe(1);
});

inWorkerd("G66 calls inside of calls end, and each key has one effect", async (object) => {
  expect(await object.json("/nested", { id: "n" })).toMatchObject({ result: false });
  expect(await object.json("/nested", { id: "n" })).toMatchObject({ isDuplicate: true });
  expect((await effects(object)).toSorted()).toEqual(["n", "n after", "n inner"]);
});

inWorkerd("names that begin with hapax: are not for alarms of users", async (object) => {
  for (const act of ["/set", "/cancel"])
    expect(await object.json(act, { id: "hapax:outbox" })).toMatchObject({
      code: "invalid_request",
    });
});

inWorkerd("G68 messages that came too early are held up to a number of bytes", async (object) => {
  const long = "x".repeat(300);
  for (const n of [5, 4, 3, 2]) await object.json("/feed", { n, text: long });
  // 5 was given up for those before it: it was not acknowledged, and comes again.
  expect(await object.json("/feed", { n: 1, text: long })).toMatchObject({ last: 4 });
  expect(await object.json("/feed", { n: 9, text: "x".repeat(5_000) })).toMatchObject({
    kind: "early",
  });
  expect(await object.json("/feed", { n: 5, text: long })).toMatchObject({ last: 5 });
});

inWorkerd(
  "a delivery that no object would send is refused, and changes nothing",
  async (object) => {
    const message = { id: "a", topic: "t", key: "k", payload: 1, headers: {} };
    const good = { from: "s", epoch: 0, sequence: 0, messages: [message] };
    const bad: readonly unknown[] = [
      null,
      "text",
      {},
      { ...good, from: "" },
      { ...good, from: "x".repeat(10_000) },
      { ...good, epoch: -1 },
      { ...good, epoch: 1.5 },
      { ...good, sequence: Number.MAX_SAFE_INTEGER },
      { ...good, messages: {} },
      { ...good, messages: [null] },
      { ...good, messages: [{ ...message, id: 7 }] },
      { ...good, messages: Array.from({ length: 10_000 }, () => message) },
    ];
    for (const delivery of bad)
      expect(await object.json("/receive", { delivery })).toMatchObject({
        code: "invalid_request",
      });
    expect(await object.json("/receive", { delivery: { ...good, sequence: 5 } })).toMatchObject({
      kind: "refused",
    });
    expect(await object.json("/receive", { delivery: good })).toMatchObject({ last: 0 });
    expect(await effects(object)).toEqual(["1"]);
  },
);

inWorkerd(
  "G66 an object whose database is full has done what it has told, and nothing else",
  async (object) => {
    const told = ["first"];
    const first = await object.json("/process", { id: "first" });
    await object.json("/pages", { n: 45 });
    for (let at = 0, refused = 0; refused < 4; at += 1) {
      expect(at).toBeLessThan(400);
      const id = `${at} `.padEnd(480, "x");
      const way = at % 2 === 0 ? "/process" : "/elsewhere";
      const answer = await object.fetch(way, { method: "POST", body: JSON.stringify({ id }) });
      const text = await answer.text();
      if (answer.status === 200 && text.includes("isDuplicate")) told.push(id);
      else refused += 1;
    }
    expect(told.length).toBeGreaterThan(10);
    await object.evict();
    expect((await effects(object)).toSorted()).toEqual(told.toSorted());
    expect(await object.json("/process", { id: "first" })).toEqual({
      ...(first as object),
      isDuplicate: true,
    });
  },
);
