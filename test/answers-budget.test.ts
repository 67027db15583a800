// Readers that do not take a large append hold bounded memory, and all of them get it in the end. PROTOCOL.md §13
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../src/streams/runtimes/node.ts";
import { openFileStore } from "../src/streams/stores/file.ts";
import { freshDirectory } from "./kits/directory-kit.ts";

const MIB = 1024 * 1024;
const APPEND_BYTES = 15 * MIB;
const READERS = 24;
const ROOM_BYTES = 64 * MIB;

let server: NodeServer;

beforeAll(async () => {
  // Nothing is kept in memory: every reader has bytes of its own.
  const store = await openFileStore(freshDirectory(), { durability: "os", cacheBytes: 0 });
  server = await startNodeServer({ port: 0, store, answersBytesMax: ROOM_BYTES });
  const headers = { "Content-Type": "application/octet-stream" };
  const body = randomBytes(APPEND_BYTES);
  const url = `${server.url}/v1/stream/large`;
  expect((await fetch(url, { method: "PUT", headers, body })).status).toBe(201);
});

afterAll(async () => {
  await server.stop();
});

function ask(query: string, localAddress = "127.0.0.1", stream = "large"): Socket {
  const { port } = new URL(server.url);
  const socket = connect({ port: Number(port), host: "127.0.0.1", localAddress });
  socket.pause();
  socket.write(
    `GET /v1/stream/${stream}?${query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
  );
  return socket;
}

async function bytesOf(socket: Socket): Promise<number> {
  let bytes = 0;
  for await (const chunk of socket) bytes += (chunk as Buffer).length;
  return bytes;
}

async function settle(): Promise<void> {
  for (let round = 0; round < 20; round += 1) {
    await (await fetch(`${server.url}/_hapax/health`)).text();
  }
}

test.each([
  ["pages", "offset=-1"],
  ["events", "offset=-1&live=sse"],
])(
  "%s of a large append wait for room, and each reader gets the whole",
  async (_name, query) => {
    const before = process.memoryUsage().arrayBuffers;
    const readers = Array.from({ length: READERS }, () => ask(query));
    await settle();
    const held = process.memoryUsage().arrayBuffers - before;
    // Reading and encoding need copies for a moment; without a bound it would be several times as much.
    expect(held).toBeLessThan(READERS * APPEND_BYTES * 0.6);
    // A small read finds room meanwhile.
    const small = await fetch(`${server.url}/v1/stream/large?offset=now`);
    expect(small.status).toBe(200);
    const taking = readers.map(bytesOf);
    if (query.includes("sse")) {
      // An SSE answer has no end of its own: the first ones leave when all of it has come.
      await expect.poll(() => server.server.engine.liveReaders, { timeout: 20_000 }).toBe(READERS);
      for (const reader of readers) reader.end();
    }
    for (const bytes of await Promise.all(taking)) expect(bytes).toBeGreaterThan(APPEND_BYTES);
  },
  60_000,
);

test("events that are much larger than their appends wait for the room that they take", async () => {
  const url = `${server.url}/v1/stream/lines`;
  const headers = { "Content-Type": "text/plain" };
  const body = new Uint8Array(MIB - 1).fill(10);
  expect((await fetch(url, { method: "PUT", headers, body })).status).toBe(201);
  const before = process.memoryUsage().arrayBuffers;
  // Each with a cursor of its own: events of readers that have the same one are shared.
  const readers = Array.from({ length: 60 }, (_, index) =>
    ask(`offset=-1&live=sse&cursor=${100_000_000 + 1000 * index}`, "127.0.0.1", "lines"),
  );
  let held = 0;
  for (let round = 0; round < 10; round += 1) {
    await settle();
    held = Math.max(held, process.memoryUsage().arrayBuffers - before);
  }
  for (const reader of readers) reader.destroy();
  // An event has 7 MiB: six fit at once. Pages are in hand for a moment, and what is made is copied once.
  expect(held).toBeLessThan(2.5 * ROOM_BYTES);
}, 60_000);

/** All of 127.0.0.0/8 is this machine on Linux; elsewhere it is one address, unless an administrator adds others. */
const reason =
  process.platform === "linux" ? undefined : "this machine has one address: not tested";
if (reason !== undefined) console.warn(reason);

test.skipIf(reason !== undefined)(
  "G34 one address that takes nothing, over many connections, does not keep another one waiting",
  async () => {
    const flood = Array.from({ length: 60 }, () => ask("offset=-1"));
    for (const socket of flood) socket.on("error", () => undefined);
    await settle();
    const other = ask("offset=-1", "127.0.0.2");
    // In the order of asking 56 others would be cut before it, four at a time and each after a minute.
    const timer = setTimeout(() => other.destroy(), 20_000);
    try {
      expect(await bytesOf(other)).toBeGreaterThan(APPEND_BYTES);
    } finally {
      clearTimeout(timer);
      for (const socket of flood) socket.destroy();
    }
  },
  60_000,
);
