// Requests and answers as hostile or unlucky clients, parsers and handlers make them, in real servers.
import { createServer, request as httpRequest, type Server } from "node:http";
import http2 from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { Readable } from "node:stream";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { afterEach, describe, expect, test } from "vitest";
import {
  createIdempotency,
  GLOBAL,
  type IdempotencyOptions,
} from "../../src/toolkit/idempotency.ts";
import { fastifyIdempotency } from "../../src/toolkit/idempotency/fastify.ts";
import { createIdempotentFetch, memoryKeyStore } from "../../src/toolkit/idempotency/fetch.ts";
import { honoIdempotency } from "../../src/toolkit/idempotency/hono.ts";
import {
  expressIdempotency,
  expressIdempotencyErrors,
  withIdempotency,
} from "../../src/toolkit/idempotency/node.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";

const stops: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

function engineOf(options: Partial<IdempotencyOptions> = {}) {
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  const engine = createIdempotency(memoryLedger(), { scope: GLOBAL, onError, ...options });
  return { engine, errors };
}

/** Sends bytes as they are, and answers everything that comes back until the connection ends. */
function raw(port: number, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let heard = "";
    const socket = connect(port, "127.0.0.1", () => socket.write(text));
    socket.setEncoding("latin1");
    socket.on("data", (chunk: string) => (heard += chunk));
    socket.on("error", reject).on("close", () => resolve(heard));
  });
}

const head = (target: string, key = "k1", more = ""): string =>
  `POST ${target} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: ${key}\r\n${more}Content-Length: 0\r\n\r\n`;
const last = "Connection: close\r\n";

describe("the target of a request", () => {
  const run = async (target: string, other: string) => {
    const { engine, errors } = engineOf();
    const port = await listen(
      createServer(withIdempotency(engine, (_request, response) => response.end("done"))),
    );
    const first = await raw(port, head(target, "k1", last));
    const second = await raw(port, head(other, "k1", last));
    return { statuses: [first, second].map((text) => text.slice(9, 12)), errors };
  };

  test.each([
    ["//a/pay", "/pay"],
    ["//a/pay", "//b/pay"],
    ["/\\a/pay", "/pay"],
  ])("the path is what was sent: %s is not %s", async (target, other) => {
    expect(await run(target, other)).toEqual({ statuses: ["200", "422"], errors: [] });
  });

  test.each(["//[", "///", "/%", "/a b:99999"])(
    "a path that is no address is compared all the same: %s",
    async (path) => {
      const target = path.replaceAll(" ", "%20");
      expect(await run(target, target)).toEqual({ statuses: ["200", "200"], errors: [] });
    },
  );
});

