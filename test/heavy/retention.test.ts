// Streams that give up their oldest data while the server is killed: a rule by bytes, cuts by hand up to what a group needs, a fork
// that keeps its source, and readers. With `npm run test:crash` many kills. GUARANTEES.md G110 to G112, PROTOCOL.md §23.
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import { connectServer } from "../../src/client/processing.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { call, type HttpAnswer } from "../protocol/raw-http.ts";
import { inDirectory, type ServerProcess } from "../crash/processes.ts";
import { Site } from "../crash/site.ts";

const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
const KILLS = IS_LONG ? 60 : 5;
const JOURNAL = { segmentBytes: 32 * 1024, snapshotBytes: 64 * 1024 };
const [FEED, WORK, BASE, BRANCH] = ["feed", "work", "base", "branch"].map(
  (name) => `/v1/stream/${name}`,
) as [string, string, string, string];
/** What a record takes in its stream. */
const RECORD_BYTES = 2000;
const KEEP_BYTES = 100_000;
const SITE = "http://site.test";
const JSON_TYPE = { "content-type": "application/json" };

const recordOf = (n: number): string => `${String(n).padStart(12, "0")}`.padEnd(1997, "x");
const offsetOf = (text: unknown): number => Number(String(text).slice(17));
const textOf = (offset: number): string => `0000000000000000_${String(offset).padStart(16, "0")}`;
const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

/** Everything that runs while the server is killed. What contradicts a promise becomes a problem. */
class Storm {
  readonly site: Site;
  readonly problems: string[] = [];
  readonly acked = new Map<string, number>();
  readonly counts = { followed: 0, consumed: 0, refusedCuts: 0, cuts: 0 };
  isOver = false;

  constructor(site: Site) {
    this.site = site;
  }

  /** Repeats a request until a server answers. */
  async ask(
    method: string,
    path: string,
    headers: Record<string, string> = {},
    body?: string,
  ): Promise<HttpAnswer> {
    for (;;) {
      try {
        const options = body === undefined ? { headers } : { headers, body };
        const answer = await call(method, await this.site.url(), path, options);
        if (answer.status < 500) return answer;
      } catch {
        // It was killed. The next one says what became of the request.
      }
      await pause(5);
    }
  }

  readonly fetch: typeof fetch = async (input, init) => {
    // The client of this test asks with a text.
    const { pathname, search } = new URL(String(input as string));
    return fetch((await this.site.url()) + pathname + search, init);
  };

  async write(path: string): Promise<void> {
    for (let n = 0; !this.isOver; n += 1) {
      const headers = {
        ...JSON_TYPE,
        "producer-id": "w",
        "producer-epoch": "0",
        "producer-seq": String(n),
      };
      const { status, text } = await this.ask("POST", path, headers, `"${recordOf(n)}"`);
      if (status !== 200 && status !== 204) this.problems.push(`append ${n}: ${status} ${text}`);
      this.acked.set(path, n + 1);
    }
  }

  /** What was trimmed stays trimmed, and no more goes than the rule allows. */
  async watchRule(): Promise<void> {
    for (let last = 0; !this.isOver;) {
      const acked = this.acked.get(FEED) ?? 0;
      const { headers } = await this.ask("HEAD", FEED);
      const earliest = offsetOf(headers["stream-earliest-offset"]);
      const kept = offsetOf(headers["stream-next-offset"]) - earliest;
      if (earliest < last) this.problems.push(`the feed began at ${last}, and then at ${earliest}`);
      if (earliest + kept < acked * RECORD_BYTES) this.problems.push(`of ${acked} some are gone`);
      if (earliest > 0 && kept < KEEP_BYTES) this.problems.push(`only ${kept} bytes are kept`);
      if (kept > (KEEP_BYTES * 17) / 16 + 2 * RECORD_BYTES) {
        this.problems.push(`${kept} bytes are kept`);
      }
      last = earliest;
      await pause(5);
    }
  }

  /** A reader that goes on where the stream begins. Never twice, never out of order. */
  async follow(signal: AbortSignal): Promise<void> {
    const stream = connect<string>(SITE + FEED, { fetch: this.fetch, signal });
    let last = -1;
    const options = { onTrimmed: "skip", patienceMs: Infinity } as const;
    for await (const { value } of stream.follow<string>(options)) {
      const n = Number(value.slice(0, 12));
      if (n <= last || value !== recordOf(n)) this.problems.push(`after ${last} came ${n}`);
      last = n;
      this.counts.followed += 1;
    }
  }

  /** A member that is slower than the writer. Cuts must leave what it has not committed. */
  async consume(signal: AbortSignal): Promise<void> {
    const hapax = connectServer(SITE, { fetch: this.fetch });
    const consumer = hapax.consumer<string>({ group: "g", streams: [WORK], leaseMs: 1000 });
    let next = 0;
    await consumer.run(
      async (batch) => {
        for (const value of batch.records) {
          const n = Number(value.slice(0, 12));
          // A batch whose commit was lost comes again.
          if (n > next) this.problems.push(`the group was given ${n} after ${next - 1}`);
          next = Math.max(next, n + 1);
          this.counts.consumed += 1;
        }
        await pause(10);
        await batch.commit();
      },
      { signal },
    );
  }

