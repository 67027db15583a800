// Frames between nodes: many calls on one connection, each answered once or lost.

import type { AddressInfo } from "node:net";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { afterEach, expect, test } from "vitest";
import type { PeerOutcome, PeerRequest } from "../cluster/peers.ts";
import type { ShardId } from "../core/placement.ts";
import type { Exchange, ServerAnswer } from "../server/exchange.ts";
import {
  encodePeerFrame,
  type PeerFrame,
  FrameReader,
  FRAMES_PROTOCOL,
} from "./node-peer-frames.ts";
import { SentFrames } from "./node-peer-frames-sent.ts";
import { TakenFrames, type TakenFramesParts } from "./node-peer-frames-taken.ts";
import { PEER_TLS } from "./node-peer-tls.ts";
import { peerKeyOf } from "./node-peers.ts";

const KEY = peerKeyOf("a key of the tests that is long enough");
const closing: (() => void)[] = [];

afterEach(() => {
  for (const close of closing.splice(0)) close();
});

interface Pair {
  readonly sent: SentFrames;
  readonly taken: TakenFrames;
  readonly sockets: ReadonlySet<TLSSocket>;
  readonly faults: readonly unknown[];
  send(request?: Partial<PeerRequest>): Promise<PeerOutcome> | undefined;
  /** Sends, and fails if it is refused. */
  sendNow(request?: Partial<PeerRequest>): Promise<PeerOutcome>;
  /** Sends until the connection is there. */
  ready(): Promise<void>;
}

