// PROTOCOL.md §12.9 to §12.13: what a person looks at, and the page that shows it.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { ACTIONS, type Authorize, type Identity } from "../../src/streams/access/identity.ts";
import { withShownKeys } from "../../src/streams/access/shown-keys.ts";
import { ApiKeys } from "../../src/streams/access/api-keys.ts";
import { anyOf } from "../../src/streams/access/any-of.ts";
import { createServerOnFetch } from "../../src/streams/runtimes/fetch-server.ts";
import { ALL_PARTS } from "../../src/streams/server/routes.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { createFetchServer } from "../../src/streams/runtimes/fetch.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { call, type CallOptions } from "./raw-http.ts";

const JSON_TYPE = { "content-type": "application/json" };
let server: NodeServer;

const people: Readonly<Record<string, Identity>> = {
  owner: { name: "owner", grants: [{ actions: ACTIONS }] },
  eu: { name: "eu", grants: [{ actions: ACTIONS, streams: ["/v1/stream/eu/**"] }] },
};
const byName: Authorize = ({ header }) => people[header("x-name") ?? ""] ?? { refused: "missing" };

beforeAll(async () => {
  const keys = new ApiKeys();
  keys.replace([
    {
      id: "0123456789ab",
      name: "billing",
      sha256: "ab".repeat(32),
      createdAt: "2026-11-18T00:00:00.000Z",
      grants: [{ actions: ["append"] }],
    },
  ]);
  const authorize = anyOf(withShownKeys(byName, () => keys.shown()));
  server = await startNodeServer({ store: "memory", port: 0, authorize, onAudit: () => undefined });
  await as("owner", "PUT", "/v1/stream/eu/orders", {
    headers: { ...JSON_TYPE, "stream-key-max": "10", "stream-ttl": "3600" },
  });
});

afterAll(async () => {
  await server.stop();
});

function as(name: string, method: string, path: string, options: CallOptions = {}) {
  const headers = { "x-name": name, ...options.headers };
  return call(method, server.url, path, { ...options, headers });
}

async function shown(name: string, path: string, headers: Record<string, string> = {}) {
  const answer = await as(name, "GET", path, { headers });
  expect(answer.status, answer.text).toBe(200);
  return JSON.parse(answer.text) as Record<string, unknown>;
}

describe("one stream", () => {
  test("has its expiry, and how full its window of keys is", async () => {
    const post = { headers: { ...JSON_TYPE, "idempotency-key": "first" }, body: "1" };
    await as("owner", "POST", "/v1/stream/eu/orders", post);
    await as("owner", "POST", "/v1/stream/eu/orders", post);
    expect(await shown("owner", "/_hapax/stream?stream=/v1/stream/eu/orders")).toMatchObject({
      path: "/v1/stream/eu/orders",
      nextOffset: "0000000000000000_0000000000000002",
      closed: false,
      ttlSeconds: 3600,
      keys: { count: 1, max: 10, windowSeconds: 86_400, overflow: "evict", fromContent: false },
      forks: [],
    });
  });

  test("names its forks and its source, to those who may read them", async () => {
    const forked = { "stream-forked-from": "/v1/stream/eu/orders" };
    await as("owner", "PUT", "/v1/stream/eu/copy", { headers: forked });
    await as("owner", "PUT", "/v1/stream/us/copy", { headers: forked });
    const source = "/_hapax/stream?stream=/v1/stream/eu/orders";
    const whole = ["/v1/stream/eu/copy", "/v1/stream/us/copy"];
    expect((await shown("owner", source))["forks"]).toEqual(whole);
    expect((await shown("eu", source))["forks"]).toEqual(["/v1/stream/eu/copy"]);
    const copy = await shown("owner", "/_hapax/stream?stream=/v1/stream/us/copy");
    expect(copy["forkedFrom"]).toMatchObject({ stream: "/v1/stream/eu/orders" });
    await as("owner", "DELETE", "/v1/stream/us/copy");
    expect((await shown("owner", source))["forks"]).toEqual(["/v1/stream/eu/copy"]);
  });

  test("that is not there is 404, and a query without a stream is 400", async () => {
    expect((await as("owner", "GET", "/_hapax/stream?stream=/v1/stream/none")).status).toBe(404);
    expect((await as("owner", "GET", "/_hapax/stream")).status).toBe(400);
    expect((await as("owner", "GET", "/_hapax/keys?stream=/v1/stream/eu/orders")).status).toBe(400);
  });
});

