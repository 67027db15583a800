/** The paths that people and tools try first, without having read anything. PROTOCOL.md §12.6. */

import {
  FRONT_PATH,
  HEALTH_PATH,
  ICON_PATH,
  LIVE_PATH,
  METRICS_PATH,
  READY_PATH,
} from "../../protocol/reserved.ts";
import { HEADER } from "../../protocol/headers.ts";
import { showHealth } from "./own-routes.ts";
import type { ServerAnswer, Exchange } from "./exchange.ts";
import { json } from "./json.ts";
import { showMetrics } from "./metrics.ts";
import type { ServerParts } from "./parts.ts";
import { methodNotAllowed } from "./problem.ts";

type Handler = (exchange: Exchange, parts: ServerParts) => ServerAnswer | Promise<ServerAnswer>;

/** What a supervisor asks. These are answered also while the server stops. */
const PROBES: ReadonlyMap<string, Handler> = new Map<string, Handler>([
  [LIVE_PATH, showLive],
  [READY_PATH, showReady],
]);

const FRONT: ReadonlyMap<string, Handler> = new Map<string, Handler>([
  [FRONT_PATH, greet],
  [HEALTH_PATH, showHealth],
  [METRICS_PATH, showMetrics],
  [ICON_PATH, showNoIcon],
  ...PROBES,
]);

/** Undefined: it is none of these paths. */
export function answerFront(
  exchange: Exchange,
  parts: ServerParts,
): ServerAnswer | Promise<ServerAnswer> | undefined {
  return answerBy(FRONT, exchange, parts);
}

/** Undefined: it is no probe. */
export function answerProbe(
  exchange: Exchange,
  parts: ServerParts,
): ServerAnswer | Promise<ServerAnswer> | undefined {
  return answerBy(PROBES, exchange, parts);
}

function answerBy(
  handlers: ReadonlyMap<string, Handler>,
  exchange: Exchange,
  parts: ServerParts,
): ServerAnswer | Promise<ServerAnswer> | undefined {
  const handler = handlers.get(exchange.path);
  if (handler === undefined) return undefined;
  const isRead = exchange.method === "GET" || exchange.method === "HEAD";
  return isRead ? handler(exchange, parts) : methodNotAllowed("GET, HEAD, OPTIONS");
}

const utf8 = new TextEncoder();

function greet({ baseUrl }: Exchange): ServerAnswer {
  const lines = [
    "This is Hapax, a server of durable streams over HTTP. A stream is a URL below /v1/stream/:",
    "",
    `  curl -X PUT ${baseUrl}/v1/stream/orders -H 'Content-Type: application/json'`,
    `  curl ${baseUrl}/v1/stream/orders -H 'Content-Type: application/json' -d '{"id": 1}'`,
    `  curl ${baseUrl}/v1/stream/orders`,
    "",
    `All streams: ${baseUrl}/_hapax/streams`,
    `Health:      ${baseUrl}/healthz`,
    `Metrics:     ${baseUrl}/metrics`,
    "",
    "To read on: README.md and PROTOCOL.md in the package `hapax`.",
    "",
  ];
  return {
    status: 200,
    headers: {
      [HEADER.contentType]: "text/plain; charset=utf-8",
      [HEADER.cacheControl]: "no-store",
    },
    body: utf8.encode(lines.join("\n")),
  };
}

function showLive(): ServerAnswer {
  return json(200, { live: true });
}

function showReady(exchange: Exchange, parts: ServerParts): ServerAnswer {
  if (!parts.drain.isDraining) return showHealth(exchange, parts);
  const { durability } = parts.engine;
  const code = "shutting_down";
  return json(503, { live: true, ready: false, writes: "draining", durability, code });
}

/** A browser asks for it with every page, and would fill logs with refusals. */
function showNoIcon(): ServerAnswer {
  return { status: 204, headers: { [HEADER.cacheControl]: "public, max-age=86400" } };
}
