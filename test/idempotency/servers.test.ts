// Idempotency keys in real servers: node:http, Express, Fastify, and Hono on Node.
import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { serve } from "@hono/node-server";
import express from "express";
import fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Hono } from "hono";
import { afterEach, describe, expect, test } from "vitest";
import {
  createIdempotency,
  GLOBAL,
  type Idempotency,
  type IdempotencyOptions,
  NotStarted,
} from "../../src/toolkit/idempotency.ts";
import { fastifyIdempotency } from "../../src/toolkit/idempotency/fastify.ts";
import { honoIdempotency } from "../../src/toolkit/idempotency/hono.ts";
import {
  expressIdempotency,
  expressIdempotencyErrors,
  withIdempotency,
} from "../../src/toolkit/idempotency/node.ts";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";

type Engine = Idempotency<MemoryTransaction>;

/** What the handlers of all frameworks do: for a body `{ "do": … }`. */
interface Effects {
  readonly done: string[];
  /** Answers by what was asked for. Throws for `throw`. */
  readonly work: (engine: Engine, source: object, body: unknown) => Promise<Reply>;
  /** Resolves when a handler has begun. */
  readonly begun: () => Promise<void>;
  readonly finish: () => void;
}

interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: string | Buffer;
}

const picture = Buffer.from(crypto.getRandomValues(new Uint8Array(50_000)));
const large = Buffer.concat(Array.from({ length: 6 }, () => picture)); // 300 kB

function effectsOf(): Effects {
  const done: string[] = [];
  let finish: () => void = () => undefined;
  let begin: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (finish = resolve));
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const work: Effects["work"] = async (engine, source, body) => {
    const { do: what } = body as { do: string };
    const { tx, key } = engine.contextOf(source);
    done.push(`${what} ${key}`);
    tx.undo(() => done.pop());
    const headers = {
      "Content-Type": "application/json",
      "Set-Cookie": ["a=1", "b=2"],
      "X-Order": "17",
    };
    if (what === "wait") {
      begin();
      await gate;
    }
    if (what === "throw") throw new Error("in the middle");
    if (what === "refuse") throw new NotStarted(new Response("no", { status: 403 }));
    if (what === "500") return { status: 500, headers, body: "{}" };
    if (what === "picture")
      return { status: 201, headers: { ...headers, "Content-Type": "image/png" }, body: large };
    return { status: 201, headers, body: JSON.stringify({ done: done.length }) };
  };
  return { done, work, begun: () => begun, finish: () => finish() };
}

interface Target {
  readonly name: string;
  /** Whether an answer of 500 by a handler can be distinguished from one that the framework makes of an error. */
  readonly keeps500: boolean;
  readonly start: (
    engine: Engine,
    effects: Effects,
  ) => Promise<{ url: string; stop: () => Promise<void> }>;
}

async function listen(server: Server): Promise<{ url: string; stop: () => Promise<void> }> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const stop = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${port}`, stop };
}

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return JSON.parse(Buffer.concat(chunks).toString());
}

/** In two parts: an answer may be written as one likes. */
function write(response: ServerResponse, { status, headers, body }: Reply): void {
  response.writeHead(status, headers);
  const half = Math.floor(body.length / 2);
  response.write(body.slice(0, half));
  response.end(body.slice(half));
}

const targets: readonly Target[] = [
  {
    name: "node:http",
    keeps500: true,
    start: (engine, { work }) =>
      listen(
        createServer(
          withIdempotency(engine, async (request, response) => {
            write(response, await work(engine, request, await bodyOf(request)));
          }),
        ),
      ),
  },
  {
    name: "Express around a handler",
    keeps500: true,
    start: (engine, { work }) => {
      const app = express();
      app.use(express.json());
      app.post(
        "/pay",
        expressIdempotency(engine, async (request: express.Request, response: express.Response) => {
          const { status, headers, body } = await work(engine, request, request.body);
          response.status(status).set(headers).send(Buffer.from(body));
        }),
      );
      app.use(((_error, _request, response, _next) => {
        response.status(418).send("an error");
      }) satisfies express.ErrorRequestHandler);
      return listen(createServer(app));
    },
  },
  {
    name: "Express before a parser and a route",
    keeps500: false,
    start: (engine, { work }) => {
      const app = express();
      app.use(expressIdempotency(engine));
      app.use(express.json());
      app.post("/pay", async (request, response) => {
        write(response, await work(engine, request, request.body));
      });
      app.use(expressIdempotencyErrors());
      app.use(((_error, _request, response, _next) => {
        response.status(418).send("an error");
      }) satisfies express.ErrorRequestHandler);
      return listen(createServer(app));
    },
  },
  {
    name: "Fastify",
    keeps500: true,
    start: async (engine, { work }) => {
      const app = fastify();
      await app.register(fastifyIdempotency(engine));
      app.setErrorHandler(async (_error, _request, reply) => reply.code(418).send("an error"));
      app.post("/pay", async (request, reply) => {
        const { status, headers, body } = await work(engine, request, request.body);
        return reply.code(status).headers(headers).send(body);
      });
      const url = await app.listen({ port: 0, host: "127.0.0.1" });
      return { url, stop: () => app.close() };
    },
  },
  {
    name: "Hono",
    keeps500: true,
    start: async (engine, { work }) => {
      const app = new Hono();
      app.use(honoIdempotency(engine));
      app.onError((_error, c) => c.text("an error", 418));
      app.post("/pay", async (c) => {
        const { status, headers, body } = await work(engine, c, await c.req.json());
        const all = new Headers();
        for (const [name, value] of Object.entries(headers))
          for (const one of [value].flat()) all.append(name, one);
        return new Response(typeof body === "string" ? body : new Uint8Array(body), {
          status,
          headers: all,
        });
      });
      return new Promise((resolve) => {
        const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => {
          const stop = (): Promise<void> => new Promise((done) => server.close(() => done()));
          resolve({ url: `http://127.0.0.1:${port}`, stop });
        });
      });
    },
  },
];

