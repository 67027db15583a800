// Quotas and rates through HTTP, on every way into the server. PROTOCOL.md §21.9
import { request } from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import type { Authorize, Identity, Quotas } from "../../src/streams/access/identity.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { type Http2Client, openHttp2 } from "../kits/http2-fetch.ts";
import { openTlsStage } from "../kits/tls-server.ts";

const EVERYTHING = [
  "read",
  "append",
  "create",
  "close",
  "delete",
  "consume",
  "subscribe",
  "admin",
  "observe",
] as const;
const TEXT = { "Content-Type": "text/plain" };

/** Identities by their tokens. A test puts its own in. */
const identities = new Map<string, Identity>();
const authorize: Authorize = (credentials) => {
  const [, token = ""] = /^Bearer (.+)$/.exec(credentials.header("authorization") ?? "") ?? [];
  return identities.get(token) ?? { refused: "missing" };
};

interface CallInit extends Omit<RequestInit, "headers"> {
  readonly headers?: Readonly<Record<string, string>>;
}

interface Caller {
  readonly name: string;
  readonly namespace: string;
  readonly call: (method: string, path: string, init?: CallInit) => Promise<Response>;
}

interface Way {
  readonly name: string;
  readonly server: NodeServer;
  readonly fetch: typeof fetch;
}

const stage = openTlsStage();
const ways = new Map<string, Way>();
let client: Http2Client | undefined;
let count = 0;

beforeAll(async () => {
  for (const hasFastLane of [true, false]) {
    const server = await startNodeServer({ store: "memory", port: 0, hasFastLane, authorize });
    const name = hasFastLane ? "lane" : "node:http";
    ways.set(name, { name, server, fetch });
  }
  const server = await stage.start({ authorize });
  client = openHttp2(server.url, stage.authority.cert, 1);
  ways.set("HTTP/2", { name: "HTTP/2", server, fetch: client.fetch });
});

afterAll(async () => {
  client?.close();
  for (const { server } of ways.values()) await server.stop();
  await stage.close();
});

afterEach(() => {
  identities.clear();
});

function wayOf(name: string): Way {
  const way = ways.get(name);
  if (way === undefined) throw new Error(`no such way: ${name}`);
  return way;
}

/** A new identity in a namespace of its own. */
function callerOf(way: Way, quotas: Quotas, more: Partial<Identity> = {}): Caller {
  count += 1;
  const name = `caller-${count}`;
  const namespace = `/v1/stream/tenant-${count}`;
  identities.set(name, {
    name,
    namespace,
    quotas,
    grants: [{ actions: [...EVERYTHING] }],
    ...more,
  });
  return {
    name,
    namespace: more.namespace ?? namespace,
    call: (method, path, init = {}) =>
      way.fetch(way.server.url + path, {
        ...init,
        method,
        headers: { ...TEXT, ...init.headers, Authorization: `Bearer ${name}` },
      }),
  };
}

async function outcome(answering: Promise<Response>): Promise<string> {
  const answer = await answering;
  const text = await answer.text();
  if (answer.status < 400) return String(answer.status);
  const { code, detail } = JSON.parse(text) as Record<string, string>;
  return `${answer.status} ${code ?? ""} ${detail ?? ""} after ${answer.headers.get("retry-after") ?? ""}`;
}

async function metricsOf(caller: Caller): Promise<string> {
  return (await caller.call("GET", "/metrics")).text();
}

/** The value of a sample with these labels. */
function sample(metrics: string, name: string): number | undefined {
  const line = metrics.split("\n").find((one) => one.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length + 1));
}

