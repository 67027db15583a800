/** What a server on Node is made of, beside its store. */

import { systemClock } from "../../base/clock.ts";
import { systemRandom } from "../../base/random.ts";
import type { Log } from "../log.ts";
import type { ServerComponents } from "../server.ts";
import { loadDashboard } from "./dashboard.ts";
import type { NodeServerOptions } from "./node.ts";
import { createNodeCourier } from "./node-courier.ts";
import { nodeDecompress } from "./node-decompress.ts";
import { nodeDigest } from "./node-digest.ts";
import { nodeGzip } from "./node-gzip.ts";

export interface NodePlace {
  readonly host: string;
  readonly log: Log;
  readonly onFault: (error: unknown) => void;
  /** Where it listens, once it does. */
  readonly url: () => string;
}

export function nodeComponents(
  options: Omit<NodeServerOptions, "store">,
  { host, log, onFault, url }: NodePlace,
): Omit<ServerComponents, "store"> {
  return {
    clock: systemClock,
    random: systemRandom,
    // One batch contains all requests that arrived in one turn of the event loop.
    defer: setImmediate,
    courier: createNodeCourier({ allowLoopback: options.allowLoopbackWebhooks ?? true }),
    digest: nodeDigest,
    compress: nodeGzip,
    decompress: nodeDecompress,
    dashboard: loadDashboard,
    log,
    ...(options.onAudit === undefined ? {} : { onAudit: options.onAudit }),
    ...(options.tracer === undefined ? {} : { tracer: options.tracer }),
    authorize: options.authorize,
    address: host,
    publicUrl: () => options.publicUrl ?? url(),
    onFault,
  };
}
