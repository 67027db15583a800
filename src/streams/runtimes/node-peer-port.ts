/** The port that other nodes of a cluster send requests to. It is no port for clients: who has the key may say who a client is. */

import {
  createServer as createTlsServer,
  type Server as TlsServer,
  type TLSSocket,
} from "node:tls";
import { systemClock } from "../../base/clock.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { PEER, PEER_LOOK_PATH, PEER_WATCH_PATH } from "../../protocol/cluster.ts";
import type { ClientCertificate } from "../access/identity.ts";
import { KeptExchange } from "../cluster/kept-exchange.ts";
import type { ClusterServer } from "../cluster/cluster-server.ts";
import type { ShardId } from "../core/placement.ts";
import { BodyBudget } from "../server/body-budget.ts";
import type { Exchange, LiveSink, ServerAnswer } from "../server/exchange.ts";
import type { RequestServer } from "../server.ts";
import { Connections } from "./node-connections.ts";
import { Handshakes } from "./node-handshakes.ts";
import { createListener } from "./node-listener.ts";
import { FRAMES_PROTOCOL } from "./node-peer-frames.ts";
import { TakenFrames } from "./node-peer-frames-taken.ts";
import { KEEP_ALIVE_MS, PEER_IDENTITY, PEER_TLS } from "./node-peer-tls.ts";
import { addressOf } from "./node-peers.ts";
import { endSocket, refuseSocket } from "./node-refusals.ts";

const HANDSHAKE_MS = 5000;
/** Strangers may connect. A node ends its handshake within a few milliseconds, so the oldest ones are theirs. */
const HANDSHAKES_MAX = 256;
/** What a client may send, and what its node says of it: a certificate may have hundreds of names. */
const HEAD_BYTES_MAX = LIMITS.headerBytesMax + 256 * 1024;

export interface PeerPort {
  /** The port that was taken, for an address with port 0. */
  readonly port: number;
  /** Ends connections after their last answer. */
  close(): Promise<void>;
}

export interface PeerPortParts {
  /** `host:port` to listen on. */
  readonly listen: string;
  readonly key: Buffer;
  readonly look: () => void;
  /** Called when another node has lost its connection to this one. */
  readonly doubt: () => void;
  readonly onFault: (error: unknown) => void;
}

/** Opens the port. */
export async function openPeerPort(server: ClusterServer, parts: PeerPortParts): Promise<PeerPort> {
  const { key, onFault } = parts;
  const peerServer: RequestServer = {
    options: server.options,
    isDraining: false,
    nextRequestId: () => server.nextRequestId(),
    drain: () => undefined,
    handle: (exchange) => {
      if (exchange.path === PEER_WATCH_PATH) return Promise.resolve(watched.answer());
      return answerPeer(exchange, server, parts.look);
    },
  };
  const watched = new Watched(parts.doubt);
  const connections = new Connections({
    refuse: (code, socket) => refuseSocket(code, socket, server.nextRequestId()),
    end: endSocket,
  });
  const budget = new BodyBudget(0, systemClock, PEER_BODIES_BYTES_MAX);
  const listenerParts = { server: peerServer, connections, budget, onFault };
  const http = createListener(
    {},
    { ...listenerParts, secure: undefined, headBytesMax: HEAD_BYTES_MAX },
  );
  const frames = new TakenFrames({
    handle: (shard, exchange) => server.handlePeer(shard, exchange),
    onFault,
  });
  const { tls, open, handshakes } = createPeerTls(key, (socket) => {
    if (socket.alpnProtocol === FRAMES_PROTOCOL) frames.add(socket);
    else http.emit("connection", socket);
  });
  const port = await listen(tls, parts.listen);
  return {
    port,
    async close() {
      const closed = new Promise<void>((resolve) => {
        tls.close(() => resolve());
      });
      watched.end();
      frames.leave();
      connections.drain();
      handshakes.drain();
      const cut = setTimeout(() => {
        for (const socket of open) socket.destroy();
      }, CLOSE_MS);
      await closed;
      clearTimeout(cut);
      budget.close();
      http.close();
    },
  };
}