describe("the body of a request", () => {
  test("a request whose client went before its body was whole is not taken for one without a body", async () => {
    const { engine } = engineOf();
    const seen: unknown[] = [];
    const app = express();
    let gone: () => void = () => undefined;
    const left = new Promise<void>((resolve) => (gone = resolve));
    app.use(async (request, _response, next) => {
      if (request.headers["x-leaves"] !== undefined) await left;
      next();
    });
    app.use(
      expressIdempotency(engine, async (request: express.Request, response: express.Response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk as Buffer);
        seen.push(Buffer.concat(chunks).toString());
        response.status(201).send("ok");
      }),
    );
    const failed = new Promise<void>((resolve) => {
      app.use(((_error, _request, response, _next) => {
        response.status(500).end();
        resolve();
      }) satisfies express.ErrorRequestHandler);
    });
    const server = createServer(app);
    const port = await listen(server);
    const client = httpRequest({
      port,
      method: "POST",
      headers: { "Idempotency-Key": "k1", "X-Leaves": "yes", "Content-Length": 4 },
    });
    client.on("error", () => undefined);
    server.once("request", (request) => {
      request.on("error", () => undefined);
      request.once("close", () => gone());
      client.destroy();
    });
    client.write("ab");
    await failed;
    const again = await fetch(`http://127.0.0.1:${port}/`, {
      method: "POST",
      headers: { "Idempotency-Key": "k1" },
      body: "abcd",
    });
    expect([again.status, seen]).toEqual([201, ["abcd"]]);
  });

  const upload = (port: number, body: BodyInit, type?: string): Promise<Response> =>
    fetch(`http://127.0.0.1:${port}/up`, {
      method: "POST",
      headers: { "Idempotency-Key": "k1", ...(type === undefined ? {} : { "Content-Type": type }) },
      body,
    });

  test("Express: a body that another middleware has read and not kept is not taken for an empty one", async () => {
    const { engine } = engineOf();
    let runs = 0;
    const app = express();
    app.use((request, _response, next) => {
      request.resume().on("end", () => next());
    });
    app.use(
      expressIdempotency(engine, (_request: express.Request, response: express.Response) => {
        runs += 1;
        response.send("ok");
      }),
    );
    app.use(((error: Error, _request, response, _next) => {
      response.status(500).send(error.message);
    }) satisfies express.ErrorRequestHandler);
    const port = await listen(createServer(app));
    const one = await upload(port, "one");
    expect([one.status, await one.text()]).toEqual([500, expect.stringContaining("fingerprint")]);
    expect(runs).toBe(0);
  });

  test("Fastify: a body that no parser has read is not taken for none", async () => {
    const { engine } = engineOf();
    const app = fastify();
    stops.push(() => app.close());
    // As @fastify/multipart does: the handler reads the parts.
    app.addContentTypeParser("text/plain", (_request, _payload, done) => {
      done(null);
    });
    await app.register(fastifyIdempotency(engine));
    app.post("/up", async () => "ok");
    await app.listen({ port: 0, host: "127.0.0.1" });
    const { port } = app.server.address() as AddressInfo;
    const one = await upload(port, "one", "text/plain");
    expect([one.status, await one.text()]).toEqual([501, expect.stringContaining("fingerprint")]);
  });

  test("a body that cannot be seen is fine where the options have a fingerprint", async () => {
    const { engine } = engineOf({ fingerprint: ({ headers }) => headers.get("x-digest") ?? "" });
    const app = express();
    app.use((request, _response, next) => {
      request.resume().on("end", () => next());
    });
    app.use(
      expressIdempotency(engine, (_request: express.Request, response: express.Response) => {
        response.send("ok");
      }),
    );
    const port = await listen(createServer(app));
    expect((await upload(port, "one")).status).toBe(200);
  });

  test("the same upload is the same content, though a retry has another boundary", async () => {
    const { engine } = engineOf();
    const port = await listen(
      createServer(withIdempotency(engine, (_request, response) => response.end("ok"))),
    );
    const form = (text: string): FormData => {
      const data = new FormData();
      data.set("name", "a");
      data.set("file", new Blob([text, new Uint8Array([13, 10, 45, 45, 0, 255])]), "f.bin");
      return data;
    };
    const answers = [
      await upload(port, form("one")),
      await upload(port, form("one")),
      await upload(port, form("two")),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 422]);
    expect(answers[1]?.headers.get("idempotency-replayed")).toBe("true");
  });

  test("Hono: a body without a length is read no further than it may be", async () => {
    const { engine } = engineOf({ bodyBytesMax: 1000 });
    const app = new Hono();
    app.use(honoIdempotency(engine));
    app.post("/up", (c) => c.text("ok"));
    let sent = 0;
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += 1;
        if (sent > 1000) controller.close();
        else controller.enqueue(new Uint8Array(100));
      },
    });
    const init = { method: "POST", headers: { "Idempotency-Key": "k1" }, body, duplex: "half" };
    const answer = await app.fetch(new Request("http://localhost/up", init as RequestInit));
    expect(answer.status).toBe(413);
    expect(sent).toBeLessThan(20);
  });

  test("Hono: the handler reads the body as it likes, also from the raw request", async () => {
    const { engine } = engineOf();
    const app = new Hono();
    app.use(honoIdempotency(engine));
    app.post("/raw", async (c) => c.text(await c.req.raw.text()));
    app.post("/form", async (c) => c.json(await c.req.parseBody()));
    app.post("/json", async (c) => c.json(await c.req.json()));
    const post = async (path: string, body: BodyInit): Promise<string> => {
      const init = { method: "POST", headers: { "Idempotency-Key": path }, body };
      return (await app.fetch(new Request(`http://localhost${path}`, init))).text();
    };
    const form = new FormData();
    form.set("a", "1");
    expect(await post("/raw", "text")).toBe("text");
    expect(await post("/form", form)).toBe('{"a":"1"}');
    expect(await post("/json", '{"a":2}')).toBe('{"a":2}');
  });

  test("Hono: a body that a middleware has read before is compared too", async () => {
    const { engine } = engineOf();
    const app = new Hono();
    app.use(async (c, next) => {
      await c.req.json();
      await next();
    });
    app.use(honoIdempotency(engine));
    app.post("/json", async (c) => c.json(await c.req.json()));
    const post = async (body: string): Promise<number> => {
      const init = { method: "POST", headers: { "Idempotency-Key": "k1" }, body };
      return (await app.fetch(new Request("http://localhost/json", init))).status;
    };
    expect([await post("1"), await post("1"), await post("2")]).toEqual([200, 200, 422]);
  });
});