describe.each(["lane", "node:http", "HTTP/2"])("on %s", (name) => {
  test("G50 more appends than the rate are refused with 429 and when to come again", async () => {
    const caller = callerOf(wayOf(name), { appendsPerSecond: 3 });
    const path = `${caller.namespace}/a`;
    expect(await outcome(caller.call("PUT", path))).toBe("201");
    const answers: string[] = [];
    for (let sent = 0; sent < 4; sent += 1) {
      answers.push(await outcome(caller.call("POST", path, { body: "x" })));
    }
    expect(answers.slice(0, 2)).toEqual(["204", "204"]);
    expect(answers).toContain("429 quota_exceeded quota=appends_per_second limit=3 after 1");
    const read = await caller.call("GET", `${path}?offset=-1`);
    // What was answered with 204 is there, and nothing else.
    expect(await read.text()).toBe("x".repeat(answers.filter((one) => one === "204").length));
  });

  test("G50 every answer to a write says what is left of the rates, and a caller that keeps to it is not refused", async () => {
    const { call, namespace } = callerOf(wayOf(name), {
      appendsPerSecond: 4,
      bytesPerSecond: 100_000,
    });
    const path = `${namespace}/a`;
    let answer = await call("PUT", path);
    const limits = /^"appends";r=(\d+);t=(\d+), "bytes";r=(\d+);t=(\d+)$/;
    const leftOf = ({ headers }: Response): readonly number[] =>
      (limits.exec(headers.get("ratelimit") ?? "") ?? []).slice(1).map(Number);
    expect(leftOf(answer)).toHaveLength(4);
    for (let sent = 0; sent < 8 && (leftOf(answer)[0] ?? -1) > 0; sent += 1) {
      answer = await call("POST", path, { body: "x".repeat(100) });
      expect(answer.status).toBe(204);
      expect(answer.headers.get("ratelimit-policy")).toBe(
        '"appends";q=4;w=1, "bytes";q=100000;w=1;qu="content-bytes"',
      );
      const [appends = -1, , bytes = -1] = leftOf(answer);
      expect(appends).toBeLessThanOrEqual(3);
      expect(bytes).toBeGreaterThan(99_000);
    }
    // Reads take nothing from these rates.
    const read = await call("GET", path);
    expect([read.status, read.headers.get("ratelimit")]).toEqual([200, null]);
    // A refusal says it too.
    const none = callerOf(wayOf(name), { appendsPerSecond: 0 }, { namespace });
    const refused = await none.call("POST", path, { body: "x" });
    expect([refused.status, refused.headers.get("ratelimit")]).toEqual([
      429,
      '"appends";r=0;t=3600',
    ]);
    const free = callerOf(wayOf(name), { streamsMax: 9 }, { namespace });
    const unlimited = await free.call("POST", path, { body: "x" });
    expect([unlimited.status, unlimited.headers.get("ratelimit-policy")]).toEqual([204, null]);
  });

  test("G50 calls of groups and subscriptions, deletions and resets count in the rate", async () => {
    const way = wayOf(name);
    const { namespace } = callerOf(way, {});
    for (const [method, path] of [
      ["PUT", "/_hapax/groups/g"],
      ["POST", "/_hapax/groups/g/join"],
      ["POST", "/_hapax/groups/g/claim"],
      ["POST", "/_hapax/groups/g/commit"],
      ["DELETE", "/_hapax/groups/g"],
      ["POST", "/_hapax/producers"],
      ["DELETE", `/_hapax/producers/p?stream=${namespace}/a`],
      ["PUT", "/v1/stream/__ds/subscriptions/s"],
      ["POST", "/v1/stream/__ds/subscriptions/s/claim"],
      ["DELETE", `${namespace}/a`],
    ] as const) {
      const { call } = callerOf(way, { appendsPerSecond: 0 }, { namespace });
      const refused = await call(method, path);
      expect([method, path, refused.status]).toEqual([method, path, 429]);
      expect(await refused.text()).toContain("appends_per_second");
      expect((await call("GET", "/_hapax/groups")).status).toBe(200);
    }
  });

  test("G50 bytes are refused by what the head announces, and a large body is taken when nothing was sent", async () => {
    const caller = callerOf(wayOf(name), { bytesPerSecond: 1000 });
    const path = `${caller.namespace}/a`;
    await caller.call("PUT", path);
    expect(await outcome(caller.call("POST", path, { body: "x".repeat(9000) }))).toBe("204");
    const refused = await outcome(caller.call("POST", path, { body: "y".repeat(1000) }));
    expect(refused).toMatch(/^429 quota_exceeded quota=bytes_per_second limit=1000 after (8|9)$/);
    expect(await outcome(caller.call("HEAD", path))).toBe("200");
  });

  test("G50 streams and stored bytes are refused with 507; reads, closes and deletions are not", async () => {
    const caller = callerOf(wayOf(name), { streamsMax: 2, storedBytesMax: 10 });
    const [a, b, c] = ["a", "b", "c"].map((one) => `${caller.namespace}/${one}`) as [
      string,
      string,
      string,
    ];
    expect(await outcome(caller.call("PUT", a, { body: "12345" }))).toBe("201");
    expect(await outcome(caller.call("PUT", b))).toBe("201");
    expect(await outcome(caller.call("PUT", c))).toBe(
      "507 storage_quota_exceeded quota=streams limit=2 after 1",
    );
    expect(await outcome(caller.call("PUT", b))).toBe("200");
    expect(await outcome(caller.call("POST", b, { body: "123456" }))).toBe(
      "507 storage_quota_exceeded quota=stored_bytes limit=10 after 1",
    );
    expect(await outcome(caller.call("POST", b, { body: "12345" }))).toBe("204");
    expect(await outcome(caller.call("GET", a))).toBe("200");
    expect(await outcome(caller.call("POST", b, { headers: { "Stream-Closed": "true" } }))).toBe(
      "204",
    );
    expect(await outcome(caller.call("DELETE", a))).toBe("204");
    expect(await outcome(caller.call("PUT", c, { body: "12345" }))).toBe("201");
  });

  test("G50 a retry of an append that is stored is answered although the storage is used up", async () => {
    const caller = callerOf(wayOf(name), { storedBytesMax: 3 });
    const path = `${caller.namespace}/a`;
    await caller.call("PUT", path);
    const numbered = { "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0" };
    const keyed = { "Idempotency-Key": '"k"' };
    const send = (headers: Record<string, string>, body: string) =>
      outcome(caller.call("POST", path, { headers, body }));
    expect(await send(numbered, "ab")).toBe("200");
    expect(await send(keyed, "c")).toBe("204");
    expect(await send({}, "d")).toMatch(/^507/);
    expect(await send(numbered, "ab")).toBe("204");
    expect(await send(keyed, "c")).toBe("204");
    expect(await (await caller.call("GET", path)).text()).toBe("abc");
  });

  test("G50 a live reader takes a place until its connection ends, and a long-poll until it is answered", async () => {
    const way = wayOf(name);
    const caller = callerOf(way, { liveReadersMax: 1 });
    const path = `${caller.namespace}/a`;
    await caller.call("PUT", path);
    const leaving = new AbortController();
    const { signal } = leaving;
    const live = await caller.call("GET", `${path}?offset=-1&live=sse`, { signal });
    const reader = live.body?.getReader();
    await reader?.read();
    const full = "429 quota_exceeded quota=live_readers limit=1 after 1";
    expect(await outcome(caller.call("GET", `${path}?offset=-1&live=sse`))).toBe(full);
    expect(await outcome(caller.call("GET", `${path}?offset=now&live=long-poll`))).toBe(full);
    leaving.abort();
    await reader?.read().catch(() => undefined);
    await expect.poll(async () => sample(await metricsOf(caller), readersOf(caller))).toBe(0);
    const polling = outcome(caller.call("GET", `${path}?offset=now&live=long-poll`));
    await expect.poll(async () => sample(await metricsOf(caller), readersOf(caller))).toBe(1);
    await caller.call("POST", path, { body: "x" });
    expect(await polling).toBe("200");
    expect(sample(await metricsOf(caller), readersOf(caller))).toBe(0);
    const ended = await caller.call("GET", `${path}?offset=-1&live=sse`);
    await caller.call("DELETE", path);
    await ended.text();
    expect(sample(await metricsOf(caller), readersOf(caller))).toBe(0);
  });

  test("G50 requests at once have a limit, and a request that is answered or gone makes room", async () => {
    const way = wayOf(name);
    const caller = callerOf(way, { requestsMax: 1 });
    const path = `${caller.namespace}/a`;
    await caller.call("PUT", path);
    const leaving = new AbortController();
    const polling = caller
      .call("GET", `${path}?offset=now&live=long-poll`, { signal: leaving.signal })
      .catch(() => "gone");
    const full = "429 quota_exceeded quota=requests limit=1 after 1";
    await expect.poll(() => outcome(caller.call("HEAD", path).then(withBody))).toBe(full);
    leaving.abort();
    expect(await polling).toBe("gone");
    await expect.poll(() => outcome(caller.call("GET", path))).toBe("200");
    // Refused in the handler, before it and after it: each of them gives its place back.
    expect(await outcome(caller.call("GET", `${path}?offset=bad`))).toMatch(/^400/);
    expect(await outcome(caller.call("GET", `${caller.namespace}/none`))).toMatch(/^404/);
    expect(await outcome(caller.call("GET", "/v1/stream/foreign"))).toMatch(/^403/);
    expect(await outcome(caller.call("GET", path))).toBe("200");
  });

  test("G50 a transaction counts each of its appends, and is stored whole or refused whole", async () => {
    const way = wayOf(name);
    const caller = callerOf(way, { appendsPerSecond: 4, storedBytesMax: 100, streamsMax: 2 });
    const at = (one: string): string => `${caller.namespace}/${one}`;
    const send = (key: string, operations: readonly object[]) =>
      outcome(
        caller.call("POST", "/_hapax/transactions", {
          headers: { "Content-Type": "application/json", "Idempotency-Key": `"${key}"` },
          body: JSON.stringify({ operations }),
        }),
      );
    const create = (one: string) => ({ create: { stream: at(one), contentType: "text/plain" } });
    const append = (one: string, text: string) => ({ append: { stream: at(one), text } });
    const first = [create("a"), append("a", "12345"), append("a", "6")];
    expect(await send("one", first)).toBe("200");
    const more = await send("two", [append("a", "7"), append("a", "8"), append("a", "9")]);
    expect(more).toBe("429 quota_exceeded quota=appends_per_second limit=4 after 1");
    const stored = await caller.call("GET", at("a"));
    expect(await stored.text()).toBe("123456");
    await new Promise((resolve) => setTimeout(resolve, 1100));
    const large = [create("b"), append("b", "x".repeat(95))];
    expect(await send("three", large)).toMatch(/^507 storage_quota_exceeded quota=stored_bytes/);
    expect(await outcome(caller.call("GET", at("b")))).toMatch(/^404/);
    // The same transaction again, although there is no room for it now.
    expect(await send("one", first)).toMatch(/^(200|429)/);
  });
});