const stops: (() => Promise<void>)[] = [];

afterEach(async () => {
  setFailpoint(undefined);
  for (const stop of stops.splice(0)) await stop();
});

interface World extends Effects {
  readonly url: string;
  readonly send: (
    body: unknown,
    key?: string,
    headers?: Record<string, string>,
  ) => Promise<Response>;
  readonly errors: unknown[];
}

async function open(target: Target, options: Partial<IdempotencyOptions> = {}): Promise<World> {
  const errors: unknown[] = [];
  const engine = createIdempotency(memoryLedger(), {
    scope: GLOBAL,
    onError: (error) => errors.push(error),
    ...options,
  });
  const effects = effectsOf();
  const { url, stop } = await target.start(engine, effects);
  stops.push(stop);
  const send: World["send"] = (body, key = "k1", headers = {}) =>
    fetch(`${url}/pay`, {
      method: "POST",
      headers: {
        "Idempotency-Key": key,
        "Content-Type": "application/json",
        Connection: "close",
        ...headers,
      },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  return { ...effects, url, send, errors };
}

describe.each(targets)("$name", (target) => {
  test("64 identical requests at once have one effect and equal answers", async () => {
    const { send, done } = await open(target);
    const answers = await Promise.all(
      Array.from({ length: 64 }, () => send({ do: "pay" }, "k1", { Prefer: "wait=20" })),
    );
    const bodies = await Promise.all(answers.map((answer) => answer.text()));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(new Set(bodies)).toEqual(new Set(['{"done":1}']));
    const replays = answers.filter(({ headers }) => headers.get("Idempotency-Replayed") === "true");
    expect(replays).toHaveLength(63);
    expect(done).toEqual(["pay k1"]);
  });

  test("a binary answer comes again byte by byte, without its cookies", async () => {
    const { send, done } = await open(target);
    const first = await send({ do: "picture" });
    const again = await send({ do: "picture" });
    expect(first.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
    expect(again.headers.getSetCookie()).toEqual([]);
    for (const answer of [first, again]) {
      expect(answer.status).toBe(201);
      expect(answer.headers.get("content-type")).toBe("image/png");
      expect(answer.headers.get("x-order")).toBe("17");
      expect(answer.headers.get("idempotency-expires")).toMatch(/GMT$/);
      expect(Buffer.from(await answer.arrayBuffer()).equals(large)).toBe(true);
    }
    expect(again.headers.get("content-length")).toBe(String(large.length));
    expect(done).toHaveLength(1);
  });

  test("JSON in another order is the same content; other content is refused, also while the first is running", async () => {
    const { send, begun, finish, done } = await open(target);
    stops.unshift(async () => finish());
    const first = send('{"do":"wait","to":{"a":1,"b":2}}');
    await begun();
    expect((await send({ do: "wait", to: { a: 1, b: 3 } })).status).toBe(422);
    const busy = await send({ do: "wait", to: { b: 2, a: 1 } }, "k1", { Prefer: "wait=0" });
    expect(busy.status).toBe(409);
    // For work that has only begun: not the whole lease.
    expect(Number(busy.headers.get("Retry-After"))).toBeLessThanOrEqual(5);
    expect(busy.headers.get("content-type")).toBe("application/problem+json");
    finish();
    expect((await first).status).toBe(201);
    const again = await send('{ "to": {"b":2,"a":1}, "do": "wait" }');
    expect(again.headers.get("Idempotency-Replayed")).toBe("true");
    expect(done).toHaveLength(1);
  });

  test("nothing is sent before the commit", async () => {
    const { url } = await open(target);
    const reached = new Promise<() => void>((resolve) => {
      setFailpoint((name) =>
        name === "http.committed" ? new Promise<void>((go) => resolve(go)) : undefined,
      );
    });
    let isAnswered = false;
    const headers = {
      "Idempotency-Key": "k1",
      "Content-Type": "application/json",
      Connection: "close",
    };
    const request = httpRequest(`${url}/pay`, { method: "POST", headers });
    const answer = new Promise<IncomingMessage>((resolve) => request.once("response", resolve));
    request.once("response", () => (isAnswered = true)).end('{"do":"picture"}');
    const go = await reached;
    await new Promise((resolve) => setTimeout(resolve, 20)); // Enough time for anything that was sent.
    expect(isAnswered).toBe(false);
    go();
    expect((await answer).resume().statusCode).toBe(201);
  });

  test("an error rolls back and frees the key, with every answer of the framework", async () => {
    const { send, done } = await open(target);
    const failed = await send({ do: "throw" });
    expect([418, 500]).toContain(failed.status);
    expect(failed.headers.get("set-cookie")).toBeNull();
    await failed.text();
    expect(done).toEqual([]);
    const again = await send({ do: "throw" });
    expect(again.headers.get("Idempotency-Replayed")).toBeNull();
    expect((await send({ do: "pay" }, "k2")).status).toBe(201);
  });

  test("a commit that fails drops the answer", async () => {
    const { send, done } = await open(target);
    setFailpoint((name) => {
      if (name === "http.completed") throw new Error("no commit");
    });
    const failed = await send({ do: "pay" });
    expect([418, 500]).toContain(failed.status);
    expect(await failed.text()).not.toContain("done");
    expect(done).toEqual([]);
    setFailpoint(undefined);
    expect(await (await send({ do: "pay" })).json()).toEqual({ done: 1 });
  });

  test("NotStarted leaves nothing", async () => {
    const { send, done } = await open(target);
    const refused = await send({ do: "refuse" });
    expect([403, 418]).toContain(refused.status);
    expect(done).toEqual([]);
    expect((await send({ do: "pay" })).status).toBe(201);
  });

  test("an answer of 500 is kept where it can be told from an error", async () => {
    const { send, done } = await open(target);
    expect((await send({ do: "500" })).status).toBe(500);
    const again = await send({ do: "500" });
    expect(again.headers.get("Idempotency-Replayed")).toBe(target.keeps500 ? "true" : null);
    expect(done).toHaveLength(target.keeps500 ? 1 : 0);
  });

  test("the work of a client that has gone goes on, and its answer is kept", async () => {
    const { url, send, begun, finish } = await open(target);
    const headers = { "Idempotency-Key": "k1", "Content-Type": "application/json" };
    const request = httpRequest(`${url}/pay`, { method: "POST", headers });
    request.on("error", () => undefined); // It hangs up by itself.
    request.end('{"do":"wait"}');
    await begun();
    request.destroy();
    await new Promise((resolve) => request.once("close", resolve));
    finish();
    const answer = await send({ do: "wait" }, "k1", { Prefer: "wait=10" });
    expect([answer.status, answer.headers.get("Idempotency-Replayed")]).toEqual([201, "true"]);
  });

  test("refuses before the handler: no key, a bad key, a key on GET, a body that is too large", async () => {
    const { url, send, done } = await open(target, { bodyBytesMax: 200_000 });
    const headers = { "Content-Type": "application/json" };
    const missing = await fetch(`${url}/pay`, { method: "POST", headers, body: "{}" });
    expect(await missing.json()).toMatchObject({ code: "key_missing", status: 400 });
    expect(await (await send({}, "a b")).json()).toMatchObject({ code: "invalid_request" });
    const onGet = await fetch(`${url}/pay`, { headers: { "Idempotency-Key": "k" } });
    expect(onGet.status).toBe(
      target.name === "Express around a handler" || target.name === "Fastify" ? 404 : 400,
    );
    if (target.name !== "Fastify" && target.name !== "Express around a handler")
      expect((await send({ do: "x".repeat(300_000) })).status).toBe(413);
    expect(done).toEqual([]);
  });
});

describe("node:http", () => {
  async function start(
    listener: (request: IncomingMessage, response: ServerResponse) => unknown,
  ): Promise<World> {
    return open({
      name: "",
      keeps500: true,
      start: (engine) => listen(createServer(withIdempotency(engine, listener))),
    });
  }

  test("a handler sees a response that is sent and ended, once it has sent and ended it", async () => {
    const seen: unknown[] = [];
    const { send } = await start((request, response) => {
      request.resume();
      seen.push(response.headersSent, response.writableEnded);
      response.writeHead(202, "Well", ["X-A", "1", "X-B", "2"]);
      seen.push(response.headersSent, response.writableEnded);
      response.write("aGk=", "base64", () => seen.push("written"));
      response.on("finish", () => seen.push("finished"));
      response.end("!", () => seen.push("ended"));
      response.end("more");
      seen.push(response.writableEnded);
    });
    const answer = await send({});
    expect([answer.status, answer.statusText, await answer.text()]).toEqual([202, "Well", "hi!"]);
    expect([answer.headers.get("x-a"), answer.headers.get("x-b")]).toEqual(["1", "2"]);
    expect(seen.slice(0, 5)).toEqual([false, false, true, false, true]);
    expect(new Set(seen.slice(5))).toEqual(new Set(["written", "finished", "ended"]));
    expect(await (await send({})).text()).toBe("hi!");
  });

  test("a stream that is piped into the response is held back as a whole", async () => {
    const chunks = Array.from({ length: 20 }, () => picture);
    const { send } = await start((request, response) => {
      request.resume();
      return pipeline(Readable.from(chunks), response);
    });
    const first = Buffer.from(await (await send({})).arrayBuffer());
    expect(first.equals(Buffer.concat(chunks))).toBe(true);
    const again = Buffer.from(await (await send({})).arrayBuffer());
    expect(again.equals(first)).toBe(true);
  });

  test("functions that others put over those of the response are called once each", async () => {
    const calls: string[] = [];
    const { send } = await start((request, response) => {
      request.resume();
      // As middleware for sessions does it: what it has ended once it does not end again.
      const end = response.end.bind(response);
      const writeHead = response.writeHead.bind(response);
      let isEnded = false;
      Object.assign(response, {
        writeHead: (...all: unknown[]) => {
          calls.push("writeHead");
          response.setHeader("X-Late", "1");
          return Reflect.apply(writeHead, response, all);
        },
        end: (...all: unknown[]) => {
          if (isEnded) return false;
          isEnded = true;
          calls.push("end");
          return Reflect.apply(end, response, all);
        },
      });
      response.end("one");
    });
    const answer = await send({});
    expect([await answer.text(), answer.headers.get("x-late")]).toEqual(["one", "1"]);
    expect(calls).toEqual(["end", "writeHead"]);
  });

  test("a handler that is over without an answer is not waited for when its client has gone", async () => {
    let calls = 0;
    let begin: () => void = () => undefined;
    const begun = new Promise<void>((resolve) => (begin = resolve));
    const { url } = await start(async (request, response) => {
      request.resume();
      calls += 1;
      if (calls > 1) response.end("second");
      else begin();
    });
    const request = httpRequest(`${url}/pay`, {
      method: "POST",
      headers: { "Idempotency-Key": "k1" },
    });
    request.on("error", () => undefined).end(); // It hangs up by itself.
    await begun;
    request.destroy();
    const headers = { "Idempotency-Key": "k1", Connection: "close" };
    const retry = (): Promise<Response> => fetch(`${url}/pay`, { method: "POST", headers });
    await expect.poll(async () => (await retry()).status).toBe(200);
    expect(calls).toBe(2);
  });

  test("a response that its handler destroys is a failure", async () => {
    let calls = 0;
    const { send } = await start((request, response) => {
      request.resume();
      calls += 1;
      if (calls === 1) response.destroy();
      else response.end("second");
    });
    await expect(send({})).rejects.toThrow();
    expect(await (await send({}, "k1", { Prefer: "wait=5" })).text()).toBe("second");
  });

  test("a body can be read by events, and there may be none", async () => {
    const { url } = await start((request, response) => {
      let text = "";
      request.on("data", (chunk: Buffer) => (text += chunk.toString()));
      request.on("end", () => response.end(`<${text}>`));
    });
    for (const body of ["", "x", "y".repeat(300_000)]) {
      const headers = { "Idempotency-Key": `k${body.length}` };
      const answer = await fetch(`${url}/`, { method: "POST", headers, body });
      expect(await answer.text()).toBe(`<${body}>`);
    }
  });
});

describe("Express", () => {
  test("without the error handler, an answer from 500 on counts as a failure", async () => {
    const { send, done } = await open({
      name: "",
      keeps500: false,
      start: (engine, { work }) => {
        const app = express();
        app.set("env", "test"); // It prints no errors then.
        app.use(express.json(), expressIdempotency(engine));
        app.post("/pay", async (request) => void (await work(engine, request, request.body)));
        return listen(createServer(app));
      },
    });
    expect((await send({ do: "throw" })).status).toBe(500);
    expect(done).toEqual([]);
    expect((await send({ do: "throw" })).headers.get("Idempotency-Replayed")).toBeNull();
  });

  test("handlers in a row are one work, and what they do not answer goes on", async () => {
    const seen: string[] = [];
    const { send } = await open({
      name: "",
      keeps500: true,
      start: (engine) => {
        const app = express();
        app.post(
          "/pay",
          expressIdempotency(
            engine,
            (_request: express.Request, _response: express.Response, next) => {
              seen.push("one");
              next();
            },
            (_request, _response, next) => {
              seen.push("two");
              next();
            },
          ),
          (_request, response) => {
            seen.push("three");
            response.json({ seen: seen.length });
          },
        );
        return listen(createServer(app));
      },
    });
    expect(await (await send({})).json()).toEqual({ seen: 3 });
    expect(await (await send({})).json()).toEqual({ seen: 3 });
  });
});

describe("Fastify", () => {
  const start = (
    route: (app: ReturnType<typeof fastify>, engine: Engine) => void,
  ): Promise<World> =>
    open({
      name: "",
      keeps500: true,
      start: async (engine) => {
        const app = fastify();
        await app.register(fastifyIdempotency(engine));
        route(app, engine);
        return { url: await app.listen({ port: 0, host: "127.0.0.1" }), stop: () => app.close() };
      },
    });

  test("what hooks of the route and its schema refuse is not the work of the key", async () => {
    let isAllowed = false;
    const { send } = await start((app) => {
      const schema = { body: { type: "object", required: ["amount"] } };
      const preHandler = async (
        _request: unknown,
        reply: { code(status: number): { send(text: string): unknown } },
      ): Promise<unknown> => (isAllowed ? undefined : reply.code(401).send("who?"));
      app.post("/pay", { schema, preHandler }, async () => ({ paid: true }));
    });
    expect((await send({})).status).toBe(400);
    expect((await send({ amount: 1 })).status).toBe(401);
    isAllowed = true;
    expect((await send({ amount: 2 })).status).toBe(200);
    expect((await send({ amount: 2 })).headers.get("Idempotency-Replayed")).toBe("true");
  });

  test("streams and Responses are kept, and what is too large goes out", async () => {
    const { send } = await start((app) => {
      app.post("/pay", async (request: FastifyRequest, reply: FastifyReply) => {
        const { kind, times } = request.body as { kind: string; times: number };
        const chunks = Array.from({ length: times }, () => picture);
        if (kind === "stream") return reply.type("image/png").send(Readable.from(chunks));
        return new Response(new Uint8Array(Buffer.concat(chunks)), {
          status: 202,
          headers: { "x-a": "1" },
        });
      });
    });
    for (const [at, body] of [
      { kind: "stream", times: 3 },
      { kind: "response", times: 3 },
    ].entries()) {
      const [first, again] = [await send(body, `k${at}`), await send(body, `k${at}`)];
      expect(again.headers.get("Idempotency-Replayed")).toBe("true");
      expect([again.status, again.headers.get("x-a")]).toEqual([
        first.status,
        first.headers.get("x-a"),
      ]);
      const bytes = Buffer.from(await first.arrayBuffer());
      expect(bytes.length).toBe(3 * picture.length);
      expect(Buffer.from(await again.arrayBuffer()).equals(bytes)).toBe(true);
    }
    const body = { kind: "stream", times: 40 };
    const long = Buffer.from(await (await send(body, "long")).arrayBuffer());
    expect(long.length).toBe(40 * picture.length);
    expect(await (await send(body, "long")).json()).toMatchObject({ code: "answer_not_kept" });
  });

  test("a route may say that keys are not for it", async () => {
    const { url } = await start((app) => {
      app.post("/pay", { config: { idempotency: false } }, async () => "plain");
    });
    expect(await (await fetch(`${url}/pay`, { method: "POST" })).text()).toBe("plain");
  });
});
