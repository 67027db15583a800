// PROTOCOL.md §13.8: HTTP/2 on the port of HTTPS, with the same handlers, doors and limits.
import { once } from "node:events";
import { type ClientHttp2Session, connect, constants, type IncomingHttpHeaders } from "node:http2";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { LIMITS } from "../../src/protocol/all-limits.ts";
import type { NodeServer } from "../../src/streams/runtimes/node.ts";
import { callTls, openTlsStage, type TlsStage } from "../kits/tls-server.ts";

const TEXT = { "content-type": "text/plain" };
let stage: TlsStage;
let server: NodeServer;
let client: ClientHttp2Session;

const open = (to: NodeServer): ClientHttp2Session => {
  const session = connect(to.url, { ca: stage.authority.cert });
  session.on("error", () => undefined);
  return session;
};

beforeEach(async () => {
  stage = openTlsStage();
  server = await stage.start({ longPollMs: 500 });
  client = open(server);
});

afterEach(async () => {
  client.destroy();
  await stage.close();
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

function call(
  method: string,
  path: string,
  headers: Record<string, string | string[]> = {},
  body?: string | Buffer,
  session = client,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const stream = session.request(
      { ":method": method, ":path": path, ...headers },
      { endStream: body === undefined },
    );
    let answered: IncomingHttpHeaders = {};
    const pieces: Buffer[] = [];
    stream.on("response", (given) => (answered = given));
    stream.on("data", (piece: Buffer) => pieces.push(piece));
    stream.on("error", reject);
    stream.on("close", () => {
      if (answered[":status"] === undefined) reject(new Error(`reset ${stream.rstCode}`));
      const text = Buffer.concat(pieces).toString();
      resolve({ status: Number(answered[":status"]), headers: answered, text });
    });
    if (body !== undefined) stream.end(body);
  });
}

describe("HTTP/2", () => {
  test("creates, appends, reads and deletes, and says https in its URLs", async () => {
    const made = await call("PUT", "/v1/stream/a", TEXT, "one");
    expect([made.status, made.headers["location"]]).toEqual([201, `${server.url}/v1/stream/a`]);
    expect((await call("POST", "/v1/stream/a", TEXT, "two")).status).toBe(204);
    const read = await call("GET", "/v1/stream/a?offset=-1");
    expect([read.text, read.headers["content-length"]]).toEqual(["onetwo", "6"]);
    for (const name of ["connection", "keep-alive", "transfer-encoding"]) {
      expect(read.headers[name]).toBeUndefined();
    }
    const head = await call("HEAD", "/v1/stream/a");
    expect([head.status, head.text]).toEqual([200, ""]);
    expect((await call("DELETE", "/v1/stream/a")).status).toBe(204);
    expect((await call("GET", "/v1/stream/a")).status).toBe(404);
  });

  test("HTTP/1.1 goes on beside it, on the same port", async () => {
    await call("PUT", "/v1/stream/a", TEXT, "one");
    const read = await callTls("GET", `${server.url}/v1/stream/a?offset=-1`, {
      ca: stage.authority.cert,
    });
    expect(read.text).toBe("one");
  });

  test("a body of 16 MiB comes whole, and is read whole, page by page", async () => {
    await call("PUT", "/v1/stream/big", { "content-type": "application/octet-stream" });
    const body = Buffer.alloc(LIMITS.bodyBytesMax, "abcdefghij");
    const headers = { "content-type": "application/octet-stream" };
    expect((await call("POST", "/v1/stream/big", headers, body)).status).toBe(204);
    const read = await call("GET", "/v1/stream/big?offset=-1");
    expect(read.text === body.toString()).toBe(true);
    const over = Buffer.alloc(LIMITS.bodyBytesMax + 1);
    expect((await call("POST", "/v1/stream/big", headers, over)).status).toBe(413);
    expect((await call("GET", "/healthz")).status).toBe(200);
  });

  test("20 live readers on one connection all get each append, and a long-poll too", async () => {
    await call("PUT", "/v1/stream/live", TEXT);
    const texts = Array.from({ length: 20 }, () => "");
    for (let at = 0; at < 20; at += 1) {
      const stream = client.request({ ":path": "/v1/stream/live?offset=-1&live=sse" });
      stream.on("data", (piece: Buffer) => (texts[at] += piece.toString()));
      stream.on("error", () => undefined);
      await once(stream, "response");
    }
    const tail = (await call("HEAD", "/v1/stream/live")).headers["stream-next-offset"];
    const poll = call("GET", `/v1/stream/live?offset=${String(tail)}&live=long-poll`);
    await call("POST", "/v1/stream/live", TEXT, "hello");
    expect((await poll).text).toBe("hello");
    await vi.waitFor(() => {
      for (const text of texts) expect(text).toContain("data:hello");
    }, 10_000);
  });
});

