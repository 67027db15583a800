// The server process is killed with SIGKILL again and again under load and started again on its directory:
// nothing that was answered is lost, nothing is stored twice, nothing is out of order, and no reader ever
// saw anything that is not there. GUARANTEES.md; PROTOCOL.md §5
import { expect, test, vi } from "vitest";
import { type CrashReport, crashRun, type CrashOptions } from "../crash/crash-run.ts";
import { inDirectory, startServer } from "../crash/processes.ts";
import { call, type CallOptions, type HttpAnswer } from "../protocol/raw-http.ts";

const SEED = Number(process.env["HAPAX_SEED"] ?? Date.now() % 1_000_000_007);
/** Kills of the main test; the others scale with it. 25 in `npm test`, 500 in `npm run test:crash`. */
const CYCLES = Number(process.env["HAPAX_CRASH_CYCLES"] ?? 15);
const SMALL = { segmentBytes: 64 * 1024, snapshotBytes: 96 * 1024, cacheBytes: 32 * 1024 };

function run(options: Omit<CrashOptions, "dir" | "seed">): Promise<CrashReport> {
  return inDirectory(async (dir) => {
    const report = await crashRun({ dir, seed: SEED, ...options });
    const { problems, ...figures } = report;
    console.log(`${expect.getState().currentTestName}: ${JSON.stringify(figures)}`);
    return { ...report, problems: problems.slice(0, 10) };
  });
}

const JSON_TYPE = { "content-type": "application/json" };

interface Claim {
  readonly wake_id: string;
  readonly generation: number;
  readonly token: string;
}

interface Caller {
  call(method: string, path: string, options?: CallOptions): Promise<HttpAnswer>;
  put(path: string, headers: Record<string, string>): Promise<number>;
  append(
    stream: string,
    producer: string,
    sequence: number,
    body: string,
    headers?: Record<string, string>,
  ): Promise<number>;
}

/** Each step talks to a server of its own on the same directory; each server is killed after its step. */
function survive(steps: readonly ((site: Caller) => Promise<void>)[]): Promise<void> {
  return inDirectory(async (dir) => {
    for (const step of steps) {
      const server = await startServer({ dir, journal: { segmentBytes: 1024 * 1024 } });
      await step(callerOf(server.url));
      await server.kill();
    }
  });
}

function callerOf(url: string): Caller {
  return {
    call: (method, path, options) => call(method, url, path, options),
    put: async (path, headers) => (await call("PUT", url, path, { headers })).status,
    async append(stream, producer, sequence, body, headers = {}) {
      const identity = { "producer-id": producer, "producer-epoch": "0" };
      const all = { ...JSON_TYPE, ...identity, "producer-seq": String(sequence), ...headers };
      return (await call("POST", url, `/v1/stream/${stream}`, { headers: all, body })).status;
    },
  };
}

const LIMIT = { timeout: 120_000 + CYCLES * 4000 };

test("G11 no kill loses, doubles or reorders an append of eight producers", LIMIT, async () => {
  const report = await run({ cycles: CYCLES, moments: ["load", "load", "ready", "recovery"] });
  expect(report.problems, `HAPAX_SEED=${SEED}`).toEqual([]);
  expect(report.kills).toBe(CYCLES);
  expect(report.stored).toBe(report.acked);
  expect(report.acked).toBeGreaterThan(CYCLES);
});

test("kills in rolls, snapshots, recycling and compaction lose nothing", LIMIT, async () => {
  const report = await run({
    cycles: CYCLES,
    journal: SMALL,
    moments: ["snapshot", "spare", "roll", "load", "recovery"],
    recordBytes: 400,
    churns: true,
  });
  expect(report.problems, `HAPAX_SEED=${SEED}`).toEqual([]);
  expect(report.stored).toBe(report.acked);
});

test("kills in the middle of records of 6 MB leave every stream readable", LIMIT, async () => {
  const report = await run({
    cycles: Math.max(4, Math.ceil(CYCLES / 10)),
    moments: ["load"],
    producers: 3,
    streams: 2,
    recordBytes: 6 * 1024 * 1024,
    lifeMsMax: 600,
    readers: ["catch-up"],
  });
  expect(report.problems, `HAPAX_SEED=${SEED}`).toEqual([]);
  expect(report.stored).toBe(report.acked);
});