test("a key is stored or not, and a retry gets the offset that the look has shown", async () => {
  const path = "/_hapax/keys?stream=/v1/stream/eu/orders";
  expect(await shown("owner", path, { "idempotency-key": "second" })).toEqual({ stored: false });
  const post = { headers: { ...JSON_TYPE, "idempotency-key": "second" }, body: "[2,3]" };
  await as("owner", "POST", "/v1/stream/eu/orders", post);
  const known = await shown("owner", path, { "idempotency-key": '"second"' });
  const retry = await as("owner", "POST", "/v1/stream/eu/orders", post);
  expect(known).toEqual({
    stored: true,
    nextOffset: retry.headers["stream-next-offset"],
    storedAt: expect.stringMatching(/^20\d\d-/) as string,
  });
  // Content that is the key of nothing.
  expect(await shown("owner", path, { "idempotency-key": "third" })).toEqual({ stored: false });
});

test("a key that has reached its age is not stored any more", async () => {
  // A clock of the test's own: a window is measured by it.
  let nowMs = 1_700_000_000_000;
  const clock = { ...systemClock, nowMs: () => nowMs, steadyMs: () => nowMs };
  const own = createServerOnFetch(
    { address: "127.0.0.1", clock },
    { store: openMemoryStore(), parts: ALL_PARTS },
  );
  const at = (path: string): string => `http://127.0.0.1${path}`;
  const headers = { ...JSON_TYPE, "idempotency-key": "old", "stream-key-window": "60" };
  await own.fetch(new Request(at("/v1/stream/s"), { method: "PUT", headers }));
  await own.fetch(new Request(at("/v1/stream/s"), { method: "POST", headers, body: "1" }));
  const look = async (): Promise<unknown> => {
    const request = new Request(at("/_hapax/keys?stream=/v1/stream/s"), { headers });
    return (await own.fetch(request)).json();
  };
  expect(await look()).toMatchObject({ stored: true });
  nowMs += 60_000;
  expect(await look()).toEqual({ stored: false });
  await own.stop();
});

test("subscriptions are listed to those who may follow all that they follow, page by page", async () => {
  for (const [id, pattern] of [
    ["a", "eu/**"],
    ["b", "**"],
    ["c", "eu/orders"],
  ] as const) {
    const body = JSON.stringify({ type: "pull-wake", pattern, wake_stream: "eu/wakes" });
    const made = await as("owner", "PUT", `/v1/stream/__ds/subscriptions/${id}`, { body });
    expect(made.status).toBe(201);
  }
  const idsOf = async (name: string, query: string): Promise<unknown> => {
    const { subscriptions, next } = await shown(name, `/_hapax/subscriptions${query}`);
    const ids = (subscriptions as { subscription: string }[]).map((one) => one.subscription);
    return next === undefined ? ids : [...ids, `next ${next as string}`];
  };
  expect(await idsOf("owner", "")).toEqual(["a", "b", "c"]);
  expect(await idsOf("eu", "")).toEqual(["a", "c"]);
  expect(await idsOf("owner", "?limit=1")).toEqual(["a", "next a"]);
  expect(await idsOf("owner", "?limit=1&after=a")).toEqual(["b", "next b"]);
  await as("owner", "PUT", "/v1/stream/us/late", { headers: JSON_TYPE });
  expect(await idsOf("owner", "?stream=/v1/stream/eu/orders")).toEqual(["a", "b", "c"]);
});

