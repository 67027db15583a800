import { gunzipSync } from "node:zlib";
import { afterEach, describe, expect, test, vi } from "vitest";
import { SMALL_LIMITS } from "../../protocol/limits.ts";
import {
  createFetchServer,
  fetchCourier,
  type FetchServer,
  type FetchServerOptions,
} from "./fetch.ts";

const ORIGIN = "http://127.0.0.1:8787";
const servers: FetchServer[] = [];

afterEach(async () => {
  vi.useRealTimers();
  for (const server of servers.splice(0)) await server.stop();
});

function start(options: Partial<FetchServerOptions> = {}): FetchServer {
  const server = createFetchServer({ store: "memory", address: "127.0.0.1", ...options });
  servers.push(server);
  return server;
}

function ask(
  { fetch: answer }: FetchServer,
  method: string,
  path: string,
  init: RequestInit & { duplex?: "half" } = {},
): Promise<Response> {
  return answer(new Request(ORIGIN + path, { method, ...init }));
}

const TEXT = { "Content-Type": "text/plain" };

async function startWith(options: Partial<FetchServerOptions> = {}): Promise<FetchServer> {
  const server = start(options);
  expect((await ask(server, "PUT", "/s", { headers: TEXT })).status).toBe(201);
  return server;
}

/** A body in pieces, which ends or waits behind the last one. */
function piecesOf(pieces: readonly string[], ends: boolean): ReadableStream<Uint8Array> {
  const left = [...pieces];
  return new ReadableStream({
    pull(controller) {
      const piece = left.shift();
      if (piece !== undefined) controller.enqueue(new TextEncoder().encode(piece));
      else if (ends) controller.close();
      else return new Promise(() => undefined);
      return undefined;
    },
  });
}

