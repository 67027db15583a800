/**
 * The server on Node: sockets, time limits, and a clean end. Plain appends go through the fast lane, all other
 * requests through `node:http`. Everything else is in server/.
 */

import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import { type AddressInfo, Server as NetServer, type Socket } from "node:net";
import { totalmem } from "node:os";
import { systemClock } from "../../base/clock.ts";
import { ERRORS, type ErrorCode, HapaxError, isHapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { systemRandom } from "../../base/random.ts";
import { type ServerAnswer, createServer, type HapaxServer } from "../server.ts";
import { ALWAYS_HEADERS } from "../server/policy.ts";
import { failureAnswer } from "../server/problem.ts";
import type { Reloaded } from "../server/reload.ts";
import type { ServerOptions } from "../server/options.ts";
import type { Store } from "../store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { encodeProblem, PROBLEM_TYPE } from "../../protocol/refusal.ts";
import { createNodeCourier } from "./node-courier.ts";
import { nodeDigest } from "./node-digest.ts";
import { connectionsFor, descriptorsMax } from "./node-descriptors.ts";
import { Connections, type HttpConnection } from "./node-connections.ts";
import { BodyBudget } from "./node-body-budget.ts";
import { NodeExchange, sendAnswer } from "./node-exchange.ts";
import { nodeGzip } from "./node-gzip.ts";
import { type Lane, openLane } from "./node-lane.ts";

export { filePosition } from "./node-position.ts";

/** Options of a server on Node. All but `store` are optional. */
export interface NodeServerOptions extends ServerOptions {
  /** Address to listen on. Default 127.0.0.1: only this machine. */
  readonly host?: string;
  /** Port to listen on. Default 4437. 0 takes any free port. */
  readonly port?: number;
  /**
   * Where streams are kept: `await openFileStore(directory)`, or `"memory"` for streams that end with the process. The
   * server closes it. There is no default, so that no data is lost by an omission.
   */
  readonly store: Store | "memory";
  /** Milliseconds to send the header block; also how long a new socket may send nothing. Default 10,000. */
  readonly headersTimeoutMs?: number;
  /** Milliseconds to send the whole request; at least `headersTimeoutMs`. Default 60,000. */
  readonly requestTimeoutMs?: number;
  /**
   * Lowest rate of a body in bytes a second, over 10 seconds. A slower body gets 408. Default 1,024; 0: no such
   * limit.
   */
  readonly bodyBytesPerSecondMin?: number;
  /** Milliseconds for which a socket may be idle between two requests. Default 65,000. */
  readonly keepAliveTimeoutMs?: number;
  /**
   * Most sockets at once. The server drops further ones. Default 20,000, or as many as the limit of open files
   * allows.
   */
  readonly connectionsMax?: number;
  /** Whether plain appends bypass `node:http`. Default true. False is for tests that compare the two. */
  readonly hasFastLane?: boolean;
  /** Called with one line for each administrative act, such as a producer's reset. Default: standard error. */
  readonly onAudit?: (line: string) => void;
  /** Called with bugs and broken parts. Default: standard error. */
  readonly onFault?: (error: unknown) => void;
}

/** A server that accepts requests until it is stopped. */
export interface NodeServer {
  readonly url: string;
  readonly durability: string;
  readonly server: HapaxServer;
  /** Puts new options in force without a restart, as far as that is safe. See `HapaxServer.reload`. */
  reload(options: ServerOptions): Reloaded;
  /** Takes no new requests, lets running ones finish, and closes the store. */
  stop(): Promise<void>;
}

/**
 * Starts a server and resolves when it accepts requests.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const answer = await fetch(`${server.url}/v1/stream/orders`, { method: "PUT" });
 * console.assert(answer.status === 201);
 * await server.stop();
 * ```
 */
export async function startNodeServer(options: NodeServerOptions): Promise<NodeServer> {
  const store = storeOf(options);
  const onFault = options.onFault ?? ((error: unknown) => console.error(error));
  const host = options.host ?? "127.0.0.1";
  let listeningUrl = "";
  const server = await createNodeCore(store, options, { host, onFault, url: () => listeningUrl });
  let http: Server;
  let lane: Lane | undefined;
  const connections = new Connections({ refuse: refuseSocket, end: endSocket });
  const budget = new BodyBudget(options.bodyBytesPerSecondMin);
  try {
    http = createListener(server, options, connections, budget, onFault);
    if (options.hasFastLane ?? true) lane = putLaneBefore(http, server, options, budget, onFault);
    await listen(http, options.port ?? 4437, host);
  } catch (error) {
    lane?.close();
    budget.close();
    await server.close();
    throw error;
  }
  listeningUrl = urlOf(http);
  const url = listeningUrl;
  return {
    url,
    durability: store.supports.durability,
    server,
    reload: (wanted) => server.reload(wanted),
    async stop() {
      await drain(http, server, connections, lane);
      budget.close();
      await server.close();
    },
  };
}

interface NodeCore {
  readonly host: string;
  readonly onFault: (error: unknown) => void;
  /** Where it listens, once it does. */
  readonly url: () => string;
}

/** The server without its sockets. The store belongs to it, so that options that are refused close the store. */
async function createNodeCore(
  store: Store,
  options: NodeServerOptions,
  { host, onFault, url }: NodeCore,
): Promise<HapaxServer> {
  const components = {
    store,
    clock: systemClock,
    random: systemRandom,
    // One batch contains all requests that arrived in one turn of the event loop.
    defer: setImmediate,
    courier: createNodeCourier({ allowLoopback: options.allowLoopbackWebhooks ?? true }),
    digest: nodeDigest,
    compress: nodeGzip,
    onAudit: options.onAudit ?? ((line: string) => console.error(`audit: ${line}`)),
    address: host,
    publicUrl: () => options.publicUrl ?? url(),
    onFault,
  };
  try {
    return createServer(components, options);
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** Also for callers without types: a server that forgets is one that was asked for. */
function storeOf({ store }: Partial<NodeServerOptions> = {}): Store {
  if (store === "memory") return openMemoryStore({ bytesMax: Math.floor(totalmem() / 2) });
  if (typeof store === "object") return store;
  const what = "startNodeServer needs a store";
  const how =
    'give await openFileStore(directory), or "memory" for streams that end with the process';
  throw new HapaxError("invalid_options", `${what}: ${how}`);
}

const ignore = (): void => undefined;

interface Asked {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly exchange: NodeExchange;
}

function createListener(
  server: HapaxServer,
  options: NodeServerOptions,
  connections: Connections,
  budget: BodyBudget,
  onFault: (error: unknown) => void,
): Server {
  const headersTimeout = options.headersTimeoutMs ?? LIMITS.headersTimeoutMs;
  const http = createHttpServer({
    maxHeaderSize: LIMITS.headerBytesMax,
    headersTimeout,
    requestTimeout: options.requestTimeoutMs ?? LIMITS.requestTimeoutMs,
    keepAliveTimeout: options.keepAliveTimeoutMs ?? LIMITS.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.min(1000, headersTimeout),
    // Node would refuse a missing Host without a problem document. The server refuses it with one.
    requireHostHeader: false,
    noDelay: true,
  });
  // Node silently drops the headers behind the 1,000th. The size of the block limits their number.
  http.maxHeadersCount = 0;
  // Node's types do not have this option: a client that has sent its last byte still gets its answers.
  Reflect.set(http, "httpAllowHalfOpen", true);
  http.maxConnections = options.connectionsMax ?? connectionsFor(descriptorsMax());
  const stallMs = server.options.readerStallMs;
  const answer = async (
    { request, response, exchange }: Asked,
    connection: HttpConnection | undefined,
  ): Promise<void> => {
    let ready: ServerAnswer;
    try {
      ready = await server.handle(exchange);
    } catch (error) {
      if (!isHapaxError(error)) onFault(error);
      ready = failureAnswer(error);
    }
    // Later requests need their answers too: only the last answer ends the connection.
    sendAnswer(request, response, ready, { isLast: connection?.isLast ?? true, stallMs });
  };
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    response.on("error", ignore); // The other side has gone; `close` follows.
    const exchange = new NodeExchange(request, response, budget, options.publicUrl);
    const connection = connections.of(request.socket);
    const run = (): void => {
      answer({ request, response, exchange }, connection).catch((error: unknown) => {
        onFault(error);
        response.destroy();
      });
    };
    connection?.begin({ request, response, run, abort: exchange.abort, fail: exchange.fail });
  };
  http.on("connection", (socket: Socket) => {
    connections.add(socket);
  });
  http.on("request", onRequest);
  http.on("checkExpectation", onRequest);
  http.on("connect", (_request, socket) => {
    connections.of(socket as Socket)?.refuse("method_not_allowed");
  });
  http.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    if (socket.destroyed || error.code === "ECONNRESET") socket.destroy();
    else connections.of(socket as Socket)?.refuse(socketCode(error.code));
  });
  return http;
}

