// The memory of a page is used again when the page has left, and not before: PROTOCOL.md §7.
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../src/streams/runtimes/node.ts";
import { openFileStore } from "../src/streams/stores/file.ts";
import { freshDirectory } from "./kits/directory-kit.ts";

const MIB = 1024 * 1024;
const APPEND_BYTES = 64 * 1024;
const PAGES = 24;
/** Each begins elsewhere: wherever the kernel stops taking bytes, most of them are in the middle of a page. */
const SLOW_READERS = 8;

let server: NodeServer;
const content = randomBytes(PAGES * MIB);

beforeAll(async () => {
  // So little in memory that every page comes from the journal.
  const store = await openFileStore(freshDirectory(), { durability: "os", cacheBytes: 0 });
  server = await startNodeServer({ port: 0, store });
  await fill("/v1/stream/old", content);
});

afterAll(async () => {
  await server.stop();
});

async function fill(path: string, bytes: Uint8Array): Promise<void> {
  const headers = { "Content-Type": "application/octet-stream" };
  await fetch(server.url + path, { method: "PUT", headers });
  for (let at = 0; at < bytes.length; at += APPEND_BYTES) {
    const body = bytes.slice(at, at + APPEND_BYTES);
    const { status } = await fetch(server.url + path, { method: "POST", headers, body });
    expect(status).toBe(204);
  }
}

/** Asks for all pages behind a place at once on one connection, and takes nothing of the answers. */
function askForAll(from: number): Socket {
  const { port, host } = new URL(server.url);
  const socket = connect({ port: Number(port), host: "127.0.0.1" });
  socket.pause();
  for (let page = 0; page < PAGES; page += 1) {
    const offset = `0000000000000000_${String(from + page * MIB).padStart(16, "0")}`;
    socket.write(`GET /v1/stream/old?offset=${offset} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  }
  return socket;
}

/** The bodies of the answers, one after the other. */
async function takeAll(socket: Socket, length: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of socket) {
    if (!Buffer.isBuffer(chunk)) throw new Error("the socket has an encoding");
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes >= length && bodiesOf(Buffer.concat(chunks)).length === length) break;
  }
  return bodiesOf(Buffer.concat(chunks));
}

function bodiesOf(answers: Buffer): Buffer {
  const bodies: Buffer[] = [];
  for (let at = 0; at < answers.length;) {
    const body = answers.indexOf("\r\n\r\n", at) + 4;
    if (body === 3) break;
    const length = Number(/content-length: (\d+)/i.exec(answers.toString("latin1", at, body))?.[1]);
    bodies.push(answers.subarray(body, body + length));
    at = body + length;
  }
  return Buffer.concat(bodies);
}

async function readWhole(): Promise<Buffer> {
  const pages: Buffer[] = [];
  for (let offset = "-1"; ;) {
    const answer = await fetch(`${server.url}/v1/stream/old?offset=${offset}`);
    pages.push(Buffer.from(await answer.arrayBuffer()));
    if (answer.headers.has("stream-up-to-date")) return Buffer.concat(pages);
    offset = answer.headers.get("stream-next-offset") ?? "";
  }
}

test("pages that wait for a slow reader are not written over by those of a quick one", async () => {
  const slow = Array.from({ length: SLOW_READERS }, (_, at) => {
    const from = at * 2 * APPEND_BYTES;
    return { wanted: content.subarray(from), socket: askForAll(from) };
  });
  try {
    for (let pass = 0; pass < 3; pass += 1) expect((await readWhole()).equals(content)).toBe(true);
    for (const { wanted, socket } of slow) {
      expect((await takeAll(socket, wanted.length)).equals(wanted)).toBe(true);
    }
  } finally {
    for (const { socket } of slow) socket.destroy();
  }
});
