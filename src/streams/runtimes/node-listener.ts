/** The listener of `node:http` or `node:https`: its limits, and its requests on their way to the handlers. */

import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { Socket } from "node:net";
import type { SecureContextOptions, TlsOptions } from "node:tls";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { Exchange, RequestServer, ServerAnswer, WholeAnswer } from "../server.ts";
import { FinishedAnswer } from "../server/finished-answer.ts";
import { ALWAYS_HEADERS } from "../server/policy.ts";
import { failureAnswer, isRefusal } from "../server/problem.ts";
import type { BodyBudget } from "../server/body-budget.ts";
import type { Connections, HttpConnection } from "./node-connections.ts";
import { connectionsFor, descriptorsMax } from "./node-descriptors.ts";
import { Http1Request, NodeExchange, sendAnswer } from "./node-exchange.ts";
import { socketCode } from "./node-refusals.ts";

const ignore = (): void => undefined;

/** Options of the listener, as `NodeServerOptions` has them. */
export interface ListenerOptions {
  readonly headersTimeoutMs?: number;
  readonly requestTimeoutMs?: number;
  readonly keepAliveTimeoutMs?: number;
  readonly connectionsMax?: number;
  readonly publicUrl?: string;
}

export interface ListenerParts {
  readonly server: RequestServer;
  readonly connections: Connections;
  readonly budget: BodyBudget;
  readonly onFault: (error: unknown) => void;
  /** Undefined: in clear text. */
  readonly secure: SecureContextOptions | undefined;
  /** The most bytes of a head. Default: what clients may send. */
  readonly headBytesMax?: number;
}

interface Asked {
  readonly node: Http1Request;
  readonly exchange: NodeExchange;
}

export function createListener(options: ListenerOptions, parts: ListenerParts): Server {
  const { server, connections, budget, onFault, secure } = parts;
  const http = createHttp(options, parts);
  const stallMs = server.options.readerStallMs;
  const answer = async (
    { node, exchange }: Asked,
    connection: HttpConnection | undefined,
  ): Promise<void> => {
    const ready = await serverAnswerOf(server, exchange, onFault);
    // Later requests need their answers too: only the last answer ends the connection. What comes after a body that was not asked
    // for could be that body or the next request.
    const isLast = node.isBodyUnclear || (connection?.isLast ?? true);
    sendAnswer(node.incoming, node.outgoing, ready, { isLast, stallMs });
  };
  const begin = (request: IncomingMessage, response: ServerResponse, isAwaited: boolean): void => {
    response.on("error", ignore); // The other side has gone; `close` follows.
    const node = new Http1Request(request, response, isAwaited);
    const exchange = new NodeExchange(node, budget, options.publicUrl);
    const connection = connections.of(request.socket);
    const run = (): void => {
      answer({ node, exchange }, connection).catch((error: unknown) => {
        onFault(error);
        response.destroy();
      });
    };
    connection?.begin({ request, response, run, abort: exchange.abort, fail: exchange.fail });
  };
  http.on(secure === undefined ? "connection" : "secureConnection", (socket: Socket) => {
    connections.add(socket);
  });
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    begin(request, response, false);
  };
  http.on("request", onRequest);
  http.on("checkExpectation", onRequest);
  // The client waits with its body: a request that is refused by its head never sends it.
  http.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    begin(request, response, true);
  });
  http.on("connect", (_request, socket) => {
    connections.of(socket as Socket)?.refuse("method_not_allowed");
  });
  http.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const connection = connections.of(socket as Socket);
    // A socket whose handshake failed is no connection yet, and cannot be answered.
    if (socket.destroyed || error.code === "ECONNRESET" || connection === undefined) {
      socket.destroy();
    } else {
      connection.refuse(socketCode(error.code));
    }
  });
  return http;
}

/** The answer to a request, also if the server fails. */
export async function serverAnswerOf(
  server: RequestServer,
  exchange: Exchange,
  onFault: (error: unknown) => void,
): Promise<ServerAnswer> {
  try {
    return await server.handle(exchange);
  } catch (error) {
    if (!isRefusal(error)) onFault(error);
    return namedFailure(server, error);
  }
}

/** An answer that no handler has made. It has a name all the same. */
export function namedFailure(
  server: Pick<RequestServer, "nextRequestId">,
  error: unknown,
): WholeAnswer {
  return new FinishedAnswer(failureAnswer(error), ALWAYS_HEADERS, server.nextRequestId());
}

function createHttp(
  options: ListenerOptions,
  { secure, headBytesMax = LIMITS.headerBytesMax }: ListenerParts,
): Server {
  const headersTimeout = options.headersTimeoutMs ?? LIMITS.headersTimeoutMs;
  const limits = {
    maxHeaderSize: headBytesMax,
    headersTimeout,
    requestTimeout: options.requestTimeoutMs ?? LIMITS.requestTimeoutMs,
    keepAliveTimeout: options.keepAliveTimeoutMs ?? LIMITS.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.min(1000, headersTimeout),
    // Node would refuse a missing Host without a problem document. The server refuses it with one.
    requireHostHeader: false,
    noDelay: true,
  };
  const http =
    secure === undefined
      ? createHttpServer(limits)
      : createHttpsServer({ ...limits, ...handshakeOptions(secure, headersTimeout) });
  // Node silently drops the headers behind the 1,000th. The size of the block limits their number.
  http.maxHeadersCount = 0;
  // Node's types do not have this option: a client that has sent its last byte still gets its answers.
  Reflect.set(http, "httpAllowHalfOpen", true);
  http.maxConnections = options.connectionsMax ?? connectionsFor(descriptorsMax());
  return http;
}

function handshakeOptions(
  secure: SecureContextOptions,
  handshakeTimeout: number,
): HandshakeOptions {
  // A client without a certificate of these authorities is refused within the handshake.
  const isClientNeeded = secure.ca !== undefined;
  return {
    ...secure,
    handshakeTimeout,
    requestCert: isClientNeeded,
    rejectUnauthorized: isClientNeeded,
    ALPNProtocols: ["h2", "http/1.1"],
    allowHalfOpen: true, // As `node:http` sets it by itself.
  };
}

type HandshakeOptions = TlsOptions & { readonly allowHalfOpen: true };
