// Connections of the lane over real sockets: what the lane takes, what it hands over, and what ends them.
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { LIMITS } from "../../protocol/all-limits.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { type NodeServer, type NodeServerOptions, startNodeServer } from "./node.ts";
import { BodyBudget } from "../server/body-budget.ts";
import { LaneExchange } from "./node-lane-exchange.ts";
import { LaneMemory } from "./node-lane-memory.ts";
import { HeadParser } from "./node-lane-parser.ts";

const servers: NodeServer[] = [];
const clients: Client[] = [];

afterEach(async () => {
  for (const client of clients.splice(0)) client.socket.destroy();
  for (const server of servers.splice(0)) await server.stop();
});

async function start(options: Partial<NodeServerOptions> = {}): Promise<NodeServer> {
  const server = await startNodeServer({ store: "memory", port: 0, ...options });
  servers.push(server);
  return server;
}

/** A server with the stream `/a`. */
async function startWithStream(options: Partial<NodeServerOptions> = {}): Promise<NodeServer> {
  const server = await start(options);
  const headers = { "content-type": "text/plain" };
  expect((await fetch(`${server.url}/a`, { method: "PUT", headers })).status).toBe(201);
  return server;
}

/** A server whose stream `/a` is there, and whose next commits wait. */
async function startGated(
  options: Partial<NodeServerOptions> = {},
): Promise<[NodeServer, GatedStore]> {
  const store = openGatedStore(openMemoryStore());
  const server = await start({ ...options, store });
  const headers = { "content-type": "text/plain" };
  const created = fetch(`${server.url}/a`, { method: "PUT", headers });
  await store.arrival();
  await store.release();
  expect((await created).status).toBe(201);
  return [server, store];
}

const textOf = async (server: NodeServer): Promise<string> =>
  (await fetch(`${server.url}/a`)).text();

class Client {
  readonly socket: Socket;
  received = "";
  readonly closed: Promise<void>;
  #wake: () => void = () => undefined;

  constructor(server: NodeServer) {
    const { hostname, port } = new URL(server.url);
    this.socket = connect({
      host: hostname,
      port: Number(port),
      noDelay: true,
      allowHalfOpen: true,
    });
    this.socket.on("error", () => undefined);
    this.socket.setEncoding("latin1");
    this.socket.on("data", (text) => {
      this.received += String(text);
      this.#wake();
    });
    this.closed = new Promise<void>((resolve) => {
      this.socket.once("close", () => {
        resolve();
        this.#wake();
      });
    });
    this.socket.on("end", () => {
      this.socket.end();
      this.#wake();
    });
    clients.push(this);
  }

