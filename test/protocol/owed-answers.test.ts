// A server sends the answers it owes first and in order, with any bytes behind their requests. PROTOCOL.md §13
import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import {
  type NodeServer,
  type NodeServerOptions,
  startNodeServer,
} from "../../src/streams/runtimes/node.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { type GatedStore, openGatedStore } from "../kits/gated-store.ts";
import { call, untilClosed } from "./raw-http.ts";

const servers: NodeServer[] = [];
const sockets: Socket[] = [];
const gates: GatedStore[] = [];

afterEach(async () => {
  for (const gate of gates.splice(0)) gate.open();
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await server.stop();
});

async function start(options: Partial<NodeServerOptions>): Promise<NodeServer> {
  const server = await startNodeServer({ store: "memory", port: 0, ...options });
  servers.push(server);
  return server;
}

/** A server whose stream `/a` holds "old", and whose next commits wait until they are let go. */
async function startGated(options: Partial<NodeServerOptions>): Promise<[NodeServer, GatedStore]> {
  const store = openGatedStore(openMemoryStore());
  gates.push(store);
  const server = await start({ ...options, store });
  const headers = { "content-type": "text/plain" };
  const created = call("PUT", server.url, "/a", { headers, body: "old" });
  await store.arrival();
  await store.release();
  expect((await created).status).toBe(201);
  return [server, store];
}

/** A client that can send its last byte and go on reading. */
function openHalf({ url }: NodeServer): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  socket.on("error", () => undefined);
  socket.on("end", () => socket.end());
  sockets.push(socket);
  return socket;
}

/** Waits until the server has read what was sent before. */
async function settle(server: NodeServer): Promise<void> {
  for (let round = 0; round < 3; round += 1) await call("GET", server.url, "/_hapax/health");
}

const statusesOf = (received: Buffer): number[] =>
  [...received.toString("latin1").matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));

