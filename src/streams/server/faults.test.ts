// The fault endpoint, each member of its shape, over a real socket: what it does is seen by clients only.
import { request } from "node:http";
import { json } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../runtimes/node.ts";

const INJECT = "/_test/inject-error";
let server: NodeServer;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0, testFaults: true });
  await send("PUT", "/s", "0123456789");
});

afterAll(async () => {
  await server.stop();
});

afterEach(async () => {
  expect((await send("DELETE", INJECT)).status).toBe(200);
});

function send(method: string, path: string, body?: string): Promise<Response> {
  const headers = { "content-type": "text/plain" };
  return fetch(server.url + path, body === undefined ? { method } : { method, headers, body });
}

async function inject(fault: unknown): Promise<number> {
  return (await send("POST", INJECT, JSON.stringify(fault))).status;
}

test("status answers in place of the server, as often as count says, and nothing is done", async () => {
  await send("PUT", "/counted", "a");
  expect(await inject({ path: "/counted", status: 503, count: 2, retryAfter: 7 })).toBe(200);
  const first = await send("POST", "/counted", "b");
  expect([first.status, first.headers.get("retry-after")]).toEqual([503, "7"]);
  expect((await send("GET", "/counted")).status).toBe(503);
  expect(await (await send("GET", "/counted")).text()).toBe("a");
});

test("count is one unless it is said otherwise, and other paths are not touched", async () => {
  await inject({ path: "/s", status: 500 });
  expect((await send("GET", "/other")).status).toBe(404);
  expect((await send("GET", "/s")).status).toBe(500);
  expect((await send("GET", "/s")).status).toBe(200);
});

test("method limits a fault to requests of that method", async () => {
  await inject({ path: "/s", status: 500, method: "post" });
  expect((await send("GET", "/s")).status).toBe(200);
  expect((await send("POST", "/s", "x")).status).toBe(500);
});

test("dropConnection ends the connection without an answer", async () => {
  await inject({ path: "/s", dropConnection: true });
  await expect(send("GET", "/s")).rejects.toThrow();
  expect((await send("GET", "/s")).status).toBe(200);
});

test("truncateBodyBytes keeps the beginning of the body", async () => {
  await inject({ path: "/s", truncateBodyBytes: 4 });
  expect(await (await send("GET", "/s")).text()).toBe("0123");
  await inject({ path: "/s", truncateBodyBytes: 0 });
  expect(await (await send("GET", "/s")).text()).toBe("");
});

test("delayMs holds the request back, and then it is done", async () => {
  await inject({ path: "/s", delayMs: 100 });
  const before = performance.now();
  expect(await (await send("GET", "/s")).text()).toBe("0123456789");
  expect(performance.now() - before).toBeGreaterThan(90);
});

test("DELETE clears every fault", async () => {
  await inject({ path: "/s", status: 500, count: 100 });
  await send("DELETE", INJECT);
  expect((await send("GET", "/s")).status).toBe(200);
});

test.each([
  "",
  "[",
  "null",
  "{}",
  '{"path":1}',
  '{"path":"s"}',
  '{"path":"/s","status":99}',
  '{"path":"/s","status":"500"}',
  '{"path":"/s","count":0}',
  '{"path":"/s","delayMs":-1}',
  '{"path":"/s","method":1}',
])("the fault %s is refused", async (body) => {
  expect((await send("POST", INJECT, body)).status).toBe(400);
});

test("the endpoint takes POST and DELETE only", async () => {
  const answer = await send("GET", INJECT);
  expect([answer.status, answer.headers.get("allow")]).toEqual([405, "POST, DELETE, OPTIONS"]);
});

test("without the option the endpoint does not exist", async () => {
  const plain = await startNodeServer({ store: "memory", port: 0 });
  for (const method of ["POST", "DELETE", "GET", "PUT"]) {
    const answer = await fetch(plain.url + INJECT, { method });
    expect([method, answer.status]).toEqual([method, 404]);
    await answer.body?.cancel();
  }
  await plain.stop();
});

test.each([
  ["of another origin", { Origin: "https://evil.example" }, "origin_not_allowed"],
  ["of a sandboxed frame", { Origin: "null" }, "origin_not_allowed"],
  ["under another name", { Host: "evil.example" }, "host_not_served"],
])("G37 a page %s sets no fault and clears none", async (_, headers, code) => {
  await inject({ path: "/s", status: 500 });
  for (const method of ["POST", "DELETE"]) {
    const body = JSON.stringify({ path: "/s", status: 503 });
    expect(await codeOf(method, headers, body)).toBe(code);
  }
  expect((await send("GET", "/s")).status).toBe(500);
  expect((await send("GET", "/s")).status).toBe(200);
});

/** Not with `fetch`, which does not send these headers as given. */
function codeOf(method: string, headers: Record<string, string>, body: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const sent = request(server.url + INJECT, { method, headers }, (answer) => {
      json(answer).then((problem) => resolve((problem as { code?: unknown }).code), reject);
    });
    sent.on("error", reject).end(body);
  });
}
