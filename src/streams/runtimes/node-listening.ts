/** The listener of a server on Node: its sockets, the fast lane before it, TLS, and its clean end. */

import type { Server } from "node:http";
import type { Server as HttpsServer } from "node:https";
import { type AddressInfo, Server as NetServer, type Socket } from "node:net";
import type { SecureContextOptions, TLSSocket } from "node:tls";
import { type ErrorCode, HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { RequestServer } from "../server.ts";
import { noteEntry } from "../server/log-entries.ts";
import type { Log } from "../log.ts";
import { Connections } from "./node-connections.ts";
import type { BodyBudget } from "../server/body-budget.ts";
import { type Lane, openLane } from "./node-lane.ts";
import { createListener, type ListenerOptions } from "./node-listener.ts";
import { Handshakes } from "./node-handshakes.ts";
import { Http2Sessions } from "./node-http2.ts";
import { endSocket, refuseSocket } from "./node-refusals.ts";
import { loadTls, stateOf, type TlsFiles, watchTls } from "./node-tls.ts";

/** Options of the listener, as `NodeServerOptions` has them. */
export interface ListeningOptions extends ListenerOptions {
  readonly tls?: TlsFiles;
  readonly hasFastLane?: boolean;
  readonly log?: Log;
  readonly onNote?: (line: string) => void;
}

/** A listener with all that belongs to it. */
export interface Listening {
  readonly http: Server;
  /** Takes no new requests, and resolves when all connections have ended. */
  readonly stop: () => Promise<void>;
  /** Ends what runs beside the connections. */
  readonly close: () => void;
}

export async function openListener(
  server: RequestServer,
  options: ListeningOptions,
  budget: BodyBudget,
  onFault: (error: unknown) => void,
): Promise<Listening> {
  const connections = new Connections({ refuse: refusalOf(server), end: endSocket });
  const parts = { server, connections, budget, onFault };
  const { tls } = options;
  if (tls === undefined) {
    const http = createListener(options, { ...parts, secure: undefined });
    const hasLane = options.hasFastLane ?? true;
    const lane = hasLane ? putLaneBefore(http, server, options, budget, onFault) : undefined;
    const stop = (): Promise<void> => drain(http, server, connections, lane);
    return { http, stop, close: () => lane?.close() };
  }
  const { log } = options;
  const onNote = options.onNote ?? ((line: string) => log?.(noteEntry(line, Date.now())));
  const state = await stateOf(tls);
  const { context, notes } = await loadTls(tls);
  for (const note of notes) onNote(`tls: ${note}`);
  const http = createListener(options, { ...parts, secure: context });
  const sessions = new Http2Sessions({ server, budget, options, onFault });
  giveSessions(http, sessions);
  const handshakes = new Handshakes(http);
  const use = (next: SecureContextOptions): void => {
    // Node's types of `node:https` and `node:http` are one, and only the first has this.
    (http as HttpsServer).setSecureContext(next);
  };
  const reload = watchTls(tls, state, { use, onNote, onFault });
  const others = {
    drain(): void {
      sessions.drain();
      handshakes.drain();
    },
    cut(): void {
      sessions.cut();
      handshakes.cut();
    },
  };
  const stop = (): Promise<void> => drain(http, server, connections, others);
  return { http, stop, close: () => reload.close() };
}

/** Gives sockets whose client has chosen HTTP/2 to the sessions, and all others to Node's own listeners. */
function giveSessions(http: Server, sessions: Http2Sessions): void {
  const adopters = http.listeners("secureConnection");
  http.removeAllListeners("secureConnection");
  http.on("secureConnection", (socket: TLSSocket) => {
    if (socket.alpnProtocol === "h2") sessions.adopt(socket);
    else for (const adopt of adopters) Reflect.apply(adopt, http, [socket]);
  });
}

/**
 * Gives new sockets to the lane. Sockets that the lane hands over go to Node's own listeners. Node
 * counts both kinds together.
 */
function putLaneBefore(
  http: Server,
  server: RequestServer,
  options: ListeningOptions,
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
    refuse: refusalOf(server),
    end: endSocket,
    onFault,
  });
  http.removeAllListeners("connection");
  http.on("connection", (socket: Socket) => {
    lane.add(socket);
  });
  return lane;
}

function refusalOf(server: RequestServer): (code: ErrorCode, socket: Socket) => void {
  return (code, socket) => {
    refuseSocket(code, socket, server.nextRequestId());
  };
}

export function listen(http: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.listen({ port, host, backlog: 1024 }, () => {
      http.off("error", reject);
      resolve();
    });
  });
}

export function listeningUrlOf(http: Server, scheme: "http" | "https"): string {
  const address = http.address();
  if (address === null || typeof address === "string") {
    throw new HapaxError("invalid_options", "the server does not listen on a port");
  }
  const { address: host, port, family } = address satisfies AddressInfo;
  return `${scheme}://${family === "IPv6" ? `[${host}]` : host}:${port}`;
}

export async function drain(
  http: Server,
  server: RequestServer,
  connections: Connections,
  others: Pick<Lane, "drain" | "cut"> | undefined,
): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    // This is the close of the socket server. That of http would cut answers that are not taken yet.
    NetServer.prototype.close.call(http, () => {
      resolve();
    });
  });
  server.drain();
  connections.drain();
  others?.drain();
  const cut = setTimeout(() => {
    http.closeAllConnections();
    others?.cut();
  }, LIMITS.drainMs);
  await closed;
  clearTimeout(cut);
  http.close(); // No connection is left to cut. This ends the checks of the time limits.
}