/**
 * Gives new sockets to the lane. Sockets that the lane hands over go to Node's own listeners. Node
 * counts both kinds together.
 */
function putLaneBefore(
  http: Server,
  server: HapaxServer,
  options: NodeServerOptions,
  budget: BodyBudget,
  onFault: (error: unknown) => void,
): Lane {
  const adopters = http.listeners("connection");
  const lane = openLane({
    server,
    budget,
    options: {
      headersTimeoutMs: http.headersTimeout,
      requestTimeoutMs: http.requestTimeout,
      keepAliveTimeoutMs: http.keepAliveTimeout,
      stallMs: server.options.readerStallMs,
      publicUrl: options.publicUrl,
    },
    handOver(socket) {
      for (const adopt of adopters) Reflect.apply(adopt, http, [socket]);
    },
    refuse: refuseSocket,
    end: endSocket,
    onFault,
  });
  http.removeAllListeners("connection");
  http.on("connection", (socket: Socket) => {
    lane.add(socket);
  });
  return lane;
}

const ALWAYS = Object.entries(ALWAYS_HEADERS)
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join("");

/** Refuses a socket without a request: sends a problem document, then ends it. */
function refuseSocket(code: ErrorCode, socket: Socket): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const { status, title } = ERRORS[code];
  const detail = code === "invalid_request" ? "this is not HTTP/1.1 as we accept it" : title;
  const body = encodeProblem({ code, detail });
  const head =
    `HTTP/1.1 ${status} ${title}\r\nContent-Type: ${PROBLEM_TYPE}\r\n` +
    `${ALWAYS}Cache-Control: no-store\r\n` +
    `Content-Length: ${body.length}\r\nConnection: close\r\n\r\n`;
  endSocket(socket, Buffer.concat([Buffer.from(head), body]));
}