describe("doors over HTTP/2", () => {
  test("a foreign page, a foreign :authority and a Host beside it are refused", async () => {
    await call("PUT", "/v1/stream/a", TEXT, "first");
    const foreign = await call(
      "POST",
      "/v1/stream/a",
      { ...TEXT, origin: "https://evil.example" },
      "x",
    );
    const rebound = await call(
      "POST",
      "/v1/stream/a",
      { ...TEXT, ":authority": "evil.example" },
      "x",
    );
    const two = { ...TEXT, ":authority": "localhost", host: "evil.example" };
    const both = await call("POST", "/v1/stream/a", two, "x");
    const other = { ...TEXT, ":authority": "evil.example", host: "localhost" };
    const swapped = await call("POST", "/v1/stream/a", other, "x");
    expect([foreign, rebound, both, swapped].map(({ status }) => status)).toEqual([
      403, 421, 400, 400,
    ]);
    expect((await call("GET", "/v1/stream/a?offset=-1")).text).toBe("first");
  });

  test("a header of the protocol that is sent twice is refused", async () => {
    await call("PUT", "/v1/stream/a", TEXT);
    const twice = { ...TEXT, "stream-seq": ["1", "2"] };
    expect((await call("POST", "/v1/stream/a", twice, "x")).status).toBe(400);
  });
});

describe("limits of HTTP/2", () => {
  test("a header list that is too large is refused, and other requests go on", async () => {
    const large = { "x-large": "x".repeat(LIMITS.headerBytesMax) };
    // The first request is sent before the client knows the limit.
    expect((await call("GET", "/healthz", large)).status).toBe(431);
    await expect(call("GET", "/healthz", large)).rejects.toThrow("ENHANCE_YOUR_CALM");
    expect((await call("GET", "/healthz")).status).toBe(200);
  });

  test("the number of running requests is said, and holds", async () => {
    await call("GET", "/healthz");
    expect(client.remoteSettings.maxConcurrentStreams).toBe(LIMITS.requestsPerConnectionMax);
  });

  test("a reader that takes nothing is cut, and the others of its connection go on", async () => {
    const slow = await stage.start({ readerStallMs: 300 });
    const session = open(slow);
    await call("PUT", "/v1/stream/big", TEXT, Buffer.alloc(1024 * 1024, "a"), session);
    const stream = session.request({ ":path": "/v1/stream/big?offset=-1" });
    stream.on("error", () => undefined);
    await once(stream, "response"); // Its body is never read.
    await once(stream, "close");
    expect(stream.rstCode).toBe(constants.NGHTTP2_CANCEL);
    expect((await call("GET", "/healthz", {}, undefined, session)).status).toBe(200);
    session.destroy();
  });

  test("requests that are reset as soon as they begin end the connection, and not the server", async () => {
    const ended = new Promise((resolve) => client.once("close", resolve));
    for (let round = 0; round < 200 && !client.destroyed; round += 1) {
      for (let at = 0; at < 50 && !client.destroyed && !client.closed; at += 1) {
        const stream = client.request({ ":path": "/v1/stream/none?live=sse&offset=-1" });
        stream.on("error", () => undefined);
        stream.close(constants.NGHTTP2_CANCEL);
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await ended;
    const other = open(server);
    expect((await call("GET", "/healthz", {}, undefined, other)).status).toBe(200);
    other.destroy();
  });
});

/** One frame of HTTP/2: RFC 9113, 4.1. */
function frame(type: number, flags: number, id: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, payload]);
}

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/** A field that is not indexed, with a new name: RFC 7541, 6.2.2. */
function field(name: string, value: string): Buffer {
  const text = (one: string): Buffer =>
    Buffer.concat([Buffer.from([one.length]), Buffer.from(one)]);
  return Buffer.concat([Buffer.from([0]), text(name), text(value)]);
}