describe("the answer", () => {
  test("all headers of a list go out, and what is set behind the end does not", async () => {
    const { engine } = engineOf();
    const port = await listen(
      createServer(
        withIdempotency(engine, (_request, response) => {
          response.setHeader("Link", "<c>");
          response.writeHead(201, [
            "Set-Cookie",
            "a=1",
            "Set-Cookie",
            "b=2",
            "Link",
            "<a>",
            "Link",
            "<b>",
          ]);
          response.end("x");
          response.statusCode = 500;
          try {
            response.setHeader("X-Late", "yes");
          } catch {
            // As without this.
          }
        }),
      ),
    );
    const post = (): Promise<Response> =>
      fetch(`http://127.0.0.1:${port}/`, { method: "POST", headers: { "Idempotency-Key": "k1" } });
    const [first, second] = [await post(), await post()];
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(first.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
    expect([first, second].map(({ headers }) => headers.get("link"))).toEqual([
      "<a>, <b>",
      "<a>, <b>",
    ]);
    expect(first.headers.get("x-late")).toBeNull();
  });

  test("requests that come on one connection at once are answered in their order", async () => {
    const { engine } = engineOf();
    const port = await listen(
      createServer(
        withIdempotency(engine, async (request, response) => {
          const { key } = engine.contextOf(request);
          if (key === "k1") await new Promise((resolve) => setImmediate(resolve));
          response.end(`answer ${key};`);
        }),
      ),
    );
    const all = head("/", "k1") + head("/", "k2") + head("/", "k1") + head("/", "k3", last);
    const heard = await raw(port, all);
    expect(heard.match(/answer k\d|HTTP\/1.1 \d+/g)).toEqual([
      "HTTP/1.1 200",
      "answer k1",
      "HTTP/1.1 200",
      "answer k2",
      expect.stringMatching(/HTTP\/1.1 (200|409)/),
      ...(heard.includes(" 409 ") ? [] : ["answer k1"]),
      "HTTP/1.1 200",
      "answer k3",
    ]);
  });

  test("HTTP/1.0, Expect: 100-continue, 204 and 304 are answered as they should be", async () => {
    const { engine } = engineOf();
    const port = await listen(
      createServer(
        withIdempotency(engine, async (request, response) => {
          let body = "";
          for await (const chunk of request) body += String(chunk);
          response.statusCode = Number(request.url?.slice(1));
          response.end(body);
        }),
      ),
    );
    const text = (status: number, version: string, more: string): string =>
      `POST /${status} HTTP/${version}\r\nHost: x\r\nIdempotency-Key: k${status}${version}\r\n${more}Content-Length: 2\r\n\r\nhi`;
    for (const _time of [1, 2]) {
      const old = await raw(port, text(201, "1.0", ""));
      expect(old).toMatch(/^HTTP\/1.1 201 [^]*\r\n\r\nhi$/);
      const expecting = await raw(port, text(200, "1.1", `${last}Expect: 100-continue\r\n`));
      expect(expecting).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200 [^]*\r\n\r\nhi$/);
      for (const status of [204, 304]) {
        const none = await raw(port, text(status, "1.1", last));
        expect(none).toMatch(/\r\n\r\n$/);
        expect(none).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
      }
    }
  });
});

describe("Fastify", () => {
  test("a repetition has no header that the first answer had not", async () => {
    const { engine } = engineOf();
    const app = fastify();
    stops.push(() => app.close());
    app.addHook("onRequest", async (_request, reply) => {
      void reply.header("X-Before", "1");
    });
    await app.register(fastifyIdempotency(engine));
    app.post("/200", (_request, reply) => void reply.send());
    app.post("/304", (_request, reply) => void reply.code(304).send());
    app.post("/stream", (_request, reply) => reply.send(Readable.from([Buffer.from("bytes")])));
    const url = await app.listen({ port: 0, host: "127.0.0.1" });
    const own = new Set(["date", "idempotency-replayed", "idempotency-expires", "keep-alive"]);
    const post = async (path: string): Promise<unknown> => {
      const headers = { "Idempotency-Key": path };
      const answer = await fetch(url + path, { method: "POST", headers });
      const names = [...answer.headers].filter(([name]) => !own.has(name) && name !== "connection");
      return [
        answer.status,
        await answer.text(),
        names.filter(([name]) => !/length|transfer/.test(name)),
      ];
    };
    for (const path of ["/200", "/304", "/stream"])
      expect(await post(path)).toEqual(await post(path));
  });
});

