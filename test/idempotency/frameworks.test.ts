// What frameworks put around an answer: compression, streams, and answers that go around the framework.
import { createServer, request as httpRequest, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { gunzipSync } from "node:zlib";
import { serve } from "@hono/node-server";
import compression from "compression";
import express from "express";
import fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Hono } from "hono";
import { stream, streamSSE, streamText } from "hono/streaming";
import { afterEach, describe, expect, test } from "vitest";
import { HapaxError } from "../../src/base/errors.ts";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { createIdempotency, GLOBAL } from "../../src/toolkit/idempotency.ts";
import { createIdempotentFetch, memoryKeyStore } from "../../src/toolkit/idempotency/fetch.ts";
import { fastifyIdempotency } from "../../src/toolkit/idempotency/fastify.ts";
import { honoIdempotency } from "../../src/toolkit/idempotency/hono.ts";
import { expressIdempotency, withIdempotency } from "../../src/toolkit/idempotency/node.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  setFailpoint(undefined);
  for (const close of closing.splice(0).toReversed()) await close();
});

function failCommits(error: Error): void {
  setFailpoint((name) => {
    if (name === "http.worked") throw error;
    return undefined;
  });
}

function openEngine() {
  const errors: unknown[] = [];
  const done: string[] = [];
  const ledger = memoryLedger();
  const onError = (error: unknown): void => void errors.push(error);
  const engine = createIdempotency(ledger, { scope: GLOBAL, onError });
  /** A write in the transaction of the request: it is taken back if that is rolled back. */
  const effect = (source: object): void => {
    done.push("paid");
    engine.contextOf(source).tx.undo(() => done.pop());
  };
  return { engine, ledger, errors, done, effect };
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

interface Raw {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly names: readonly string[];
  readonly body: Buffer;
}

/** As it is on the wire: nothing is unpacked. */
async function post(port: number, key: string, headers: Record<string, string> = {}): Promise<Raw> {
  return await new Promise((resolve, reject) => {
    const request = httpRequest(
      { port, path: "/pay", method: "POST", headers: { "Idempotency-Key": key, ...headers } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () => {
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers as Record<string, string>,
            names: response.rawHeaders.filter((_, at) => at % 2 === 0),
            body: Buffer.concat(chunks),
          });
        });
      },
    );
    request.on("error", reject);
    request.end();
  });
}

const TEXT = JSON.stringify({ words: "paid ".repeat(1000) });
const GZIP = { "Accept-Encoding": "gzip" };

function unpacked({ headers, body }: Raw): string {
  return (headers["content-encoding"] === "gzip" ? gunzipSync(body) : body).toString();
}

describe("Express with compression before it", () => {
  for (const how of ["around a handler", "as a middleware"] as const) {
    test(`${how}: an answer is packed if it says so, first and again, for those who take it`, async () => {
      const { engine, done, effect } = openEngine();
      const app = express();
      app.use(compression());
      const pay = (request: express.Request, response: express.Response): void => {
        effect(request);
        response.type("json").send(TEXT);
      };
      if (how === "around a handler") app.post("/pay", expressIdempotency(engine, pay));
      else app.use(expressIdempotency(engine)).post("/pay", pay);
      const port = await listen(createServer(app));
      for (const headers of [GZIP, GZIP, {}, GZIP]) {
        const answer = await post(port, "k", headers);
        expect([answer.status, unpacked(answer)]).toEqual([200, TEXT]);
        expect(answer.headers["content-encoding"]).toBe(headers === GZIP ? "gzip" : undefined);
      }
      // A refusal goes through it too, and so does a failure.
      expect(JSON.parse(unpacked(await post(port, '"', GZIP)))).toMatchObject({ status: 400 });
      expect(done).toEqual(["paid"]);
    });
  }

  test("what is written in parts is packed as a whole", async () => {
    const { engine } = openEngine();
    const app = express();
    app.use(compression({ threshold: 0 }));
    app.post(
      "/pay",
      expressIdempotency(engine, (_request: express.Request, response: express.Response) => {
        response.writeHead(201, { "Content-Type": "text/plain" });
        response.write("one ");
        response.write("two ");
        response.end("three");
      }),
    );
    const port = await listen(createServer(app));
    for (const _ of [1, 2]) {
      const answer = await post(port, "k", GZIP);
      expect([answer.status, answer.headers["content-encoding"]]).toEqual([201, "gzip"]);
      expect(unpacked(answer)).toBe("one two three");
    }
  });

  test("an answer that takes the place of another is packed as it says", async () => {
    const { engine } = openEngine();
    const app = express();
    app.use(compression({ threshold: 0 }));
    app.post(
      "/pay",
      expressIdempotency(engine, (_request: express.Request, response: express.Response) => {
        response.type("json").send(TEXT);
      }),
    );
    const port = await listen(createServer(app));
    failCommits(new HapaxError("lease_lost", "taken over"));
    const answer = await post(port, "k", GZIP);
    expect([answer.status, answer.headers["content-encoding"]]).toEqual([409, "gzip"]);
    expect(JSON.parse(unpacked(answer))).toMatchObject({ code: "in_progress" });
  });
});