describe("a request", () => {
  test("is one append, and its retry is none", async () => {
    const server = await startWith();
    const headers = { ...TEXT, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0" };
    const statuses = [];
    for (let attempt = 0; attempt < 2; attempt += 1) {
      statuses.push((await ask(server, "POST", "/s", { headers, body: "a" })).status);
    }
    expect(statuses).toEqual([200, 204]);
    expect(await (await ask(server, "GET", "/s?offset=-1")).text()).toBe("a");
  });

  const PRODUCER = { "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0" };
  test.each([
    ["POST", "Content-Type", "text/plain", {}],
    ["POST", "Content-Encoding", "identity", {}],
    ["POST", "If-Match", '"0000000000000000_0000000000000000"', {}],
    ["POST", "Stream-Closed", "true", {}],
    ["POST", "Stream-Seq", "a", {}],
    ["POST", "Idempotency-Key", '"k"', {}],
    ["POST", "Producer-Id", "p", PRODUCER],
    ["POST", "Producer-Epoch", "0", PRODUCER],
    ["POST", "Producer-Seq", "0", PRODUCER],
    ["POST", "Producer-Session", "s", { "Producer-Id": "p", "Producer-Seq": "0" }],
    ["PUT", "Content-Type", "text/plain", {}],
    ["PUT", "Stream-TTL", "60", {}],
    ["PUT", "Stream-Expires-At", "2999-01-01T00:00:00Z", {}],
    ["PUT", "Stream-Closed", "true", {}],
    ["PUT", "Stream-Forked-From", "/s", {}],
    [
      "PUT",
      "Stream-Fork-Offset",
      "0000000000000000_0000000000000000",
      { "Stream-Forked-From": "/s" },
    ],
    ["PUT", "Stream-Key-Window", "60", {}],
    ["PUT", "Stream-Key-Max", "60", {}],
    ["PUT", "Stream-Key-Overflow", "evict", {}],
    ["PUT", "Stream-Key-From", "content", {}],
    ["PUT", "If-None-Match", "*", {}],
  ])("%s with %s twice is refused, and changes nothing", async (method, name, value, others) => {
    const server = await startWith();
    const path = method === "PUT" ? "/new" : "/s";
    const once = new Headers({ ...TEXT, ...others, [name]: value });
    const twice = new Headers(once);
    twice.append(name, value);
    const body = method === "POST" ? "x" : null;
    const refused = await ask(server, method, path, { headers: twice, body });
    expect(refused.status, await refused.text()).toBeGreaterThanOrEqual(400);
    const accepted = await ask(server, method, path, { headers: once, body });
    expect([200, 201, 204], await accepted.text()).toContain(accepted.status);
  });

  test("with a comma in a quoted parameter of its type is taken", async () => {
    const headers = { "Content-Type": 'text/plain; a="b,c\\",d"' };
    expect((await ask(start(), "PUT", "/t", { headers })).status).toBe(201);
  });

  test.each(["Producer-Id", "Stream-Seq"])("with %s twice is refused by name", async (name) => {
    const server = await startWith();
    const headers = new Headers({ ...TEXT, "Producer-Epoch": "0", "Producer-Seq": "0" });
    if (name === "Stream-Seq")
      for (const one of ["Epoch", "Seq"]) headers.delete(`Producer-${one}`);
    headers.append(name, "a");
    headers.append(name, "a");
    const answer = await ask(server, "POST", "/s", { headers, body: "x" });
    expect([answer.status, await answer.json()]).toMatchObject([400, { code: "invalid_request" }]);
    expect(await (await ask(server, "GET", "/s?offset=-1")).text()).toBe("");
  });

  test("with a body that is larger than allowed is refused, announced or not", async () => {
    const server = await startWith({ bodyBytesMax: 4 });
    const announced = await ask(server, "POST", "/s", {
      headers: { ...TEXT, "Content-Length": "5" },
      body: "12345",
    });
    const body = piecesOf(["123", "45"], false);
    const unannounced = await ask(server, "POST", "/s", { headers: TEXT, body, duplex: "half" });
    expect([announced.status, unannounced.status]).toEqual([413, 413]);
  });

  test("has no room while other bodies hold bodiesBytesMax, and is refused with 429", async () => {
    const server = await startWith({ bodyBytesMax: 4, bodiesBytesMax: 6 });
    const others = ["abc", "def"].map((piece) => {
      const body = piecesOf([piece], false);
      return ask(server, "POST", "/s", { headers: TEXT, body, duplex: "half" });
    });
    await new Promise((resolve) => setTimeout(resolve, 10)); // Their first pieces are taken in some turns.
    const refused = await ask(server, "POST", "/s", { headers: TEXT, body: "x" });
    expect([refused.status, await refused.json()]).toMatchObject([429, { code: "too_many" }]);
    await server.stop();
    expect((await Promise.all(others)).map(({ status }) => status)).toEqual([503, 503]);
  });

  test("finds the small limits in force, and those that were given", () => {
    expect(start().server.options).toMatchObject(SMALL_LIMITS);
    const given = { bodiesBytesMax: 5 * 1024 * 1024, heldBytesMax: 7, bodyBytesMax: 6 };
    expect(start(given).server.options).toMatchObject({ ...SMALL_LIMITS, ...given });
    const tooLarge = { bodyBytesMax: 9 * 1024 * 1024 };
    expect(() => start(tooLarge)).toThrow("bodiesBytesMax=8388608 is less than bodyBytesMax");
  });

  test("whose body comes too slowly is cut, and stores nothing", async () => {
    vi.useFakeTimers();
    const server = await startWith();
    const body = piecesOf(["a"], false);
    const slow = ask(server, "POST", "/s", { headers: TEXT, body, duplex: "half" });
    await vi.advanceTimersByTimeAsync(30_000);
    expect((await slow).status).toBe(408);
    expect(await (await ask(server, "GET", "/s?offset=-1")).text()).toBe("");
  });

  test("whose body breaks is answered, and stores nothing", async () => {
    const server = await startWith();
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        controller.error(new Error("the client has gone"));
      },
    });
    const broken = await ask(server, "POST", "/s", { headers: TEXT, body, duplex: "half" });
    expect(broken.status).toBe(408);
    expect(await (await ask(server, "GET", "/s?offset=-1")).text()).toBe("");
  });

  test("whose body is shorter than announced is answered, and stores nothing", async () => {
    const server = await startWith();
    const headers = { ...TEXT, "Content-Length": "10" };
    const body = piecesOf(["abc"], true);
    const short = await ask(server, "POST", "/s", { headers, body, duplex: "half" });
    expect(short.status).toBe(408);
    expect(await (await ask(server, "GET", "/s?offset=-1")).text()).toBe("");
  });

  test("whose body is still coming when the server stops is answered", async () => {
    const server = await startWith();
    const body = piecesOf(["a"], false);
    const open = ask(server, "POST", "/s", { headers: TEXT, body, duplex: "half" });
    await vi.waitFor(() => {
      expect(body.locked).toBe(true);
    });
    await server.stop();
    servers.length = 0;
    expect((await open).status).toBe(503);
  });

  test("beyond this machine needs authentication, or the word that it is open", () => {
    expect(() => createFetchServer({ store: "memory" })).toThrow(
      expect.objectContaining({ code: "invalid_options" }),
    );
    servers.push(createFetchServer({ store: "memory", insecurePublic: true }));
  });

  test("of a page of another origin, or for another host, is refused", async () => {
    const server = await startWith();
    const foreign = await ask(server, "GET", "/s", { headers: { Origin: "https://evil.example" } });
    const rebound = await server.fetch(new Request("http://evil.example/s"));
    expect([foreign.status, rebound.status]).toEqual([403, 421]);
  });
});

