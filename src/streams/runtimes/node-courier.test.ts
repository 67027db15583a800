import { getEventListeners, once } from "node:events";
import { createServer as createHttpServer, type RequestListener, type Server } from "node:http";
import {
  type AddressInfo,
  createServer as createTcpServer,
  type Server as TcpServer,
} from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import type { CourierAnswer, CourierRequest } from "../courier.ts";
import { type AddressLookup, createNodeCourier, type NodeCourierOptions } from "./node-courier.ts";

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** Not assigned since the 6bone ended: it is public by its class, and no host has it. */
const PUBLIC_ADDRESS = "3ffe::1";
const BODY = new TextEncoder().encode('{"wake_id":"ü"}');

interface Receiver {
  readonly port: number;
  readonly url: string;
  connections: number;
}

async function listen(server: Server | TcpServer, host = "127.0.0.1", port = 0): Promise<Receiver> {
  const sockets = new Set<{ destroy(): void }>();
  server.listen(port, host);
  await once(server, "listening");
  const bound = (server.address() as AddressInfo).port;
  const receiver = { port: bound, url: `http://${host}:${bound}/hook`, connections: 0 };
  server.on("connection", (socket: { destroy(): void }) => {
    receiver.connections += 1;
    sockets.add(socket);
  });
  closers.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return receiver;
}

const receive = (listener: RequestListener, host?: string, port?: number): Promise<Receiver> =>
  listen(createHttpServer(listener), host, port);

const answerOk: RequestListener = (request, response) => {
  request.resume();
  response.end("ok");
};

function deliver(
  url: string,
  options: Partial<NodeCourierOptions> = {},
  request: Partial<CourierRequest> = {},
): Promise<CourierAnswer> {
  return createNodeCourier({ allowLoopback: true, ...options }).deliver({
    url,
    headers: { "content-type": "application/json" },
    body: BODY,
    timeoutMs: 5_000,
    answerBytesMax: 1024,
    signal: new AbortController().signal,
    ...request,
  });
}

/** Answers the first lookup with the first list, and so on. The last list stays. */
function answering(...answers: string[][]): AddressLookup & { asked: string[] } {
  const asked: string[] = [];
  const lookup = async (hostname: string): Promise<{ address: string }[]> => {
    asked.push(hostname);
    const answer = answers[Math.min(asked.length, answers.length) - 1] ?? [];
    return answer.map((address) => ({ address }));
  };
  return Object.assign(lookup, { asked });
}

const text = (answer: CourierAnswer): string =>
  answer.kind === "answered" ? new TextDecoder().decode(answer.body) : answer.reason;

describe("a delivery", () => {
  test("method, path, headers and body arrive, and status and body come back", async () => {
    let seen = {};
    const receiver = await receive((request, response) => {
      const chunks: Uint8Array[] = [];
      request.on("data", (chunk: Uint8Array) => chunks.push(chunk));
      request.on("end", () => {
        const { method, url, headers } = request;
        seen = { method, url, headers, body: Buffer.concat(chunks).toString() };
        response.writeHead(202).end('{"done":true}');
      });
    });
    const answer = await deliver(
      `${receiver.url}?a=%20b`,
      {},
      {
        headers: { "Webhook-Signature": "t=1", Host: "evil", "Transfer-Encoding": "chunked" },
      },
    );
    expect(answer).toMatchObject({ kind: "answered", status: 202 });
    expect(text(answer)).toBe('{"done":true}');
    expect(seen).toEqual({
      method: "POST",
      url: "/hook?a=%20b",
      headers: {
        "webhook-signature": "t=1",
        host: `127.0.0.1:${receiver.port}`,
        "content-length": String(BODY.length),
        connection: "close",
      },
      body: '{"wake_id":"ü"}',
    });
  });

  test("localhost works, with every address that the system gives it", async () => {
    const receiver = await receive(answerOk, "localhost");
    expect(text(await deliver(`http://localhost:${receiver.port}/`))).toBe("ok");
  });

  test("an answer without a length, ended by the connection, is whole", async () => {
    const server = createTcpServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.end(`HTTP/1.1 200 OK\r\n\r\n${"x".repeat(1000)}`));
    });
    const receiver = await listen(server);
    expect(text(await deliver(receiver.url))).toBe("x".repeat(1000));
  });

  test("every delivery has its own connection", async () => {
    const receiver = await receive(answerOk);
    const courier = createNodeCourier({ allowLoopback: true });
    for (let round = 0; round < 2; round += 1) {
      const { signal } = new AbortController();
      const limits = { timeoutMs: 5_000, answerBytesMax: 10 };
      await courier.deliver({ url: receiver.url, headers: {}, body: BODY, ...limits, signal });
    }
    expect(receiver.connections).toBe(2);
  });
});

