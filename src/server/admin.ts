/** Routes of our own under `/_hapax/`: the list of streams and the server's health. PROTOCOL.md §12. */

import { HapaxError } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { HEADER } from "../wire/headers.ts";
import { invalid } from "../wire/refusal.ts";
import { formatOffset, formatRfc3339, parseCount, parseQuery, type Query } from "../wire/values.ts";
import type { Answer, Exchange, WholeAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import { methodNotAllowed } from "./problem.ts";

const utf8 = new TextEncoder();

export function handleAdmin(exchange: Exchange, parts: ServerParts): Answer {
  const handler = ROUTES.get(exchange.path);
  if (handler === undefined) {
    throw new HapaxError("not_found", "there is no such route under /_hapax/");
  }
  if (exchange.method !== "GET" && exchange.method !== "HEAD") {
    return methodNotAllowed("GET, HEAD, OPTIONS");
  }
  return handler(exchange, parts);
}

const ROUTES = new Map<string, (exchange: Exchange, parts: ServerParts) => Answer>([
  ["/_hapax/streams", listStreams],
  ["/_hapax/health", health],
]);

function listStreams(exchange: Exchange, parts: ServerParts): Answer {
  const query = parseQuery(exchange.query);
  const prefix = text(query, "prefix") ?? "";
  const after = text(query, "after") ?? "";
  const limit = parseLimit(text(query, "limit"));
  // One more than asked for tells whether there is a next page.
  const found = parts.engine.list(prefix, after, limit + 1);
  const streams = found.slice(0, limit).map(({ state, tail, isClosed }) => ({
    path: state.name,
    contentType: state.contentType,
    nextOffset: formatOffset(tail),
    closed: isClosed,
    createdAt: formatRfc3339(state.createdAtMs),
  }));
  const next = found.length > limit ? streams.at(-1)?.path : undefined;
  return json(200, next === undefined ? { streams } : { streams, next });
}

function health(_exchange: Exchange, parts: ServerParts): Answer {
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

export function json(status: number, value: unknown): WholeAnswer {
  return {
    status,
    headers: { [HEADER.contentType]: "application/json", [HEADER.cacheControl]: "no-store" },
    body: utf8.encode(JSON.stringify(value)),
  };
}

function parseLimit(value: string | undefined): number {
  if (value === undefined) return LIMITS.listMax;
  const limit = parseCount(value);
  if (limit === undefined || limit < 1 || limit > LIMITS.listMax) {
    throw invalid("limit", `is not a whole number from 1 to ${LIMITS.listMax}`);
  }
  return limit;
}

function text(query: Query, name: string): string | undefined {
  const found = query.get(name);
  if (found.kind === "absent") return undefined;
  if (found.kind === "value") return found.value;
  throw invalid(name, `is ${found.kind} in the query`);
}
