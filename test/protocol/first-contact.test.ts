// What people and tools meet that have read nothing yet. PROTOCOL.md §2, §12.6
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { call, members } from "./raw-http.ts";

const JSON_TYPE = { "content-type": "application/json" };
let server: NodeServer;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
  await call("PUT", server.url, "/v1/stream/orders", { headers: JSON_TYPE });
});

afterAll(async () => {
  await server.stop();
});

describe("paths that everybody tries", () => {
  test("/ says what this is and where to go", async () => {
    const { status, headers, text } = await call("GET", server.url, "/");
    expect([status, headers["content-type"]]).toEqual([200, "text/plain; charset=utf-8"]);
    expect(text).toContain("Hapax");
    expect(text).toContain(`${server.url}/v1/stream/orders`);
    expect((await call("HEAD", server.url, "/")).status).toBe(200);
    expect((await call("PUT", server.url, "/", { headers: JSON_TYPE })).status).toBe(405);
  });

  test("/healthz and /metrics answer as their own routes do", async () => {
    const health = await call("GET", server.url, "/healthz");
    expect([health.status, health.text]).toEqual([
      200,
      (await call("GET", server.url, "/_hapax/health")).text,
    ]);
    const metrics = await call("GET", server.url, "/metrics");
    expect(metrics.status).toBe(200);
    expect(metrics.text).toContain("# TYPE hapax_appends_total counter");
  });

  test("/favicon.ico is empty, without a refusal", async () => {
    expect((await call("GET", server.url, "/favicon.ico")).status).toBe(204);
  });

  test.each(["/healthz", "/livez", "/readyz", "/metrics", "/favicon.ico"])(
    "%s can never be a stream, in no spelling and by no transaction; what is below it can",
    async (path) => {
      const spelt = path.replace("i", "%69").replace("/rea", "/re%61");
      expect((await call("PUT", server.url, path, { headers: JSON_TYPE })).status).toBe(405);
      if (spelt !== path) {
        expect((await call("PUT", server.url, spelt, { headers: JSON_TYPE })).status).toBe(404);
      }
      const body = JSON.stringify({ operations: [{ create: { stream: path } }] });
      const headers = { ...JSON_TYPE, "idempotency-key": path };
      const made = await call("POST", server.url, "/_hapax/transactions", { headers, body });
      expect(made.status).toBe(400);
      const below = await call("PUT", server.url, `${path}/below`, { headers: JSON_TYPE });
      expect(below.status).toBe(201);
    },
  );
});

describe("a stream that is not there", () => {
  test.each(["GET", "POST", "DELETE"])(
    "%s names it, and the one that was meant",
    async (method) => {
      const sent = method === "POST" ? { headers: JSON_TYPE, body: "1" } : {};
      const near = await call(method, server.url, "/orders", sent);
      expect([near.status, members(near).get("detail")]).toEqual([
        404,
        "there is no stream at /orders; did you mean /v1/stream/orders?",
      ]);
      const twice = await call(method, server.url, "/v1/stream/v1/stream/orders", sent);
      expect(members(twice).get("detail")).toContain("did you mean /v1/stream/orders?");
      const far = await call(method, server.url, "/v1/stream/nothing", sent);
      expect(members(far).get("detail")).toBe("there is no stream at /v1/stream/nothing");
    },
  );
});

test("a client that reaches nothing says why", async () => {
  const gone = await startNodeServer({ store: "memory", port: 0 });
  const { url } = gone;
  await gone.stop();
  const stream = connect(`${url}/v1/stream/orders`, { retry: { totalMs: 0 } });
  await expect(stream.head()).rejects.toThrow(
    `no answer (fetch failed: ECONNREFUSED) url=${url}/v1/stream/orders`,
  );
});
