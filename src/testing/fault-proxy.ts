/**
 * An unreliable network, as a proxy before a server. By a seed it loses, cuts, delays, reorders and repeats requests,
 * loses, cuts and delays answers, makes connections silent, and answers in place of the server.
 *
 *   - what happens to the n-th request depends only on the seed and on n, unless the test chooses it;
 *   - the server never acts on a request that was dropped, cut, silenced or refused; it has answered a request
 *     whose answer was;
 *   - an unharmed message arrives as it was sent, both ways;
 *   - a silenced connection stays open, and nothing more comes on it;
 *   - a duplicated request arrives twice, and its client gets one answer;
 *   - a reordered request arrives after the server has answered a later one, if one comes in time.
 *
 * A dropped client loses its connection, and all answers that were still to come on it. A request that the proxy
 * holds back arrives also if the client has given up meanwhile.
 */

import {
  Agent,
  createServer,
  type IncomingMessage,
  request as sendRequest,
  type ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import {
  checkShares,
  COUNTED,
  drawFate,
  type FaultCounts,
  type FaultProxyOptions,
  type MadeUpAnswer,
  noCounts,
  type ProxyFate,
} from "./fault-proxy-fate.ts";
import { endToEndHeaders, makeUp, passPart, sendPart } from "./fault-proxy-parts.ts";

export type {
  FaultCounts,
  FaultProxyOptions,
  FaultShares,
  ProxiedRequest,
  ProxyFate,
} from "./fault-proxy-fate.ts";

/** A proxy that drops, delays, cuts and repeats requests and answers. See `openFaultProxy`. */
export interface FaultProxy {
  /** The URL that the client uses instead of the server's. */
  readonly url: string;
  /** Number of requests so far. */
  readonly requests: number;
  readonly droppedRequests: number;
  readonly droppedAnswers: number;
  readonly delayedRequests: number;
  readonly counts: FaultCounts;
  /** Makes no more faults from now on. Connections that were silenced stay silent. */
  heal(): void;
  /** Sends all held requests at once. Resolves when the server has answered everything that was sent to it. */
  drain(): Promise<void>;
  /** Cuts all connections and takes no new ones. Held requests never arrive. */
  close(): Promise<void>;
}

const REFUSAL: MadeUpAnswer = { status: 503 };

/**
 * Opens a proxy before the server at `target`. Pass a function if the address changes.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { openFaultProxy } from "hapax/testing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const proxy = await openFaultProxy(server.url, { seed: 1, dropAnswers: 1 });
 * const path = "/v1/stream/orders";
 * const lost = await fetch(proxy.url + path, { method: "PUT" }).catch(() => "no answer");
 * console.assert(lost === "no answer" && proxy.droppedAnswers >= 1);
 * // The server had answered all the same: the stream is there.
 * console.assert((await fetch(server.url + path, { method: "HEAD" })).status === 200);
 * await proxy.close();
 * await server.stop();
 * ```
 *
 * All kinds of faults together; `fateOf` chooses what happens to a single request.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 * import { openFaultProxy } from "hapax/testing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const proxy = await openFaultProxy(server.url, {
 *   seed: 7,
 *   dropAnswers: 0.1,
 *   cutRequests: 0.05,
 *   silenceAnswers: 0.05,
 *   refuseAnswers: 0.1,
 *   duplicateRequests: 0.2,
 *   reorderRequests: 0.2,
 *   fateOf: ({ number }) =>
 *     number === 3 ? { harm: "refuseRequests", refusal: { status: 429, retryAfter: "0" } } : undefined,
 * });
 * const options = { timeoutMs: 200, retry: { pauseMs: 1, pauseMsMax: 10 } };
 * const stream = connect(`${proxy.url}/v1/stream/orders`, options);
 * await stream.create();
 * const producer = stream.producer({ batchRecordsMax: 2 });
 * for (let id = 0; id < 20; id += 1) producer.append(id);
 * await producer.flush();
 *
 * await proxy.drain();
 * const records: unknown[] = [];
 * for await (const { value } of connect(`${server.url}/v1/stream/orders`).read()) records.push(value);
 * console.assert(records.length === 20 && records.every((id, at) => id === at));
 * console.assert(proxy.counts.refusedRequests === 1);
 * await proxy.close();
 * await server.stop();
 * ```
 */
export async function openFaultProxy(
  target: string | (() => string | Promise<string>),
  options: FaultProxyOptions,
): Promise<FaultProxy> {
  checkShares(options);
  const proxy = new LossyProxy(typeof target === "string" ? () => target : target, options);
  await proxy.listen();
  return proxy;
}

/** A request that has arrived completely at the proxy. */
interface Passing {
  readonly number: number;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: Buffer;
  readonly fate: ProxyFate;
}

/** A request or answer that waits until its time, or until an earlier release. */
interface Hold {
  /** The request that waits to be overtaken. */
  readonly overtaken: number | undefined;
  readonly release: () => void;
}

class LossyProxy implements FaultProxy {
  readonly #target: () => string | Promise<string>;
  readonly #options: FaultProxyOptions;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #holds = new Set<Hold>();
  readonly #silent = new WeakSet<Socket>();
  readonly #underWay = new Set<Promise<void>>();
  readonly #server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
    this.#take(request, response);
  });
  readonly counts = noCounts();
  requests = 0;
  #isHealed = false;
  #isDraining = false;
  #isClosed = false;

  constructor(target: () => string | Promise<string>, options: FaultProxyOptions) {
    this.#target = target;
    this.#options = options;
    this.#server.maxHeadersCount = 0; // Node would silently drop those behind the 1,000th.
    this.#server.on("clientError", (_error, socket) => {
      socket.destroy();
    });
  }

  get url(): string {
    // A server that listens on a port has an address of this kind.
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}`;
  }

  get droppedRequests(): number {
    return this.counts.droppedRequests;
  }

  get droppedAnswers(): number {
    return this.counts.droppedAnswers;
  }

  get delayedRequests(): number {
    return this.counts.delayedRequests;
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

  async drain(): Promise<void> {
    this.#isDraining = true;
    this.#releaseAll();
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
    this.#isDraining = false;
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#releaseAll();
    this.#agent.destroy();
    return new Promise((resolve) => {
      this.#server.close(() => {
        resolve();
      });
      this.#server.closeAllConnections();
    });
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    // The client may go at any time. What it has sent may still arrive.
    request.on("error", () => undefined);
    response.on("error", () => undefined);
    if (this.#silent.has(request.socket)) {
      request.resume();
      return;
    }
    this.requests += 1;
    const number = this.requests;
    const fate = this.#fateOf(request, number);
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const passing = { number, request, response, body: Buffer.concat(pieces), fate };
      this.#track(this.#carry(passing));
    });
  }

  #fateOf(
    { method = "GET", url: path = "/", headers }: IncomingMessage,
    number: number,
  ): ProxyFate {
    if (this.#isHealed) return {};
    const chosen = this.#options.fateOf?.({ number, method, path, headers });
    return chosen ?? drawFate(this.#options, number);
  }

  /** Carries a request to the server, with the harms on that way. */
  async #carry(passing: Passing): Promise<void> {
    const { number, request, response, body, fate } = passing;
    const { harm, delayMs = 0, overtakenMsMax } = fate;
    if (delayMs > 0) {
      this.counts.delayedRequests += 1;
      await this.#hold(delayMs);
    }
    if (overtakenMsMax !== undefined) {
      this.counts.reorderedRequests += 1;
      await this.#hold(overtakenMsMax, number);
    }
    if (harm?.endsWith("Requests") === true) this.counts[COUNTED[harm]] += 1;
    if (harm === "dropRequests") request.socket.destroy();
    else if (harm === "silenceRequests") this.#silent.add(request.socket);
    else if (harm === "refuseRequests") makeUp(response, fate.refusal ?? REFUSAL);
    else {
      const target = await this.#targetUrl();
      if (this.#isClosed) return;
      if (target === undefined) request.socket.destroy();
      else if (harm !== "cutRequests") await this.#passOn(target, passing);
      else {
        await sendPart(target, request, body, fate.passedShare ?? 0.5);
        request.socket.destroy();
      }
    }
  }

  async #targetUrl(): Promise<URL | undefined> {
    try {
      return new URL(await this.#target());
    } catch {
      return undefined;
    }
  }

  async #passOn(target: URL, passing: Passing): Promise<void> {
    const { copyAfterMs, hearsCopy = false } = passing.fate;
    if (copyAfterMs === undefined || passing.request.method === "GET") {
      await this.#send(target, passing, true);
      return;
    }
    this.counts.duplicatedRequests += 1;
    const first = this.#send(target, passing, !hearsCopy);
    await this.#hold(copyAfterMs);
    if (!this.#isClosed) await this.#send(target, passing, hearsCopy);
    await first;
  }

  /** Sends one request to the server. Resolves when its answer has ended, or can no longer come. */
  #send(target: URL, passing: Passing, isHeard: boolean): Promise<void> {
    const { request, response, body, number } = passing;
    const sent = sendRequest({
      method: request.method,
      path: request.url,
      hostname: target.hostname,
      port: target.port,
      headers: endToEndHeaders(request.rawHeaders),
      agent: this.#agent,
    });
    return new Promise((resolve) => {
      sent.once("close", resolve);
      sent.on("error", () => {
        if (isHeard) request.socket.destroy();
      });
      sent.on("response", (answer) => {
        answer.on("error", () => {
          if (isHeard) request.socket.destroy();
        });
        this.#releaseOvertaken(number);
        if (isHeard) this.#track(this.#answer(passing, answer));
        else answer.resume();
      });
      // If a client goes, the server sees that too, unless the server must answer first.
      const mayEnd = isHeard && (passing.fate.harm === undefined || request.method === "GET");
      response.once("close", () => {
        if (mayEnd && !response.writableFinished) sent.destroy();
      });
      sent.end(body);
    });
  }

  /** Carries an answer to the client, with the harms on that way. */
  async #answer({ request, response, fate }: Passing, answer: IncomingMessage): Promise<void> {
    const { harm, answerDelayMs = 0 } = fate;
    if (answerDelayMs > 0) {
      this.counts.delayedAnswers += 1;
      await this.#hold(answerDelayMs);
    }
    if (harm !== undefined) this.counts[COUNTED[harm]] += 1;
    if (harm === "cutAnswers") {
      passPart(answer, response, fate.passedShare ?? 0.5);
    } else if (harm === undefined) {
      const { statusCode = 502, statusMessage, rawHeaders } = answer;
      response.writeHead(statusCode, statusMessage, endToEndHeaders(rawHeaders));
      answer.pipe(response);
    } else {
      answer.resume();
      if (harm === "silenceAnswers") this.#silent.add(request.socket);
      else if (harm === "refuseAnswers") makeUp(response, fate.refusal ?? REFUSAL);
      else request.socket.destroy();
    }
  }

  /**
   * Resolves after the delay, or when a request after `overtaken` was answered, or when the proxy lets everything go.
   */
  #hold(delayMs: number, overtaken?: number): Promise<void> {
    if (this.#isDraining || this.#isClosed) return Promise.resolve();
    return new Promise((resolve) => {
      const release = (): void => {
        clearTimeout(timer);
        this.#holds.delete(hold);
        resolve();
      };
      const hold: Hold = { overtaken, release };
      const timer = setTimeout(release, delayMs);
      this.#holds.add(hold);
    });
  }

  #releaseOvertaken(number: number): void {
    for (const { overtaken = Infinity, release } of [...this.#holds]) {
      if (overtaken < number) release();
    }
  }

  #releaseAll(): void {
    for (const { release } of [...this.#holds]) release();
  }

  #track(work: Promise<void>): void {
    this.#underWay.add(work);
    void work.finally(() => this.#underWay.delete(work));
  }
}