describe("addresses", () => {
  test("a public name that resolves to the machine itself is refused, without a packet", async () => {
    const receiver = await receive(answerOk);
    for (const address of ["127.0.0.1", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "0.0.0.0"]) {
      const lookup = answering([address]);
      const answer = await deliver(`https://hooks.example.com:${receiver.port}/`, { lookup });
      expect(answer.kind).toBe("refused");
      expect(lookup.asked).toEqual(["hooks.example.com"]);
    }
    expect(receiver.connections).toBe(0);
  });

  test("one bad address among good ones spoils the answer", async () => {
    const receiver = await receive(answerOk);
    for (const mixed of [
      [PUBLIC_ADDRESS, "127.0.0.1"],
      ["127.0.0.1", PUBLIC_ADDRESS],
      [PUBLIC_ADDRESS, "1.1.1.1", "169.254.169.254"],
      [PUBLIC_ADDRESS, "not an address"],
    ]) {
      const lookup = answering(mixed);
      const answer = await deliver(`https://hooks.example.com:${receiver.port}/`, { lookup });
      expect(answer.kind).toBe("refused");
    }
    expect(receiver.connections).toBe(0);
  });

  test("a name that changes to loopback after the check never reaches loopback", async () => {
    const receiver = await receive(answerOk);
    const lookup = answering([PUBLIC_ADDRESS], ["127.0.0.1"]);
    const url = `https://hooks.example.com:${receiver.port}/`;
    const first = await deliver(url, { lookup }, { timeoutMs: 300 });
    expect(first.kind).toBe("failed");
    expect(lookup.asked).toHaveLength(1);
    const second = await deliver(url, { lookup });
    expect(second).toEqual({ kind: "refused", reason: "the host resolves to a loopback address" });
    expect(receiver.connections).toBe(0);
  });

  test("the connection goes to the address that was judged, and the name is asked once", async () => {
    const judged = await receive((_, response) => response.end("judged"), "127.0.0.2");
    const other = await receive(answerOk, "127.0.0.1", judged.port);
    const lookup = answering(["127.0.0.2"], ["127.0.0.1"]);
    expect(text(await deliver(`http://localhost:${judged.port}/`, { lookup }))).toBe("judged");
    expect(lookup.asked).toEqual(["localhost"]);
    expect(other.connections).toBe(0);
  });

  test("when the first judged address does not answer, the next judged one does", async () => {
    const receiver = await receive(answerOk);
    const lookup = answering(["127.0.0.2", "127.0.0.1"]);
    expect(text(await deliver(`http://localhost:${receiver.port}/`, { lookup }))).toBe("ok");
  });

  test("localhost must be loopback, and loopback can be forbidden", async () => {
    const receiver = await receive(answerOk);
    const url = `http://localhost:${receiver.port}/`;
    expect((await deliver(url, { lookup: answering(["1.1.1.1"]) })).kind).toBe("refused");
    expect((await deliver(url, { allowLoopback: false })).kind).toBe("refused");
    expect((await deliver(receiver.url, { allowLoopback: false })).kind).toBe("refused");
    expect(receiver.connections).toBe(0);
  });

  test("a URL that is not allowed is refused before its name is asked", async () => {
    const lookup = answering([PUBLIC_ADDRESS]);
    for (const url of [
      "http://hooks.example.com/",
      "https://hooks.example.com:25/",
      "https://metadata.google.internal/",
      "https://10.0.0.1/",
      "https://[::1]/",
      "nonsense",
    ]) {
      expect((await deliver(url, { lookup })).kind).toBe("refused");
    }
    expect(lookup.asked).toEqual([]);
  });

  test("private addresses need their option, and even then loopback is refused", async () => {
    const url = "https://hooks.example.com/";
    const refused = await deliver(url, { lookup: answering(["10.1.2.3"]) });
    expect(refused).toEqual({ kind: "refused", reason: "the host resolves to a private address" });
    const options = { allowPrivate: true, lookup: answering(["127.0.0.1"]) };
    expect((await deliver(url, options)).kind).toBe("refused");
  });

  test("a name without an address, or a failing name service, is a failure", async () => {
    const url = "https://hooks.example.com/";
    const none = await deliver(url, { lookup: answering([]) });
    expect(none).toEqual({ kind: "failed", reason: "the host has no address" });
    const error = Object.assign(new Error("x"), { code: "ENOTFOUND" });
    const broken = await deliver(url, { lookup: () => Promise.reject(error) });
    expect(broken).toEqual({ kind: "failed", reason: "ENOTFOUND" });
  });
});