describe("Hono on Node", () => {
  test.each([
    [
      "streamText",
      (c: Parameters<typeof streamText>[0]) =>
        streamText(c, async (s) => void (await s.write("hi there"))),
    ],
    [
      "streamSSE",
      (c: Parameters<typeof streamText>[0]) => streamSSE(c, (s) => s.writeSSE({ data: "hi" })),
    ],
    [
      "stream",
      (c: Parameters<typeof streamText>[0]) => {
        c.header("Transfer-Encoding", "chunked");
        c.header("Content-Type", "text/plain");
        return stream(c, async (s) => void (await s.write("hi")));
      },
    ],
  ])("%s: an answer has one length, first and again", async (_name, answerWith) => {
    const { engine } = openEngine();
    const app = new Hono();
    app.use(honoIdempotency(engine));
    app.post("/pay", (c) => answerWith(c));
    const port = await new Promise<number>((resolve) => {
      const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, (info) => {
        resolve(info.port);
      });
      closing.push(async () => {
        await new Promise((done) => server.close(done));
      });
    });
    const [first, again] = [await post(port, "k"), await post(port, "k")];
    for (const answer of [first, again]) {
      const lengths = answer.names.filter((name) =>
        /^(content-length|transfer-encoding)$/i.test(name),
      );
      expect([answer.status, lengths.length]).toEqual([200, 1]);
    }
    expect(again.body.equals(first.body)).toBe(true);
    expect(first.body.length).toBeGreaterThan(1);
  });
});

describe("Fastify", () => {
  async function start(
    route: (request: FastifyRequest, reply: FastifyReply) => unknown,
    world = openEngine(),
  ) {
    const app = fastify();
    await app.register(fastifyIdempotency(world.engine));
    app.post("/pay", route);
    const url = new URL(await app.listen({ port: 0, host: "127.0.0.1" }));
    closing.push(async () => {
      await app.close();
    });
    return { ...world, port: Number(url.port) };
  }

  test("an answer that goes around Fastify is held back, committed and kept as any other", async () => {
    const world = openEngine();
    const { port, done } = await start(async (request, reply) => {
      void reply.hijack();
      world.effect(request);
      await Promise.resolve();
      reply.raw.writeHead(201, { "Content-Type": "text/plain", "X-A": "1" });
      reply.raw.write("ar");
      reply.raw.end("ound");
    }, world);
    for (const replayed of [undefined, "true", "true"]) {
      const { status, headers, body } = await post(port, "k");
      expect([status, body.toString(), headers["x-a"]]).toEqual([201, "around", "1"]);
      expect(headers["idempotency-replayed"]).toBe(replayed);
    }
    expect([done, world.errors]).toEqual([["paid"], []]);
  });

  test("also without hijack, and from a handler that is no promise", async () => {
    const world = openEngine();
    const { port, done } = await start((request, reply) => {
      world.effect(request);
      setTimeout(() => reply.raw.end("late"), 5);
    }, world);
    const answers = [await post(port, "k"), await post(port, "k")];
    expect(answers.map(({ body }) => body.toString())).toEqual(["late", "late"]);
    expect(done).toEqual(["paid"]);
  });

  test("a handler that fails on its way around Fastify tells no success, and keeps nothing", async () => {
    const world = openEngine();
    let isBroken = true;
    const { port, done } = await start(async (request, reply) => {
      void reply.hijack();
      world.effect(request);
      reply.raw.writeHead(200);
      reply.raw.write("half");
      if (isBroken) throw new Error("in the middle");
      reply.raw.end(" whole");
    }, world);
    expect((await post(port, "k")).status).toBe(500);
    expect([done, world.errors.length]).toEqual([[], 1]);
    isBroken = false;
    expect((await post(port, "k")).body.toString()).toBe("half whole");
    expect(done).toEqual(["paid"]);
  });

  test("a commit that fails drops what went around Fastify", async () => {
    const world = openEngine();
    const { port } = await start(async (request, reply) => {
      void reply.hijack();
      world.effect(request);
      await Promise.resolve();
      reply.raw.end("around");
    }, world);
    failCommits(new Error("no disk"));
    expect((await post(port, "k")).status).toBe(500);
    expect(world.done).toEqual([]);
  });
});

