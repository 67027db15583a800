/** Routes of our own under `/_hapax/`: streams, health, metrics; others have a file each. PROTOCOL.md §12. */

import { lifeOf } from "../core/stream.ts";
import type { Access } from "../access/access.ts";
import type { StreamPage } from "../engine/listing.ts";
import type { Found } from "../engine/outcomes.ts";
import { formatOffset, formatRfc3339, parseQuery } from "../../protocol/values.ts";
import type { ServerAnswer } from "./exchange.ts";
import { showHealth } from "./health.ts";
import { json, parseLimit, queryText } from "./json.ts";
import type { ServerParts } from "./parts.ts";
import { PRODUCER_ROUTES } from "./producers.ts";
import { readRoute, type Route, type RouteCall } from "./route.ts";

export const OWN_ROUTES: readonly Route[] = [
  readRoute("/_hapax/streams", {
    needs: ["read"],
    summary: "Lists the streams that the caller may read.",
    handle: listStreams,
  }),
  readRoute("/_hapax/health", {
    needs: "nothing",
    summary: "Says whether the server takes writes.",
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
    : await listReadable(parts, access, prefix, after, limit);
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

/** The page has every readable stream and no name of another one: not even `next` tells that there are others. */
async function listReadable(
  parts: ServerParts,
  access: Access,
  prefix: string,
  after: string,
  limit: number,
): Promise<StreamPage> {
  const beginning = access.beginningOf(prefix);
  if (beginning === undefined) return { found: [], next: undefined };
  const slices = parts.engine.slices();
  const found: Found[] = [];
  const { namespace } = access;
  if (namespace !== undefined && after < namespace && namespace.startsWith(prefix)) {
    // The stream of the namespace's own path. Between it and those below it stand names of others.
    const [first] = parts.engine.list(namespace, "", 1).found;
    if (first?.state.name === namespace && access.may("read", { stream: namespace })) {
      found.push(first);
    }
  }
  let from: string | undefined = after;
  // One more than asked for tells whether there is a next page.
  while (from !== undefined && found.length <= limit) {
    const page = parts.engine.list(beginning, from, limit);
    for (const one of page.found) {
      if (!slices.take()) await slices.turn();
      const { name } = one.state;
      if (name.startsWith(prefix) && access.may("read", { stream: name })) found.push(one);
    }
    from = page.next;
    // A page may have looked at many names and have found none.
    if (page.found.length === 0 && from !== undefined) await slices.turn();
  }
  const shown = found.slice(0, limit);
  return { found: shown, next: found.length > limit ? shown.at(-1)?.state.name : undefined };
}
