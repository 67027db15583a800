// Jobs over HTTP: what a worker of any language sees. PROTOCOL.md §20.5
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../runtimes/node.ts";
import type { Store } from "../store.ts";
import { openFileStore } from "../stores/file.ts";
import { openMemoryStore } from "../stores/memory.ts";

const directory = mkdtempSync(join(tmpdir(), "hapax-jobs-"));
const GROUP = "/_hapax/groups/g";
const running: NodeServer[] = [];

afterEach(async () => {
  for (const server of running.splice(0)) await server.stop();
});

afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
});

interface WireJob {
  readonly stream: string;
  readonly offset: string;
  readonly nextOffset: string;
  readonly attempt: number;
  readonly data?: unknown;
  readonly base64?: string;
}

interface Taken {
  readonly token: number;
  readonly jobs: readonly WireJob[];
  readonly full?: boolean;
}

async function start(store?: string): Promise<NodeServer> {
  const server = await startNodeServer({
    port: 0,
    store: store === undefined ? "memory" : await openFileStore(join(directory, store)),
    onAudit: () => undefined,
  });
  running.push(server);
  return server;
}

async function send(
  server: NodeServer,
  method: string,
  path: string,
  value: unknown,
  more: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly body: Readonly<Record<string, unknown>> }> {
  const headers = { "Content-Type": "application/json", ...more };
  const response = await fetch(server.url + path, { method, headers, body: JSON.stringify(value) });
  const text = await response.text();
  const body = (text.startsWith("{") ? JSON.parse(text) : {}) as Readonly<Record<string, unknown>>;
  return { status: response.status, body };
}

class Worker {
  readonly #server: NodeServer;
  readonly member: string;

  constructor(server: NodeServer, member: string) {
    this.#server = server;
    this.member = member;
  }

  static async join(server: NodeServer): Promise<Worker> {
    const { body } = await send(server, "POST", `${GROUP}/join`, { name: "w" });
    return new Worker(server, String(body["member"]));
  }