/** As the server of Hono hands it over with `overrideGlobalObjects: false`: the platform cannot copy it. */
function lookalike(key: string): Request {
  const headers = { "Idempotency-Key": key };
  const real = new Request("http://localhost/pay", { method: "POST", body: "17", headers });
  const parts = ["url", "method", "headers", "signal", "body", "bodyUsed"] as const;
  const getters = parts.map((part) => [part, { get: () => real[part] }] as const);
  return Object.create(Request.prototype, Object.fromEntries(getters)) as Request;
}

test("a request that only looks like one of the platform reaches its handler with its body, and is paid once", async () => {
  expect(() => new Request(lookalike("k"), { method: "POST", body: "17" })).toThrow(TypeError);
  const { engine } = openEngine();
  let paid = 0;
  const app = new Hono();
  app.use(honoIdempotency(engine));
  app.post("/pay", async (c) => c.text(`paid ${await c.req.text()} ${++paid}`));
  const plain = (request: Request): Promise<Response> =>
    engine.handle(request, async (unread) => new Response(`paid ${await unread.text()} ${++paid}`));
  const doors: readonly ((request: Request) => Response | Promise<Response>)[] = [app.fetch, plain];
  for (const [at, door] of doors.entries()) {
    for (const _ of [1, 2]) {
      const answer = await door(lookalike(`k${at}`));
      expect(await answer.text()).toBe(`paid 17 ${at + 1}`);
    }
  }
});

test("node:http: an answer has one Content-Length, also if its handler sets another", async () => {
  const { engine } = openEngine();
  const port = await listen(
    createServer(
      withIdempotency(engine, (_request, response) => {
        response.setHeader("Transfer-Encoding", "chunked");
        response.end("hi");
      }),
    ),
  );
  for (const _ of [1, 2]) {
    const { names, body } = await post(port, "k");
    const lengths = names.filter((name) => /^(content-length|transfer-encoding)$/i.test(name));
    expect([lengths.length, body.toString()]).toEqual([1, "hi"]);
  }
});

test("a caller of ours that comes while its first call is worked on gets the answer when that is there", async () => {
  const { engine, done, effect } = openEngine();
  let finish: () => void = () => undefined;
  let begin: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (finish = resolve));
  const begun = new Promise<void>((resolve) => (begin = resolve));
  let requests = 0;
  const listener = withIdempotency(engine, async (request, response) => {
    effect(request);
    begin();
    await gate;
    response.writeHead(201).end("paid");
  });
  const port = await listen(
    createServer((request, response) => {
      requests += 1;
      listener(request, response);
    }),
  );
  const store = memoryKeyStore();
  const options = { store, windowMs: 24 * 3_600_000 };
  const url = `http://127.0.0.1:${port}/pay`;
  const gone = new AbortController();
  const first = createIdempotentFetch(options)("order 17", url, { signal: gone.signal });
  await begun;
  gone.abort();
  await expect(first).rejects.toThrow();
  const startMs = performance.now();
  const second = createIdempotentFetch(options)("order 17", url);
  await expect.poll(() => requests).toBe(2);
  finish();
  expect([(await second).status, requests, done]).toEqual([201, 2, ["paid"]]);
  // Far from the 30 seconds of the lease.
  expect(performance.now() - startMs).toBeLessThan(10_000);
});