/** A HEAD has no body, so that its refusal is only known by its status. */
async function withBody(answer: Response): Promise<Response> {
  if (answer.status !== 429) return answer;
  const body = JSON.stringify({ code: "quota_exceeded", detail: "quota=requests limit=1" });
  return new Response(body, { status: 429, headers: answer.headers });
}

function readersOf({ namespace, name }: Caller): string {
  return `hapax_quota_used{namespace="${namespace}",identity="${name}",quota="live_readers"}`;
}

describe("a body without an announced length", () => {
  test("G50 takes its bytes when it is there", async () => {
    const { server } = wayOf("node:http");
    const caller = callerOf(wayOf("node:http"), { bytesPerSecond: 100, appendsPerSecond: 10 });
    const path = `${caller.namespace}/a`;
    await caller.call("PUT", path);
    const send = (body: string) =>
      new Promise<number>((resolve, reject) => {
        const sent = request(server.url + path, {
          method: "POST",
          headers: { ...TEXT, Authorization: `Bearer ${caller.name}` },
        });
        sent.on("error", reject);
        sent.on("response", (answer) => {
          answer.resume();
          resolve(answer.statusCode ?? 0);
        });
        sent.write(body); // Not `end`: Node would announce the length.
        sent.end();
      });
    expect(await send("x".repeat(500))).toBe(204);
    expect(await send("y")).toBe(429);
    expect(await (await caller.call("GET", path)).text()).toBe("x".repeat(500));
  });
});

