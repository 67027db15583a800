// PROTOCOL.md §13.6: a server that was started without any option is closed to web pages of other origins, and programs do not
// notice. On the fast lane and without it, over HTTP/2 and on fetch.
import { connect } from "node:http2";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createFetchServer } from "../../src/streams/runtimes/fetch.ts";
import {
  type NodeServer,
  type NodeServerOptions,
  startNodeServer,
} from "../../src/streams/runtimes/node.ts";
import { openTlsStage } from "../kits/tls-server.ts";
import { call, type HttpAnswer, sendRaw } from "./raw-http.ts";

const TEXT = { "content-type": "text/plain" };
const FOREIGN = "https://evil.example";
const servers: NodeServer[] = [];

async function start(options: Partial<NodeServerOptions> = {}): Promise<NodeServer> {
  const server = await startNodeServer({ store: "memory", port: 0, ...options });
  servers.push(server);
  return server;
}

const closing: (() => unknown)[] = [];

afterAll(async () => {
  for (const close of closing) await close();
  for (const server of servers) await server.stop();
});

const codeOf = (answer: HttpAnswer): unknown => (JSON.parse(answer.text) as { code: unknown }).code;

/** Every kind of path that a server has: streams, subscriptions, its own routes, the paths that people try first. */
const TARGETS = [
  ["PUT", "/v1/stream/new"],
  ["POST", "/v1/stream/orders"],
  ["GET", "/v1/stream/orders?offset=-1"],
  ["GET", "/v1/stream/orders?offset=-1&live=sse"],
  ["HEAD", "/v1/stream/orders"],
  ["DELETE", "/v1/stream/orders"],
  ["PUT", "/v1/stream/__ds/subscriptions/s"],
  ["POST", "/_hapax/transactions"],
  ["PUT", "/_hapax/groups/g"],
  ["GET", "/_hapax/streams"],
  ["POST", "/_hapax/producers"],
  ["GET", "/_hapax/health"],
  ["GET", "/_hapax/metrics"],
  ["GET", "/"],
  ["GET", "/healthz"],
  ["GET", "/livez"],
  ["GET", "/readyz"],
  ["GET", "/metrics"],
  ["GET", "/favicon.ico"],
  ["GET", "/nowhere"],
  ["PATCH", "/v1/stream/orders"],
] as const;

describe.each([true, false])("with hasFastLane=%s", (hasFastLane) => {
  let server: NodeServer;
  beforeAll(async () => {
    server = await start({ hasFastLane });
    await call("PUT", server.url, "/v1/stream/orders", { headers: TEXT, body: "first" });
  });

  test.each(TARGETS)("G37 a foreign page is refused: %s %s", async (method, path) => {
    const headers = { ...TEXT, origin: FOREIGN };
    const answer = await call(method, server.url, path, { headers });
    expect(answer.status).toBe(403);
    expect(answer.headers["access-control-allow-origin"]).toBeUndefined();
    if (method !== "HEAD") expect(codeOf(answer)).toBe("origin_not_allowed");
    const kept = await call("GET", server.url, "/v1/stream/orders?offset=-1");
    expect(kept.text).toBe("first");
    expect((await call("HEAD", server.url, "/v1/stream/new")).status).toBe(404);
  });

  test.each(TARGETS)("G37 a page under another name is refused: %s %s", async (method, path) => {
    const headers = { ...TEXT, host: "evil.example" };
    const answer = await call(method, server.url, path, { headers });
    expect(answer.status).toBe(421);
    if (method !== "HEAD") expect(codeOf(answer)).toBe("host_not_served");
    expect((await call("HEAD", server.url, "/v1/stream/new")).status).toBe(404);
  });

  test("G37 the host of an absolute target counts, and not the one of Host", async () => {
    const head = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Type: text/plain\r\n";
    const foreign = `POST http://evil.example/v1/stream/orders ${head}\r\nx`;
    expect((await sendRaw(server.url, foreign))?.status).toBe(421);
    const own = `GET http://localhost/v1/stream/orders HTTP/1.1\r\nHost: evil.example\r\n\r\n`;
    expect((await sendRaw(server.url, own))?.text).toBe("first");
  });

  test("G37 a preflight of a foreign page names no origin, which browsers take as a refusal", async () => {
    const asked = { origin: FOREIGN, "access-control-request-method": "DELETE" };
    const answer = await call("OPTIONS", server.url, "/v1/stream/orders", { headers: asked });
    expect(answer.status).toBe(204);
    expect(answer.headers["access-control-allow-origin"]).toBeUndefined();
  });

  test("a body of a foreign page is not waited for", async () => {
    const head = `POST /v1/stream/orders HTTP/1.1\r\nHost: localhost\r\nOrigin: ${FOREIGN}\r\n`;
    const announced = `${head}Content-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n`;
    expect((await sendRaw(server.url, announced))?.status).toBe(403);
  });

  test("a program notices nothing: it sends no Origin", async () => {
    const made = await call("PUT", server.url, "/v1/stream/program", { headers: TEXT });
    expect(made.status).toBe(201);
    const post = await call("POST", server.url, "/v1/stream/program", { headers: TEXT, body: "a" });
    expect(post.status).toBe(204);
    const read = await call("GET", server.url, "/v1/stream/program?offset=-1");
    expect(read.text).toBe("a");
    expect(read.headers["cross-origin-resource-policy"]).toBe("same-origin");
    expect(read.headers["access-control-allow-origin"]).toBeUndefined();
    expect(read.headers.vary).toContain("Origin");
  });

  test("a page of this machine may read, write and see the answers", async () => {
    const headers = { ...TEXT, origin: "http://localhost:3000" };
    const made = await call("PUT", server.url, "/v1/stream/page", { headers });
    expect([made.status, made.headers["access-control-allow-origin"]]).toEqual([
      201,
      "http://localhost:3000",
    ]);
    expect(made.headers.vary).toContain("Origin");
    const post = await call("POST", server.url, "/v1/stream/page", { headers, body: "a" });
    expect(post.headers["access-control-allow-origin"]).toBe("http://localhost:3000");
    expect(post.headers["access-control-expose-headers"]).toContain("Stream-Next-Offset");
  });
});