async function openRaw(): Promise<TLSSocket> {
  const { port } = new URL(server.url);
  const socket = connectTls({
    host: "127.0.0.1",
    port: Number(port),
    ca: stage.authority.cert,
    ALPNProtocols: ["h2"],
  });
  socket.on("error", () => undefined);
  await once(socket, "secureConnect");
  socket.write(Buffer.concat([PREFACE, frame(4, 0, 0)]));
  return socket;
}

describe("a body that breaks off stores nothing", () => {
  const head = Buffer.concat([
    field(":method", "POST"),
    field(":path", "/v1/stream/cut"),
    field(":scheme", "https"),
    field(":authority", "localhost"),
    field("content-type", "text/plain"),
  ]);

  test.each([
    ["a reset without an error", frame(3, 0, 1, Buffer.alloc(4))],
    ["a reset", frame(3, 0, 1, Buffer.from([0, 0, 0, 8]))],
    ["the end of the connection", undefined],
  ])("%s", async (_name, last) => {
    await call("PUT", "/v1/stream/cut", TEXT, "whole");
    const socket = await openRaw();
    socket.resume();
    socket.write(Buffer.concat([frame(1, 4, 1, head), frame(0, 0, 1, Buffer.from("half"))]));
    await new Promise((resolve) => setTimeout(resolve, 100));
    if (last === undefined) socket.destroy();
    else socket.write(last);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect((await call("GET", "/v1/stream/cut?offset=-1")).text).toBe("whole");
    socket.destroy();
    // No request of a client that has gone stays.
    const began = performance.now();
    client.destroy();
    await server.stop();
    expect(performance.now() - began).toBeLessThan(LIMITS.drainMs / 2);
  });
});

describe("floods", () => {
  const ping = Buffer.concat(Array.from({ length: 1000 }, () => frame(6, 0, 0, Buffer.alloc(8))));
  const settings = Buffer.concat(Array.from({ length: 1000 }, () => frame(4, 0, 0)));
  const continuation = Buffer.concat([
    frame(1, 0, 1, Buffer.from([0x82])),
    ...Array.from({ length: 1000 }, () => frame(9, 0, 1, field("x", "y"))),
  ]);

  test.each([
    ["PING that is not taken", ping],
    ["SETTINGS that is not taken", settings],
    ["CONTINUATION", continuation],
  ])("of %s ends the connection, and memory stays bounded", async (_name, flood) => {
    const before = process.memoryUsage().rss;
    const socket = await openRaw();
    socket.pause();
    let isOver = false;
    socket.once("close", () => (isOver = true));
    const began = performance.now();
    while (!isOver && performance.now() - began < 8000) {
      if (!socket.write(flood)) await new Promise((resolve) => setTimeout(resolve, 5));
      if (socket.writableLength > 8 * 1024 * 1024) break; // The server reads no more.
    }
    expect(process.memoryUsage().rss - before).toBeLessThan(256 * 1024 * 1024);
    socket.destroy();
    expect((await call("GET", "/healthz")).status).toBe(200);
  });
});

describe("the end over HTTP/2", () => {
  test("GOAWAY: live readers end, running requests are answered, and the connection closes", async () => {
    await call("PUT", "/v1/stream/live", TEXT);
    const stream = client.request({ ":path": "/v1/stream/live?offset=-1&live=sse" });
    await once(stream, "response");
    stream.resume();
    const [goaway, ended] = [once(client, "goaway"), once(stream, "end")];
    const began = performance.now();
    await server.stop();
    expect(performance.now() - began).toBeLessThan(LIMITS.drainMs / 2);
    await Promise.all([goaway, ended]);
    expect(client.destroyed).toBe(true);
  });

  test("a connection without requests ends after its time", async () => {
    const short = await stage.start({ keepAliveTimeoutMs: 200 });
    const session = open(short);
    await call("GET", "/healthz", {}, undefined, session);
    await once(session, "close");
  });
});