  get statuses(): number[] {
    return [...this.received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
  }

  /** Returns the statuses when there are this many. */
  async answers(count: number): Promise<number[]> {
    while (this.statuses.length < count && !this.socket.closed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.statuses;
  }
}

const TYPE = "Content-Type: text/plain\r\n";

function append(body: string, path = "/a", more = ""): string {
  return `POST ${path} HTTP/1.1\r\nHost: localhost\r\n${TYPE}${more}Content-Length: ${body.length}\r\n\r\n${body}`;
}

const GET = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

/** Waits until the server has read what was sent before. */
async function settle(server: NodeServer): Promise<void> {
  await fetch(`${server.url}/_hapax/health`);
}

describe("answers leave in the order of their requests", () => {
  test("an answer that is ready waits for those before it", async () => {
    const [server, gated] = await startGated();
    const client = new Client(server);
    client.socket.write(append("one") + append("two", "//refused") + append("three"));
    await gated.arrival();
    await settle(server);
    expect(client.statuses).toEqual([]);
    gated.open();
    expect(await client.answers(3)).toEqual([204, 400, 204]);
    expect(await textOf(server)).toBe("onethree");
  });

  test("pipelined appends are one commit, and their answers come together", async () => {
    const [server, gated] = await startGated();
    const client = new Client(server);
    client.socket.write(
      "abcdefghij"
        .split("")
        .map((letter) => append(letter))
        .join(""),
    );
    await gated.arrival();
    expect(gated.waiting.map(({ length }) => length)).toEqual([10]);
    gated.open();
    expect(await client.answers(10)).toEqual(Array.from({ length: 10 }, () => 204));
    expect(await textOf(server)).toBe("abcdefghij");
  });
});

describe("requests are decided in their order", () => {
  const numbered = (number: number): string =>
    append(
      String(number).repeat(10),
      "/a",
      `Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: ${number}\r\n`,
    );
  const sent = [0, 1, 2, 3].map(numbered).join("");
  const stored = "0000000000111111111122222222223333333333";

  test("whether the lane is on or not, also if the network cuts them anywhere", async () => {
    for (const hasFastLane of [true, false]) {
      // Within the heads and bodies of the first two, at their ends, and behind them.
      const first = numbered(0).length;
      for (const cut of [5, first - 10, first - 4, first, first + 30, 2 * first - 4]) {
        const server = await startWithStream({ hasFastLane });
        const client = new Client(server);
        client.socket.write(sent.slice(0, cut));
        await settle(server);
        client.socket.write(sent.slice(cut));
        expect(await client.answers(4), `cut at ${cut}`).toEqual([200, 200, 200, 200]);
        expect(await textOf(server)).toBe(stored);
      }
    }
  });

  test("also when the other side sends no more, and when it sends each byte alone", async () => {
    const server = await startWithStream();
    const client = new Client(server);
    const first = numbered(0).length;
    client.socket.write(sent.slice(0, first - 4));
    await settle(server);
    client.socket.end(sent.slice(first - 4));
    expect(await client.answers(4)).toEqual([200, 200, 200, 200]);
    const other = new Client(await startWithStream());
    for (const byte of sent) {
      other.socket.write(byte);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await other.answers(4)).toEqual([200, 200, 200, 200]);
    expect(await textOf(server)).toBe(stored);
  });

  test("a refusal before the end of a body's piece does not lose what is behind it", async () => {
    const server = await startWithStream();
    const client = new Client(server);
    const refused = append("refused", "//refused");
    client.socket.write(refused.slice(0, -4));
    await settle(server);
    client.socket.end(refused.slice(-4) + append("taken"));
    expect(await client.answers(2)).toEqual([400, 204]);
    expect(await textOf(server)).toBe("taken");
  });
});

describe("what is unusual goes to node:http with every byte", () => {
  async function countHttp(run: () => Promise<void>): Promise<number> {
    let count = 0;
    const onRequest = (): void => {
      count += 1;
    };
    subscribe("http.server.request.start", onRequest);
    try {
      await run();
    } finally {
      unsubscribe("http.server.request.start", onRequest);
    }
    return count;
  }

  test("appends stay on the lane until something else comes, and then node:http has it for good", async () => {
    const server = await startWithStream();
    const client = new Client(server);
    const onLane = await countHttp(async () => {
      client.socket.write(append("1"));
      await client.answers(1);
      client.socket.write(append("2") + append("3", "/missing"));
      await client.answers(3);
    });
    const onHttp = await countHttp(async () => {
      client.socket.write(GET + append("4"));
      await client.answers(5);
      client.socket.write(append("5"));
      await client.answers(6);
    });
    expect([onLane, onHttp]).toEqual([0, 3]);
    expect(client.statuses).toEqual([204, 204, 404, 200, 204, 204]);
    expect(await textOf(server)).toBe("1245");
  });

  test("a stream of requests that is cut anywhere is understood all the same", async () => {
    const server = await startWithStream();
    const chunked = `POST /a HTTP/1.1\r\nHost: localhost\r\n${TYPE}Transfer-Encoding: chunked\r\n\r\n1\r\nc\r\n0\r\n\r\n`;
    const sent = append("a") + append("b") + chunked + append("d");
    let expected = "";
    for (let at = 1; at < sent.length; at += 3) {
      const client = new Client(server);
      client.socket.write(sent.slice(0, at));
      await settle(server);
      client.socket.write(sent.slice(at));
      expect([at, await client.answers(4)]).toEqual([at, [204, 204, 204, 204]]);
      client.socket.destroy();
      expected += "abcd";
    }
    expect(await textOf(server)).toBe(expected);
  });

  test("nothing is handed over while an answer is owed", async () => {
    const [server, gated] = await startGated();
    const client = new Client(server);
    client.socket.write(append("one") + GET);
    await gated.arrival();
    await settle(server);
    expect(client.received).toBe("");
    gated.open();
    await client.answers(2);
    expect(client.received).toMatch(/^HTTP\/1\.1 204 [\s\S]*HTTP\/1\.1 200 [\s\S]*\r\n\r\none$/);
  });
});

test("G40 requests of one connection are judged by their own credential, also if they share a length", async () => {
  const names = new Map([
    ["Bearer one", "a"],
    ["Bearer two", "b"],
  ]);
  const server = await start({
    authorize: ({ header }) => {
      const stream = names.get(header("authorization") ?? "");
      if (stream === undefined) return { refused: "invalid" };
      return { name: stream, grants: [{ actions: ["create", "append"], streams: [`/${stream}`] }] };
    },
  });
  for (const [authorization, stream] of names) {
    const headers = { "content-type": "text/plain", authorization };
    expect((await fetch(`${server.url}/${stream}`, { method: "PUT", headers })).status).toBe(201);
  }
  const client = new Client(server);
  const by = (token: string): string => `Authorization: Bearer ${token}\r\n`;
  const sent = ["one", "one", "two", "one", "no!", "two", "one", "on", "one", "one1", "one"];
  for (const token of sent) client.socket.write(append("x", "/a", by(token)));
  expect(await client.answers(sent.length)).toEqual([
    204, 204, 403, 204, 401, 403, 204, 401, 204, 401, 204,
  ]);
});

describe("bodies", () => {
  test("a request is refused before its body has come, and the rest of the body is no request", async () => {
    const server = await startWithStream({ bodyBytesMax: 100 });
    const client = new Client(server);
    const smuggled = append("x");
    client.socket.write(append(smuggled, "//refused").slice(0, -smuggled.length));
    expect(await client.answers(1)).toEqual([400]);
    client.socket.write(smuggled + append("y".repeat(101)).slice(0, -60));
    expect(await client.answers(2)).toEqual([400, 413]);
    client.socket.write("y".repeat(60) + append("good"));
    expect(await client.answers(3)).toEqual([400, 413, 204]);
    expect(await textOf(server)).toBe("good");
  });

  function exchangeOf(length: number, budget: BodyBudget): LaneExchange {
    const parser = new HeadParser();
    const head = Buffer.from(
      `POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length}\r\n\r\n`,
    );
    expect(parser.parse(head, 0)).toBe("whole");
    return new LaneExchange(head, parser, undefined, budget, undefined, {}, new LaneMemory());
  }

  test("bodies that are being received count against the budget, and give it back at their end", async () => {
    const budget = new BodyBudget();
    const other = budget.begin({ peer: "", cut: () => undefined });
    other.take(LIMITS.bodiesBytesMax - 10);
    const whole = exchangeOf(4, budget);
    whole.receive(Buffer.from("ab"));
    const refused = exchangeOf(20, budget);
    const refusal = refused.body(100);
    refused.receive(Buffer.alloc(9));
    await expect(refusal).rejects.toMatchObject({ code: "too_many" });
    refused.receive(Buffer.alloc(11));
    whole.receive(Buffer.from("cd"));
    expect(Buffer.from(await whole.body(100)).toString()).toBe("abcd");
    const cut = exchangeOf(4, budget);
    const body = cut.body(100);
    cut.receive(Buffer.from("a"));
    let aborts = 0;
    cut.onAbort(() => (aborts += 1));
    cut.close();
    cut.onAbort(() => (aborts += 1));
    await expect(body).rejects.toMatchObject({ code: "request_timeout" });
    await expect(cut.body(100)).rejects.toMatchObject({ code: "request_timeout" });
    cut.close();
    expect(aborts).toBe(2);
    other.take(10);
    expect(() => {
      budget.begin({ peer: "", cut: () => undefined }).take(1);
    }).toThrow(expect.objectContaining({ code: "too_many" }));
  });

  test("an exchange knows its address, by its Host or as it was told", () => {
    expect(exchangeOf(0, new BodyBudget()).baseUrl).toBe("http://localhost");
    expect(exchangeOf(0, new BodyBudget()).hasBody).toBe(false);
  });
});

test("a connection has a bounded number of unanswered requests, and all are answered", async () => {
  const [server, gated] = await startGated();
  const client = new Client(server);
  client.socket.write(append("x").repeat(200));
  await gated.arrival();
  await settle(server);
  expect(gated.waiting.map(({ length }) => length)).toEqual([LIMITS.pipelinedMax]);
  gated.open();
  expect((await client.answers(200)).length).toBe(200);
  expect(await textOf(server)).toBe("x".repeat(200));
});

describe("a slow client cannot hold a connection", () => {
  const limits = {
    headersTimeoutMs: 200,
    requestTimeoutMs: 300,
    keepAliveTimeoutMs: 100,
    readerStallMs: 200,
  };

  test.each([
    ["nothing", ""],
    ["half a head", "POST /a HTTP/1.1\r\nHo"],
    ["half a body", append("body").slice(0, -1)],
  ])("%s is answered with 408, and stores nothing", async (_name, sent) => {
    const server = await startWithStream(limits);
    const client = new Client(server);
    client.socket.write(sent);
    await client.closed;
    expect(client.statuses).toEqual([408]);
    expect(client.received).toContain('"code":"request_timeout"');
    expect(await textOf(server)).toBe("");
  });

  test("a connection that is idle after its answer is ended", async () => {
    const server = await startWithStream(limits);
    const client = new Client(server);
    client.socket.write(append("x"));
    await client.closed;
    expect(client.statuses).toEqual([204]);
  });

  test("a client that does not take its answers is cut, however much it sends", async () => {
    const server = await startWithStream(limits);
    const client = new Client(server);
    client.socket.pause();
    const requests = append("x").repeat(1000);
    const send = (error?: Error | null): void => {
      if (!error && client.socket.writable) client.socket.write(requests, send);
    };
    send();
    await client.closed;
    expect((await fetch(`${server.url}/a`, { method: "HEAD" })).status).toBe(200);
  });

  test("an append that waits for the disk has no limit of time", async () => {
    const [server, gated] = await startGated(limits);
    const client = new Client(server);
    client.socket.write(append("x"));
    await gated.arrival();
    const silent = new Client(server); // It is cut by the longest of the limits that could apply.
    silent.socket.write(append("body").slice(0, -1));
    await silent.closed;
    gated.open();
    expect(await client.answers(1)).toEqual([204]);
  });
});

describe("the end of a client", () => {
  test("a client that has sent its last byte gets its answers, and then the end", async () => {
    const server = await startWithStream();
    const client = new Client(server);
    client.socket.end(append("1") + append("2"));
    await client.closed;
    expect(client.statuses).toEqual([204, 204]);
  });

  test.each([
    ["a head", append("x").slice(0, 30)],
    ["a body", append("xyz").slice(0, -1)],
  ])("a client that ends within %s is refused, and nothing is stored", async (_name, sent) => {
    const server = await startWithStream();
    const client = new Client(server);
    client.socket.end(sent);
    await client.closed;
    expect(client.statuses).toEqual([400]);
    expect(await textOf(server)).toBe("");
  });

  test("an injected drop ends the connection without an answer", async () => {
    const server = await startWithStream({ testFaults: true });
    const body = JSON.stringify({ path: "/a", method: "POST", dropConnection: true });
    await fetch(`${server.url}/_test/inject-error`, { method: "POST", body });
    const client = new Client(server);
    client.socket.write(append("x"));
    await client.closed;
    expect(client.received).toBe("");
  });
});

describe.each([
  ["on the lane", true],
  ["through node:http", false],
])("the end of the server, %s", (_name, hasFastLane) => {
  test("a request on a busy connection while the server drains is answered with 503, as the last", async () => {
    const [server, gated] = await startGated({ hasFastLane });
    const [busy, other] = [new Client(server), new Client(server)];
    busy.socket.write(append("one"));
    await gated.arrival();
    other.socket.write(append("two"));
    await settle(server);
    const stopped = server.stop();
    await new Promise((resolve) => busy.socket.write(append("late"), resolve));
    // The server accepts no new connection that could ask. It is in this process: it reads in a turn or two.
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    gated.open();
    await busy.closed;
    await stopped;
    expect(busy.statuses).toEqual([204, 503]);
    expect(busy.received).toContain('"code":"shutting_down"');
    expect(busy.received.match(/^Connection: .*$/gm)).toEqual([
      "Connection: keep-alive",
      "Connection: close",
    ]);
    expect(other.statuses).toEqual([204]);
  });

  test("idle connections end at once, and half a request is no reason to wait", async () => {
    const server = await startNodeServer({ store: "memory", port: 0, hasFastLane });
    const all = ["", "POST /a HT", append("x", "/missing")].map((sent) => {
      const client = new Client(server);
      client.socket.write(sent);
      return client;
    });
    await all[2]?.answers(1);
    const before = performance.now();
    await server.stop();
    await Promise.all(all.map(({ closed }) => closed));
    expect(performance.now() - before).toBeLessThan(LIMITS.drainMs / 4);
  });

  test("connections of the lane and of node:http are counted together", async () => {
    const server = await startWithStream({ connectionsMax: 3, hasFastLane });
    const [lane, http] = [new Client(server), new Client(server)];
    lane.socket.write(append("x"));
    http.socket.write(GET);
    await Promise.all([lane.answers(1), http.answers(1)]);
    // The third may be the connection that made the stream. Then this one is already too many.
    const more = [new Client(server), new Client(server)];
    await Promise.race(more.map(({ closed }) => closed));
    lane.socket.write(append("y"));
    expect(await lane.answers(2)).toEqual([204, 204]);
  });
});