/** A request with headers of its own, under a name of the server if none is given. */
type Ask = (
  method: string,
  path: string,
  headers: Record<string, string>,
  authority?: string,
) => Promise<{ readonly status: number; readonly allowed: string | undefined }>;

async function askOverHttp2(): Promise<Ask> {
  const stage = openTlsStage();
  const server = await stage.start();
  const session = connect(server.url, { ca: stage.authority.cert });
  closing.push(
    () => session.destroy(),
    () => stage.close(),
  );
  return (method, path, headers, authority) =>
    new Promise((resolve, reject) => {
      const name = authority === undefined ? {} : { ":authority": authority };
      const head = { ":method": method, ":path": path, ...name, ...headers };
      const stream = session.request(head, { endStream: true });
      stream.on("response", (answer) => {
        const allowed = answer["access-control-allow-origin"];
        resolve({ status: Number(answer[":status"]), allowed });
        stream.close();
      });
      stream.on("error", reject);
    });
}

function askOnFetch(): Ask {
  const server = createFetchServer({ store: "memory", address: "127.0.0.1" });
  closing.push(() => server.stop());
  return async (method, path, headers, authority = "127.0.0.1:4437") => {
    const answer = await server.fetch(
      new Request(`http://${authority}${path}`, { method, headers }),
    );
    await answer.body?.cancel();
    const allowed = answer.headers.get("access-control-allow-origin") ?? undefined;
    return { status: answer.status, allowed };
  };
}

describe.each([
  ["over HTTP/2", await askOverHttp2()],
  ["on fetch", askOnFetch()],
] as const)("%s", (_name, ask) => {
  test("G37 a foreign page, and a page under another name, reach no path", async () => {
    expect((await ask("PUT", "/v1/stream/orders", TEXT)).status).toBe(201);
    for (const [method, path] of TARGETS) {
      const foreign = await ask(method, path, { ...TEXT, origin: FOREIGN });
      expect([method, path, foreign]).toEqual([method, path, { status: 403, allowed: undefined }]);
      const named = await ask(method, path, TEXT, "evil.example");
      expect([method, path, named.status]).toEqual([method, path, 421]);
    }
    const asked = { origin: FOREIGN, "access-control-request-method": "DELETE" };
    expect(await ask("OPTIONS", "/v1/stream/orders", asked)).toEqual({
      status: 204,
      allowed: undefined,
    });
    expect((await ask("OPTIONS", "/v1/stream/orders", {}, "evil.example")).status).toBe(421);
    expect((await ask("HEAD", "/v1/stream/orders", {})).status).toBe(200);
    expect((await ask("HEAD", "/v1/stream/new", {})).status).toBe(404);
    const own = await ask("GET", "/v1/stream/orders", { origin: "http://localhost:3000" });
    expect(own).toEqual({ status: 200, allowed: "http://localhost:3000" });
  });
});

test("corsOrigins opens the server to the pages that it names, and * to all", async () => {
  const some = await start({ corsOrigins: ["https://app.example"] });
  const named = { ...TEXT, origin: "https://app.example" };
  expect((await call("PUT", some.url, "/a", { headers: named })).status).toBe(201);
  const other = { ...TEXT, origin: FOREIGN };
  expect((await call("PUT", some.url, "/b", { headers: other })).status).toBe(403);
  const all = await start({ corsOrigins: "*" });
  const made = await call("PUT", all.url, "/a", { headers: other });
  expect([made.status, made.headers["access-control-allow-origin"]]).toEqual([201, "*"]);
  // Another name is still refused: a page that is allowed to ask needs no such trick.
  expect((await call("GET", all.url, "/a", { headers: { host: "evil.example" } })).status).toBe(
    421,
  );
});

test("publicUrl is a name of the server, and its pages are allowed", async () => {
  const server = await start({ publicUrl: "https://streams.example/base" });
  const headers = { ...TEXT, host: "streams.example", origin: "https://streams.example" };
  expect((await call("PUT", server.url, "/a", { headers })).status).toBe(201);
});

test.each(["0.0.0.0", "::"])(
  "G37 startNodeServer refuses host=%s without insecurePublic",
  async (host) => {
    const started = startNodeServer({ store: "memory", port: 0, host });
    await expect(started).rejects.toMatchObject({ code: "invalid_options" });
    const open = await start({ host, insecurePublic: true });
    const { port } = new URL(open.url);
    const url = `http://127.0.0.1:${port}`;
    // Only the operator knows the names of such a server, so none is refused.
    expect((await call("PUT", url, "/a", { headers: { ...TEXT, host: "a.example" } })).status).toBe(
      201,
    );
    expect((await call("PUT", url, "/b", { headers: { ...TEXT, origin: FOREIGN } })).status).toBe(
      403,
    );
  },
);
