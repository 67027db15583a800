/** Which shards a request is for, as far as its head says. PROTOCOL.md §24.2. */

import { parseFollowed } from "../../protocol/follow-all.ts";
import { parseGroupId } from "../../protocol/group.ts";
import { SENT } from "../../protocol/headers.ts";
import {
  CLUSTER_PATH,
  FOLLOW_PATH,
  HEALTH_PATH,
  METRICS_PATH,
  OWN_PREFIX,
  READY_PATH,
  requireStreamName,
  SUBSCRIPTIONS_PREFIX,
} from "../../protocol/reserved.ts";
import { decodePercent, parseStreamPath } from "../../protocol/values.ts";
import type { NameKind } from "../cluster.ts";
import { placementOf } from "../core/placement.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Exchange } from "../server/exchange.ts";
import { streamInQuery } from "../server/json.ts";
import { RouteTable } from "../server/route.ts";
import { RESERVED_ROUTES } from "../server/routes.ts";

/** A list that every shard has a part of. */
export interface Listed {
  readonly member: "streams" | "groups" | "subscriptions";
  /** The member of an entry that orders the list. */
  readonly key: string;
}

export type Where =
  | { readonly kind: "placement"; readonly placement: string }
  /** Any node answers it by itself. */
  | { readonly kind: "front" }
  /** All shards answer the same. */
  | { readonly kind: "any" }
  | { readonly kind: "health" }
  | { readonly kind: "metrics" }
  | { readonly kind: "owners" }
  | { readonly kind: "list"; readonly listed: Listed }
  /** The body says it. */
  | { readonly kind: "transaction" }
  /** One of the shards knows it. */
  | { readonly kind: "outcome" }
  | { readonly kind: "named"; readonly what: NameKind; readonly id: string; readonly verb: string };

const FRONT: Where = { kind: "front" };
const TABLE = new RouteTable(RESERVED_ROUTES);
const UNDERSCORE = 0x5f;
const HEALTH = new Set([HEALTH_PATH, READY_PATH, `${OWN_PREFIX}health`]);
const METRICS = new Set([METRICS_PATH, `${OWN_PREFIX}metrics`]);
const LISTS: ReadonlyMap<string, Listed> = new Map([
  [`${OWN_PREFIX}streams`, { member: "streams", key: "path" }],
  [`${OWN_PREFIX}groups`, { member: "groups", key: "group" }],
  [`${OWN_PREFIX}subscriptions`, { member: "subscriptions", key: "subscription" }],
]);
/** Routes about the stream in their query. */
const OF_STREAMS = new Set(
  ["stream", "keys", "producers", "trim", "retention", "compaction"].map(
    (name) => `${OWN_PREFIX}${name}`,
  ),
);
const TRANSACTIONS = `${OWN_PREFIX}transactions`;
const GROUPS = `${OWN_PREFIX}groups/`;
const JWKS = `${SUBSCRIPTIONS_PREFIX}jwks.json`;
const SUBSCRIPTIONS = `${SUBSCRIPTIONS_PREFIX}subscriptions/`;

/** Throws a refusal that no shard has to be asked for. */
export function whereOf(exchange: Exchange, shards: number): Where {
  const { path, method } = exchange;
  if (method === "OPTIONS") return FRONT;
  const isReserved = path.charCodeAt(1) === UNDERSCORE || path.startsWith(SUBSCRIPTIONS_PREFIX);
  if (!isReserved) {
    if (HEALTH.has(path)) return { kind: "health" };
    if (METRICS.has(path)) return { kind: "metrics" };
    return TABLE.find(path) === undefined ? whereOfStream(exchange, shards) : FRONT;
  }
  if (TABLE.find(path) === undefined) {
    const isStream = !path.startsWith(SUBSCRIPTIONS_PREFIX) && !path.startsWith(OWN_PREFIX);
    return isStream ? whereOfStream(exchange, shards) : FRONT;
  }
  if (path === FOLLOW_PATH) return whereOfFollowed(exchange, shards);
  return whereOfReserved(exchange);
}

/** One connection ends at one owner. */
function whereOfFollowed(exchange: Exchange, shards: number): Where {
  let placements: string[];
  try {
    placements = parseFollowed(exchange.query).map(placementOf);
  } catch {
    return FRONT; // It refuses the query as every server does.
  }
  const [placement = "", ...others] = placements;
  if (shards > 1) {
    for (const other of others) requireSame(placement, other, "the streams of one connection");
  }
  return { kind: "placement", placement };
}

function whereOfStream(exchange: Exchange, shards: number): Where {
  let placement: string;
  try {
    placement = placementOf(requireStreamName(exchange.path));
  } catch {
    return FRONT; // It refuses the path as every server does.
  }
  if (exchange.method === "PUT" && shards > 1) {
    requireSourceWithin(exchange.header(SENT.forkedFrom), placement);
  }
  return { kind: "placement", placement };
}

/** A fork and its source share data, so they are in one shard. */
function requireSourceWithin(source: string | undefined, placement: string): void {
  if (source === undefined) return;
  const path = parseStreamPath(source);
  if (path.kind === "invalid") return; // The owner refuses it.
  requireSame(placement, placementOf(path.name), "a fork and its source");
}

export function requireSame(placement: string, other: string, what: string): void {
  if (placement === other) return;
  const words = `${what} are of two placements: ${JSON.stringify(placement)}, ${JSON.stringify(other)}`;
  throw new HapaxError("placement_mixed", words);
}

function whereOfQuery(exchange: Exchange): Where {
  let placement: string;
  try {
    placement = placementOf(streamInQuery(exchange));
  } catch {
    return FRONT; // It refuses the method or the query as every server does.
  }
  return { kind: "placement", placement };
}

function whereOfReserved(exchange: Exchange): Where {
  const { path, method } = exchange;
  if (HEALTH.has(path)) return { kind: "health" };
  if (METRICS.has(path)) return { kind: "metrics" };
  if (path === CLUSTER_PATH) return { kind: "owners" };
  const listed = LISTS.get(path);
  if (listed !== undefined) return { kind: "list", listed };
  if (path === TRANSACTIONS) return { kind: "transaction" };
  if (path.startsWith(`${TRANSACTIONS}/`)) return { kind: "outcome" };
  const isNewId = path === `${OWN_PREFIX}producers` && method === "POST";
  if ((OF_STREAMS.has(path) || path.startsWith(`${OWN_PREFIX}producers/`)) && !isNewId) {
    return whereOfQuery(exchange);
  }
  if (path.startsWith(GROUPS)) {
    const [encoded = "", verb = ""] = path.slice(GROUPS.length).split("/");
    return { kind: "named", what: "group", id: parseGroupId(encoded), verb };
  }
  if (path === JWKS) return { kind: "any" };
  if (path.startsWith(SUBSCRIPTIONS)) {
    const [encoded = "", verb = ""] = path.slice(SUBSCRIPTIONS.length).split("/");
    const id = decodePercent(encoded) ?? "";
    return id === "" ? FRONT : { kind: "named", what: "subscription", id, verb };
  }
  return FRONT;
}
