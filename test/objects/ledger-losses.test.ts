// A Durable Object is taken away at every failpoint, in every way. Each work has its effect once, and nothing told is lost.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type ObjectsHost,
  startObjects,
  startStops,
  type Stop,
  type Stops,
  type TestObject,
  whyNoWorkerd,
} from "../kits/workerd-objects.ts";

const reason = whyNoWorkerd();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: losses of Durable Objects: ${reason}`);
const isLong = process.env["HAPAX_LONG"] !== undefined;

let host: ObjectsHost;
let stops: Stops;

async function start(): Promise<void> {
  stops = await startStops();
  host = await startObjects({
    source: new URL("fixtures/once-object.ts", import.meta.url),
    classes: ["OnceObject"],
    texts: { STOPS: stops.url },
  });
}

async function end(): Promise<void> {
  await host.stop();
  await stops.stop();
}

/** How an object that waits at a failpoint is taken away. */
const WAYS: Readonly<Record<string, (stop: Stop, object: TestObject) => Promise<void>>> = {
  async abort(stop) {
    stop("abort");
  },
  async "abort of all"() {
    await host.abortAll();
  },
  async SIGKILL() {
    await host.restart();
  },
  // An eviction waits for the end of the call.
  async eviction(stop, object) {
    const evicted = object.evict();
    stop();
    await evicted;
  },
};

/** The failpoints of each way to do something once. */
const POINTS: Readonly<Record<string, readonly string[]>> = {
  once: ["claimed", "began", "worked", "completed", "committed"].map((at) => `once.${at}`),
  counted: ["claimed", "began", "worked", "completed", "committed"].map((at) => `once.${at}`),
  inbox: ["began", "worked", "committed"].map((at) => `inbox.${at}`),
  elsewhere: ["claimed", "began", "worked", "committed"].map((at) => `once.${at}`),
};

interface Answer {
  readonly result?: string;
  readonly isDuplicate?: boolean;
  readonly error?: string;
}

describe.skipIf(reason !== undefined)("an object that is lost", () => {
  beforeAll(start);
  afterAll(end);

  for (const [call, points] of Object.entries(POINTS))
    for (const [way, lose] of Object.entries(WAYS))
      test(`G62 at each failpoint of ${call} by ${way} has one effect, and its caller gets the result at once`, async () => {
        const object = host.object("OnceObject", `${call} ${way}`);
        for (const point of points) {
          const key = `${call} ${way} ${point}`;
          const path = `/${call}?key=${encodeURIComponent(key)}`;
          await object.json(`/arm?key=${point}`);
          const first = object.json<Answer>(path).catch(() => undefined);
          await lose(await stops.reached(point), object);
          await first;
          const begunMs = performance.now();
          const again = await object.json<Answer>(path);
          expect(again.error, key).toBeUndefined();
          // Without `recover` the claim of the life before would be in the way until its lease is over, for 30 s.
          expect(performance.now() - begunMs).toBeLessThan(20_000);
          const last = await object.json<Answer>(path);
          expect(last.isDuplicate, key).toBe(true);
          if (call !== "inbox") expect(last.result).toBe(again.result);
          if (call === "elsewhere") expect(stops.count(`tell ${key}`)).toBeGreaterThan(0);
          else expect(await object.json(`/effects?key=${encodeURIComponent(key)}`), key).toBe(1);
        }
      });

  test("G63 what was told, by a request or by the answer, is there after a SIGKILL", async () => {
    const object = host.object("OnceObject", "told");
    const kills = isLong ? 200 : 10;
    for (let kill = 0; kill < kills; kill += 1) {
      const key = `t${String(kill)}`;
      const told = object.json(`/told?key=${key}`);
      const lost = told.catch(() => undefined);
      const stop = await stops.reached(`told ${key}`);
      if (kill % 2 === 1) {
        stop();
        expect(await told).toBe("go on");
      }
      await host.restart();
      await lost;
      expect(await object.json(`/effects?key=${key}`)).toBe(1);
    }
    console.log(`kills between write and answer: ${String(kills)}, lost: 0`);
  }, 600_000);

  test("G63 nothing of an open transaction counts after a SIGKILL, and its token is not given again", async () => {
    const object = host.object("OnceObject", "inside");
    let before = 0;
    for (let kill = 0; kill < (isLong ? 20 : 4); kill += 1) {
      // Also after a clock was set back: the counter decides then.
      const path = kill % 2 === 0 ? "/inside?key=i" : "/inside-behind?key=i";
      const lost = object.json(path).catch(() => undefined);
      const token = Number((await stops.reached("inside")).said);
      expect(token).toBeGreaterThan(before);
      // And not below the clock: a restored object gives none again.
      expect(token).toBeGreaterThan((Date.now() - 3_600_000) * 1_000);
      before = token;
      await host.restart();
      await lost;
      expect(await object.json("/effects?key=i")).toBe(0);
    }
    const { token } = await object.json<{ readonly token: number }>("/once?key=i");
    expect(token).toBeGreaterThan(before);
    expect(Number.isSafeInteger(token)).toBe(true);
  });

  test("G62 LG12 a wake frees what the life before had begun, but no lease and no work that must be asked for", async () => {
    const object = host.object("OnceObject", "recover");
    const held = await object.json("/lease?key=mine");
    expect(held).toEqual(expect.any(Number));
    const probed = object.json("/probed?key=asked").catch(() => undefined);
    await stops.reached("asked");
    await object.json("/arm?key=once.worked");
    const claimed = object.json("/elsewhere?key=freed").catch(() => undefined);
    await stops.reached("once.worked");
    // Not what this life has begun.
    expect(await object.json("/recover")).toBe(0);
    await host.restart();
    await Promise.all([probed, claimed]);
    expect(await object.json("/arm")).toEqual({ life: 1, recovered: 1 });
    expect(await object.json("/elsewhere?key=freed")).toMatchObject({ isDuplicate: false });
    expect(await object.json("/lease?key=mine")).toBe("held");
    expect(await object.json("/probed?key=asked")).toEqual({ error: "in_progress" });
  });
});

describe.skipIf(reason !== undefined)("transactions of an object", () => {
  beforeAll(start);
  afterAll(end);

  test("G64 one that a promise of another resumes is not a part of it, and stays when that is rolled back", async () => {
    const object = host.object("OnceObject", "join");
    const waiting = object.json("/wait?key=b");
    await object.json("/arm");
    expect(await object.json("/undo?key=a")).toEqual({ error: "undone" });
    expect(await waiting).toBe("committed");
    expect(await object.json("/effects?key=b")).toBe(1);
    expect(await object.json("/effects?key=a")).toBe(0);
  });

  test("G64 a call that learns of the work of another one does not go on inside its transaction", async () => {
    const object = host.object("OnceObject", "told after");
    expect(await object.json("/beside?key=k")).toBe("both");
    expect(await object.json(`/effects?key=${encodeURIComponent("k lost")}`)).toBe(0);
    expect(await object.json(`/effects?key=${encodeURIComponent("k kept")}`)).toBe(1);
  });

  test("G64 a relay that an event wakes does not go on inside the transaction of the event", async () => {
    const object = host.object("OnceObject", "hint");
    expect(await object.json("/hint?key=h")).toBe("woken");
    expect(await object.json(`/effects?key=${encodeURIComponent("h kept")}`)).toBe(1);
  });

  test("G64 a transaction that has ended, is async in a synchronous call, or is no transaction of the ledger is refused", async () => {
    const refused = await host.object("OnceObject", "late").json<readonly string[]>("/late");
    expect(refused).toEqual(refused.map(() => "invalid_request"));
    expect(refused).toHaveLength(7);
  });

  test("G62 of many calls at once, over fetch, one has an effect, and all get its result", async () => {
    const object = host.object("OnceObject", "many");
    for (const path of ["elsewhere", "once", "inbox", "counted"]) {
      const call = (): Promise<Answer> => object.json<Answer>(`/${path}?key=many-${path}`);
      const all = await Promise.all(Array.from({ length: 6 }, call));
      expect(all.filter(({ isDuplicate }) => isDuplicate === false)).toHaveLength(1);
      expect(all.filter(({ isDuplicate }) => isDuplicate === true)).toHaveLength(5);
      if (path === "elsewhere") expect(stops.count("tell many-elsewhere")).toBe(1);
      else expect(await object.json(`/effects?key=many-${path}`)).toBe(1);
    }
  });

  test("G64 one that does not end is rolled back before the platform resets the object", async (context) => {
    context.skip(!isLong, "it takes a minute: npm run test:crash");
    const object = host.object("OnceObject", "endless");
    const { life } = await object.json<{ readonly life: number }>("/arm");
    expect(await object.json("/endless?key=e")).toEqual({ error: "too_many" });
    expect(await object.json("/deadlock?key=e")).toEqual({ error: "too_many" });
    expect(await object.json("/effects?key=e")).toBe(0);
    expect(await object.json("/arm")).toMatchObject({ life });
  }, 120_000);
});
