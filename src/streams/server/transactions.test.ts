// What the cases for any server cannot see of transactions and groups: limits, audit, metrics. PROTOCOL.md §19, §20
import type { AuditEntry } from "../log.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../runtimes/node.ts";

let server: NodeServer;
const audit: AuditEntry[] = [];
let count = 0;

beforeAll(async () => {
  server = await startNodeServer({
    store: "memory",
    port: 0,
    bodyBytesMax: 4096,
    onAudit: (entry) => audit.push(entry),
  });
});

afterAll(async () => {
  await server.stop();
});

beforeEach(() => {
  audit.length = 0;
});

interface Seen {
  readonly status: number;
  readonly value: Readonly<Record<string, unknown>>;
  readonly headers: Headers;
}

async function send(method: string, path: string, value?: unknown, more = {}): Promise<Seen> {
  const body = typeof value === "string" ? value : JSON.stringify(value);
  const headers = { "Content-Type": "application/json", ...more };
  const init = value === undefined ? { method, headers: more } : { method, headers, body };
  const response = await fetch(server.url + path, init);
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.includes("json") === true;
  return {
    status: response.status,
    value: isJson ? (JSON.parse(text) as Seen["value"]) : { text },
    headers: response.headers,
  };
}

const transact = (operations: unknown, more = {}): Promise<Seen> => {
  count += 1;
  const identity = { "Idempotency-Key": `server-${count}` };
  return send("POST", "/_hapax/transactions", { operations }, { ...identity, ...more });
};

async function stream(body = ""): Promise<string> {
  count += 1;
  const path = `/transactions/${count}`;
  const headers = { "Content-Type": "text/plain" };
  await fetch(server.url + path, { method: "PUT", headers, body });
  return path;
}

test("a transaction that is larger than bodies may be is refused, before anything is decided", async () => {
  const path = await stream();
  const append = (size: number): unknown => [{ append: { stream: path, text: "a".repeat(size) } }];
  expect((await transact(append(4096))).value).toMatchObject({ code: "body_too_large" });
  expect((await transact(append(3900))).status).toBe(200);
});

test("a transaction in a coding that the server does not decode, or not of its coding, is refused", async () => {
  const path = await stream();
  const append = [{ append: { stream: path, text: "a" } }];
  const unknown = await transact(append, { "Content-Encoding": "zstd" });
  expect(unknown.value).toMatchObject({ status: 415, code: "unsupported_encoding" });
  const plain = await transact(append, { "Content-Encoding": "gzip" });
  expect(plain.value).toMatchObject({ status: 400, code: "invalid_request" });
});

test("a body for a group is refused beyond its own limit", async () => {
  const streams = Array.from({ length: 1100 }, (_, index) => `/${index}-${"a".repeat(1000)}`);
  const answer = await send("PUT", "/_hapax/groups/large", { streams });
  expect(answer.value).toMatchObject({ status: 413, code: "body_too_large" });
});

test("a page of an allowed origin may see the outcome of a retry", async () => {
  const preflight = await fetch(`${server.url}/_hapax/transactions`, { method: "OPTIONS" });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get("access-control-allow-headers")).toContain("Idempotency-Key");
  const answer = await send("GET", "/_hapax/transactions/none", undefined, {
    origin: "http://localhost:3000",
  });
  expect(answer.headers.get("access-control-expose-headers")).toContain("Idempotency-Replayed");
});

test("what is done to a group writes one entry each, and what changes nothing writes none", async () => {
  const path = await stream("abc");
  const group = "/_hapax/groups/a%0Ab";
  await send("PUT", group, { streams: [path] });
  await send("POST", `${group}/reset`, { to: "tail" });
  await send("POST", `${group}/reset`, { to: "beginning", stream: path });
  await send("POST", `${group}/reset`, { to: "beginning", stream: "/none" });
  await send("DELETE", group);
  const entries = [...audit];
  await send("DELETE", group);
  expect(audit).toEqual(entries);
  expect(
    entries.map(({ act, outcome, target, code, details }) => [
      act,
      outcome,
      target,
      code ?? details,
    ]),
  ).toEqual([
    ["stream.create", "done", path, undefined],
    ["group.create", "done", "a\nb", undefined],
    ["group.reset", "done", "a\nb", { to: "tail", streams: 1 }],
    ["group.reset", "done", "a\nb", { stream: path, to: "beginning", streams: 1 }],
    ["group.reset", "refused", "a\nb", "stream_not_found"],
    ["group.delete", "done", "a\nb", undefined],
  ]);
});

test("transactions are counted by what became of them", async () => {
  const metric = async (outcome: string): Promise<number> => {
    const { text } = (await send("GET", "/_hapax/metrics")).value;
    const line = `hapax_transactions_total{outcome="${outcome}"} `;
    const found = String(text)
      .split("\n")
      .find((each) => each.startsWith(line));
    return Number(found?.slice(line.length));
  };
  const outcomes = ["committed", "replayed", "refused"] as const;
  const before = await Promise.all(outcomes.map(metric));
  const path = await stream();
  const key = { "Idempotency-Key": "counted" };
  const append = [{ append: { stream: path, text: "a" } }];
  await transact(append, key);
  await transact(append, key);
  await transact(append, key);
  await transact([{ append: { stream: "/none", text: "a" } }]);
  const after = await Promise.all(outcomes.map(metric));
  expect(after.map((value, index) => value - (before[index] ?? 0))).toEqual([1, 2, 1]);
});

test("a transaction that expires its stream finds none, also for the type of its data", async () => {
  const path = "/transactions/expired";
  const headers = { "Content-Type": "application/json", "Stream-TTL": "0" };
  await fetch(server.url + path, { method: "PUT", headers });
  const answer = await transact([{ append: { stream: path, text: "{" } }]);
  expect(answer.value).toMatchObject({ code: "stream_not_found", operation: 0 });
});