test("a create, a close, a delete and a new life of a path survive a kill", async () => {
  await survive([
    async (site) => {
      expect(await site.put("/v1/stream/closed", JSON_TYPE)).toBe(201);
      expect(await site.append("closed", "p", 0, "1")).toBe(200);
      expect(await site.append("closed", "p", 1, "2", { "stream-closed": "true" })).toBe(200);
      expect(await site.put("/v1/stream/again", JSON_TYPE)).toBe(201);
      expect(await site.append("again", "p", 0, "1")).toBe(200);
      expect(await site.append("again", "p", 1, "2")).toBe(200);
      expect((await site.call("DELETE", "/v1/stream/again")).status).toBe(204);
      expect(await site.put("/v1/stream/gone", JSON_TYPE)).toBe(201);
      expect((await site.call("DELETE", "/v1/stream/gone")).status).toBe(204);
    },
    async (site) => {
      const closed = await site.call("GET", "/v1/stream/closed");
      expect([closed.text, closed.headers["stream-closed"]]).toEqual(["[1,2]", "true"]);
      expect(await site.append("closed", "p", 1, "2", { "stream-closed": "true" })).toBe(204);
      expect(await site.append("closed", "p", 2, "3")).toBe(409);
      expect((await site.call("GET", "/v1/stream/gone")).status).toBe(404);
      expect((await site.call("GET", "/v1/stream/again")).status).toBe(404);
      expect(await site.put("/v1/stream/again", JSON_TYPE)).toBe(201);
      // The second life knows nothing of the first: neither its data nor its producers.
      expect(await site.append("again", "p", 1, "9")).toBe(409);
      expect(await site.append("again", "p", 0, "7")).toBe(200);
    },
    async (site) => {
      expect(await site.append("again", "p", 0, "7")).toBe(204);
      expect((await site.call("GET", "/v1/stream/again")).text).toBe("[7]");
    },
  ]);
});

test("a fork keeps the data of its deleted source across kills", async () => {
  await survive([
    async (site) => {
      expect(await site.put("/v1/stream/source", JSON_TYPE)).toBe(201);
      expect(await site.append("source", "p", 0, "1")).toBe(200);
      const fork = { ...JSON_TYPE, "stream-forked-from": "/v1/stream/source" };
      expect(await site.put("/v1/stream/fork", fork)).toBe(201);
      expect(await site.append("source", "p", 1, "2")).toBe(200);
      expect(await site.append("fork", "p", 0, "3")).toBe(200);
      expect((await site.call("DELETE", "/v1/stream/source")).status).toBe(204);
    },
    async (site) => {
      expect((await site.call("GET", "/v1/stream/fork")).text).toBe("[1,3]");
      expect((await site.call("GET", "/v1/stream/source")).status).toBe(410);
      expect(await site.put("/v1/stream/source", JSON_TYPE)).toBe(409);
      expect(await site.append("fork", "p", 0, "3")).toBe(204);
      expect((await site.call("DELETE", "/v1/stream/fork")).status).toBe(204);
    },
    async (site) => {
      expect((await site.call("GET", "/v1/stream/source")).status).toBe(404);
      expect((await site.call("GET", "/v1/stream/fork")).status).toBe(404);
      expect(await site.put("/v1/stream/source", JSON_TYPE)).toBe(201);
    },
  ]);
});

test("a TTL and an expiry survive a kill, and the stream ends when it should", async () => {
  const expiresAtMs = Math.ceil(Date.now() / 1000) * 1000 + 2000;
  const expiresAt = new Date(expiresAtMs).toISOString();
  await survive([
    async (site) => {
      expect(await site.put("/v1/stream/sliding", { ...JSON_TYPE, "stream-ttl": "3600" })).toBe(
        201,
      );
      const expiring = { ...JSON_TYPE, "stream-expires-at": expiresAt };
      expect(await site.put("/v1/stream/expiring", expiring)).toBe(201);
    },
    async (site) => {
      const sliding = await site.call("HEAD", "/v1/stream/sliding");
      expect(sliding.headers["stream-ttl"]).toBe("3600");
      const expiring = await site.call("HEAD", "/v1/stream/expiring");
      expect(Date.parse(String(expiring.headers["stream-expires-at"]))).toBe(expiresAtMs);
      await vi.waitUntil(
        async () => (await site.call("HEAD", "/v1/stream/expiring")).status === 404,
        { timeout: 20_000 },
      );
      expect(Date.now()).toBeGreaterThanOrEqual(expiresAtMs);
    },
    async (site) => {
      expect((await site.call("HEAD", "/v1/stream/expiring")).status).toBe(404);
      expect((await site.call("HEAD", "/v1/stream/sliding")).status).toBe(200);
    },
  ]);
});

