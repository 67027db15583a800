/**
 * The server on Node: `startNodeServer` opens a port, and `stop` lets open requests end.
 *
 * Sockets, time limits, and a clean end. Plain appends go through the fast lane, all other requests through `node:http`. With a
 * certificate all of them go through `node:https`. Everything else is in server/.
 */

import { totalmem } from "node:os";
import { systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { withoutLastSlashes } from "../../protocol/slashes.ts";
import { createServer, type HapaxServer } from "../server.ts";
import type { Authorize } from "../access/identity.ts";
import type { Reloaded } from "../server/reload.ts";
import type { ServerOptions } from "../server/options.ts";
import { faultEntry, harmless } from "../server/log-entries.ts";
import type { AuditEntry, LogEntry } from "../log.ts";
import type { Store } from "../store.ts";
import type { Tracer } from "../tracer.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { BodyBudget } from "../server/body-budget.ts";
import { nodeComponents, type NodePlace } from "./node-components.ts";
import { listen, type Listening, openListener, listeningUrlOf } from "./node-listening.ts";
import { stderrLog } from "./node-log.ts";
import type { TlsFiles } from "./node-tls.ts";

export { filePosition } from "./node-position.ts";

/** Options of a server on Node. All but `store` are optional. */
export interface NodeServerOptions extends ServerOptions {
  /** Address to listen on. Default 127.0.0.1: only this machine. */
  readonly host?: string;
  /** Port to listen on. Default 4437. 0 takes any free port. */
  readonly port?: number;
  /**
   * Where streams are kept: `await openFileStore(directory)`, or `"memory"` for streams that end with the process. The
   * server closes it. There is no default, so that you cannot lose data because you forgot the option.
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
  /**
   * Files of a certificate and its key. The server then accepts only HTTPS, with TLS 1.2 or newer, and loads the files again
   * when they change. Default: none, clear text.
   */
  readonly tls?: TlsFiles;
  /**
   * Finds out who sends a request, and what they may do: a function of your own, or one of `hapax/server`. Default: there is no
   * authentication, every client may do everything, and the server listens on this machine only.
   */
  readonly authorize?: Authorize;
  /**
   * Whether plain appends use a faster path than `node:http`. Default true; with `tls` they never do. Set it to false only to
   * compare the two.
   */
  readonly hasFastLane?: boolean;
  /**
   * Takes everything that the server writes about itself: notes, faults, audit entries, and requests if `logRequests` asks for them.
   * What it throws is ignored. Default: lines on standard error, in words on a terminal and as JSON elsewhere, without audit
   * entries.
   */
  readonly log?: (entry: LogEntry) => void;
  /** Begins a span for each request and each webhook. Default: there are none. */
  readonly tracer?: Tracer;
  /** Called for each act that an operator must be able to find again, such as the deletion of a stream. Default: `log`. */
  readonly onAudit?: (entry: AuditEntry) => void;
  /** Called with one line about what happens in the background, such as a new certificate. Default: `log`. */
  readonly onNote?: (line: string) => void;
  /** Called with each error that is a bug or a failed part, such as a disk. Default: `log`. */
  readonly onFault?: (error: unknown) => void;
}

/** A server that accepts requests until it is stopped. */
export interface NodeServer {
  readonly url: string;
  readonly durability: string;
  readonly server: HapaxServer;
  /** Applies new options without a restart where that is safe. See `HapaxServer.reload`. */
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
export async function startNodeServer(given: NodeServerOptions): Promise<NodeServer> {
  const options = withPlainUrl(given);
  const store = storeOf(options);
  const log = harmless(options.log ?? stderrLog());
  const onFault = options.onFault ?? ((error: unknown) => log(faultEntry(error, Date.now())));
  const host = options.host ?? "127.0.0.1";
  let listeningUrl = "";
  const server = await createNodeCore(store, options, {
    host,
    log,
    onFault,
    url: () => listeningUrl,
  });
  const budget = new BodyBudget(
    options.bodyBytesPerSecondMin,
    systemClock,
    server.options.bodiesBytesMax,
  );
  let listening: Listening | undefined;
  try {
    listening = await openListener(server, { ...options, log }, budget, onFault);
    await listen(listening.http, options.port ?? 4437, host);
  } catch (error) {
    listening?.close();
    budget.close();
    await server.close();
    throw error;
  }
  const { http, stop, close } = listening;
  listeningUrl = listeningUrlOf(http, options.tls === undefined ? "http" : "https");
  return {
    url: listeningUrl,
    durability: store.supports.durability,
    server,
    reload: (wanted) => server.reload(wanted),
    async stop() {
      await stop();
      close();
      budget.close();
      await server.close();
    },
  };
}

/** The server without its sockets. The store belongs to it, so that options that are refused close the store. */
async function createNodeCore(
  store: Store,
  options: NodeServerOptions,
  place: NodePlace,
): Promise<HapaxServer> {
  try {
    return createServer({ ...nodeComponents(options, place), store }, options);
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** Paths are put behind the URL, and begin with a slash. */
function withPlainUrl(options: NodeServerOptions): NodeServerOptions {
  if (typeof options?.publicUrl !== "string") return options;
  return { ...options, publicUrl: withoutLastSlashes(options.publicUrl) };
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
