/** Nodes that reach each other over their peer ports, in a cluster whose owners a test says. */

import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { afterEach, beforeEach, expect, test } from "vitest";
import { exchangeOf } from "../../../test/kits/server-stage.ts";
import { systemClock } from "../../base/clock.ts";
import { type Cluster, type ShardOwner, soleOwner } from "../cluster.ts";
import { type ClusterServer, createClusterServer } from "../cluster/cluster-server.ts";
import { type ShardId, shardOfPlacement } from "../core/placement.ts";
import type { Exchange, WholeAnswer } from "../server/exchange.ts";
import type { ServerOptions } from "../server/options.ts";
import { BodyBudget } from "../server/body-budget.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { nodeComponents } from "./node-components.ts";
import { listen, listeningUrlOf, openListener } from "./node-listening.ts";
import { openPeerPort } from "./node-peer-port.ts";
import { PEER_TLS } from "./node-peer-tls.ts";
import { createNodePeers, peerKeyOf } from "./node-peers.ts";

const KEY = peerKeyOf("a key of the tests that is long enough");
const TEXT = { "content-type": "text/plain" };

interface TestNode {
  readonly url: string;
  readonly peer: string;
  /** How often another node has lost its connection. */
  readonly doubts: () => number;
  readonly server: ClusterServer;
  readonly stop: () => Promise<void>;
}

/** A node with one of two shards. */
async function openNode(
  name: string,
  own: number,
  owners: Map<number, ShardOwner>,
  options: ServerOptions = {},
): Promise<TestNode> {
  const cluster: Cluster = {
    ...soleOwner(openMemoryStore(), name),
    shards: 2,
    join: (host) => Promise.resolve(host.take(own as ShardId, openMemoryStore())),
    ownerOf(shard) {
      const owner = owners.get(shard);
      return owner && { ...owner, isSelf: owner.node === name };
    },
  };
  const reached = { url: "" };
  const onFault = (): void => undefined;
  const place = { host: "127.0.0.1", log: () => undefined, onFault, url: () => reached.url };
  const peers = createNodePeers(KEY);
  const emptyStore = openMemoryStore({ bytesMax: 0 });
  const parts = { ...nodeComponents({}, place), cluster, peers, emptyStore };
  const server = createClusterServer(parts, options);
  const given = { listen: "127.0.0.1:0", key: KEY, onFault, look: onFault };
  let doubts = 0;
  const port = await openPeerPort(server, { ...given, doubt: () => (doubts += 1) });
  const budget = new BodyBudget(0, systemClock, server.options.bodiesBytesMax);
  const listening = await openListener(server, {}, budget, onFault);
  await listen(listening.http, 0, "127.0.0.1");
  reached.url = listeningUrlOf(listening.http, "http");
  const peer = `127.0.0.1:${port.port}`;
  owners.set(own, { node: name, url: reached.url, peer, isSelf: false });
  await server.join();
  const stop = async (): Promise<void> => {
    await listening.stop();
    listening.close();
    budget.close();
    peers.close();
    await port.close();
    await server.close();
  };
  return { url: reached.url, peer, server, doubts: () => doubts, stop };
}

/** The path of a placement of this shard. */
function placeOn(shard: number): string {
  for (let at = 0; ; at += 1)
    if (shardOfPlacement(`s${at}`, 2) === shard) return `/v1/stream/s${at}`;
}

let owners: Map<number, ShardOwner>;
let one: TestNode;
let other: TestNode;

beforeEach(async () => {
  owners = new Map();
  one = await openNode("one", 0, owners);
  other = await openNode("other", 1, owners);
});

afterEach(async () => {
  await one.stop();
  await other.stop();
});

test("PROTOCOL.md §24.3: the part of another node in a list may be large", async () => {
  const paths = Array.from({ length: 300 }, (_, at) => `${placeOn(1)}/${"p".repeat(950)}/${at}`);
  for (let at = 0; at < paths.length; at += 100) {
    const created = paths.slice(at, at + 100).map(async (path) => {
      const answer = await fetch(`${other.url}${path}`, { method: "PUT", headers: TEXT });
      await answer.arrayBuffer();
      return answer.status;
    });
    expect(new Set(await Promise.all(created))).toEqual(new Set([201]));
  }
  const answer = await fetch(`${one.url}/_hapax/streams`);
  expect(answer.status).toBe(200);
  const { streams } = (await answer.json()) as { readonly streams: readonly { path: string }[] };
  expect(streams.map(({ path }) => path)).toEqual(paths.sort());
});