describe("an answer", () => {
  test("is compressed for a client that takes it", async () => {
    const server = await startWith();
    const text = "a".repeat(10_000);
    await ask(server, "POST", "/s", { headers: TEXT, body: text });
    const headers = { "Accept-Encoding": "gzip" };
    const answer = await ask(server, "GET", "/s?offset=-1", { headers });
    expect(answer.headers.get("Content-Encoding")).toBe("gzip");
    expect(gunzipSync(await answer.arrayBuffer()).toString()).toBe(text);
  });

  test("is not compressed for Next.js, which drops Content-Encoding", async () => {
    const server = await startWith();
    await ask(server, "POST", "/s", { headers: TEXT, body: "word ".repeat(1000) });
    const request = new Request(`${ORIGIN}/s`, { headers: { "Accept-Encoding": "gzip" } });
    // As a NextRequest has it.
    Object.defineProperty(request, "nextUrl", { value: new URL(request.url) });
    const answer = await server.fetch(request);
    expect(answer.headers.get("Content-Encoding")).toBeNull();
    expect(await answer.text()).toBe("word ".repeat(1000));
  });

  test("G34 is handed over in slices, so that it is known how much was taken", async () => {
    const server = await startWith();
    const text = "ab".repeat(100_000);
    await ask(server, "POST", "/s", { headers: TEXT, body: text });
    const answer = await ask(server, "GET", "/s?offset=-1");
    const sizes: number[] = [];
    let read = "";
    for await (const piece of answer.body ?? []) {
      sizes.push(piece.length);
      read += new TextDecoder().decode(piece);
    }
    expect(read).toBe(text);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(16 * 1024);
  });

  test("to HEAD has no body", async () => {
    const server = await startWith();
    const answer = await ask(server, "HEAD", "/s");
    expect([answer.status, answer.body]).toEqual([200, null]);
  });

  test("that follows a stream brings what comes, and ends when the reader leaves", async () => {
    const server = await startWith();
    const leaving = new AbortController();
    const { signal } = leaving;
    const live = await ask(server, "GET", "/s?offset=-1&live=sse", { signal });
    expect(live.headers.get("Content-Type")).toBe("text/event-stream");
    await ask(server, "POST", "/s", { headers: TEXT, body: "hello" });
    const reader = live.body?.getReader();
    let text = "";
    while (!text.includes("hello")) {
      const { value, done } = (await reader?.read()) ?? { value: undefined, done: true };
      if (done) break;
      text += new TextDecoder().decode(value);
    }
    expect(text).toContain("data:hello");
    leaving.abort();
    await expect(reader?.read()).rejects.toThrow();
  });

  test("that follows a stream and is not taken is cut", async () => {
    const server = await startWith({ readerStallMs: 50, readerBufferBytes: 1024 });
    const live = await ask(server, "GET", "/s?offset=-1&live=sse");
    for (let append = 0; append < 4; append += 1) {
      await ask(server, "POST", "/s", { headers: TEXT, body: "x".repeat(2000) });
    }
    await vi.waitFor(async () => {
      const metrics = await (await ask(server, "GET", "/metrics")).text();
      expect(metrics).toContain("hapax_live_readers 0\n");
    });
    await expect(new Response(live.body).text()).rejects.toThrow();
  });

  test("stops with the server", async () => {
    const server = await startWith();
    const live = await ask(server, "GET", "/s?offset=-1&live=sse");
    const reader = live.body?.getReader();
    expect((await reader?.read())?.done).toBe(false);
    const rest = reader?.read();
    await server.stop();
    servers.length = 0;
    expect(await rest).toEqual({ done: true, value: undefined });
    expect((await ask(server, "GET", "/s")).status).toBe(503);
  });
});

describe("webhooks", () => {
  const request = {
    url: "http://127.0.0.1/hook",
    headers: {},
    body: new Uint8Array(1),
    timeoutMs: 50,
    answerBytesMax: 4,
    signal: new AbortController().signal,
  };

  test("need to know where the server is reached", () => {
    expect(() => start({ courier: fetchCourier() })).toThrow(/courier needs publicUrl/);
  });

  test.each([
    [
      "an answer",
      async () => new Response("abc", { status: 202 }),
      { kind: "answered", status: 202 },
    ],
    ["a longer answer than allowed", async () => new Response("abcde"), { kind: "failed" }],
    [
      "an error of the network",
      () => Promise.reject(new TypeError("fetch failed")),
      { kind: "failed" },
    ],
    [
      "nothing in time",
      (_url: unknown, init?: RequestInit) =>
        new Promise<Response>((_resolve, reject) => {
          init?.signal?.addEventListener("abort", () => {
            reject(init.signal?.reason as Error);
          });
        }),
      { kind: "failed", reason: "no answer within 50 ms" },
    ],
  ])("%s becomes a value", async (_name, answer, expected) => {
    const courier = fetchCourier({ fetch: answer as typeof fetch });
    expect(await courier.deliver(request)).toMatchObject(expected);
  });

  test("a redirect is an answer, and an address that is not allowed gets nothing", async () => {
    const sent: (RequestInit | undefined)[] = [];
    const courier = fetchCourier({
      allowLoopback: false,
      fetch: ((_url: unknown, init?: RequestInit) => {
        sent.push(init);
        return Promise.resolve(new Response(null, { status: 302, headers: { Location: "/" } }));
      }) as typeof fetch,
    });
    expect(await courier.deliver(request)).toMatchObject({ kind: "refused" });
    expect(sent).toEqual([]);
    const answer = await courier.deliver({ ...request, url: "https://example.com/hook" });
    expect(answer).toMatchObject({ kind: "answered", status: 302 });
    expect(sent[0]).toMatchObject({ redirect: "manual", method: "POST" });
  });
});