/** Both sides. `protocols`: what the one that answers knows. */
async function openPair(
  handle: TakenFramesParts["handle"],
  protocols: readonly string[] = [FRAMES_PROTOCOL],
): Promise<Pair> {
  const faults: unknown[] = [];
  const taken = new TakenFrames({ handle, onFault: (error) => faults.push(error) });
  const sockets = new Set<TLSSocket>();
  const options = { ...PEER_TLS, ALPNProtocols: [...protocols], pskCallback: () => KEY };
  const server = createTlsServer(options, (socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    if (socket.alpnProtocol === FRAMES_PROTOCOL) taken.add(socket);
  });
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve());
  });
  const { port } = server.address() as AddressInfo;
  const sent = new SentFrames(KEY);
  closing.push(() => {
    sent.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const send = (request: Partial<PeerRequest> = {}): Promise<PeerOutcome> | undefined => {
    const whole = { ...REQUEST, signal: new AbortController().signal, ...request };
    const address = { host: "127.0.0.1", port };
    return sent.send(`127.0.0.1:${port}`, address, whole, () => whole.lines);
  };
  const ready = async (): Promise<void> => {
    await expect.poll(() => send({ target: "/ready" }) !== undefined).toBe(true);
  };
  const sendNow = (request?: Partial<PeerRequest>): Promise<PeerOutcome> =>
    send(request) ?? Promise.reject(new Error("there is no connection"));
  return { sent, taken, sockets, faults, send, sendNow, ready };
}

const REQUEST = {
  shard: 3 as ShardId,
  method: "POST",
  target: "/v1/stream/a?x=1",
  lines: ["Host", "streams.example", "Content-Type", "text/plain", "Producer-Id", "ü"],
  body: Buffer.from("body"),
  client: {
    address: "10.0.0.9",
    certificate: undefined,
    baseUrl: "https://streams.example",
    authority: "streams.example",
  },
  wantsWhole: false,
  room: () => Promise.resolve({ release: () => undefined, onCut: () => undefined }),
} as const;

const NOTHING: ServerAnswer = { status: 204, headers: {} };

test("a request arrives as it was sent, and its answer goes back to it", async () => {
  const seen: Exchange[] = [];
  const shards: number[] = [];
  const pair = await openPair(async (shard, exchange) => {
    if (exchange.path === "/ready") return NOTHING;
    shards.push(shard);
    seen.push(exchange);
    const body = [Buffer.from("an "), Buffer.from("answer")];
    return { status: 409, headers: { "X-Text": "ß" }, body, mayCompress: true };
  });
  await pair.ready();
  const outcome = await pair.send();
  expect(outcome).toEqual({
    kind: "answered",
    answer: {
      status: 409,
      headers: { "X-Text": "ß" },
      body: [new Uint8Array(Buffer.from("an answer"))],
      mayCompress: true,
    },
  });
  const [exchange] = seen;
  expect(shards).toEqual([3]);
  expect(exchange).toMatchObject({
    method: "POST",
    path: "/v1/stream/a",
    query: "x=1",
    baseUrl: "https://streams.example",
    authority: "streams.example",
    peer: "10.0.0.9",
    hasBody: true,
  });
  expect(exchange?.header("producer-id")).toBe("ü");
  expect(exchange?.lines?.()).toEqual(REQUEST.lines);
  expect(() => exchange?.checkHead?.()).not.toThrow();
  await pair.send({ lines: [...REQUEST.lines, "Producer-Seq", "1", "producer-seq", "2"] });
  expect(() => seen.at(-1)?.checkHead?.()).toThrow(/producer-seq/i);
  expect(Buffer.from((await exchange?.body(4)) ?? []).toString()).toBe("body");
  await expect(exchange?.body(3)).rejects.toMatchObject({ code: "body_too_large" });
});

test("answers come in any order, over one connection, each to its own request", async () => {
  const waiting: { readonly name: string; readonly answer: (answer: ServerAnswer) => void }[] = [];
  const pair = await openPair((_, { path, query: name }) => {
    if (path === "/ready") return Promise.resolve(NOTHING);
    return new Promise((answer) => waiting.push({ name, answer }));
  });
  await pair.ready();
  const sent = Array.from({ length: 500 }, (_, at) => pair.sendNow({ target: `/a?${at}` }));
  await expect.poll(() => waiting.length).toBe(500);
  for (const { name, answer } of waiting.toReversed()) answer({ status: 200, headers: { name } });
  const names = (await Promise.all(sent)).map((outcome) =>
    outcome.kind === "answered" ? outcome.answer.headers["name"] : outcome.kind,
  );
  expect(names).toEqual(sent.map((_, at) => String(at)));
  expect(pair.sockets.size).toBe(1);
});

test("FW1 a connection that ends leaves what was not answered as lost, and the next one is made", async () => {
  let [arrived, gone] = [0, 0];
  const pair = await openPair((_, exchange) => {
    if (exchange.path === "/ready") return Promise.resolve(NOTHING);
    arrived += 1;
    exchange.onAbort(() => (gone += 1));
    return new Promise(() => undefined);
  });
  await pair.ready();
  const sent = [pair.sendNow(), pair.sendNow()];
  await expect.poll(() => arrived).toBe(2);
  for (const socket of pair.sockets) socket.destroy();
  expect(await Promise.all(sent)).toEqual([{ kind: "lost" }, { kind: "lost" }]);
  await expect.poll(() => gone).toBe(2);
  expect(pair.send()).toBeUndefined();
  await pair.ready();
});

test("FW4 a wait that ends ends the work of the owner, and its late answer does no harm", async () => {
  let answer: (answer: ServerAnswer) => void = () => undefined;
  let isGone = false;
  const pair = await openPair((_, exchange) => {
    if (exchange.path === "/ready") return Promise.resolve(NOTHING);
    exchange.onAbort(() => (isGone = true));
    return new Promise((resolve) => (answer = resolve));
  });
  await pair.ready();
  const controller = new AbortController();
  const sent = pair.send({ signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  expect(await sent).toEqual({ kind: "lost" });
  await expect.poll(() => isGone).toBe(true);
  answer(NOTHING);
  expect(await pair.send({ target: "/ready" })).toMatchObject({ kind: "answered" });
});

test("a node that does not own the shard, or has lost it, says so", async () => {
  const pair = await openPair(async (_, { path }) => {
    if (path === "/throws") throw new Error("a fault");
    if (path === "/live") return { status: 200, headers: {}, live: () => undefined };
    if (path === "/drop") return { ...NOTHING, drop: true };
    return path === "/moved" || path === "/lost" ? (path.slice(1) as "moved") : NOTHING;
  });
  await pair.ready();
  for (const [target, kind] of [
    ["/moved", "moved"],
    ["/lost", "lost"],
    ["/drop", "lost"],
    ["/throws", "lost"],
    ["/live", "lost"],
  ] as const) {
    expect(await pair.send({ target })).toEqual({ kind });
  }
  expect(pair.faults).toHaveLength(2);
});

test("a node that leaves answers what it has taken, and gets nothing more on the connection", async () => {
  const waiting: ((answer: ServerAnswer) => void)[] = [];
  const pair = await openPair((_, { path }) => {
    if (path === "/ready") return Promise.resolve(NOTHING);
    return new Promise((resolve) => waiting.push(resolve));
  });
  await pair.ready();
  const sent = pair.send();
  await expect.poll(() => waiting.length).toBe(1);
  pair.taken.leave();
  await expect.poll(() => pair.send({ target: "/ready" })).toBeUndefined();
  waiting[0]?.(NOTHING);
  expect(await sent).toMatchObject({ kind: "answered" });
  await expect.poll(() => pair.sockets.size).toBe(0);
});

test("reads, large bodies and nodes without frames go another way", async () => {
  const pair = await openPair(() => Promise.resolve(NOTHING));
  await pair.ready();
  expect(pair.send({ method: "GET", body: undefined })).toBeUndefined();
  expect(pair.send({ wantsWhole: true })).toBeUndefined();
  expect(pair.send({ body: Buffer.alloc(256 * 1024 + 1) })).toBeUndefined();
  expect(await pair.send({ body: Buffer.alloc(256 * 1024) })).toMatchObject({ kind: "answered" });
  const other = await openPair(() => Promise.resolve(NOTHING), ["http/1.1"]);
  for (let tries = 0; tries < 20; tries += 1) {
    expect(other.send()).toBeUndefined();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
});

test("frames are the same however their bytes are cut, and wrong lengths are refused", () => {
  const frames = [
    encodePeerFrame(1, 7, '{"ü":1}', [Buffer.from("one"), Buffer.from("two")]),
    encodePeerFrame(2, 4_294_967_295),
    encodePeerFrame(3, 0, "", [Buffer.alloc(300, 5)]),
  ];
  const bytes = Buffer.concat(frames.flat());
  const read = (size: number): readonly PeerFrame[] => {
    const reader = new FrameReader();
    const found: PeerFrame[] = [];
    for (let at = 0; at < bytes.length; at += size)
      reader.push(bytes.subarray(at, at + size), (frame) =>
        found.push({ ...frame, body: Buffer.from(frame.body) }),
      );
    return found;
  };
  const whole = read(bytes.length);
  expect(whole.map(({ kind, id, head, body }) => [kind, id, head, body.length])).toEqual([
    [1, 7, '{"ü":1}', 6],
    [2, 4_294_967_295, "", 0],
    [3, 0, "", 300],
  ]);
  for (let size = 1; size < bytes.length; size += 1) expect(read(size)).toEqual(whole);
  const broken = (change: (frame: Buffer) => void): (() => void) => {
    const frame = Buffer.concat(encodePeerFrame(1, 1, "{}", [Buffer.from("x")]));
    change(frame);
    return () => new FrameReader().push(frame, () => undefined);
  };
  expect(broken((frame) => frame.writeUInt32BE(8, 0))).toThrow("its length is wrong");
  expect(broken((frame) => frame.writeUInt32BE(2 ** 31, 0))).toThrow("its length is wrong");
  expect(broken((frame) => frame.writeUInt32BE(100, 9))).toThrow("its head is longer");
});
