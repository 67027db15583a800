/**
 * Sends requests to other nodes of a cluster, over connections that both sides prove with the shared key (TLS with a pre-shared key): the
 * key never travels, and everything that does is encrypted. docs/decisions/0085-peers-share-a-key.md
 */

import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { Agent, request as httpsRequest } from "node:https";
import type { TLSSocket } from "node:tls";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { PEER, PEER_LOOK_PATH, PEER_PREFIX } from "../../protocol/cluster.ts";
import type { AnswerRoom, PeerOutcome, PeerRequest, Peers, PeerWatch } from "../cluster/peers.ts";
import { KEEP_ALIVE_MS, peerTlsOf } from "./node-peer-tls.ts";
import { SentFrames } from "./node-peer-frames-sent.ts";
import { isRefused, watchPeer } from "./node-peer-watch.ts";
import type { AnswerHeaders, LiveSink } from "../server/exchange.ts";

const KEY_CHARS_MIN = 32;
const CONNECT_MS = 2000;
/** A larger answer goes on as it comes, so that no node holds it whole. */
const WHOLE_BYTES_MAX = 256 * 1024;
/** A page of a list has 1,000 entries, the longest of them of some 8 kB with all that is escaped. */
const GATHERED_BYTES_MAX = 16 * 1024 * 1024;
/** Smaller answers take no room. */
const SMALL_BYTES_MAX = 4096;
/** Bytes that may wait for a client before the owner is asked to wait. */
const QUEUED_BYTES_MAX = 256 * 1024;

/** What belongs to one connection, or is made anew for the next one. */
const OF_CONNECTION = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "expect",
  "content-length",
  "date",
]);

/** The key of a connection from the text that all nodes share. */
export function peerKeyOf(text: string): Buffer {
  const trimmed = text.trim();
  if (trimmed.length < KEY_CHARS_MIN) {
    const words = `the key of the peers has fewer than ${KEY_CHARS_MIN} characters: openssl rand -hex 32`;
    throw new HapaxError("invalid_options", words);
  }
  return createHash("sha256").update(`hapax peer key\n${trimmed}`).digest();
}

export interface NodePeers extends Peers, PeerWatch {
  close(): void;
}

export function createNodePeers(key: Buffer): NodePeers {
  const agent = new Agent({ keepAlive: true, noDelay: true, ...peerTlsOf(key) });
  const frames = new SentFrames(key);
  return {
    send(peer, request) {
      const sent = frames.send(peer, addressOf(peer), request, () => plainLinesOf(request));
      return sent ?? send(agent, peer, request);
    },
    nudge(peer) {
      const headers: readonly string[] = ["Host", peer];
      const asked = httpsRequest({
        agent,
        ...addressOf(peer),
        method: "POST",
        path: PEER_LOOK_PATH,
        headers,
      });
      asked.on("error", () => undefined); // It looks by itself a little later.
      asked.on("response", (answer) => answer.resume());
      asked.setTimeout(CONNECT_MS, () => asked.destroy());
      asked.end();
    },
    watch: (peer, events) => watchPeer({ key, ...addressOf(peer) }, events),
    isRefused: (peer) => isRefused(addressOf(peer)),
    close() {
      frames.close();
      agent.destroy();
    },
  };
}

export function addressOf(peer: string): { readonly host: string; readonly port: number } {
  const at = peer.lastIndexOf(":");
  const host = peer.slice(0, at).replace(/^\[(.*)\]$/, "$1");
  const port = Number(peer.slice(at + 1));
  if (at < 1 || !Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new HapaxError("invalid_options", `a peer is host:port, not ${JSON.stringify(peer)}`);
  }
  return { host, port };
}

function send(agent: Agent, peer: string, request: PeerRequest): Promise<PeerOutcome> {
  return new Promise((resolve, reject) => {
    const { method, target: path, body, signal } = request;
    if (signal.aborted) {
      resolve({ kind: "unsent" });
      return;
    }
    let isSent = false;
    const outgoing = httpsRequest({
      agent,
      ...addressOf(peer),
      method,
      path,
      headers: linesFor(request),
    });
    const abort = (): void => {
      outgoing.destroy();
    };
    signal.addEventListener("abort", abort, { once: true });
    const connecting = setTimeout(abort, CONNECT_MS);
    outgoing.on("socket", (socket) => {
      socket.setKeepAlive(true, KEEP_ALIVE_MS);
      const begun = (): void => {
        clearTimeout(connecting);
        isSent = true;
      };
      // Over a connection that was used before the bytes may arrive at any time.
      if (outgoing.reusedSocket) begun();
      else (socket as TLSSocket).once("secureConnect", begun);
    });
    outgoing.on("error", () => {
      clearTimeout(connecting);
      signal.removeEventListener("abort", abort);
      resolve({ kind: isSent ? "lost" : "unsent" });
    });
    outgoing.on("response", (incoming) => {
      receive(incoming, request).then(resolve, (error: unknown) => {
        if (isHapaxError(error)) reject(error);
        else resolve({ kind: "lost" });
      });
      incoming.once("close", () => {
        signal.removeEventListener("abort", abort);
      });
    });
    outgoing.end(body);
  });
}

