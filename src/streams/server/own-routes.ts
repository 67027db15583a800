/** Routes of our own under `/_hapax/`: streams, health, metrics; others have a file each. PROTOCOL.md §12. */

import { lifeOf } from "../core/stream.ts";
import { HapaxError } from "../../base/errors.ts";
import { formatOffset, formatRfc3339, parseQuery } from "../../protocol/values.ts";
import type { ServerAnswer, Exchange } from "./exchange.ts";
import { GROUPS_PATH, handleGroups } from "./groups.ts";
import { json, parseLimit, queryText } from "./json.ts";
import { showMetrics } from "./metrics.ts";
import type { ServerParts } from "./parts.ts";
import { methodNotAllowed } from "./problem.ts";
import { handleProducers, PRODUCERS_PATH } from "./producers.ts";
import { handleTransactions, TRANSACTIONS_PATH } from "./transactions.ts";

export function handleOwnRoute(
  exchange: Exchange,
  parts: ServerParts,
): ServerAnswer | Promise<ServerAnswer> {
  const { path } = exchange;
  for (const [root, handle] of ROOTS) {
    if (path === root || path.startsWith(`${root}/`)) return handle(exchange, parts);
  }
  const handler = ROUTES.get(path);
  if (handler === undefined) {
    throw new HapaxError("not_found", "there is no such route under /_hapax/");
  }
  if (exchange.method !== "GET" && exchange.method !== "HEAD") {
    return methodNotAllowed("GET, HEAD, OPTIONS");
  }
  return handler(exchange, parts);
}

type Handler = (exchange: Exchange, parts: ServerParts) => ServerAnswer | Promise<ServerAnswer>;

/** Routes that have more below them. */
const ROOTS: readonly (readonly [string, Handler])[] = [
  [TRANSACTIONS_PATH, handleTransactions],
  [GROUPS_PATH, handleGroups],
  [PRODUCERS_PATH, handleProducers],
];

const ROUTES = new Map<string, Handler>([
  ["/_hapax/streams", listStreams],
  ["/_hapax/health", showHealth],
  ["/_hapax/metrics", showMetrics],
]);

function listStreams(exchange: Exchange, parts: ServerParts): ServerAnswer {
  const query = parseQuery(exchange.query);
  const prefix = queryText(query, "prefix") ?? "";
  const after = queryText(query, "after") ?? "";
  const limit = parseLimit(queryText(query, "limit"));
  const { found, next } = parts.engine.list(prefix, after, limit);
  const streams = found.map(({ state, tail, isClosed }) => ({
    path: state.name,
    contentType: state.contentType,
    nextOffset: formatOffset(tail),
    closed: isClosed,
    life: lifeOf(state),
    createdAt: formatRfc3339(state.createdAtMs),
  }));
  return json(200, next === undefined ? { streams } : { streams, next });
}

export function showHealth(_exchange: Exchange, parts: ServerParts): ServerAnswer {
  const { stopped, isFull, durability } = parts.engine;
  if (stopped !== undefined) {
    const { code, message: detail } = stopped;
    return json(503, { live: true, ready: false, writes: "stopped", durability, code, detail });
  }
  if (isFull) {
    return json(503, { live: true, ready: false, writes: "full", durability, code: "store_full" });
  }
  return json(200, { live: true, ready: true, writes: "open", durability });
}
