/** The parts of a server on `fetch`, and how a request passes through them. */

import { type Clock, systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { systemRandom } from "../../base/random.ts";
import { LIMITS, SMALL_LIMITS } from "../../protocol/limits.ts";
import { withoutLastSlashes } from "../../protocol/slashes.ts";
import type { Authorize } from "../access/identity.ts";
import type { Courier } from "../courier.ts";
import type { AuditEntry, LogEntry } from "../log.ts";
import { BodyBudget } from "../server/body-budget.ts";
import type { LoadDashboard } from "../server/dashboard.ts";
import { composeServer, type HapaxServer, type ServerComponents } from "../server/compose.ts";
import type { Decompress } from "../server/decoding.ts";
import { faultEntry } from "../server/log-entries.ts";
import type { ServerOptions } from "../server/options.ts";
import type { DecideReload } from "../server/reload.ts";
import type { ServerPart } from "../server/server-part.ts";
import type { Store } from "../store.ts";
import type { Tracer } from "../tracer.ts";
import { fetchResponse } from "./fetch-answer.ts";
import { FetchExchange } from "./fetch-exchange.ts";

/**
 * Options of a server on `fetch`. All but `store` are optional. The defaults fit platforms with 128 MB of memory: `bodyBytesMax`
 * 4 MiB, `bodiesBytesMax` and `pendingBytesMax` 8 MiB, `heldBytesMax` 4 MiB, `answersBytesMax` and `outcomeBytesMax` 16 MiB.
 */
export interface FetchServerOptions extends ServerOptions {
  /** Where streams are kept, or `"memory"` for streams that end with the process. The server closes it. */
  readonly store: Store | "memory";
  /**
   * The address that the platform listens on, if it is one of this machine, such as `127.0.0.1`. Default: the platform is reached
   * from everywhere, so the server needs `authorize`, or the option `insecurePublic`.
   */
  readonly address?: string;
  /** Finds out who sends a request, and what they may do. Default: there is no authentication. */
  readonly authorize?: Authorize;
  /** Sends webhooks, such as `fetchCourier()`. It needs `publicUrl`. Default: none, and no webhook is sent. */
  readonly courier?: Courier;
  /** Takes everything that the server writes about itself. Default: faults go to `console.error`. */
  readonly log?: (entry: LogEntry) => void;
  /** Begins a span for each request and each webhook. Default: there are none. */
  readonly tracer?: Tracer;
  /** Called for each act that an operator must be able to find again. Default: `log`. */
  readonly onAudit?: (entry: AuditEntry) => void;
  /** Called with each error that is a bug or a failed part, such as a disk. Default: `log`. */
  readonly onFault?: (error: unknown) => void;
  /** Default: that of the platform. */
  readonly clock?: Clock;
  /**
   * The clock for timers that run while no request does: expiry, windows of keys, retries of webhooks. Default: `clock`.
   */
  readonly longClock?: Clock;
}

/** A server without sockets of its own. `export default` it where the platform takes an object with `fetch`. */
export interface FetchServer {
  readonly server: HapaxServer;
  /**
   * Answers a request. It also works without its object: `const { fetch } = server`. `peer` is the address of the client, as
   * the platform knows it.
   */
  readonly fetch: (request: Request, from?: { readonly peer?: string }) => Promise<Response>;
  /** Takes no new requests, asks live readers to leave, and closes the store. */
  stop(): Promise<void>;
}

/** What an entry chooses for its programs. What it does not choose is not in their bundles. */
export interface FetchComposition {
  readonly store: Store;
  readonly parts: readonly ServerPart[];
  readonly dashboard?: LoadDashboard;
  readonly decompress?: Decompress;
  readonly checkPlace?: ServerComponents["checkPlace"];
  /** Default: options cannot be changed. */
  readonly decideReload?: DecideReload;
}

export function createServerOnFetch(
  given: Omit<FetchServerOptions, "store">,
  { store, parts, dashboard, decompress, checkPlace, decideReload }: FetchComposition,
): FetchServer {
  const options = withDefaults(given);
  const { clock = systemClock, publicUrl } = options;
  const log = options.log ?? onlyFaults;
  const onFault = options.onFault ?? ((error: unknown) => log(faultEntry(error, clock.nowMs())));
  const server = composeServer(
    {
      store,
      clock,
      longClock: options.longClock,
      random: systemRandom,
      courier: options.courier,
      compress: gzip,
      ...(decompress === undefined ? {} : { decompress }),
      ...(options.log === undefined ? {} : { log: options.log }),
      ...(options.onAudit === undefined ? {} : { onAudit: options.onAudit }),
      ...(options.tracer === undefined ? {} : { tracer: options.tracer }),
      authorize: options.authorize,
      dashboard,
      checkPlace,
      address: options.address,
      publicUrl: () => publicUrl ?? "",
      onFault,
    },
    options,
    parts,
    decideReload,
  );
  const { bodiesBytesMax } = server.options;
  const budget = new BodyBudget(LIMITS.bodyBytesPerSecondMin, clock, bodiesBytesMax);
  return {
    server,
    async fetch(request, { peer = "" } = {}) {
      const exchange = new FetchExchange(request, { budget, publicUrl, peer });
      const answer = await server.handle(exchange);
      const { readerStallMs: stallMs } = server.options;
      const { signal } = request;
      return fetchResponse(answer, request.method === "HEAD", { clock, stallMs, signal });
    },
    async stop() {
      server.drain();
      budget.close();
      await server.close();
    },
  };
}

type Given = Omit<FetchServerOptions, "store">;

function withDefaults(given: Given): Given {
  const { courier, publicUrl } = given;
  // A webhook says where the server is reached, which a server without a socket cannot know.
  if (courier !== undefined && publicUrl === undefined) {
    throw new HapaxError("invalid_options", "courier needs publicUrl, which webhooks name");
  }
  return {
    ...SMALL_LIMITS,
    ...given,
    ...(typeof publicUrl === "string" ? { publicUrl: withoutLastSlashes(publicUrl) } : {}),
  };
}

function onlyFaults(entry: LogEntry): void {
  if (entry.level === "error") console.error(entry);
}

async function gzip(body: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([body as Uint8Array<ArrayBuffer>]).stream();
  const packed = stream.pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(packed).arrayBuffer());
}
