/**
 * A network that loses things, as a proxy before a server: by a seed it drops requests before the server has seen
 * them, drops answers after the server has given them, and holds requests back so that others overtake them.
 *
 *   FX1  what happens to the n-th request depends on the seed and on n alone;
 *   FX2  a dropped answer was given by the server; a dropped request never reached it;
 *   FX3  what is not dropped arrives as it was sent, both ways.
 *
 * Whoever is dropped loses its connection, and with it every answer that was still to come on it.
 */

import {
  Agent,
  createServer,
  type IncomingMessage,
  request as sendRequest,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { createSeededRandom, type SeededRandom } from "./seeded-random.ts";

/** What goes wrong, and how often. Shares are from 0 to 1, and 0 unless they are given. */
export interface FaultProxySettings {
  readonly seed: number;
  /** Share of the requests that the server answers without the client hearing of it. */
  readonly dropAnswers?: number;
  /** Share of the requests that never reach the server. */
  readonly dropRequests?: number;
  /** Share of the requests that are held back, each for up to `delayMsMax`. */
  readonly delayRequests?: number;
  /** Default 20. */
  readonly delayMsMax?: number;
}

/** A proxy that loses requests and answers. See `openFaultProxy`. */
export interface FaultProxy {
  /** What the client calls instead of the server. */
  readonly url: string;
  /** Requests so far, and what became of them. */
  readonly requests: number;
  readonly droppedRequests: number;
  readonly droppedAnswers: number;
  readonly delayedRequests: number;
  /** Nothing goes wrong from now on. */
  heal(): void;
  /** Cuts all connections and takes no new ones. */
  close(): Promise<void>;
}

/** What becomes of one request. */
interface Fate {
  readonly dropsRequest: boolean;
  readonly dropsAnswer: boolean;
  readonly delayMs: number;
}

const UNHARMED: Fate = { dropsRequest: false, dropsAnswer: false, delayMs: 0 };
const HOP_BY_HOP = new Set(["connection", "keep-alive", "proxy-connection", "upgrade"]);

/**
 * Opens a proxy before the server at `target`, which may also be a function if the address changes.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { openFaultProxy } from "hapax/testing";
 *
 * const server = await startNodeServer({ port: 0 });
 * const proxy = await openFaultProxy(server.url, { seed: 1, dropAnswers: 1 });
 * const path = "/v1/stream/orders";
 * const lost = await fetch(proxy.url + path, { method: "PUT" }).catch(() => "no answer");
 * console.assert(lost === "no answer" && proxy.droppedAnswers >= 1);
 * // The server had answered all the same: the stream is there.
 * console.assert((await fetch(server.url + path, { method: "HEAD" })).status === 200);
 * await proxy.close();
 * await server.stop();
 * ```
 */
export async function openFaultProxy(
  target: string | (() => string | Promise<string>),
  settings: FaultProxySettings,
): Promise<FaultProxy> {
  const proxy = new LossyProxy(typeof target === "string" ? () => target : target, settings);
  await proxy.listen();
  return proxy;
}

class LossyProxy implements FaultProxy {
  readonly #target: () => string | Promise<string>;
  readonly #settings: FaultProxySettings;
  readonly #random: SeededRandom;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
    this.#take(request, response);
  });
  requests = 0;
  droppedRequests = 0;
  droppedAnswers = 0;
  delayedRequests = 0;
  #isHealed = false;

  constructor(target: () => string | Promise<string>, settings: FaultProxySettings) {
    this.#target = target;
    this.#settings = settings;
    this.#random = createSeededRandom(settings.seed);
    this.#server.on("clientError", (_error, socket) => {
      socket.destroy();
    });
  }

  get url(): string {
    // A server that listens on a port has an address of this kind.
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}`;
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ port: 0, host: "127.0.0.1", backlog: 1024 }, resolve);
    });
  }

  heal(): void {
    this.#isHealed = true;
  }

  close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    this.#agent.destroy();
    return new Promise((resolve) => {
      this.#server.close(() => {
        resolve();
      });
      this.#server.closeAllConnections();
    });
  }

  /** As many numbers are drawn for each request, whatever they say. */
  #nextFate(): Fate {
    const {
      dropAnswers = 0,
      dropRequests = 0,
      delayRequests = 0,
      delayMsMax = 20,
    } = this.#settings;
    const [request, answer, delay, length] = [1, 2, 3, 4].map(() => this.#random.unit());
    if (this.#isHealed) return UNHARMED;
    const isDelayed = (delay ?? 1) < delayRequests;
    return {
      dropsRequest: (request ?? 1) < dropRequests,
      dropsAnswer: (answer ?? 1) < dropAnswers,
      delayMs: isDelayed ? 1 + Math.floor((length ?? 0) * delayMsMax) : 0,
    };
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const fate = this.#nextFate();
    this.requests += 1;
    // The client may go at any time; what it had sent may still arrive.
    request.on("error", () => undefined);
    response.on("error", () => undefined);
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      if (fate.dropsRequest) {
        this.droppedRequests += 1;
        request.socket.destroy();
        return;
      }
      const body = Buffer.concat(pieces);
      if (fate.delayMs === 0) {
        void this.#pass(request, response, body, fate);
        return;
      }
      this.delayedRequests += 1;
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        void this.#pass(request, response, body, fate);
      }, fate.delayMs);
      this.#timers.add(timer);
    });
  }

  async #pass(
    request: IncomingMessage,
    response: ServerResponse,
    body: Buffer,
    fate: Fate,
  ): Promise<void> {
    let target: URL;
    try {
      target = new URL(await this.#target());
    } catch {
      request.socket.destroy();
      return;
    }
    const { method, url: path, rawHeaders } = request;
    const sent = sendRequest({
      method,
      path,
      hostname: target.hostname,
      port: target.port,
      headers: keptHeaders(rawHeaders),
      agent: this.#agent,
    });
    const cut = (): void => {
      request.socket.destroy();
    };
    sent.on("error", cut);
    sent.on("response", (answer) => {
      if (fate.dropsAnswer) {
        this.droppedAnswers += 1;
        answer.resume();
        cut();
        return;
      }
      const { statusCode = 502, statusMessage, rawHeaders: headers } = answer;
      response.writeHead(statusCode, statusMessage, keptHeaders(headers));
      answer.on("error", cut);
      answer.pipe(response);
    });
    // A client that goes is gone for the server too.
    response.once("close", () => {
      if (!response.writableFinished && !fate.dropsAnswer) sent.destroy();
    });
    sent.end(body);
  }
}

/** Names and values in turn, without those that speak of one connection only. */
function keptHeaders(raw: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [name = "", value = ""] = raw.slice(at, at + 2);
    if (!HOP_BY_HOP.has(name.toLowerCase())) kept.push(name, value);
  }
  return kept;
}