test("API keys are shown without what proves them, to an identity that may do everything", async () => {
  const answer = await as("owner", "GET", "/_hapax/tokens");
  expect(JSON.parse(answer.text)).toEqual({
    tokens: [
      {
        id: "0123456789ab",
        name: "billing",
        createdAt: "2026-11-18T00:00:00.000Z",
        grants: [{ actions: ["append"] }],
      },
    ],
  });
  expect(answer.text).not.toContain("ab".repeat(8));
  expect((await as("eu", "GET", "/_hapax/tokens")).status).toBe(403);
});

test("PROTOCOL.md §24.4: a server alone has no node and no shard, for an identity of the whole server", async () => {
  expect(await shown("owner", "/_hapax/cluster")).toEqual({ nodes: [], shards: [] });
  expect((await as("eu", "GET", "/_hapax/cluster")).status).toBe(403);
});

describe("the dashboard", () => {
  const files = { script: "run()", style: "a{}", version: "v1" };
  const dashboard = () => Promise.resolve(files);
  const composition = { store: openMemoryStore(), parts: ALL_PARTS, dashboard };
  const built = createServerOnFetch({ address: "127.0.0.1" }, composition);
  const get = (path: string, headers: Record<string, string> = {}): Promise<Response> =>
    built.fetch(new Request(`http://127.0.0.1${path}`, { headers }));
  const browser = { accept: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8" };

  afterAll(() => built.stop());

  test("is what a browser gets at /, and programs get the text", async () => {
    const page = await get("/", browser);
    expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(page.headers.get("vary")).toContain("Accept");
    for (const accept of ["*/*", "text/plain", "application/json, text/x-html", ""]) {
      const text = await get("/", { accept });
      expect(text.headers.get("content-type")).toBe("text/plain; charset=utf-8");
      expect(text.headers.get("vary")).toContain("Accept");
      expect(await text.text()).toContain("/_hapax/ui/");
    }
  });

  test("runs one script by a nonce that is new each time, and its URLs are relative", async () => {
    const [one, other] = [await get("/", browser), await get("/_hapax/ui/")];
    const nonces = [one, other].map((page) => {
      const policy = page.headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).not.toMatch(/unsafe|\*|https?:|script-src 'self'/);
      return /script-src 'nonce-([0-9a-f]{32})'/.exec(policy)?.[1];
    });
    expect(nonces[0]).not.toBe(nonces[1]);
    const [front, below] = [await one.text(), await other.text()];
    expect(front).toContain(`nonce="${nonces[0] ?? "?"}" src="_hapax/ui/app.js?v=v1"`);
    expect(below).toContain(`nonce="${nonces[1] ?? "?"}" src="app.js?v=v1"`);
    for (const page of [front, below]) expect(page).not.toMatch(/(?:src|href)="(?:\/|http)/);
    const away = await get("/_hapax/ui");
    expect([away.status, away.headers.get("location")]).toEqual([308, "ui/"]);
  });

  test("has two files, which a browser keeps until they change", async () => {
    const script = await get("/_hapax/ui/app.js");
    expect(script.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
    expect([await script.text(), script.headers.get("etag")]).toEqual(["run()", '"v1"']);
    const again = await get("/_hapax/ui/app.js", { "if-none-match": 'W/"v1"' });
    expect(again.status).toBe(304);
    expect(await (await get("/_hapax/ui/app.css")).text()).toBe("a{}");
    expect((await get("/_hapax/ui/other.js")).status).toBe(404);
  });

  test("is missing in the sources, and then / is text for browsers too", async () => {
    const plain = createFetchServer({ store: "memory", address: "127.0.0.1" });
    const request = (path: string) => new Request(`http://127.0.0.1${path}`, { headers: browser });
    expect((await plain.fetch(request("/_hapax/ui/"))).status).toBe(404);
    const front = await plain.fetch(request("/"));
    expect(front.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    await plain.stop();
  });
});