  async take(options: object = {}): Promise<Taken> {
    const { member } = this;
    const { body } = await send(this.#server, "POST", `${GROUP}/take`, { member, ...options });
    return body as unknown as Taken;
  }

  settle(body: object): ReturnType<typeof send> {
    return send(this.#server, "POST", `${GROUP}/settle`, { member: this.member, ...body });
  }
}

const claimsOf = ({ token, jobs }: Taken) =>
  jobs.map(({ stream, offset }) => ({ stream, offset, token }));

async function withJobs(
  server: NodeServer,
  records: readonly unknown[],
  leaseMs = 1000,
): Promise<Worker> {
  await send(server, "PUT", "/in", records);
  const created = await send(server, "PUT", GROUP, { streams: ["/in"], jobs: true, leaseMs });
  expect(created.status).toBe(201);
  return Worker.join(server);
}

async function cursor(server: NodeServer): Promise<Readonly<Record<string, unknown>>> {
  const response = await fetch(server.url + GROUP);
  const { cursors } = (await response.json()) as {
    readonly cursors: readonly Readonly<Record<string, unknown>>[];
  };
  return cursors[0] ?? {};
}

describe("jobs over HTTP", () => {
  test("several workers share the records of one stream, and settle them in any order", async () => {
    const server = await start();
    const one = await withJobs(server, [{ n: 1 }, "two", [3], 4.0, null]);
    const other = await Worker.join(server);
    const first = await one.take({ max: 2 });
    const second = await other.take({ max: 9 });
    expect(first.jobs.map(({ data }) => data)).toEqual([{ n: 1 }, "two"]);
    expect(second.jobs.map(({ data }) => data)).toEqual([[3], 4, null]);
    await other.settle({ done: claimsOf(second).toReversed() });
    expect(await cursor(server)).toMatchObject({ offset: first.jobs[0]?.offset, openJobs: 2 });
    const settled = await one.settle({ done: claimsOf(first) });
    expect(settled).toEqual({ status: 200, body: { leaseMs: 1000, lost: [] } });
    expect(await cursor(server)).toMatchObject({ openJobs: 0, lag: 0 });
    // A call whose answer was lost is sent again.
    expect(await one.settle({ done: claimsOf(first) })).toEqual(settled);
    expect((await one.take({ seen: first.token })).jobs).toEqual([]);
  });

  test("G120 attempts, delays and jobs that are done survive a restart", async () => {
    let server = await start("restart");
    let worker = await withJobs(server, [1, 2, 3]);
    const taken = await worker.take({ max: 3 });
    const [a, b, c] = claimsOf(taken);
    const putBackMs = performance.now();
    await worker.settle({ done: [b], later: [{ ...a, delayMs: 1500 }] });
    expect(await cursor(server)).toMatchObject({ openJobs: 2, waitingJobs: 1, attemptMax: 1 });
    await server.stop();

    server = await start("restart");
    worker = new Worker(server, worker.member);
    // The third is still this worker's: it gets it again as long as it says that it has not seen it.
    expect((await worker.take()).jobs).toEqual(taken.jobs.slice(2));
    expect((await worker.settle({ done: [c] })).body["lost"]).toEqual([]);
    const again = await worker.take({ seen: taken.token, waitMs: 10_000 });
    expect(performance.now() - putBackMs).toBeGreaterThan(1490);
    expect(again.jobs).toEqual([{ ...taken.jobs[0], attempt: 2 }]);
    expect(await cursor(server)).toMatchObject({ openJobs: 1, waitingJobs: 0, attemptMax: 2 });
    expect((await worker.settle({ done: claimsOf(again) })).body["lost"]).toEqual([]);
    expect(await cursor(server)).toMatchObject({ openJobs: 0, lag: 0 });
  });

  test("a lost answer is given again, one at a time, and counts once", async () => {
    const server = await start();
    const worker = await withJobs(server, [1, 2, 3, 4]);
    const first = await worker.take({ max: 2 });
    const second = await worker.take({ max: 1, seen: first.token });
    expect(await worker.take({ max: 9 })).toEqual(first);
    expect(await worker.take({ max: 9, seen: first.token })).toEqual(second);
    const third = await worker.take({ max: 9, seen: second.token });
    expect(third.jobs.map(({ data, attempt }) => [data, attempt])).toEqual([[4, 1]]);
  });

  test("the jobs of a worker that left, and of one that does not call, go to others", async () => {
    const server = await start();
    const [one, two, three] = [
      await withJobs(server, [1, 2]),
      await Worker.join(server),
      await Worker.join(server),
    ];
    const first = await one.take();
    await two.take();
    await send(server, "POST", `${GROUP}/leave`, { member: one.member });
    expect((await three.take()).jobs).toEqual([{ ...first.jobs[0], attempt: 2 }]);
    // The second one is silent. The third calls, so it keeps what it has.
    const waiting = three.take({ max: 9, seen: Number.MAX_SAFE_INTEGER, waitMs: 5000 });
    const renewing = setInterval(() => void three.settle({}), 300);
    const late = await waiting;
    clearInterval(renewing);
    expect(late.jobs.map(({ data, attempt }) => [data, attempt])).toEqual([[2, 2]]);
    expect((await two.settle({ done: claimsOf(late) })).body).toMatchObject({
      code: "member_lost",
    });
  });

  test("G121 a transaction ends a job with its effects, and never that of another worker", async () => {
    const server = await start();
    const one = await withJobs(server, [1]);
    const two = await Worker.join(server);
    await send(server, "PUT", "/out", []);
    const taken = await one.take();
    const [claim] = claimsOf(taken);
    const commit = (key: string, member: string, token: number) => {
      const operations = [
        { append: { stream: "/out", data: [key] } },
        { done: { group: "g", member, ...claim, token } },
      ];
      const identity = { "Idempotency-Key": key };
      return send(server, "POST", "/_hapax/transactions", { operations }, identity);
    };
    await one.settle({ later: [claim] });
    const again = await two.take();
    const refused = { status: 409, body: { code: "lease_lost", operation: 1 } };
    expect(await commit("first", one.member, taken.token)).toMatchObject(refused);
    expect(await commit("foreign", two.member, taken.token)).toMatchObject(refused);
    expect(await commit("done", two.member, again.token)).toMatchObject({ status: 200 });
    // The same request again is the same transaction; another one cannot end the job twice.
    expect(await commit("done", two.member, again.token)).toMatchObject({ status: 200 });
    expect(await commit("twice", two.member, again.token)).toMatchObject(refused);
    const out = await fetch(`${server.url}/out`);
    expect(await out.json()).toEqual(["done"]);
  });

  test("waiting ends with an append, a job that is put back, and a stop of the server", async () => {
    const server = await start();
    const worker = await withJobs(server, []);
    const waiting = worker.take({ waitMs: 20_000 });
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
    await send(server, "POST", "/in", [{ late: true }]);
    const taken = await waiting;
    expect(taken.jobs[0]?.data).toEqual({ late: true });
    const other = await Worker.join(server);
    const back = other.take({ waitMs: 20_000 });
    await worker.settle({ later: claimsOf(taken).map((job) => ({ ...job, uncounted: true })) });
    expect((await back).jobs[0]).toMatchObject({ data: { late: true }, attempt: 1 });
    const last = worker.take({ waitMs: 20_000, seen: taken.token });
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
    await server.stop();
    expect(await last).toMatchObject({ jobs: [] });
  }, 10_000);

  test("a worker that has gone gets nothing, and stalls no other", async () => {
    const server = await start();
    const worker = await withJobs(server, []);
    const other = await Worker.join(server);
    const { member } = worker;
    const body = JSON.stringify({ member, waitMs: 20_000 });
    const signal = AbortSignal.timeout(100);
    const given = fetch(`${server.url}${GROUP}/take`, { method: "POST", body, signal });
    await expect(given).rejects.toThrow();
    await new Promise((resolve) => {
      setTimeout(resolve, 200);
    });
    await send(server, "POST", "/in", [1]);
    expect((await other.take({ waitMs: 5000 })).jobs).toMatchObject([{ data: 1, attempt: 1 }]);
  });

  test("records of a stream that is not JSON are its appends, as base64", async () => {
    const server = await start();
    const headers = { "Content-Type": "text/plain" };
    await fetch(`${server.url}/in`, { method: "PUT", headers });
    for (const body of ["one", "two"]) {
      await fetch(`${server.url}/in`, { method: "POST", headers, body });
    }
    const worker = await withJobs(server, []);
    const { jobs } = await worker.take({ max: 5 });
    expect(jobs.map(({ base64 = "" }) => atob(base64))).toEqual(["one", "two"]);
  });

  test("a million jobs out of order take bounded room: nothing new is given, and the answer says so", async () => {
    const server = await start();
    const records = Array.from({ length: 12_000 }, (_, n) => n);
    const worker = await withJobs(server, records);
    let seen = 0;
    let count = 0;
    const given: { stream: string; offset: string; token: number }[] = [];
    for (;;) {
      const taken = await worker.take({ max: 1000, seen });
      seen = taken.token;
      if (taken.jobs.length === 0) {
        expect(taken.full).toBe(true);
        break;
      }
      count += taken.jobs.length;
      given.push(...claimsOf(taken));
    }
    expect(count).toBe(10_000);
    // All but the first, from the last to the first: the offset stays, and there is room again.
    const [first, ...others] = given;
    for (let at = others.length; at > 0; at -= 1000) {
      await worker.settle({ done: others.slice(Math.max(0, at - 1000), at).toReversed() });
    }
    expect(await cursor(server)).toMatchObject({ offset: first?.offset, openJobs: 1 });
    expect((await worker.take({ max: 1, seen })).jobs).toMatchObject([{ data: 10_000 }]);
  }, 30_000);

  test.each([undefined, "trimmed"])(
    "G120 jobs that were trimmed are gone, and the group moves on by itself (%s)",
    async (store) => {
      const server = await start(store);
      const worker = await withJobs(server, [1]);
      await send(server, "PUT", "/other", []);
      const settings = { streams: ["/in", "/other"], jobs: true };
      await send(server, "PUT", "/_hapax/groups/both", settings);
      for (const record of [2, 3, 4]) await send(server, "POST", "/in", [record]);
      await send(server, "POST", "/other", ["other"]);
      const taken = await worker.take({ max: 3 });
      const [first, second, third] = claimsOf(taken);
      await worker.settle({ later: [first], done: [] });
      const cut = `/_hapax/trim?stream=/in&before=${String(third?.offset)}`;
      expect(await send(server, "POST", cut, {})).toMatchObject({ status: 409 });
      expect(await send(server, "POST", `${cut}&needed=drop`, {})).toMatchObject({ status: 204 });
      expect(await cursor(server)).toMatchObject({ offset: third?.offset, openJobs: 1 });
      // One that waited and one whose worker has it are gone; the worker keeps the third.
      const settled = await worker.settle({ later: [second] });
      expect(settled.body["lost"]).toMatchObject([{ offset: second?.offset }]);
      expect((await worker.take({ max: 9 })).jobs).toEqual(taken.jobs.slice(2));
      const next = await worker.take({ max: 9, seen: taken.token });
      expect(next.jobs.map(({ data }) => data)).toEqual([4]);
      // A group that had begun nothing begins where there is something to read, and no stream waits for another one.
      const { body } = await send(server, "POST", "/_hapax/groups/both/join", { name: "w" });
      const fromBoth = await send(server, "POST", "/_hapax/groups/both/take", { ...body, max: 9 });
      const data = (fromBoth.body as unknown as Taken).jobs.map((job) => job.data);
      expect(new Set(data)).toEqual(new Set([3, 4, "other"]));
    },
  );

  test("G120 jobs that were trimmed do not come back with a restart", async () => {
    let server = await start("trimmed-before");
    // A lease that outlasts the restart, also on a slow machine: else the job has no worker, and the figures differ.
    const worker = await withJobs(server, [1], 60_000);
    for (const record of [2, 3]) await send(server, "POST", "/in", [record]);
    const taken = await worker.take({ max: 2 });
    const [, second] = claimsOf(taken);
    const cut = `/_hapax/trim?stream=/in&before=${String(second?.offset)}&needed=drop`;
    expect(await send(server, "POST", cut, {})).toMatchObject({ status: 204 });
    const before = await cursor(server);
    expect(before).toMatchObject({ offset: second?.offset, openJobs: 1 });
    await server.stop();
    server = await start("trimmed-before");
    expect(await cursor(server)).toEqual(before);
    const again = new Worker(server, worker.member);
    expect((await again.settle({ done: [second] })).body["lost"]).toEqual([]);
    const next = await again.take({ max: 9, seen: taken.token });
    expect(next.jobs.map(({ data, attempt }) => [data, attempt])).toEqual([[3, 1]]);
  });

  test("G120 a fork whose source is trimmed has no jobs of what is gone, and its own", async () => {
    const server = await start();
    await send(server, "PUT", "/source", [1]);
    await send(server, "POST", "/source", [2]);
    const headers = { "Stream-Forked-From": "/source", "Content-Type": "application/json" };
    await fetch(`${server.url}/in`, { method: "PUT", headers });
    const worker = await withJobs(server, []);
    await send(server, "POST", "/in", [3]);
    const taken = await worker.take();
    expect(taken.jobs.map(({ data }) => data)).toEqual([1]);
    const before = String(taken.jobs[0]?.nextOffset);
    const cut = `/_hapax/trim?stream=/source&before=${before}&needed=drop`;
    expect(await send(server, "POST", cut, {})).toMatchObject({ status: 204 });
    expect(await cursor(server)).toMatchObject({ offset: before, openJobs: 0 });
    const next = await worker.take({ max: 9, seen: taken.token });
    expect(next.jobs.map(({ data }) => data)).toEqual([2, 3]);
  });

  test("G34 jobs of one append that come again are read with one look at the store", async () => {
    const store = openMemoryStore();
    let reads = 0;
    const counted: Store = {
      ...store,
      read: (...facts) => {
        reads += 1;
        return store.read(...facts);
      },
    };
    const server = await startNodeServer({ port: 0, store: counted, onAudit: () => undefined });
    running.push(server);
    const records = Array.from({ length: 500 }, (_, n) => n);
    const worker = await withJobs(server, records);
    const taken = await worker.take({ max: 500 });
    expect(taken.jobs).toHaveLength(500);
    await worker.settle({ later: claimsOf(taken).toReversed() });
    reads = 0;
    const again = await worker.take({ max: 500, seen: taken.token });
    expect(again.jobs.map(({ data }) => data)).toEqual(taken.jobs.map(({ data }) => data));
    expect(again.jobs.every(({ attempt }) => attempt === 2)).toBe(true);
    // The same answer once more.
    expect(await worker.take({ max: 500, seen: taken.token })).toEqual(again);
    expect(reads).toBeLessThanOrEqual(4);
  });

  test("what is not possible is refused by name", async () => {
    const server = await start();
    const worker = await withJobs(server, [1]);
    await send(server, "PUT", "/_hapax/groups/streams", { streams: ["/in"] });
    const { member } = worker;
    const many = Array.from({ length: 1001 }, () => ({ stream: "/in", offset: "0", token: 1 }));
    const twice = { stream: "/in", offset: `${"0".repeat(16)}_${"0".repeat(16)}`, token: 1 };
    const answers = await Promise.all([
      send(server, "PUT", "/_hapax/groups/x", { pattern: "/in/*", jobs: true }),
      send(server, "PUT", "/_hapax/groups/x", {
        streams: Array.from({ length: 101 }, (_, n) => `/in/${n}`),
        jobs: true,
      }),
      send(server, "POST", `${GROUP}/claim`, { member }),
      send(server, "POST", "/_hapax/groups/streams/take", { member }),
      send(server, "POST", "/_hapax/groups/streams/settle", { member }),
      worker.settle({ done: many }),
      worker.settle({ done: [twice], later: [twice] }),
      worker.settle({ later: [{ ...twice, delayMs: 31 * 86_400_000 }] }),
      send(server, "POST", `${GROUP}/take`, { member, max: 1001 }),
      send(server, "POST", `${GROUP}/take`, { member, waitMs: 30_001 }),
    ]);
    for (const { status, body } of answers) {
      expect(status).toBe(400);
      expect(String(body["detail"]).length).toBeGreaterThan(10);
    }
    const differs = await send(server, "PUT", GROUP, { streams: ["/in"], leaseMs: 1000 });
    expect(differs).toMatchObject({ status: 409, body: { code: "group_exists" } });
  });
});
