/**
 * The server without its sockets, for programs that bring their own. `hapax/node` and `hapax/fetch` are built on it,
 * and most programs need only these.
 */

import { composeServer, type HapaxServer, type ServerComponents } from "./server/compose.ts";
import type { ServerOptions } from "./server/options.ts";
import { decideReload } from "./server/reload.ts";
import { ALL_PARTS } from "./server/routes.ts";

export type { HapaxServer, RequestServer, ServerComponents } from "./server/compose.ts";
export type {
  Exchange,
  LiveAnswer,
  LiveSink,
  ServerAnswer,
  WholeAnswer,
} from "./server/exchange.ts";
export { anyOf } from "./access/any-of.ts";
export type { ServerOptions } from "./server/options.ts";
export { jwtAuthorize, type JwtOptions } from "./access/jwt.ts";
export {
  signedUrlAuthorize,
  type SignedUrlOptions,
  signUrl,
  type SignUrlOptions,
  type UrlKey,
} from "./access/signed-url.ts";
export type { AuditEntry, LogEntry } from "./log.ts";
export type { SpanStart, TraceContext, Tracer, TraceSpan } from "./tracer.ts";
export { openTelemetryTracer } from "./opentelemetry-tracer.ts";
export type {
  Action,
  Authorize,
  ClientCertificate,
  Credentials,
  Grant,
  Identity,
  IdentityRefusal,
  Quotas,
} from "./access/identity.ts";

/**
 * Creates a server over an open store. Opens no socket and does not wait.
 *
 * ```ts
 * import { createServer } from "hapax/server";
 * import { openMemoryStore } from "hapax/stores/memory";
 * import { systemClock, systemRandom } from "hapax";
 *
 * const server = createServer({
 *   store: openMemoryStore(),
 *   clock: systemClock,
 *   random: systemRandom,
 *   courier: { deliver: async () => ({ kind: "refused", reason: "no webhooks here" }) },
 *   address: "127.0.0.1",
 *   publicUrl: () => "http://127.0.0.1:4437",
 *   onFault: (error) => console.error(error),
 * });
 * console.assert(server.options.longPollMs === 30_000);
 * await server.close();
 * ```
 */
export function createServer(
  components: ServerComponents,
  options: ServerOptions = {},
): HapaxServer {
  return composeServer(components, options, ALL_PARTS, decideReload);
}
