/**
 * What an operator looks at: metrics, one stream with all that hangs on it, a key of a stream, the list of subscriptions, the API keys,
 * and who owns what; and backups. PROTOCOL.md §12.3, §12.9 to §12.12, §24.4, and §27.1. These routes change nothing, and a look is no use
 * of a stream.
 */

import { type KeyDefaults, windowMsOf } from "../core/keys.ts";
import { lifeOf, type StreamState } from "../core/stream.ts";
import type { StreamName } from "../core/types.ts";
import type { ShownLink, SubscriptionSummary } from "../engine/subscriptions/view.ts";
import type { Access } from "../access/access.ts";
import { HEADER, SENT } from "../../protocol/headers.ts";
import { keyBytes, markOf, parseKey } from "../../protocol/key.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { CLUSTER_PATH, METRICS_PATH } from "../../protocol/reserved.ts";
import { invalid } from "../../protocol/refusal.ts";
import { formatCompaction } from "../../protocol/compaction.ts";
import { formatRetention } from "../../protocol/retention.ts";
import { formatOffset, formatRfc3339, parseQuery } from "../../protocol/values.ts";
import { BACKUP_ROUTES } from "./backups.ts";
import type { ServerAnswer } from "./exchange.ts";
import { mayFollow } from "./following.ts";
import { json, parseLimit, queryText, streamInQuery } from "./json.ts";
import { SHOW_METRICS } from "./metrics.ts";
import type { ServerParts } from "./parts.ts";
import { readRoute, type Route, type RouteCall } from "./route.ts";
import { refuseGone, refuseMissing } from "./streams.ts";

export const OBSERVATION_ROUTES: readonly Route[] = [
  readRoute(METRICS_PATH, SHOW_METRICS),
  readRoute("/_hapax/metrics", SHOW_METRICS),
  readRoute("/_hapax/stream", {
    needs: ["read"],
    subject: (exchange) => ({ stream: streamInQuery(exchange) }),
    handle: showStream,
  }),
  readRoute("/_hapax/keys", {
    needs: ["read"],
    subject: (exchange) => ({ stream: streamInQuery(exchange) }),
    handle: lookUpKey,
  }),
  readRoute("/_hapax/subscriptions", {
    needs: ["subscribe"],
    handle: listSubscriptions,
  }),
  readRoute("/_hapax/tokens", {
    needs: ["admin"],
    handle: listTokens,
  }),
  readRoute(CLUSTER_PATH, {
    needs: ["observe"],
    handle: showNoCluster,
  }),
  ...BACKUP_ROUTES,
];