describe("who shares what", () => {
  test("G50 a namespace shares its storage; each identity has its own rates, also under the same name elsewhere", async () => {
    const way = wayOf("lane");
    const quotas = { streamsMax: 1, appendsPerSecond: 2 };
    const one = callerOf(way, quotas);
    const two = callerOf(way, quotas, { namespace: one.namespace });
    const elsewhere = callerOf(way, quotas, { name: one.name });
    expect(await outcome(one.call("PUT", `${one.namespace}/a`))).toBe("201");
    expect(await outcome(two.call("PUT", `${one.namespace}/b`))).toMatch(/^507/);
    expect(await outcome(one.call("POST", `${one.namespace}/a`, { body: "x" }))).toBe("204");
    expect(await outcome(one.call("POST", `${one.namespace}/a`, { body: "x" }))).toMatch(/^429/);
    expect(await outcome(two.call("POST", `${one.namespace}/a`, { body: "x" }))).toBe("204");
    expect(await outcome(elsewhere.call("PUT", `${elsewhere.namespace}/a`))).toBe("201");
  });

  test("the server's quotas are for identities without their own, and a reload changes them", async () => {
    const server = await startNodeServer({
      store: "memory",
      port: 0,
      authorize,
      quotas: { streamsMax: 1 },
    });
    const way = { name: "own", server, fetch };
    const plain = callerOf(way, {});
    const rich = callerOf(way, { streamsMax: 2 });
    const tryTwo = async ({ call, namespace }: Caller) => [
      await outcome(call("PUT", `${namespace}/a`)),
      await outcome(call("PUT", `${namespace}/b`)),
    ];
    expect(await tryTwo(plain)).toEqual(["201", expect.stringMatching(/^507/)]);
    expect(await tryTwo(rich)).toEqual(["201", "201"]);
    expect(server.reload({ quotas: { streamsMax: 3 } }).changed).toEqual(["quotas"]);
    expect(await tryTwo(plain)).toEqual(["200", "201"]);
    await server.stop();
  });

  test("quotas that are not valid are refused at the start", async () => {
    const wrong = { requestsMax: -1, more: 1 } as Quotas;
    await expect(startNodeServer({ store: "memory", port: 0, quotas: wrong })).rejects.toThrow(
      /quotas\.requestsMax is not a whole number.*quotas\.more is not known/s,
    );
  });
});

