/**
 * HTTP/2 over TLS, on the same port as HTTP/1.1: sessions, their limits, and their end. The handlers are the same.
 *
 * Node and the nghttp2 inside it bound most of what a session can send: header blocks (`headerBytesMax`), CONTINUATION frames, answers to
 * PING and SETTINGS that the other side does not take, and streams that are reset as soon as they begin. They end the session
 * then. This file bounds the rest: concurrent requests, the time of a request, and the time of a session without any.
 * PROTOCOL.md §13.8.
 */

import {
  constants,
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { TLSSocket } from "node:tls";
import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { RequestServer } from "../server.ts";
import type { BodyBudget } from "../server/body-budget.ts";
import { certificateOf } from "./node-certificate.ts";
import { brokenBody, NodeExchange } from "./node-exchange.ts";
import { sendHttp2Answer } from "./node-http2-answer.ts";
import { Http2Request } from "./node-http2-request.ts";
import { namedFailure, serverAnswerOf, type ListenerOptions } from "./node-listener.ts";

const ignore = (): void => undefined;

const TOO_LARGE = new HapaxError(
  "headers_too_large",
  `the limit is ${LIMITS.headerBytesMax} bytes`,
);

/** Sizes are counted as in RFC 9113, 6.5.2. */
function isTooLarge(lines: readonly string[]): boolean {
  let bytes = 0;
  for (const part of lines) bytes += part.length + 16;
  return bytes > LIMITS.headerBytesMax;
}

/** How long the last bytes of a session may take. */
const LAST_MS = 1000;

export interface Http2Parts {
  readonly server: RequestServer;
  readonly budget: BodyBudget;
  readonly options: ListenerOptions;
  readonly onFault: (error: unknown) => void;
}

export class Http2Sessions {
  readonly #parts: Http2Parts;
  readonly #open = new Set<Http2Session>();
  #isDraining = false;
  // It does not listen: sockets come from the listener of HTTPS.
  readonly #http2 = createServer({
    settings: {
      maxConcurrentStreams: LIMITS.requestsPerConnectionMax,
      maxHeaderListSize: LIMITS.headerBytesMax,
    },
    // Each pair counts at least 32 bytes of the list, so the size bounds their number.
    maxHeaderListPairs: LIMITS.headerBytesMax / 32,
  });

  constructor(parts: Http2Parts) {
    this.#parts = parts;
  }

  /** Takes a socket whose client has chosen HTTP/2. */
  adopt(socket: TLSSocket): void {
    this.#http2.once("session", (session) => {
      const one = new Http2Session(session, socket, this.#parts);
      this.#open.add(one);
      session.once("close", () => this.#open.delete(one));
      if (this.#isDraining) one.drain();
    });
    this.#http2.emit("connection", socket); // It makes the session at once.
  }

  /** Ends all sessions, each after its last answer. */
  drain(): void {
    this.#isDraining = true;
    for (const session of this.#open) session.drain();
  }

  /** Ends all sessions now. */
  cut(): void {
    for (const session of this.#open) session.cut();
  }
}

class Http2Session {
  readonly #session: ServerHttp2Session;
  readonly #socket: TLSSocket;
  readonly #parts: Http2Parts;
  readonly #peer: string;
  #running = 0;
  #idle: NodeJS.Timeout;

  constructor(session: ServerHttp2Session, socket: TLSSocket, parts: Http2Parts) {
    this.#session = session;
    this.#socket = socket;
    this.#parts = parts;
    this.#peer = socket.remoteAddress ?? "";
    this.#idle = this.#endAfter(parts.options.headersTimeoutMs ?? LIMITS.headersTimeoutMs);
    session.on("error", ignore); // `close` follows.
    // The listener keeps sockets half open for HTTP/1.1. Here a client that sends no more has gone.
    socket.once("end", () => {
      this.cut();
    });
    session.on("stream", this.#onStream);
    session.once("close", () => {
      clearTimeout(this.#idle);
      socket.destroy();
    });
  }

  /** Sends GOAWAY: the other side begins no more requests, and those that run are answered. */
  drain(): void {
    this.#session.close();
  }

  cut(): void {
    this.#session.destroy();
    this.#socket.destroy();
  }

  #endAfter(delayMs: number): NodeJS.Timeout {
    // The time limit of a session is no use here: it starts anew with every PING.
    return setTimeout(() => {
      this.drain();
      setTimeout(() => {
        this.cut();
      }, LAST_MS).unref();
    }, delayMs).unref();
  }

  readonly #onStream = (
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    _flags: number,
    lines: string[],
  ): void => {
    const { server, budget, options, onFault } = this.#parts;
    this.#running += 1;
    clearTimeout(this.#idle);
    stream.on("error", ignore); // `close` follows.
    const certificate = certificateOf(this.#socket);
    const request = new Http2Request({ stream, headers, lines, peer: this.#peer, certificate });
    const exchange = new NodeExchange(request, budget, options.publicUrl);
    const late = setTimeout(() => {
      exchange.fail(brokenBody("request_timeout"));
    }, options.requestTimeoutMs ?? LIMITS.requestTimeoutMs).unref();
    stream.once("end", () => {
      clearTimeout(late);
    });
    stream.once("close", () => {
      clearTimeout(late);
      this.#running -= 1;
      if (this.#running > 0 || this.#session.closed) return;
      this.#idle = this.#endAfter(options.keepAliveTimeoutMs ?? LIMITS.keepAliveTimeoutMs);
    });
    // Bodies that no handler reads must not fill memory.
    if (request.method === "GET" || request.method === "HEAD") stream.resume();
    const target = { stream, socket: this.#socket, isHead: request.method === "HEAD" };
    // Node holds the limit once the client has seen it, and resets the stream then.
    const answer = isTooLarge(lines)
      ? namedFailure(server, TOO_LARGE)
      : serverAnswerOf(server, exchange, onFault);
    Promise.resolve(answer)
      .then((ready) => {
        sendHttp2Answer(target, ready, server.options.readerStallMs);
      })
      .catch((error: unknown) => {
        onFault(error);
        stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      });
  };
}