async function showStream({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const name = streamInQuery(exchange);
  const look = await parts.engine.look(name);
  if (look.kind === "missing") return refuseMissing(parts, name, access);
  if (look.kind === "gone") return refuseGone(name);
  const { state, tail, isClosed, earliest } = look;
  const { expiry, fork, retained, compaction } = state;
  const isSourceShown = fork !== undefined && access.may("read", { stream: fork.sourceName });
  return json(200, {
    path: state.name,
    contentType: state.contentType,
    nextOffset: formatOffset(tail),
    closed: isClosed,
    life: lifeOf(state, parts.engine.world),
    createdAt: formatRfc3339(state.createdAtMs),
    lastUsedAt: formatRfc3339(state.accessedAtMs),
    ttlSeconds: expiry.kind === "ttl" ? expiry.seconds : undefined,
    expiresAt: expiry.kind === "at" ? formatRfc3339(expiry.timeMs) : undefined,
    earliestOffset: formatOffset(earliest),
    retention: retained?.rule === undefined ? undefined : formatRetention(retained.rule),
    compactKey: compaction === undefined ? undefined : formatCompaction(compaction),
    keys: describeKeys(state, parts),
    forkedFrom: isSourceShown
      ? { stream: fork.sourceName, offset: formatOffset(fork.at) }
      : undefined,
    forks: await readableForks(state, parts, access),
  });
}

const defaultsOf = ({ options }: ServerParts): KeyDefaults => ({
  windowSeconds: options.keyWindowSeconds,
  countMax: options.keyMax,
  overflow: options.keyOverflow,
});

/** How full the window is, and what it does when it is full. */
function describeKeys({ keys }: StreamState, parts: ServerParts): object {
  const defaults = defaultsOf(parts);
  const window = keys?.window;
  const windowMs = windowMsOf(keys?.policy, defaults);
  const alive = window?.firstAfter(parts.engine.nowMs() - windowMs) ?? 0;
  return {
    count: window === undefined ? 0 : window.next - alive,
    max: keys?.policy?.countMax ?? defaults.countMax,
    windowSeconds: windowMs / 1000,
    overflow: keys?.policy?.overflow ?? defaults.overflow,
    fromContent: keys?.policy?.isFromContent === true,
  };
}

/** The forks that the caller may read, at most so many that a person can look at. */
async function readableForks(
  { id, forkCount }: StreamState,
  { engine }: ServerParts,
  access: Access,
): Promise<readonly StreamName[]> {
  const found: StreamName[] = [];
  if (forkCount === 0) return found;
  const slices = engine.slices();
  for (const { fork, name, isDeleted } of engine.world.byId.values()) {
    if (!slices.take()) await slices.turn();
    if (fork?.source !== id || isDeleted || !access.may("read", { stream: name })) continue;
    // Only what is durable, and still there.
    if ((await engine.look(name)).kind === "found") found.push(name);
    if (found.length === LIMITS.forksShownMax) break;
  }
  return found.toSorted((one, other) => (one < other ? -1 : 1));
}

async function lookUpKey({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const name = streamInQuery(exchange);
  const key = parseKey(exchange.header(SENT.idempotencyKey));
  if (key === undefined) throw invalid(HEADER.idempotencyKey, "is missing");
  const digest = await parts.digest(keyBytes(key.text));
  const look = await parts.engine.look(name);
  if (look.kind === "missing") return refuseMissing(parts, name, access);
  if (look.kind === "gone") return refuseGone(name);
  const { keys } = look.state;
  const window = keys?.window;
  // What was stored under the key is not compared, so its own digest stands for the content.
  const ordinal = window?.find(markOf(digest, digest, false));
  const windowMs = windowMsOf(keys?.policy, defaultsOf(parts));
  if (window === undefined || ordinal === undefined) return answerKey(parts, { stored: false });
  const atMs = window.timeOf(ordinal);
  if (parts.engine.nowMs() - atMs >= windowMs) return answerKey(parts, { stored: false });
  const nextOffset = formatOffset(window.endOf(ordinal));
  return answerKey(parts, { stored: true, nextOffset, storedAt: formatRfc3339(atMs) });
}

/** No answer speaks of what could still be lost. */
async function answerKey(parts: ServerParts, found: object): Promise<ServerAnswer> {
  await parts.engine.settled();
  return json(200, found);
}

async function listSubscriptions({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const limit = parseLimit(queryText(query, "limit"));
  const after = access.scoped(queryText(query, "after") ?? "");
  const stream = queryText(query, "stream") as StreamName | undefined;
  // One more than asked for tells whether there is a next page.
  const found = await parts.engine.subscriptions.list(after, limit + 1, (subscription) => {
    const id = access.unscoped(subscription.id);
    const { links, settings } = subscription;
    if (id === undefined || (stream !== undefined && !links.has(stream))) return false;
    return access.isUnlimited || isShown(parts, access, id, settings.pattern, links);
  });
  const subscriptions = found.slice(0, limit).map((one) => describeSubscription(one, access));
  const next = found.length > limit ? subscriptions.at(-1)?.subscription : undefined;
  return json(200, { subscriptions, next });
}

/** A subscription that follows more than the caller may follow is not there for this caller. */
async function isShown(
  parts: ServerParts,
  access: Access,
  subscription: string,
  pattern: string | undefined,
  links: ReadonlyMap<StreamName, Pick<ShownLink, "isExplicit">>,
): Promise<boolean> {
  const slices = parts.engine.slices();
  const streams: StreamName[] = [];
  for (const [stream, { isExplicit }] of links) {
    if (!slices.take()) await slices.turn();
    // All others are within the pattern.
    if (isExplicit) streams.push(stream);
  }
  return mayFollow(parts, access, "subscribe", { subscription }, { pattern, streams });
}

function describeSubscription(
  { id, settings, createdAtMs, generation, isFailed, phase, streams }: SubscriptionSummary,
  access: Access,
): { readonly subscription: string } & Readonly<Record<string, unknown>> {
  const { way, pattern, leaseMs, description } = settings;
  const isWebhook = way.kind === "webhook";
  return {
    subscription: access.unscoped(id) ?? "",
    type: isWebhook ? "webhook" : "pull-wake",
    pattern,
    webhook: isWebhook ? way.url : undefined,
    wakeStream: isWebhook ? undefined : way.wakeStream,
    streams,
    phase,
    status: isFailed ? "failed" : "active",
    generation,
    leaseMs,
    createdAt: formatRfc3339(createdAtMs),
    description,
  };
}

function listTokens({ parts, access }: RouteCall): ServerAnswer {
  // A key tells what others may do, so the list is for those who may do everything.
  access.requireWholeServer("admin");
  return json(200, { tokens: parts.gate.shownKeys() });
}

/** A node of a cluster answers by itself (streams/cluster/gathering.ts). */
function showNoCluster({ access }: RouteCall): ServerAnswer {
  access.requireWholeServer("observe");
  return json(200, { nodes: [], shards: [] });
}
