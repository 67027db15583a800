// What a server is made without it says: at its start where an option needs it. PROTOCOL.md §12.14.
import { describe, expect, test } from "vitest";
import { createServerOnFetch, type FetchServerOptions } from "../runtimes/fetch-server.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { access, logs, observation, registries, retention, testFaults } from "./optional-parts.ts";
import type { ServerPart } from "./server-part.ts";

type Given = Omit<FetchServerOptions, "store">;

const start = (given: Given, ...parts: readonly ServerPart[]) =>
  createServerOnFetch({ address: "127.0.0.1", ...given }, { store: openMemoryStore(), parts });

const NEEDING: readonly (readonly [option: string, part: ServerPart, given: Given])[] = [
  ["authorize", access, { authorize: () => ({ refused: "missing" }) }],
  ["quotas", access, { quotas: { requestsMax: 1 } }],
  ["log", logs, { log: () => undefined }],
  ["onAudit", logs, { onAudit: () => undefined }],
  ["tracer", logs, { tracer: { start: () => ({ traceparent: undefined, end: () => undefined }) } }],
  ["retentionSeconds", retention, { retentionSeconds: 60 }],
  ["retentionBytes", retention, { retentionBytes: 60 }],
  ["registry", registries, { registry: true }],
  ["testFaults", testFaults, { testFaults: true }],
];

const REQUESTS: readonly (readonly [
  part: string,
  method: string,
  path: string,
  headers: object,
])[] = [
  ["retention", "PUT", "/v1/stream/s", { "Stream-Retention": "seconds=60" }],
  ["retention", "PUT", "/v1/stream/s", { "Stream-Retention": "no rule" }],
  ["retention", "PUT", "/v1/stream/s", { "Stream-Compact-Key": "id" }],
  ["retention", "POST", "/_hapax/trim?stream=/v1/stream/s&before=now", {}],
  ["transactions", "DELETE", "/v1/stream/s", { "Idempotency-Key": "one" }],
  ["observation", "GET", "/metrics", {}],
  ["observation", "POST", "/_hapax/backups", {}],
];

describe("requests that need a part", () => {
  test.each(REQUESTS)("%s: %s %s with %o", async (name, method, path, headers) => {
    const server = start({});
    const send = (how: string, where: string, given = {}) =>
      server.fetch(new Request(`http://127.0.0.1${where}`, { method: how, headers: given }));
    if (method === "DELETE") await send("PUT", path);
    const answer = await send(method, path, { ...headers });
    expect(answer.status).toBe(501);
    expect(await answer.json()).toMatchObject({
      code: "unsupported",
      detail: `this server was made without the part \`${name}\``,
    });
    // Nothing was done meanwhile.
    expect((await send("HEAD", "/v1/stream/s")).status).toBe(method === "DELETE" ? 200 : 404);
    await server.stop();
  });

  test("a rule that is none needs no part, and streams say nothing of rules", async () => {
    const server = start({});
    const headers = { "Stream-Retention": "none", "Stream-Compact-Key": "none" };
    const request = (method: string) =>
      new Request("http://127.0.0.1/v1/stream/s", { method, headers });
    expect((await server.fetch(request("PUT"))).status).toBe(201);
    const look = await server.fetch(
      new Request("http://127.0.0.1/v1/stream/s", { method: "HEAD" }),
    );
    expect(look.status).toBe(200);
    expect(look.headers.get("Stream-Retention")).toBeNull();
    await server.stop();
  });

  test("the counters are there with the part that shows them", async () => {
    const plain = start({});
    expect(() => plain.server.engine.meter).toThrow("`observation`");
    await plain.stop();
    const whole = start({}, observation);
    await whole.fetch(new Request("http://127.0.0.1/v1/stream/s", { method: "PUT", body: "abc" }));
    expect(whole.server.engine.meter.appendedBytes).toBe(3);
    await whole.stop();
  });
});

describe("options that need a part", () => {
  test.each(NEEDING)("%s is refused without it, by its name", async (option, part, given) => {
    expect(() => start(given)).toThrow(`\`${part.name}\``);
    expect(() => start(given)).toThrow(option);
    await start(given, part).stop();
  });

  test("without a part, nothing is asked and nothing is written", async () => {
    const server = start({});
    const request = new Request("http://127.0.0.1/v1/stream/s", { method: "PUT" });
    const answer = await server.fetch(request);
    expect(answer.status).toBe(201);
    expect(answer.headers.get("X-Request-Id")).toMatch(/^.{8,}-1$/);
    await server.stop();
  });
});