test("PROTOCOL.md §24.2: a head that a node takes is not too large on its way to the owner", async () => {
  const headers = { ...TEXT, "x-long": "x".repeat(16_100) };
  const created = await fetch(`${one.url}${placeOn(1)}`, { method: "PUT", headers });
  expect([created.status, created.headers.get("hapax-owner")]).toEqual([201, other.url]);
  const names = Array.from({ length: 2000 }, (_, at) => `DNS:worker-${at}.internal`);
  const exchange: Exchange = {
    ...exchangeOf("GET", placeOn(1), {}),
    certificate: { commonName: undefined, names, fingerprint: "f" },
    lines: () => ["Host", "localhost"],
  };
  expect((await one.server.handle(exchange)).status).toBe(200);
});

/** The status of the answer to these lines, with the body `x`. */
async function statusOf(url: string, lines: readonly string[], body: string): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port: Number(new URL(url).port) });
  socket.write(`${lines.join("\r\n")}\r\n\r\n${body}`);
  const [first] = (await once(socket, "data")) as [Buffer];
  socket.destroy();
  return first.toString("latin1").slice(9, 12);
}

test("PROTOCOL.md §13 §24.2: what the owner would refuse by its head is refused, and is not made right on its way", async () => {
  const path = placeOn(1);
  const put = [`PUT ${path} HTTP/1.1`, "Content-Type: text/plain", "Connection: close"];
  const coded = ["Host: localhost", "Transfer-Encoding: gzip, chunked"];
  const expecting = ["Host: localhost", "Expect: a wonder", "Content-Length: 0"];
  for (const { url } of [other, one]) {
    expect(await statusOf(url, [...put, "Content-Length: 0"], "")).toBe("400");
    expect(await statusOf(url, [...put, ...coded], "1\r\nx\r\n0\r\n\r\n")).toBe("400");
    expect(await statusOf(url, [...put, ...expecting], "")).toBe("400");
  }
  expect((await fetch(`${other.url}${path}`)).status).toBe(404);
});

test("answers on their way from the owner to clients that do not take them have a limit together", async () => {
  await one.stop();
  one = await openNode("one", 0, owners, { answersBytesMax: 1024 * 1024 });
  const path = placeOn(1);
  const put = async (to: string, bytes: number): Promise<void> => {
    const body = "x".repeat(bytes);
    expect((await fetch(`${other.url}${to}`, { method: "PUT", headers: TEXT, body })).status).toBe(
      201,
    );
  };
  await put(path, 200_000);
  const get = async (): Promise<WholeAnswer> => {
    const answer = await one.server.handle({ ...exchangeOf("GET", path, {}), lines: () => [] });
    if ("live" in answer) throw new Error("it is small enough to be whole");
    return answer;
  };
  const held = [await get(), await get(), await get()];
  let isHere = false;
  const next = get().finally(() => (isHere = true));
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(isHere).toBe(false);
  for (const answer of held) answer.share?.release();
  (await next).share?.release();
  // Larger ones go on as they come, and give their room back at their end, or when their client goes.
  await put(`${path}/large`, 900_000);
  for (let at = 0; at < 10; at += 1) {
    const answer = await fetch(`${one.url}${path}/large`);
    if (at % 2 === 0) expect((await answer.arrayBuffer()).byteLength).toBe(900_000);
    else await answer.body?.cancel();
  }
});

test("FW4 an end of the wait ends a request to a node that never answers: what it did is not known", async () => {
  const open = new Set<TLSSocket>();
  const silent = createTlsServer({ ...PEER_TLS, pskCallback: () => KEY }, (socket) => {
    open.add(socket);
    socket.on("error", () => undefined);
    socket.once("data", () => controller.abort());
  });
  const controller = new AbortController();
  await new Promise<void>((resolve) => {
    silent.listen(0, "127.0.0.1", () => resolve());
  });
  const { port } = silent.address() as AddressInfo;
  const peers = createNodePeers(KEY);
  const outcome = await peers.send(`127.0.0.1:${port}`, {
    shard: 1 as ShardId,
    method: "GET",
    target: placeOn(1),
    lines: [],
    body: undefined,
    wantsWhole: false,
    room: () => Promise.resolve({ release: () => undefined, onCut: () => undefined }),
    client: { address: "", certificate: undefined, baseUrl: "http://test", authority: "test" },
    signal: controller.signal,
  });
  expect(outcome).toEqual({ kind: "lost" });
  peers.close();
  for (const socket of open) socket.destroy();
  silent.close();
});