interface PeerTls {
  readonly tls: TlsServer;
  /** The connections of other nodes. */
  readonly open: ReadonlySet<TLSSocket>;
  readonly handshakes: Handshakes;
}

/** Makes the server that only nodes with the key get through. */
function createPeerTls(key: Buffer, onSocket: (socket: TLSSocket) => void): PeerTls {
  const tls = createTlsServer(
    {
      ...PEER_TLS,
      ALPNProtocols: [FRAMES_PROTOCOL, "http/1.1"],
      handshakeTimeout: HANDSHAKE_MS,
      pskCallback: (_socket, identity) => (identity === PEER_IDENTITY ? key : null),
    },
    (socket) => {
      socket.setNoDelay(true);
      socket.setKeepAlive(true, KEEP_ALIVE_MS);
      onSocket(socket);
    },
  );
  const open = new Set<TLSSocket>();
  tls.on("secureConnection", (socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  const handshakes = new Handshakes(tls, HANDSHAKES_MAX);
  // Strangers, and nodes with another key. Node leaves such a socket to the listener of this event.
  tls.on("tlsClientError", (_error, socket) => {
    socket.destroy();
  });
  return { tls, open, handshakes };
}

/** Answers that other nodes keep open, to see when this process ends. */
class Watched {
  readonly #doubt: () => void;
  readonly #sinks = new Set<LiveSink>();

  constructor(doubt: () => void) {
    this.#doubt = doubt;
  }

  answer(): ServerAnswer {
    const live = (sink: LiveSink): void => {
      this.#sinks.add(sink);
      sink.onClose(() => {
        if (this.#sinks.delete(sink)) this.#doubt();
      });
    };
    return { status: 200, headers: {}, live };
  }

  /** Ends them with a word: this node stops in order. */
  end(): void {
    const sinks = [...this.#sinks];
    this.#sinks.clear();
    for (const sink of sinks) sink.end();
  }
}

/** Bodies of all nodes together. Each of them has counted its own already. */
const PEER_BODIES_BYTES_MAX = 1024 * 1024 * 1024;
const CLOSE_MS = 2000;

async function answerPeer(
  exchange: Exchange,
  server: ClusterServer,
  look: () => void,
): Promise<ServerAnswer> {
  if (exchange.path === PEER_LOOK_PATH) {
    look();
    return { status: 204, headers: {} };
  }
  const shard = exchange.header(PEER.shard) ?? "";
  if (!/^\d{1,3}$/.test(shard)) return elsewhere("moved");
  const answer = await server.handlePeer(Number(shard) as ShardId, new PeerExchange(exchange));
  return typeof answer === "string" ? elsewhere(answer) : answer;
}

function elsewhere(how: "moved" | "lost"): ServerAnswer {
  return { status: 503, headers: { [PEER.moved]: how } };
}

/** A request as the client sent it: what only the first node has seen comes in headers, which no client can send. */
class PeerExchange extends KeptExchange {
  readonly #inner: Exchange;

  constructor(inner: Exchange) {
    super(inner);
    this.#inner = inner;
  }

  override get peer(): string {
    return this.#inner.header(PEER.address) ?? "";
  }

  override get baseUrl(): string {
    return this.#inner.header(PEER.baseUrl) ?? this.#inner.baseUrl;
  }

  override get certificate(): ClientCertificate | undefined {
    const sent = this.#inner.header(PEER.certificate);
    return sent === undefined
      ? undefined
      : (JSON.parse(decodeURIComponent(sent)) as ClientCertificate);
  }
}

function listen(tls: ReturnType<typeof createTlsServer>, at: string): Promise<number> {
  const { host, port } = addressOf(at);
  return new Promise((resolve, reject) => {
    tls.once("error", reject);
    tls.listen({ host, port }, () => {
      tls.off("error", reject);
      const address = tls.address();
      resolve(typeof address === "object" && address !== null ? address.port : port);
    });
  });
}