describe("servers over one ledger", () => {
  const JSON_TYPE = "application/json";
  const FORM = "application/x-www-form-urlencoded";

  /** Without a parser, and with those of Express and Fastify. */
  async function openAll() {
    const ledger = memoryLedger();
    const open = () => createIdempotency(ledger, { scope: GLOBAL, onError: () => undefined });
    const plain = await listen(
      createServer(withIdempotency(open(), (_request, response) => void response.end("paid"))),
    );
    const app = express();
    app.use(express.json(), express.urlencoded({ extended: true }));
    app.post(
      "/pay",
      expressIdempotency(open(), (_request: express.Request, response: express.Response) => {
        response.send("paid");
      }),
    );
    const parsing = await listen(createServer(app));
    const other = fastify();
    await other.register(fastifyIdempotency(open()));
    other.post("/pay", async () => "paid");
    const url = new URL(await other.listen({ port: 0, host: "127.0.0.1" }));
    closing.push(async () => {
      await other.close();
    });
    return { plain, parsing, fastify: Number(url.port) };
  }

  const send = (port: number, key: string, type: string, body: string) =>
    fetch(`http://127.0.0.1:${port}/pay`, {
      method: "POST",
      headers: { "Idempotency-Key": key, ...(type === "" ? {} : { "Content-Type": type }) },
      ...(body === "" ? {} : { body }),
    });

  test.each([
    ["JSON", JSON_TYPE, '{"a":1,"b":[1,2]}', '{"b":[1,2], "a":1.0}', '{"a":2,"b":[1,2]}'],
    [
      "JSON with long numbers",
      JSON_TYPE,
      '{"a":12345678901234567890}',
      '{ "a":12345678901234567890 }',
      '{"a":22345678901234567890}',
    ],
    ["a form", FORM, "a=1&b=x+y&b=z", "a=1&b=x%20y&b=z", "a=1&b=x+y"],
    ["a nested form", FORM, "a[b]=1&c[]=x&c[]=y", "c[]=x&c[]=y&a[b]=1", "a[b]=2&c[]=x&c[]=y"],
    ["no body", "", "", "", "x"],
  ])("with and without a parser agree on %s", async (_name, type, one, same, other) => {
    const ports = await openAll();
    // Fastify has no parser of forms.
    const all = [ports.plain, ports.parsing, ...(type === FORM ? [] : [ports.fastify])];
    for (const [at, first] of all.entries()) {
      const key = `k${at}`;
      expect((await send(first, key, type, one)).status).toBe(200);
      for (const next of all) {
        const again = await send(next, key, type, type === FORM && next === first ? one : same);
        expect([again.status, again.headers.get("idempotency-replayed")]).toEqual([200, "true"]);
        const otherType = type === "" ? "text/plain" : type;
        expect((await send(next, key, otherType, other)).status).toBe(422);
      }
    }
  });

  test("a server without a parser tells numbers apart that this language does not", async () => {
    const { plain } = await openAll();
    expect((await send(plain, "k", JSON_TYPE, '{"a":12345678901234567890}')).status).toBe(200);
    expect((await send(plain, "k", JSON_TYPE, '{"a":12345678901234567891}')).status).toBe(422);
    expect((await send(plain, "k", JSON_TYPE, '{"a":12345678901234567000}')).status).toBe(422);
  });
});

describe("what is not kept", () => {
  test.each([401, 403, 404])(
    "an answer of %i leaves no entry behind, with every key",
    async (status) => {
      const { engine, ledger } = openEngine();
      const port = await listen(
        createServer(
          withIdempotency(
            engine,
            (_request, response) => void response.writeHead(status).end("no"),
          ),
        ),
      );
      for (let n = 0; n < 20; n += 1) expect((await post(port, `k${n}`)).status).toBe(status);
      expect(await ledger.entries.scan({ kind: "http", scope: GLOBAL, max: 100 })).toEqual([]);
      const again = await post(port, "k1");
      expect(again.headers["idempotency-replayed"]).toBeUndefined();
    },
  );

  test.each(["PUT", "DELETE"])(
    "a key on %s is refused where it would protect nothing",
    async (method) => {
      const world = openEngine();
      let runs = 0;
      const port = await listen(
        createServer(
          withIdempotency(world.engine, (_request, response) => {
            runs += 1;
            response.end("done");
          }),
        ),
      );
      const url = `http://127.0.0.1:${port}/things/1`;
      const refused = await fetch(url, { method, headers: { "Idempotency-Key": "k" } });
      expect([refused.status, runs]).toEqual([400, 0]);
      expect(await refused.json()).toMatchObject({ detail: expect.stringContaining("methods") });
      expect((await fetch(url, { method })).status).toBe(200);
    },
  );
});
