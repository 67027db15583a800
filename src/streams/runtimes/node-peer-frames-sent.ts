/**
 * The side of a connection of frames that sends requests: one connection to each node carries all calls whose bodies are small and whose
 * answers are whole. Other calls go over HTTP, and so do all while the connection is missing or full.
 *
 *   - a request is sent once, on one connection;
 *   - a connection that ends leaves every request without an answer as `lost`;
 *   - a connection on which answers are owed and nothing arrives is given up, so that the next requests do not wait for it too.
 */

import { connect, type TLSSocket } from "node:tls";
import type { PeerOutcome, PeerRequest } from "../cluster/peers.ts";
import type { ServerAnswer } from "../server/exchange.ts";
import {
  encodePeerFrame,
  FRAME,
  type PeerFrame,
  FrameReader,
  FRAMES_PROTOCOL,
  FrameWriter,
} from "./node-peer-frames.ts";
import { KEEP_ALIVE_MS, peerTlsOf } from "./node-peer-tls.ts";

const CONNECT_MS = 2000;
/** After a connection has ended or was refused. Requests go over HTTP meanwhile. */
const AGAIN_MS = 1000;
const BODY_BYTES_MAX = 256 * 1024;
/** Bytes that wait for the other node on one connection, and requests without an answer. */
const QUEUED_BYTES_MAX = 4 * 1024 * 1024;
const WAITING_MAX = 8192;
const SILENT_MS = 5000;

/** The connections to all nodes. */
export class SentFrames {
  readonly #key: Buffer;
  readonly #connections = new Map<string, FrameConnection>();
  #isClosed = false;

  constructor(key: Buffer) {
    this.#key = key;
  }

