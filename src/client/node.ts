/**
 * `hapax/client/node`: the client's transport on `node:http`. A request costs a fraction of what `fetch` costs.
 *
 *   - it rejects if and only if no answer came, with the signal's reason if that is why. A body that is cut
 *     rejects too; it never counts as a whole one;
 *   - a request is sent once. Reads follow redirects, as `fetch` does, and writes never;
 *   - bytes that the caller has not asked for stay in the socket, so that the server waits;
 *   - an answer that was read to its end, or is dropped and short, leaves its connection to the next request.
 */

import { joinBytes } from "../base/bytes.ts";
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from "node:http";
import { Agent as HttpsAgent, request as requestHttps } from "node:https";
import type { ClientAnswer, ClientRequest, Transport } from "./transport.ts";

/** As many redirects as `fetch` follows. */
const REDIRECTS_MAX = 20;
/** A dropped answer of at most this size is read to its end: a new connection costs more. */
const DRAIN_BYTES_MAX = 64 * 1024;

/** Options of `nodeTransport`. */
export interface NodeTransportOptions {
  /** Manages the connections. Default: an agent that keeps them open, and opens as many as there are requests. */
  readonly httpAgent?: HttpAgent;
  /** The same for `https:`. Set it, for example, to trust a certificate authority of your own. */
  readonly httpsAgent?: HttpsAgent;
}

/**
 * Creates a transport on `node:http`, which is faster than `fetch`. Pass the same one to all connections of a
 * process, so that they share sockets.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { nodeTransport } from "hapax/client/node";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const transport = nodeTransport();
 * const stream = connect(`${server.url}/v1/stream/orders`, { transport });
 * await stream.create();
 * await stream.append({ id: 1 });
 * console.assert((await stream.read().values()).length === 1);
 * await server.stop();
 * ```
 */
export function nodeTransport(options: NodeTransportOptions = {}): Transport {
  const httpAgent = options.httpAgent ?? new HttpAgent({ keepAlive: true });
  const httpsAgent = options.httpsAgent ?? new HttpsAgent({ keepAlive: true });
  const once = (request: ClientRequest, url: URL): Promise<IncomingMessage> => {
    if (url.protocol === "https:") return send(requestHttps, httpsAgent, request, url);
    return send(requestHttp, httpAgent, request, url);
  };
  return async (request) => {
    let url = new URL(request.url);
    let { headers } = request;
    for (let hops = 0; ; hops += 1) {
      const message = await once({ ...request, headers }, url);
      const next = redirectOf(request.method, url, message);
      if (next === undefined) return new NodeAnswer(message, request.method);
      drop(message, request.method);
      if (hops === REDIRECTS_MAX) throw new Error("too many redirects");
      // A token is meant for one server.
      if (next.origin !== url.origin) headers = withoutSecrets(headers);
      url = next;
    }
  };
}

function send(
  open: typeof requestHttp,
  agent: HttpAgent,
  { method, headers, body, signal }: ClientRequest,
  url: URL,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    if (url.username !== "" || url.password !== "") {
      throw new TypeError("a URL with a user and a password is not sent");
    }
    signal?.throwIfAborted();
    const isWrite = method === "POST" || method === "PUT" || method === "PATCH";
    const length = body !== undefined || isWrite ? { "Content-Length": body?.length ?? 0 } : {};
    const request = open(url, { agent, method, headers: { ...headers, ...length } });
    request.maxHeadersCount = 0; // Node would silently drop headers after the 1,000th.
    const onAbort = (): void => {
      // The reason may be any value; the caller gets it unchanged.
      request.destroy();
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort);
    request.once("close", () => {
      signal?.removeEventListener("abort", onAbort);
    });
    request.once("response", resolve);
    // The listener stays after the answer: the answer's body reports later failures.
    request.on("error", reject);
    request.end(body);
  });
}

function redirectOf(method: string, url: URL, message: IncomingMessage): URL | undefined {
  const { statusCode = 0, headers } = message;
  if (method !== "GET" && method !== "HEAD") return undefined;
  if (![301, 302, 303, 307, 308].includes(statusCode) || headers.location === undefined) {
    return undefined;
  }
  return new URL(headers.location, url);
}

function withoutSecrets(
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const secret = /^(authorization|proxy-authorization|cookie|host)$/i;
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !secret.test(name)));
}

function drop(message: IncomingMessage, method: string): void {
  const { statusCode = 0, headers } = message;
  const left = Number(headers["content-length"] ?? Infinity);
  const isShort = method === "HEAD" || statusCode === 204 || statusCode === 304;
  if (isShort || left <= DRAIN_BYTES_MAX) message.resume();
  else message.destroy();
}

class NodeAnswer implements ClientAnswer {
  readonly status: number;
  readonly #message: IncomingMessage;
  readonly #method: string;

  constructor(message: IncomingMessage, method: string) {
    this.status = message.statusCode ?? 0;
    this.#message = message;
    this.#method = method;
    // Without a listener, a cut that no caller awaits would end the process.
    message.on("error", () => undefined);
  }

  header(name: string): string | undefined {
    const value = this.#message.headers[name];
    return Array.isArray(value) ? value.join(", ") : value;
  }

  async bytes(): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.chunks()) pieces.push(piece);
    return joinBytes(pieces);
  }

  async *chunks(): AsyncGenerator<Uint8Array> {
    const message = this.#message;
    for await (const chunk of message as AsyncIterable<Buffer>) {
      // As a plain Uint8Array: methods of a Buffer with the same names do something else.
      yield new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    }
    if (!message.complete) throw new Error("the answer was cut");
  }

  discard(): void {
    drop(this.#message, this.#method);
  }
}
