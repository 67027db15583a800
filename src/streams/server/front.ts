/** The paths that people and tools try first, without having read anything. PROTOCOL.md §12.6. */

import { utf8Of } from "../../base/bytes.ts";
import {
  FRONT_PATH,
  HEALTH_PATH,
  ICON_PATH,
  LIVE_PATH,
  READY_PATH,
} from "../../protocol/reserved.ts";
import { HEADER } from "../../protocol/headers.ts";
import type { ServerAnswer } from "./exchange.ts";
import { showHealth } from "./health.ts";
import { json } from "./json.ts";
import { readRoute, type Route, type RouteCall } from "./route.ts";

export const FRONT_ROUTES: readonly Route[] = [
  readRoute(FRONT_PATH, {
    needs: "nothing",
    handle: async (call) => (await call.parts.front?.(call)) ?? greet(call),
  }),
  readRoute(HEALTH_PATH, {
    needs: "nothing",
    handle: showHealth,
  }),
  readRoute(ICON_PATH, {
    needs: "nothing",
    handle: showNoIcon,
  }),
  // What a supervisor asks.
  readRoute(LIVE_PATH, { needs: "nothing", handle: showLive }, { isProbe: true }),
  readRoute(READY_PATH, { needs: "nothing", handle: showReady }, { isProbe: true }),
];

function greet({ exchange: { baseUrl }, parts }: RouteCall): ServerAnswer {
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
    ...(parts.dashboard === undefined ? [] : [`Dashboard:   ${baseUrl}/_hapax/ui/`]),
    "",
    "To read on: README.md and PROTOCOL.md in the package `hapax`.",
    "",
  ];
  return {
    status: 200,
    headers: {
      [HEADER.contentType]: "text/plain; charset=utf-8",
      [HEADER.cacheControl]: "no-store",
      // Browsers get another answer.
      Vary: "Accept, Origin",
    },
    // So that `Vary` replaces the one of all answers.
    mayCompress: true,
    body: utf8Of(lines.join("\n")),
  };
}

function showLive(): ServerAnswer {
  return json(200, { live: true });
}

function showReady(call: RouteCall): ServerAnswer | Promise<ServerAnswer> {
  const { parts } = call;
  if (!parts.drain.isDraining) return showHealth(call);
  const { durability } = parts.engine;
  const code = "shutting_down";
  return json(503, { live: true, ready: false, writes: "draining", durability, code });
}

/** A browser asks for it with every page, and would fill logs with refusals. */
function showNoIcon(): ServerAnswer {
  return { status: 204, headers: { [HEADER.cacheControl]: "public, max-age=86400" } };
}