  /** Sends a request, or returns undefined if it must go another way. `peer`: `host:port`, given by `address` too. */
  send(
    peer: string,
    address: { readonly host: string; readonly port: number },
    request: PeerRequest,
    lines: () => readonly string[],
  ): Promise<PeerOutcome> | undefined {
    const { method, wantsWhole, body, signal } = request;
    // Answers to reads may be large or have no end.
    if (this.#isClosed || method !== "POST" || wantsWhole || signal.aborted) return undefined;
    if (body !== undefined && body.length > BODY_BYTES_MAX) return undefined;
    let connection = this.#connections.get(peer);
    if (connection === undefined) {
      connection = new FrameConnection(address, this.#key, () => this.#connections.delete(peer));
      this.#connections.set(peer, connection);
    }
    return connection.isReady ? connection.send(request, lines()) : undefined;
  }

  close(): void {
    this.#isClosed = true;
    for (const connection of [...this.#connections.values()]) connection.close();
  }
}

interface Waiting {
  readonly answered: (outcome: PeerOutcome) => void;
  readonly sinceMs: number;
}

class FrameConnection {
  readonly #socket: TLSSocket;
  readonly #writer: FrameWriter;
  readonly #waiting = new Map<number, Waiting>();
  readonly #forget: () => void;
  #again: NodeJS.Timeout | undefined;
  #isOpen = false;
  /** The other node ends, or this one. */
  #isLeaving = false;
  #nextId = 0;
  #heardMs = 0;

  constructor(
    { host, port }: { readonly host: string; readonly port: number },
    key: Buffer,
    forget: () => void,
  ) {
    this.#forget = forget;
    const socket = connect({ host, port, ...peerTlsOf(key), ALPNProtocols: [FRAMES_PROTOCOL] });
    this.#socket = socket;
    this.#writer = new FrameWriter((bytes) => socket.write(bytes));
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    const connecting = setTimeout(() => socket.destroy(), CONNECT_MS);
    socket.once("secureConnect", () => {
      clearTimeout(connecting);
      this.#isOpen = socket.alpnProtocol === FRAMES_PROTOCOL;
      if (!this.#isOpen) socket.destroy();
    });
    const reader = new FrameReader();
    socket.on("data", (chunk: Buffer) => {
      this.#heardMs = performance.now();
      try {
        reader.push(chunk, this.#take);
      } catch {
        socket.destroy();
      }
    });
    socket.on("error", () => undefined); // `close` follows.
    socket.once("close", () => {
      clearTimeout(connecting);
      this.#isOpen = false;
      for (const id of [...this.#waiting.keys()]) this.#answer(id, { kind: "lost" });
      if (this.#isLeaving) this.#forget();
      else this.#again = setTimeout(this.#forget, AGAIN_MS).unref();
    });
  }

  get isReady(): boolean {
    if (!this.#isOpen || this.#isLeaving || this.#waiting.size >= WAITING_MAX) return false;
    return this.#socket.writableLength < QUEUED_BYTES_MAX;
  }

  send(request: PeerRequest, lines: readonly string[]): Promise<PeerOutcome> {
    const { shard, method, target, client, body, signal } = request;
    const { address, certificate, baseUrl, authority } = client;
    const id = this.#nextId;
    this.#nextId = (id + 1) >>> 0;
    const head: SentHead = [
      shard,
      method,
      target,
      lines,
      address,
      certificate ?? null,
      baseUrl,
      authority ?? null,
      namesIn(lines),
    ];
    const text = JSON.stringify(head);
    return new Promise((resolve) => {
      const abort = (): void => {
        if (!this.#waiting.has(id)) return;
        this.#writer.send(encodePeerFrame(FRAME.abort, id));
        this.#answer(id, { kind: "lost" });
      };
      signal.addEventListener("abort", abort, { once: true });
      const sinceMs = performance.now();
      const answered = (outcome: PeerOutcome): void => {
        signal.removeEventListener("abort", abort);
        resolve(outcome);
        const isSilent = sinceMs > this.#heardMs && performance.now() - sinceMs >= SILENT_MS;
        if (outcome.kind === "lost" && isSilent) this.#socket.destroy();
      };
      this.#waiting.set(id, { answered, sinceMs });
      this.#writer.send(encodePeerFrame(FRAME.request, id, text, body === undefined ? [] : [body]));
    });
  }

  close(): void {
    this.#isLeaving = true;
    clearTimeout(this.#again);
    this.#socket.destroy();
  }

  readonly #take = ({ kind, id, head, body }: PeerFrame): void => {
    if (kind === FRAME.moved) this.#answer(id, { kind: "moved" });
    else if (kind === FRAME.lost) this.#answer(id, { kind: "lost" });
    else if (kind === FRAME.leaving) {
      this.#isLeaving = true;
      this.#endIfIdle();
    } else if (kind === FRAME.answer) {
      const [status, headers, mayCompress] = JSON.parse(head) as AnswerHead;
      // It is the same piece of memory as the frames beside it.
      const own = body.length === 0 ? {} : { body: [new Uint8Array(body)] };
      const answer: ServerAnswer = { status, headers, mayCompress: mayCompress === 1, ...own };
      this.#answer(id, { kind: "answered", answer });
    }
  };

  #answer(id: number, outcome: PeerOutcome): void {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return; // Its wait has ended before.
    this.#waiting.delete(id);
    waiting.answered(outcome);
    if (this.#isLeaving) this.#endIfIdle();
  }

  #endIfIdle(): void {
    if (this.#waiting.size > 0) return;
    this.#writer.flush();
    this.#socket.end();
    this.#forget();
  }
}

function namesIn(lines: readonly string[]): number {
  const names = new Set<string>();
  for (let at = 0; at < lines.length; at += 2) names.add((lines[at] ?? "").toLowerCase());
  return names.size;
}

/** The head of a request: shard, method, target, lines, and what only the first node has seen. */
export type SentHead = readonly [
  shard: number,
  method: string,
  target: string,
  lines: readonly string[],
  address: string,
  certificate: PeerRequest["client"]["certificate"] | null,
  baseUrl: string,
  authority: string | null,
  /** How many different names the lines have. */
  names: number,
];

/** The head of an answer. */
export type AnswerHead = readonly [
  status: number,
  headers: Readonly<Record<string, string>>,
  mayCompress: 0 | 1,
];