test("a claim, its generation and its cursor survive kills, and fenced stays fenced", async () => {
  const work: { first?: Claim; second?: Claim; offset?: string } = {};
  const sub = "/v1/stream/__ds/subscriptions/workers";
  const ackOf = (claim: Claim | undefined, done: boolean) => ({
    headers: { ...JSON_TYPE, authorization: `Bearer ${claim?.token}` },
    body: JSON.stringify({
      wake_id: claim?.wake_id,
      generation: claim?.generation,
      acks: [{ stream: "jobs/one", offset: work.offset }],
      done,
    }),
  });
  const claimBody = { headers: JSON_TYPE, body: JSON.stringify({ worker: "w" }) };
  await survive([
    async (site) => {
      expect(await site.put("/v1/stream/wakes", JSON_TYPE)).toBe(201);
      const config = { type: "pull-wake", pattern: "jobs/*", wake_stream: "wakes" };
      const body = JSON.stringify({ ...config, lease_ttl_ms: 600_000 });
      expect((await site.call("PUT", sub, { headers: JSON_TYPE, body })).status).toBe(201);
      expect(await site.put("/v1/stream/jobs/one", JSON_TYPE)).toBe(201);
      expect(await site.append("jobs/one", "p", 0, "1")).toBe(200);
      const head = await site.call("HEAD", "/v1/stream/jobs/one");
      work.offset = String(head.headers["stream-next-offset"]);
      const claimed = await site.call("POST", `${sub}/claim`, claimBody);
      expect(claimed.status).toBe(200);
      work.first = JSON.parse(claimed.text) as Claim; // Its members are used below.
      expect((await site.call("POST", `${sub}/ack`, ackOf(work.first, false))).status).toBe(200);
    },
    async (site) => {
      const described = (await site.call("GET", sub)).text;
      expect(described).toContain(`"acked_offset":"${work.offset}"`);
      const other = await site.call("POST", `${sub}/claim`, claimBody);
      expect([other.status, other.text]).toEqual([409, expect.stringContaining("ALREADY_CLAIMED")]);
      // The token was signed by the process that is gone.
      expect((await site.call("POST", `${sub}/ack`, ackOf(work.first, true))).status).toBe(200);
      expect(await site.append("jobs/one", "p", 1, "2")).toBe(200);
      const claimed = await site.call("POST", `${sub}/claim`, claimBody);
      work.second = JSON.parse(claimed.text) as Claim; // Its members are used below.
      expect(work.second.generation).toBeGreaterThan(work.first?.generation ?? Infinity);
    },
    async (site) => {
      const stale = await site.call("POST", `${sub}/ack`, ackOf(work.first, true));
      expect([stale.status, stale.text]).toEqual([409, expect.stringContaining("FENCED")]);
      const head = await site.call("HEAD", "/v1/stream/jobs/one");
      work.offset = String(head.headers["stream-next-offset"]);
      expect((await site.call("POST", `${sub}/ack`, ackOf(work.second, true))).status).toBe(200);
    },
    async (site) => {
      expect((await site.call("GET", sub)).text).toContain(`"acked_offset":"${work.offset}"`);
      const idle = await site.call("POST", `${sub}/claim`, claimBody);
      expect([idle.status, idle.text]).toEqual([409, expect.stringContaining("NO_PENDING_WORK")]);
    },
  ]);
});

test("the keys that sign webhooks survive a kill", async () => {
  const keys: string[] = [];
  const note = async (site: Caller): Promise<void> => {
    const answer = await site.call("GET", "/v1/stream/__ds/jwks.json");
    expect(answer.text).toMatch(/"kid":"ds_/);
    keys.push(answer.text);
  };
  await survive([note, note, note]);
  expect(new Set(keys).size).toBe(1);
});

test("the count sees a server that answers before it writes", LIMIT, async () => {
  const report = await run({
    cycles: 10,
    journal: { segmentBytes: 1024 * 1024, fault: "acknowledges-early" },
    moments: ["load"],
    lifeMsMax: 400,
  });
  expect(report.problems, `HAPAX_SEED=${SEED}`).not.toEqual([]);
});

test("the count sees a server that comes back without producer state", LIMIT, async () => {
  const report = await run({
    cycles: 10,
    journal: { segmentBytes: 1024 * 1024, fault: "forgets-producers" },
    moments: ["load"],
  });
  expect(report.problems.join("\n"), `HAPAX_SEED=${SEED}`).toMatch(/duplicated|gap after/);
});