/** The lines of the client, but for those of its connection, and for what only a node may say. */
function plainLinesOf({ lines, client, body, method }: PeerRequest): string[] {
  const sent: string[] = [];
  let hasHost = false;
  for (let at = 0; at < lines.length; at += 2) {
    const [name = "", value = ""] = lines.slice(at, at + 2);
    const lower = name.toLowerCase();
    if (name.startsWith(":") || OF_CONNECTION.has(lower) || lower.startsWith(PEER_PREFIX)) continue;
    hasHost ||= lower === "host";
    sent.push(name, value);
  }
  // A head of HTTP/2 has none. A public URL may have a path, which is no part of a host.
  if (!hasHost) sent.push("Host", client.authority ?? "localhost");
  if (body !== undefined) sent.push("Content-Length", String(body.length));
  else if (method === "POST" || method === "PUT") sent.push("Content-Length", "0");
  return sent;
}

function linesFor(request: PeerRequest): readonly string[] {
  const { shard, client } = request;
  const sent = plainLinesOf(request);
  sent.push(PEER.shard, String(shard), PEER.baseUrl, client.baseUrl);
  if (client.address !== "") sent.push(PEER.address, client.address);
  if (client.certificate !== undefined) {
    sent.push(PEER.certificate, encodeURIComponent(JSON.stringify(client.certificate)));
  }
  return sent;
}

async function receive(
  incoming: IncomingMessage,
  { method, wantsWhole, room, signal }: PeerRequest,
): Promise<PeerOutcome> {
  const moved = incoming.headers[PEER.moved];
  if (moved !== undefined) {
    incoming.resume();
    return { kind: moved === "lost" ? "lost" : "moved" };
  }
  const { statusCode: status = 500 } = incoming;
  const isEmpty = method === "HEAD" || status === 204 || status === 304;
  const announced = incoming.headers["content-length"];
  const bytes = isEmpty ? 0 : Number(announced ?? Infinity);
  // Other methods have small answers, and the lane, which sends them, gives no room back.
  const isLarge = method === "GET" && announced !== undefined && bytes > SMALL_BYTES_MAX;
  const share = isLarge && !wantsWhole ? await room(Math.min(bytes, WHOLE_BYTES_MAX)) : undefined;
  if (bytes > WHOLE_BYTES_MAX && !wantsWhole) {
    if (share !== undefined) releaseWith(share, signal);
    const headers = headersOf(incoming, announced !== undefined);
    const answer = { status, headers, live: pass(incoming, announced !== undefined, share) };
    return { kind: "answered", answer };
  }
  const pieces: Buffer[] = [];
  let received = 0;
  try {
    for await (const piece of incoming as AsyncIterable<Buffer>) {
      received += piece.length;
      // The loop ends the connection.
      if (received > GATHERED_BYTES_MAX) throw new HapaxError("internal", "a part is too large");
      pieces.push(piece);
    }
  } catch (error) {
    share?.release();
    throw error;
  }
  const headers = headersOf(incoming, method === "HEAD");
  return { kind: "answered", answer: { status, headers, body: pieces, share } };
}

/** A client that has gone meanwhile is never sent its answer. */
function releaseWith(share: AnswerRoom, signal: AbortSignal): void {
  if (signal.aborted) share.release();
  else signal.addEventListener("abort", share.release, { once: true });
}

function headersOf({ rawHeaders }: IncomingMessage, keepsLength: boolean): AnswerHeaders {
  const headers: Record<string, string> = {};
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const [name = "", value = ""] = rawHeaders.slice(at, at + 2);
    const lower = name.toLowerCase();
    if (!OF_CONNECTION.has(lower) || (keepsLength && lower === "content-length")) {
      headers[name] = value;
    }
  }
  return headers;
}

/** Goes on as it comes, no faster than the client takes it. */
function pass(
  incoming: IncomingMessage,
  hasLength: boolean,
  share: AnswerRoom | undefined,
): (sink: LiveSink) => void {
  return (sink) => {
    share?.onCut(() => sink.cut());
    let isOver = false;
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      // Events that were cut are not complete, and are not read. A body that was announced longer must not look whole.
      if (hasLength && !incoming.complete) sink.cut();
      else sink.end();
    };
    sink.onClose(() => {
      isOver = true;
      share?.release();
      incoming.destroy();
    });
    incoming.on("data", (piece: Buffer) => {
      sink.write(piece);
      if (sink.queuedBytes <= QUEUED_BYTES_MAX) return;
      incoming.pause();
      sink.onDrain(() => {
        incoming.resume();
      });
    });
    incoming.on("end", end);
    incoming.on("error", end);
    incoming.on("close", end);
  };
}