const HEAD = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
const PUT = `PUT /b ${HEAD}\r\n`;
const APPEND = `POST /a ${HEAD}Content-Length: 3\r\n\r\nnew`;
const CHUNKED = `POST /a ${HEAD}Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n0\r\n\r\n`;
const OPERATIONS = JSON.stringify({
  operations: [{ append: { stream: "/a", text: "new" } }],
});
const TRANSACTION =
  `POST /_hapax/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
  `Idempotency-Key: k\r\nContent-Length: ${OPERATIONS.length}\r\n\r\n${OPERATIONS}`;
const GET = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
const DELETE = "DELETE /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
const BROKEN_CHUNK = `POST /a ${HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\nnew\r\n0\r\n\r\n`;

describe.each([
  ["with the lane", true],
  ["without the lane", false],
])("%s", (_name, hasFastLane) => {
  const writes: readonly [string, string, number][] = [
    ["a PUT", PUT, 201],
    ["an append", APPEND, 204],
    ["a chunked append", CHUNKED, 204],
    ["a transaction", TRANSACTION, 200],
    ["a DELETE", DELETE, 204],
  ];
  const behind: readonly [string, string, number][] = [
    ["bytes that are not HTTP", "\0\x01garbage\r\n\r\n", 400],
    ["a CONNECT", "CONNECT t:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405],
    ["a chunk without a size", BROKEN_CHUNK, 400],
    ["an unknown coding", `POST /a ${HEAD}Transfer-Encoding: xchunked\r\n\r\nnew`, 400],
    ["a header block over the limit", `GET /a ${HEAD}X: ${"x".repeat(17_000)}\r\n\r\n`, 431],
  ];
  const pairs = writes.flatMap(([write, bytes, status]) =>
    behind.map(([bad, more, refusal]) => ({ write, bad, sent: bytes + more, status, refusal })),
  );

  test.each(pairs)(
    "$write with $bad behind it is answered when it is stored, and before the refusal",
    async ({ sent, status, refusal }) => {
      const [server, gated] = await startGated({ hasFastLane });
      const socket = openHalf(server);
      const received = untilClosed(socket);
      let early = "";
      socket.on("data", (bytes) => (early += bytes.toString("latin1")));
      socket.write(sent, "latin1");
      await gated.arrival();
      await settle(server);
      expect(early).toBe("");
      gated.open();
      expect(statusesOf(await received)).toEqual([status, refusal]);
    },
  );

  test.each([
    ["the time for the headers", { headersTimeoutMs: 100 }, "GET /a HT"],
    [
      "the time for the body",
      { headersTimeoutMs: 100, requestTimeoutMs: 150 },
      BROKEN_CHUNK.slice(0, -18),
    ],
  ])(
    "a PUT is answered before the refusal when %s of the next request is over",
    async (_name, limits, next) => {
      const [server, gated] = await startGated({ hasFastLane, ...limits });
      const socket = openHalf(server);
      const received = untilClosed(socket);
      let early = "";
      socket.on("data", (bytes) => (early += bytes.toString("latin1")));
      socket.write(PUT + next);
      await gated.arrival();
      // A connection that sends the same without a PUT is refused when the limit is over, or later.
      const other = openHalf(server);
      const refused = untilClosed(other);
      other.write(next);
      expect(statusesOf(await refused)).toEqual([408]);
      expect(early).toBe("");
      gated.open();
      expect(statusesOf(await received)).toEqual([201, 408]);
    },
  );

  test.each([
    ["a PUT", PUT, [201]],
    ["an append", APPEND, [204]],
    ["a chunked append", CHUNKED, [204]],
    ["a GET", GET, [200]],
    ["an append and a GET", APPEND + GET, [204, 200]],
    ["a GET and a PUT", GET + PUT, [200, 201]],
    ["a long-poll", "GET /a?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n", [204]],
    ["half a request", GET.slice(0, 20), [400]],
    ["half a chunked body", CHUNKED.slice(0, -10), [400]],
    ["a PUT and half a request", PUT + GET.slice(0, 20), [201, 400]],
  ])("a client that ends its side after %s gets what it is owed", async (_name, sent, statuses) => {
    const [server, gated] = await startGated({ hasFastLane });
    const socket = openHalf(server);
    const received = untilClosed(socket);
    await new Promise<void>((resolve) => socket.end(sent, resolve));
    await settle(server);
    gated.open();
    expect(statusesOf(await received)).toEqual(statuses);
  });

  test("an SSE reader that ends its side gets what is there, and then the end", async () => {
    const [server] = await startGated({ hasFastLane });
    const socket = openHalf(server);
    const received = untilClosed(socket);
    socket.end("GET /a?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect((await received).toString("latin1")).toContain("data:old");
    expect(server.server.engine.liveReaders).toBe(0);
  });

  test("a GET is decided before the DELETE behind it, and the DELETE before the GET behind that", async () => {
    const server = await start({ hasFastLane });
    for (let round = 0; round < 20; round += 1) {
      await call("PUT", server.url, "/a", {
        headers: { "content-type": "text/plain" },
        body: "old",
      });
      const socket = openHalf(server);
      const received = untilClosed(socket);
      socket.end(GET + DELETE + GET);
      const answers = await received;
      expect(statusesOf(answers)).toEqual([200, 204, 404]);
      expect(answers.toString("latin1")).toContain("\r\n\r\nold");
    }
  });

  test("an unknown coding gets one answer, and the end", async () => {
    const server = await start({ hasFastLane });
    for (const pause of [false, true]) {
      const socket = openHalf(server);
      const received = untilClosed(socket);
      const head = `POST /a ${HEAD}Transfer-Encoding: xchunked\r\n\r\n`;
      socket.write(head);
      if (pause) await settle(server);
      socket.write("new");
      expect(statusesOf(await received)).toEqual([400]);
    }
  });

  test("a request that was answered before its body gets no second answer when the body is broken", async () => {
    const server = await start({ hasFastLane });
    const socket = openHalf(server);
    const received = untilClosed(socket);
    socket.write(`POST //x ${HEAD}Transfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n`);
    await new Promise((resolve) => socket.once("data", resolve));
    socket.write("zz\r\n");
    expect(statusesOf(await received)).toEqual([400]);
  });

  test("requests that wait behind a long-poll are few, however many are sent", async () => {
    const server = await start({ hasFastLane, longPollMs: 300 });
    await call("PUT", server.url, "/a", { headers: { "content-type": "text/plain" } });
    const socket = openHalf(server);
    let received = "";
    socket.on("data", (bytes) => (received += bytes.toString("latin1")));
    const count = 20_000;
    socket.write(
      "GET /a?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n" +
        "HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(count),
    );
    const statuses = (): number => received.split("HTTP/1.1 200 ").length - 1;
    while (statuses() < count) await new Promise((resolve) => socket.once("data", resolve));
    expect(received.split("HTTP/1.1 ").length - 1).toBe(count + 1);
  });
});
