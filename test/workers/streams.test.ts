// Streams in Durable Objects: kills, evictions, readers, alarms, a full object. In a real workerd. GUARANTEES.md G70 to G73.
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { append, create, LiveReader, readWhole, type Stage, startStage } from "./streams-stage.ts";

const isLong = process.env["HAPAX_LONG"] !== undefined;
const why = whyNoWorkerd();
const TIME_MS = 120_000;
let stage: Stage;

beforeAll(async () => {
  // Few commits between two snapshots, so that every kill finds another stage of one.
  if (why === undefined) stage = await startStage({ SNAPSHOT_COMMITS: "7", HEARTBEAT_MS: "200" });
}, TIME_MS);

afterAll(async () => {
  if (why === undefined) await stage.stop();
});

if (why !== undefined) {
  test("streams in objects", (context) => {
    requirePart(context, undefined, why);
  });
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe.runIf(why === undefined)("streams in objects", () => {
  test(
    "G70 what was acknowledged is there after every kill, once",
    async () => {
      const kills = isLong ? 200 : 10;
      const url = stage.url("kills", "s");
      await create(url);
      const writers = ["a", "b", "c"];
      let isOver = false;
      let acknowledged = 0;
      const write = async (writer: string): Promise<string[]> => {
        const sent: string[] = [];
        for (let sequence = 0; !isOver; sequence += 1) {
          const body = `<${writer}${sequence}>`;
          sent.push(body);
          // The same append until it is answered.
          for (;;) {
            const status = await append(url, body, [writer, sequence]);
            if (status === 200 || status === 204) break;
            expect([undefined, 503]).toContain(status);
            await pause(10);
          }
          acknowledged += 1;
        }
        return sent;
      };
      const writing = Promise.all(writers.map((writer) => write(writer)));
      for (let kill = 0; kill < kills; kill += 1) {
        const before = acknowledged;
        await vi.waitFor(() => expect(acknowledged).toBeGreaterThan(before + 5), {
          timeout: 30_000,
          interval: 2,
        });
        await stage.host.restart();
      }
      isOver = true;
      const sent = await writing;
      const text = await readWhole(url);
      for (const [at, writer] of writers.entries()) {
        const own = text.match(new RegExp(`<${writer}\\d+>`, "g")) ?? [];
        expect(own).toEqual(sent[at]);
      }
      console.log(`${kills} kills: ${acknowledged} acknowledged, all there, none twice`);
    },
    isLong ? 600_000 : TIME_MS,
  );

  test(
    "G72 a live reader gets every record once, over sleeps and kills of its object",
    async () => {
      const rounds = isLong ? 40 : 6;
      const url = stage.url("bridge", "s");
      await create(url);
      const readers = [new LiveReader(url), new LiveReader(url)];
      let expected = "";
      const write = async (sequence: number): Promise<void> => {
        const body = `<${sequence}>`;
        while (![200, 204].includes((await append(url, body, ["w", sequence])) ?? 0)) {
          await pause(10);
        }
        expected += body;
      };
      await Promise.all(readers.map((reader) => reader.opens()));
      for (let round = 0; round < rounds; round += 1) {
        await write(3 * round);
        if (round % 3 === 2) await stage.host.restart();
        else await stage.object("bridge").evict();
        await write(3 * round + 1);
        await write(3 * round + 2);
      }
      for (const reader of readers) await reader.has(expected.length);
      expect(readers.map(({ text }) => text)).toEqual([expected, expected]);
      for (const reader of readers) await reader.stop();
    },
    TIME_MS,
  );

  test(
    "G72 an object sleeps while a reader stays, and the reader goes on where it was",
    async () => {
      const url = stage.url("sleeper", "s");
      await create(url);
      const reader = new LiveReader(url);
      await reader.opens();
      await append(url, "one", ["w", 0]);
      await reader.has(3);
      const before = await stage.life("sleeper");
      expect(before.sockets).toBe(1);
      for (let sleep = 1; sleep <= 3; sleep += 1) {
        // It waits until the object is idle: with a timer or an open answer it would never be.
        await stage.object("sleeper").evict();
        const after = await stage.life("sleeper");
        expect(after).toMatchObject({ sockets: 1, life: before.life + sleep });
        await append(url, "two", ["w", sleep]);
        await reader.has(3 + 3 * sleep);
      }
      expect([reader.text, reader.opened]).toEqual(["onetwotwotwo", 1]);
      await reader.stop();
      // Its departure is noticed by the next comment line.
      await vi.waitFor(
        async () => {
          expect((await stage.life("sleeper")).sockets).toBe(0);
        },
        { timeout: 20_000, interval: 100 },
      );
    },
    TIME_MS,
  );

  test(
    "G72 an object with a reader falls asleep by itself",
    async (context) => {
      if (!isLong) context.skip("it takes 12 s, and runs in npm run test:crash");
      const url = stage.url("idle", "s");
      await create(url);
      const reader = new LiveReader(url);
      await reader.opens();
      await append(url, "one", ["w", 0]);
      await reader.has(3);
      const before = await stage.life("idle");
      await pause(12_000); // The platform hibernates an object that is idle for 10 s.
      await append(url, "two", ["w", 1]);
      await reader.has(6);
      const after = await stage.life("idle");
      expect([after.sockets, after.life > before.life]).toEqual([1, true]);
      expect([reader.text, reader.opened]).toEqual(["onetwo", 1]);
      await reader.stop();
    },
    TIME_MS,
  );

  test(
    "G72 a reader that takes nothing holds a bounded part of a long stream",
    async () => {
      const url = stage.url("slow", "s");
      await create(url);
      const body = "x".repeat(500_000);
      for (let part = 0; part < 12; part += 1) await append(url, body, ["w", part]);
      const answer = await fetch(`${url}?offset=-1&live=sse`);
      const taking = answer.body?.getReader();
      await taking?.read();
      await pause(300);
      // What is left comes when it is asked for, and all of it.
      let bytes = 0;
      let text = "";
      while (!text.includes('"upToDate":true')) {
        const { value, done } = (await taking?.read()) ?? { value: undefined, done: true };
        if (done) break;
        bytes += value?.length ?? 0;
        text = (text + new TextDecoder().decode(value)).slice(-300);
      }
      expect(bytes).toBeGreaterThan(5_900_000);
      await taking?.cancel();
    },
    TIME_MS,
  );

  test(
    "a stream that expires is ended by the alarm of its sleeping object",
    async () => {
      const url = stage.url("alarm", "s");
      await create(url, { "Stream-TTL": "6" });
      const before = await stage.life("alarm");
      expect(before.alarm).toBeGreaterThan(Date.now() + 3000);
      await stage.object("alarm").evict();
      await pause(7000); // Nothing else wakes the object.
      const after = await stage.life("alarm");
      expect(after.life).toBe(before.life + 1);
      expect(after.alarms).toBeGreaterThan(before.alarms);
      expect((await fetch(url, { method: "HEAD" })).status).toBe(404);
    },
    TIME_MS,
  );

  test(
    "G70 a write that fails leaves nothing, and the object begins anew from what is stored",
    async () => {
      const url = stage.url("failing", "s");
      await create(url);
      expect(await append(url, "one", ["w", 0])).toBe(200);
      const object = stage.object("failing");
      const sql = (query: string): Promise<{ name: string }[]> =>
        object.json("/_probe/sql", { query });
      const tables = await sql("SELECT name FROM sqlite_master WHERE name GLOB 'hapax_frames_*'");
      const table = tables.at(-1)?.name ?? "";
      await sql(
        `CREATE TRIGGER broken BEFORE INSERT ON ${table} BEGIN SELECT RAISE(ABORT, 'broken'); END`,
      );
      const { life } = await stage.life("failing");
      expect(await append(url, "two", ["w", 1])).toBe(503);
      await vi.waitFor(
        async () => {
          expect((await stage.life("failing")).life).toBeGreaterThan(life);
        },
        { timeout: 20_000 },
      );
      await sql("DROP TRIGGER broken");
      expect(await readWhole(url)).toBe("one");
      await vi.waitFor(async () => expect(await append(url, "two", ["w", 1])).toBe(200), {
        timeout: 20_000,
      });
      expect(await readWhole(url)).toBe("onetwo");
    },
    TIME_MS,
  );

  test("the door finds the object of a path, or refuses", async () => {
    const [one, other] = [stage.url("one", "s"), stage.url("other", "s")];
    await create(one);
    expect((await fetch(other, { method: "HEAD" })).status).toBe(404);
    // The path of a stream says where it is, and not its caller.
    expect((await fetch(`${one}?object=other`, { method: "HEAD" })).status).toBe(200);
    const named = `${stage.host.url}/none/s?object=one`;
    expect((await fetch(named, { method: "PUT" })).status).toBe(201);
    expect((await fetch(`${stage.host.url}/none/s`, { method: "PUT" })).status).toBe(400);
    const refused = await fetch(one, { headers: { "Refuse-Me": "1" } });
    expect([refused.status, await refused.text()]).toEqual([403, "refused"]);
    const missing = await fetch(`${other}?offset=-1&live=sse`);
    expect([missing.status, await missing.json()]).toMatchObject([
      404,
      { code: "stream_not_found" },
    ]);
  });

  test(
    "an object that cannot be opened says so, and is not begun again and again",
    async () => {
      const url = stage.url("broken", "s");
      await create(url);
      const object = stage.object("broken");
      const query = "UPDATE hapax_streams SET text = '{}' WHERE id = 1";
      await object.json("/_probe/sql", { query });
      await object.evict();
      const answers = [await fetch(url), await fetch(`${url}?offset=-1&live=sse`)];
      expect(answers.map(({ status }) => status)).toEqual([500, 500]);
      expect(await answers[0]?.json()).toMatchObject({ code: "data_damaged" });
      const { life } = await stage.life("broken");
      await fetch(url);
      expect((await stage.life("broken")).life).toBe(life);
    },
    TIME_MS,
  );
});

describe.runIf(why === undefined)("a full object", () => {
  test(
    "G73 refuses writes before the database is full, and takes them again after a delete",
    async () => {
      const bytesMax = 4_000_000;
      const full = await startStage({
        DATABASE_BYTES_MAX: String(bytesMax),
        SNAPSHOT_BYTES: "100000",
      });
      try {
        const [kept, filled] = [full.url("full", "kept"), full.url("full", "filled")];
        await create(kept);
        await create(filled);
        await append(kept, "kept", ["w", 0]);
        // The platform ends an object whose database is full. This is its limit; ours comes first.
        const pages = Math.ceil(bytesMax / 4096);
        await full.object("full").json(`/_probe/pages?max=${pages}`);
        const { life } = await full.life("full");
        const body = "y".repeat(20_000);
        let sequence = 0;
        for (; sequence < 400; sequence += 1) {
          const status = await append(filled, body, ["w", sequence]);
          if (status === 507) break;
          expect(status).toBe(200);
        }
        expect(sequence).toBeGreaterThan(40);
        expect(sequence).toBeLessThan(200);
        console.log(`a database of ${bytesMax} bytes took ${sequence * 20_000} bytes of data`);
        // Everything is refused, and nothing is lost: reads go on, and the object has not been ended.
        for (let again = 0; again < 5; again += 1) {
          expect(await append(filled, body, ["w", sequence])).toBe(507);
        }
        expect(await readWhole(kept)).toBe("kept");
        expect((await readWhole(filled)).length).toBe(sequence * 20_000);
        expect((await full.life("full")).life).toBe(life);
        expect((await fetch(filled, { method: "DELETE" })).status).toBe(204);
        await vi.waitFor(async () => expect(await append(kept, "more", ["w", 1])).toBe(200));
        expect(await readWhole(kept)).toBe("keptmore");
        expect((await full.life("full")).life).toBe(life);
        await full.host.restart();
        expect(await readWhole(kept)).toBe("keptmore");
      } finally {
        await full.stop();
      }
    },
    TIME_MS,
  );
});