test("PROTOCOL.md §24.2: a request without a line of its host has one on its way, also with a public URL that has a path", async () => {
  const path = `${placeOn(1)}/hosts`;
  const exchange: Exchange = {
    ...exchangeOf("PUT", path, TEXT, "a"),
    baseUrl: "https://streams.example/base",
    authority: "localhost",
    lines: () => [":authority", "localhost", "content-type", "text/plain"],
  };
  const answer = await one.server.handle(exchange);
  expect([answer.status, answer.headers["Location"]]).toEqual([
    201,
    `https://streams.example/base${path}`,
  ]);
});

test("SU1 the end of a connection that another node keeps is seen by the node, and a stop in order is no such end", async () => {
  const peers = createNodePeers(KEY);
  let broken = 0;
  const none = (): void => undefined;
  const events = { onOpen: none, onBroken: () => (broken += 1), onFailed: none };
  const watch = (): (() => void) => peers.watch(one.peer, events);
  const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));
  // The first ones may end before they are there.
  const seen = async (): Promise<number> => {
    const end = watch();
    await pause();
    end();
    await pause();
    return one.doubts();
  };
  await expect.poll(seen, { timeout: 10_000 }).toBeGreaterThan(0);
  const doubts = one.doubts();
  const end = watch();
  await pause();
  expect(await peers.isRefused(one.peer)).toBe(false);
  await one.stop();
  expect(await peers.isRefused(one.peer)).toBe(true);
  end();
  expect([broken, one.doubts()]).toEqual([0, doubts]);
  peers.close();
  one = await openNode("one", 0, owners);
});

test("SU3 a node with another key is known from one that is not there", async () => {
  const peers = createNodePeers(peerKeyOf("another key of the tests that is long enough"));
  const failed: boolean[] = [];
  const none = (): void => undefined;
  const onFailed = (_reason: string, isKeyRefused: boolean): number => failed.push(isKeyRefused);
  const end = peers.watch(one.peer, { onOpen: none, onBroken: none, onFailed });
  await expect.poll(() => failed).toEqual([true]);
  end();
  const endOther = peers.watch("127.0.0.1:1", { onOpen: none, onBroken: none, onFailed });
  await expect.poll(() => failed).toEqual([true, false]);
  endOther();
  peers.close();
});

test("strangers who connect and say nothing take few sockets of the peer port, and hold up neither nodes nor its end", async () => {
  const { port } = new URL(`http://${one.peer}`);
  let left = 0;
  const strangers = Array.from({ length: 400 }, () => {
    const socket = connect({ host: "127.0.0.1", port: Number(port) });
    socket.on("error", () => undefined);
    left += 1;
    socket.once("close", () => (left -= 1));
    socket.resume();
    return socket;
  });
  await expect.poll(() => left, { timeout: 4000 }).toBe(256);
  const path = placeOn(0);
  const created = await fetch(`${other.url}${path}`, { method: "PUT", headers: TEXT });
  expect(created.status).toBe(201);
  const begunMs = performance.now();
  await one.stop();
  expect(performance.now() - begunMs).toBeLessThan(4000);
  for (const socket of strangers) socket.destroy();
  one = await openNode("one", 0, owners);
});

test("a stranger at the peer port who sends no handshake is cut off, and one who sends another thing at once", async () => {
  const port = Number(new URL(`http://${one.peer}`).port);
  const ended = await Promise.all(
    ["", "GET / HTTP/1.1\r\n\r\n"].map(async (words) => {
      const begunMs = performance.now();
      const socket = connect({ host: "127.0.0.1", port });
      socket.on("error", () => undefined);
      socket.resume();
      if (words !== "") socket.write(words);
      await new Promise((resolve) => socket.once("close", resolve));
      return performance.now() - begunMs;
    }),
  );
  expect(Math.max(...ended)).toBeLessThan(9000);
}, 15_000);