test("node:http: HTTP/2 is refused at once", async () => {
  const { engine } = engineOf();
  const listener = withIdempotency(engine, (_request, response) => response.end());
  // The types know that this is not promised.
  const server = http2.createServer(listener as never);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  stops.push(() => {
    client.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  const stream = client.request({ ":method": "POST", ":path": "/", "idempotency-key": "k1" });
  stream.end("body").resume();
  const status = await new Promise((resolve) => {
    stream.once("response", (headers) => resolve(headers[":status"]));
  });
  expect(status).toBe(501);
});

describe("work that was lost", () => {
  /** A handler whose lease ends while it works: the next phase says so. */
  function losing() {
    const clock = createVirtualClock();
    const errors: unknown[] = [];
    const engine = createIdempotency(memoryLedger({ clock }), {
      scope: GLOBAL,
      mode: "phases",
      clock,
      onError: (error) => void errors.push(error),
    });
    let runs = 0;
    const work = async (source: object): Promise<string> => {
      runs += 1;
      const { phase } = engine.contextOf(source);
      if (runs === 1) clock.advance(60_000);
      return phase("pay", async () => "paid");
    };
    return { engine, work };
  }

  async function check(send: () => Promise<Response>): Promise<void> {
    const first = await send();
    expect([first.status, first.headers.has("retry-after")]).toEqual([409, true]);
    expect(await first.json()).toMatchObject({ code: "in_progress" });
    const second = await send();
    expect([second.status, await second.text()]).toEqual([200, "paid"]);
  }

  const post = (port: number) => (): Promise<Response> =>
    fetch(`http://127.0.0.1:${port}/`, { method: "POST", headers: { "Idempotency-Key": "k1" } });

  test("node:http tells its client to ask again", async () => {
    const { engine, work } = losing();
    const listener = withIdempotency(engine, async (request, response) => {
      response.end(await work(request));
    });
    await check(post(await listen(createServer(listener))));
  });

  test("Express does, around a handler and as a middleware", async () => {
    for (const isAround of [true, false]) {
      const { engine, work } = losing();
      const app = express();
      const handler = async (request: express.Request, response: express.Response) => {
        response.send(await work(request));
      };
      if (isAround) app.post("/", expressIdempotency(engine, handler));
      else app.use(expressIdempotency(engine)).post("/", handler).use(expressIdempotencyErrors());
      await check(post(await listen(createServer(app))));
    }
  });

  test("Fastify does", async () => {
    const { engine, work } = losing();
    const app = fastify();
    stops.push(() => app.close());
    await app.register(fastifyIdempotency(engine));
    app.post("/", (request) => work(request));
    await app.listen({ port: 0, host: "127.0.0.1" });
    await check(post((app.server.address() as AddressInfo).port));
  });

  test("Hono does", async () => {
    const { engine, work } = losing();
    const app = new Hono();
    app.use(honoIdempotency(engine));
    app.post("/", async (c) => c.text(await work(c)));
    const init = { method: "POST", headers: { "Idempotency-Key": "k1" } };
    await check(async () => app.fetch(new Request("http://localhost/", init)));
  });
});

test("a call of a caller is not turned into a GET by a redirection", async () => {
  const methods: unknown[] = [];
  const server = createServer((request, response) => {
    methods.push(request.method);
    const status = request.url === "/302" ? 302 : request.url === "/307" ? 307 : 201;
    response.writeHead(status, { Location: "/there" }).end();
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  const call = createIdempotentFetch({ store: memoryKeyStore(), windowMs: 86_400_000 });
  expect((await call("one", `${url}/302`, { json: 1 })).status).toBe(302);
  expect((await call("two", `${url}/307`, { json: 1, redirect: "follow" })).status).toBe(201);
  expect(methods).toEqual(["POST", "POST", "POST"]);
});
