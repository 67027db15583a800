/** Routes of our own under `/_hapax/`: streams, health, metrics; others have a file each. PROTOCOL.md §12. */

import { lifeOf } from "../core/stream.ts";
import { wingOf } from "../engine/wings.ts";
import { formatOffset, formatRfc3339, parseQuery } from "../../protocol/values.ts";
import type { ServerAnswer } from "./exchange.ts";
import { showHealth } from "./health.ts";
import { json, parseLimit, queryText } from "./json.ts";
import { PRODUCER_ROUTES } from "./producers.ts";
import { readRoute, type Route, type RouteCall } from "./route.ts";

export const OWN_ROUTES: readonly Route[] = [
  readRoute("/_hapax/streams", {
    needs: ["read"],
    handle: listStreams,
  }),
  readRoute("/_hapax/health", {
    needs: "nothing",
    handle: showHealth,
  }),
  ...PRODUCER_ROUTES,
];

async function listStreams({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const prefix = queryText(query, "prefix") ?? "";
  const after = queryText(query, "after") ?? "";
  const limit = parseLimit(queryText(query, "limit"));
  const { found, next } = access.isUnlimited
    ? parts.engine.list(prefix, after, limit)
    : await wingOf(parts.listReadable, "access")(parts.engine, access, prefix, after, limit);
  const streams = found.map(({ state, tail, isClosed }) => ({
    path: state.name,
    contentType: state.contentType,
    nextOffset: formatOffset(tail),
    closed: isClosed,
    life: lifeOf(state, parts.engine.world),
    createdAt: formatRfc3339(state.createdAtMs),
  }));
  return json(200, next === undefined ? { streams } : { streams, next });
}