describe("metrics", () => {
  test("G50 a caller of a namespace sees the figures of its own, and nothing of the server or of others", async () => {
    const way = wayOf("lane");
    const other = callerOf(way, { streamsMax: 7 });
    await other.call("PUT", `${other.namespace}/a`, { body: "0123456789" });
    const caller = callerOf(way, { streamsMax: 1, appendsPerSecond: 5 });
    await caller.call("PUT", `${caller.namespace}/a`, { body: "abc" });
    await caller.call("PUT", `${caller.namespace}/b`);
    const group = { streams: [`${caller.namespace}/a`], from: "start" };
    const made = await caller.call("PUT", "/_hapax/groups/g", {
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(group),
    });
    expect(made.status).toBe(201);
    const metrics = await metricsOf(caller);
    const families = [...metrics.matchAll(/^# TYPE (\w+)/gm)].map(([, family]) => family);
    expect(families).toEqual([
      "hapax_groups",
      "hapax_group_members",
      "hapax_group_lag_bytes",
      "hapax_streams",
      "hapax_stored_bytes",
      "hapax_quota_used",
      "hapax_quota_limit",
      "hapax_quota_refusals_total",
    ]);
    expect(metrics).not.toContain(other.namespace);
    expect(metrics).not.toContain(other.name);
    const values = [
      "hapax_groups",
      "hapax_group_lag_bytes",
      "hapax_streams",
      "hapax_stored_bytes",
      `hapax_quota_used{namespace="${caller.namespace}",quota="streams"}`,
      `hapax_quota_limit{namespace="${caller.namespace}",identity="${caller.name}",quota="streams"}`,
      'hapax_quota_refusals_total{quota="streams"}',
      `hapax_quota_used{namespace="${caller.namespace}",identity="${caller.name}",quota="requests"}`,
    ].map((one) => sample(metrics, one));
    expect(values).toEqual([1, 3, 1, 3, 1, 1, 1, 1]);
  });

  test("a caller without a namespace sees all, and at most a hundred identities by name", async () => {
    const server = await startNodeServer({ store: "memory", port: 0, authorize });
    const way = { name: "own", server, fetch };
    const near = callerOf(way, { bytesPerSecond: 10 });
    for (let index = 0; index < 120; index += 1) {
      const { call, namespace } = callerOf(way, { streamsMax: 9 });
      await call("PUT", `${namespace}/a`, { body: "x" });
    }
    await near.call("PUT", `${near.namespace}/a`, { body: "x".repeat(10_000) });
    count += 1;
    const watcher = `caller-${count}`;
    identities.set(watcher, { name: watcher, grants: [{ actions: ["observe"] }] });
    const answer = await fetch(`${server.url}/metrics`, {
      headers: { Authorization: `Bearer ${watcher}` },
    });
    const metrics = await answer.text();
    const named = [...metrics.matchAll(/^hapax_quota_used\{.*identity=.*quota="requests"/gm)];
    expect(named).toHaveLength(100);
    expect(metrics).toContain(`identity="${near.name}"`);
    const namespaces = [
      ...metrics.matchAll(/^hapax_quota_used\{namespace="[^"]*",quota="streams"/gm),
    ];
    expect(namespaces).toHaveLength(100);
    expect(sample(metrics, 'hapax_quota_used{quota="streams"}')).toBe(20);
    expect(sample(metrics, "hapax_commit_seconds_count")).toBeGreaterThan(0);
    await server.stop();
  });

  test("without authentication there are no quotas", async () => {
    const server = await startNodeServer({ store: "memory", port: 0, quotas: { streamsMax: 0 } });
    expect((await fetch(`${server.url}/v1/stream/a`, { method: "PUT" })).status).toBe(201);
    expect(await (await fetch(`${server.url}/metrics`)).text()).not.toContain("quota");
    await server.stop();
  });
});

describe("a producer that is throttled", () => {
  test("G50 waits as the server says, and every record is there once and in order", async () => {
    const way = wayOf("lane");
    const caller = callerOf(way, { appendsPerSecond: 4, bytesPerSecond: 3000 });
    const path = `${caller.namespace}/a`;
    const stream = connect(way.server.url + path, { token: caller.name });
    await stream.create({ contentType: "application/json" });
    const producer = stream.producer({ id: "p", batchBytesMax: 400, inFlightMax: 5 });
    for (let index = 0; index < 200; index += 1) producer.append({ index, pad: "x".repeat(20) });
    await producer.close();
    const read = await caller.call("GET", path);
    const records = (await read.json()) as readonly { index: number }[];
    expect(records.map(({ index }) => index)).toEqual(Array.from({ length: 200 }, (_, at) => at));
    const refusals = 'hapax_quota_refusals_total{quota="appends_per_second"}';
    expect(sample(await metricsOf(caller), refusals)).toBeGreaterThan(0);
  }, 60_000);
});