describe("what the other side may do", () => {
  test.each([301, 302, 303, 307, 308])("a %i is an answer and is not followed", async (status) => {
    const goal = await receive(answerOk);
    const receiver = await receive((_, response) => {
      response.writeHead(status, { location: goal.url }).end("moved");
    });
    const answer = await deliver(receiver.url);
    expect(answer).toMatchObject({ kind: "answered", status });
    expect(text(answer)).toBe("moved");
    expect(goal.connections).toBe(0);
  });

  test("an answer that does not come is cut", async () => {
    const receiver = await receive(() => {});
    const answer = await deliver(receiver.url, {}, { timeoutMs: 50 });
    expect(answer).toEqual({ kind: "failed", reason: "no answer within 50 ms" });
  });

  test("an answer that comes drop by drop is cut all the same, and so is its connection", async () => {
    let closed: Promise<unknown> = Promise.resolve();
    const receiver = await receive((_, response) => {
      const drops = setInterval(() => response.write("x"), 5);
      closed = once(response, "close").finally(() => clearInterval(drops));
    });
    const answer = await deliver(receiver.url, {}, { timeoutMs: 100 });
    expect(answer).toEqual({ kind: "failed", reason: "no answer within 100 ms" });
    await closed;
  });

  test("a name service that does not answer is cut", async () => {
    const lookup: AddressLookup = () => new Promise(() => {});
    const answer = await deliver("https://hooks.example.com/", { lookup }, { timeoutMs: 20 });
    expect(answer).toEqual({ kind: "failed", reason: "no answer within 20 ms" });
  });

  test("an answer of exactly the limit is taken, one byte more is a failure", async () => {
    for (const hasLength of [true, false]) {
      const receiver = await receive((request, response) => {
        const body = "x".repeat(Number(request.url?.slice(1)));
        if (hasLength) response.setHeader("content-length", body.length);
        response.write(body);
        response.end();
      });
      const base = `http://127.0.0.1:${receiver.port}`;
      expect(text(await deliver(`${base}/1024`))).toHaveLength(1024);
      const failed = { kind: "failed", reason: "the answer is larger than 1024 bytes" };
      expect(await deliver(`${base}/1025`)).toEqual(failed);
    }
  });

  test("an answer without end is cut, and so is its connection", async () => {
    let closed: Promise<unknown> = Promise.resolve();
    const receiver = await receive((_, response) => {
      closed = once(response, "close");
      const pour = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(16_384)));
      };
      response.on("drain", pour);
      pour();
    });
    const answer = await deliver(receiver.url);
    expect(answer).toEqual({ kind: "failed", reason: "the answer is larger than 1024 bytes" });
    await closed;
  });

  test.each([
    ["nothing at all", ""],
    ["no HTTP", "hello\r\n\r\n"],
    ["half a header block", "HTTP/1.1 200 OK\r\nconte"],
    ["half a body", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"],
    ["a header block without end", `HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(10_000)}\r\n`],
    ["another protocol", "HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"],
  ])("%s is a failure", async (_, answer) => {
    const server = createTcpServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.end(answer));
    });
    const receiver = await listen(server);
    expect((await deliver(receiver.url)).kind).toBe("failed");
  });

  test("a port without a listener is a failure that names no address", async () => {
    const receiver = await receive(answerOk);
    for (const close of closers.splice(0)) close();
    expect(await deliver(receiver.url)).toEqual({ kind: "failed", reason: "ECONNREFUSED" });
  });
});

describe("abort", () => {
  const aborted = { kind: "failed", reason: "the delivery was aborted" };

  test("a running delivery ends at once, and its connection is closed", async () => {
    const controller = new AbortController();
    let closed: Promise<unknown> = Promise.resolve();
    const receiver = await receive((_, response) => {
      closed = once(response, "close");
      controller.abort();
    });
    expect(await deliver(receiver.url, {}, { signal: controller.signal })).toEqual(aborted);
    await closed;
  });

  test("after an abort while the name is asked, its late answer connects to nothing", async () => {
    const receiver = await receive(answerOk);
    const controller = new AbortController();
    let release = (): void => {};
    const late = new Promise<{ address: string }[]>((settle) => {
      release = () => settle([{ address: "127.0.0.1" }]);
    });
    const lookup: AddressLookup = () => {
      controller.abort();
      return late;
    };
    const { signal } = controller;
    const url = `http://localhost:${receiver.port}/`;
    expect(await deliver(url, { lookup }, { signal })).toEqual(aborted);
    release();
    await late;
    // A full exchange on the same server gives a stray connection the time to show up.
    await deliver(receiver.url);
    expect(receiver.connections).toBe(1);
  });

  test("with a signal that is aborted already nothing is sent", async () => {
    const receiver = await receive(answerOk);
    expect(await deliver(receiver.url, {}, { signal: AbortSignal.abort() })).toEqual(aborted);
    expect(receiver.connections).toBe(0);
  });

  test("a signal that outlives many deliveries keeps nothing of them", async () => {
    const receiver = await receive(answerOk);
    const { signal } = new AbortController();
    await deliver(receiver.url, {}, { signal });
    await deliver("http://localhost/", { lookup: answering([]) }, { signal });
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });
});