function endSocket(socket: Socket, last = Buffer.alloc(0)): void {
  socket.end(last);
  // Bytes that still arrive are dropped, but only for a moment: then the socket is destroyed.
  socket.resume();
  setTimeout(() => socket.destroy(), 1000).unref();
}

function socketCode(code: string | undefined): ErrorCode {
  if (code === "HPE_HEADER_OVERFLOW") return "headers_too_large";
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return "request_timeout";
  if (code === "HPE_CHUNK_EXTENSIONS_OVERFLOW") return "body_too_large";
  return "invalid_request";
}

function listen(http: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.listen({ port, host, backlog: 1024 }, () => {
      http.off("error", reject);
      resolve();
    });
  });
}

function urlOf(http: Server): string {
  const address = http.address();
  if (address === null || typeof address === "string") {
    throw new HapaxError("invalid_options", "the server does not listen on a port");
  }
  const { address: host, port, family } = address satisfies AddressInfo;
  return `http://${family === "IPv6" ? `[${host}]` : host}:${port}`;
}

async function drain(
  http: Server,
  server: HapaxServer,
  connections: Connections,
  lane: Lane | undefined,
): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    // This is the close of the socket server. That of http would cut answers that are not taken yet.
    NetServer.prototype.close.call(http, () => {
      resolve();
    });
  });
  server.drain();
  connections.drain();
  lane?.drain();
  const cut = setTimeout(() => {
    http.closeAllConnections();
    lane?.cut();
  }, LIMITS.drainMs);
  await closed;
  clearTimeout(cut);
  lane?.close();
  http.close(); // No connection is left to cut. This ends the checks of the time limits.
}