  /** Cuts as much as it may, and tries more. */
  async cut(): Promise<void> {
    for (let last = 0; !this.isOver; await pause(10)) {
      const tail = (this.acked.get(WORK) ?? 0) * RECORD_BYTES;
      const first = await this.#cut(WORK, tail);
      const needed = first.status === 409 ? (JSON.parse(first.text) as Record<string, string>) : {};
      if (first.status === 409) this.counts.refusedCuts += 1;
      const from = first.status === 409 ? offsetOf(needed["neededFrom"]) : tail;
      const { status, headers, text } = await this.#cut(WORK, from);
      if (status !== 204) this.problems.push(`a cut of what is not needed: ${status} ${text}`);
      const earliest = offsetOf(headers["stream-earliest-offset"]);
      if (earliest < last) this.problems.push(`the work began at ${last}, and then at ${earliest}`);
      last = earliest;
      this.counts.cuts += 1;
      const kept = await this.#cut(BASE, RECORD_BYTES);
      if (kept.status !== 409) this.problems.push(`the source of a fork was cut: ${kept.status}`);
    }
  }

  #cut(path: string, before: number): Promise<HttpAnswer> {
    return this.ask("POST", `/_hapax/trim?stream=${path}&before=${textOf(before)}`);
  }

  /** From its beginning to its tail a stream has what was written. */
  async compare(path: string): Promise<number> {
    let n: number | undefined;
    for (let offset = "-1"; ;) {
      const { status, headers, text } = await this.ask("GET", `${path}?offset=${offset}`);
      expect(status).toBe(200);
      n ??= offsetOf(headers["stream-earliest-offset"] ?? textOf(0)) / RECORD_BYTES;
      for (const value of JSON.parse(text) as string[]) {
        expect(value).toBe(recordOf(n));
        n += 1;
      }
      if (headers["stream-up-to-date"] === "true") return n;
      offset = String(headers["stream-next-offset"]);
    }
  }
}

async function prepare(storm: Storm): Promise<void> {
  const rule = { "stream-retention": `bytes=${KEEP_BYTES}` };
  await storm.ask("PUT", FEED, { ...JSON_TYPE, ...rule });
  for (const path of [WORK, BASE]) await storm.ask("PUT", path, JSON_TYPE);
  for (let n = 0; n < 20; n += 1) {
    await storm.ask("POST", BASE, JSON_TYPE, `"${recordOf(n)}"`);
  }
  await storm.ask("PUT", BRANCH, { "stream-forked-from": BASE });
  const group = JSON.stringify({ streams: [WORK], leaseMs: 1000 });
  expect((await storm.ask("PUT", "/_hapax/groups/g", JSON_TYPE, group)).status).toBe(201);
}

function fileBytes(dir: string): number {
  return readdirSync(dir).reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);
}

test(
  "G110 G111 G112 under load and kills nothing that is needed goes, nothing that was trimmed comes back, and the room does",
  { timeout: IS_LONG ? 900_000 : 120_000 },
  async () => {
    await inDirectory(async (dir) => {
      const site = new Site({ dir, journal: JOURNAL });
      let server: ServerProcess = await site.start();
      const storm = new Storm(site);
      await prepare(storm);
      const stop = new AbortController();
      const ended = (error: unknown): void => {
        if (!stop.signal.aborted) storm.problems.push(String(error));
      };
      const running = [
        storm.write(FEED),
        storm.write(WORK),
        storm.watchRule(),
        storm.cut(),
        storm.follow(stop.signal).catch(ended),
        storm.consume(stop.signal).catch(ended),
      ];
      const random = createSeededRandom(7);
      let kills = 0;
      for (; kills < KILLS && storm.problems.length === 0; kills += 1) {
        await pause(300 + random.below(700));
        await site.kill(server);
        server = await site.start();
      }
      // So that more was written than may be left, on slow machines too.
      const isEnough = (): boolean => (storm.acked.get(FEED) ?? 0) * RECORD_BYTES > 3 * KEEP_BYTES;
      while (!isEnough() && storm.problems.length === 0) await pause(50);
      storm.isOver = true;
      await Promise.all(running.slice(0, 4));
      await pause(500);
      stop.abort(new Error("over"));
      await Promise.all(running);
      expect(storm.problems).toEqual([]);
      for (const path of [FEED, WORK]) {
        expect(await storm.compare(path)).toBe(storm.acked.get(path));
      }
      for (const path of [BASE, BRANCH]) expect(await storm.compare(path)).toBe(20);
      for (let snapshot = 0; snapshot < 3; snapshot += 1) await server.maintain();
      const { headers } = await storm.ask("HEAD", WORK);
      const work =
        offsetOf(headers["stream-next-offset"]) - offsetOf(headers["stream-earliest-offset"]);
      const [left, files] = [KEEP_BYTES + work, fileBytes(dir)];
      const written = [...storm.acked.values()].reduce((sum, n) => sum + n * RECORD_BYTES, 0);
      const facts = { kills, written, left, files, ...storm.counts };
      console.log(`retention under load: ${JSON.stringify(facts)}`);
      expect(files).toBeLessThan(1.5 * left + 2 * (JOURNAL.segmentBytes + JOURNAL.snapshotBytes));
      expect(storm.counts.followed).toBeGreaterThan(0);
      expect(storm.counts.consumed).toBeGreaterThan(0);
      expect(storm.counts.refusedCuts).toBeGreaterThan(0);
      await site.kill(server);
    });
  },
);
