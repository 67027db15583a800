/** Groups: members that share streams under leases. PROTOCOL.md §20. */

import type { Act, ActOutcome } from "../engine/acts.ts";
import type { GroupView, LeaseView } from "../engine/groups.ts";
import { HapaxError } from "../../base/errors.ts";
import { refuseEncoding } from "../../protocol/content-encoding.ts";
import { LIMITS } from "../../protocol/limits.ts";
import {
  formatStart,
  parseGroupClaim,
  parseGroupCommit,
  parseGroupId,
  parseGroupRelease,
  parseGroupReset,
  parseGroupSettings,
  parseJoin,
  parseLeave,
} from "../../protocol/group.ts";
import { HEADER } from "../../protocol/headers.ts";
import type { Refusal } from "../../protocol/refusal.ts";
import { encodeLeaseRefusal, refuseInside } from "../../protocol/transaction-answer.ts";
import { formatOffset, formatRfc3339, parseQuery } from "../../protocol/values.ts";
import { actOnce } from "./acts.ts";
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import { json, jsonWithList, parseLimit, queryText } from "./json.ts";
import type { ServerParts } from "./parts.ts";
import { methodNotAllowed, refuse } from "./problem.ts";
import { quoteForAudit } from "./producers.ts";

export const GROUPS_PATH = "/_hapax/groups";

const NO_CONTENT: WholeAnswer = { status: 204, headers: { [HEADER.cacheControl]: "no-store" } };
const GROUP_MISSING: Refusal = {
  code: "group_not_found",
  detail: "there is no group of this name",
};

type Action = (
  parts: ServerParts,
  group: string,
  body: Uint8Array,
  exchange: Exchange,
) => Promise<ServerAnswer>;

const ACTIONS: ReadonlyMap<string, Action> = new Map<string, Action>([
  ["join", join],
  ["claim", claim],
  ["commit", commit],
  ["release", release],
  ["leave", leave],
  ["reset", reset],
]);

export async function handleGroups(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  const { method, path } = exchange;
  const isRead = method === "GET" || method === "HEAD";
  if (path === GROUPS_PATH) {
    return isRead ? list(exchange, parts) : methodNotAllowed("GET, HEAD, OPTIONS");
  }
  const [encoded = "", action, ...more] = path.slice(GROUPS_PATH.length + 1).split("/");
  if (encoded === "" || more.length > 0) throw noRoute();
  const group = parseGroupId(encoded);
  if (action !== undefined) {
    const act = ACTIONS.get(action);
    if (act === undefined) throw noRoute();
    if (method !== "POST") return methodNotAllowed("POST, OPTIONS");
    return act(parts, group, await readBody(exchange), exchange);
  }
  if (isRead) return show(exchange, parts, group);
  if (method === "PUT") return create(parts, group, await readBody(exchange));
  if (method === "DELETE") {
    return actOnce(
      exchange,
      parts,
      undefined,
      (act) => remove(parts, group, act),
      () => NO_CONTENT,
    );
  }
  return methodNotAllowed("GET, HEAD, PUT, DELETE, OPTIONS");
}

function noRoute(): HapaxError {
  return new HapaxError("not_found", "there is no such route under /_hapax/groups");
}

function readBody(exchange: Exchange): Promise<Uint8Array> {
  refuseEncoding((name) => exchange.header(name));
  return exchange.body(LIMITS.groupBodyBytesMax);
}

async function create(parts: ServerParts, group: string, body: Uint8Array): Promise<ServerAnswer> {
  const settings = parseGroupSettings(body);
  const outcome = await parts.engine.groups.create(group, settings);
  switch (outcome.kind) {
    case "conflict":
      throw new HapaxError("group_exists", `the group differs in ${outcome.reason}`);
    case "beyond_tail":
      return refuseBeyond(outcome.stream);
    case "inside_record":
      return refuse(refuseInside(outcome.stream));
    default: {
      const { pattern, streams, leaseMs } = settings;
      const start = formatStart(settings.start);
      const status = outcome.kind === "created" ? 201 : 200;
      return json(status, { group, pattern, streams, start, leaseMs });
    }
  }
}

function refuseBeyond(stream: string): ServerAnswer {
  const detail = `the stream does not reach so far: ${JSON.stringify(stream)}`;
  return refuse({ code: "offset_beyond_tail", detail, facts: { stream } });
}

async function list(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const limit = parseLimit(queryText(query, "limit"));
  // One more than asked for tells whether there is a next page.
  const found = await parts.engine.groups.list(queryText(query, "after") ?? "", limit + 1);
  const groups = found.slice(0, limit).map(({ id, members, streams, lag }) => {
    return { group: id, members, streams, lag };
  });
  const next = found.length > limit ? groups.at(-1)?.group : undefined;
  return json(200, { groups, next });
}

async function show(exchange: Exchange, parts: ServerParts, group: string): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const limit = parseLimit(queryText(query, "limit"));
  const view = await parts.engine.groups.describe(
    group,
    queryText(query, "after") ?? "",
    limit + 1,
  );
  return view === undefined ? refuse(GROUP_MISSING) : json(200, encodeView(view, limit));
}

function encodeView(view: GroupView, limit: number): unknown {
  const { pattern, streams, start, leaseMs } = view.settings;
  const cursors = view.cursors.slice(0, limit).map((cursor) => ({
    stream: cursor.stream,
    life: cursor.life,
    offset: formatOffset(cursor.offset),
    nextOffset: formatOffset(cursor.tail),
    lag: cursor.tail - cursor.offset,
    token: cursor.token,
    member: cursor.holder,
    handOver: cursor.askedUntilMs !== undefined,
    finished: cursor.isFinished,
  }));
  const members = view.members.map(({ id, leases, expiresAtMs }) => {
    return { member: id, leases, expiresInMs: Math.max(0, expiresAtMs - view.nowMs) };
  });
  return {
    group: view.id,
    pattern,
    streams,
    start: formatStart(start),
    leaseMs,
    createdAt: formatRfc3339(view.createdAtMs),
    members,
    cursors,
    next: view.cursors.length > limit ? cursors.at(-1)?.stream : undefined,
  };
}

async function remove(
  parts: ServerParts,
  group: string,
  act: Act | undefined,
): Promise<WholeAnswer> {
  const isThere = parts.engine.world.groups.byId.has(group);
  await parts.engine.groups.delete(group, act);
  if (isThere) parts.onAudit(`group deleted: group=${quoteForAudit(group)}`);
  return NO_CONTENT;
}

async function join(parts: ServerParts, group: string, body: Uint8Array): Promise<ServerAnswer> {
  const outcome = await parts.engine.groups.join(group, parseJoin(body));
  if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
  const { member, leaseMs } = outcome;
  return json(201, { member, leaseMs });
}

async function claim(parts: ServerParts, group: string, body: Uint8Array): Promise<ServerAnswer> {
  const { member, max } = parseGroupClaim(body);
  const outcome = await parts.engine.groups.claim(group, member, max);
  if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
  if (outcome.kind === "member_lost") return refuse(encodeLeaseRefusal(outcome));
  const { leases, handOver, leaseMs, share } = outcome;
  const show = ({ stream, life, token, offset }: LeaseView): unknown => {
    return { stream, life, token, offset: formatOffset(offset) };
  };
  const list = { name: "leases", items: leases, show };
  return jsonWithList(parts.engine.slices(), list, { handOver, leaseMs, share });
}

async function commit(parts: ServerParts, group: string, body: Uint8Array): Promise<ServerAnswer> {
  const { member, commits } = parseGroupCommit(body);
  const outcome = await parts.engine.groups.commit(group, member, commits);
  if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
  if (outcome.kind !== "committed") return refuse(encodeLeaseRefusal(outcome));
  const { leaseMs, handOver } = outcome;
  return json(200, { leaseMs, handOver });
}

async function release(parts: ServerParts, group: string, body: Uint8Array): Promise<ServerAnswer> {
  const { member, leases } = parseGroupRelease(body);
  const outcome = await parts.engine.groups.release(group, member, leases);
  return outcome.kind === "group_missing" ? refuse(GROUP_MISSING) : NO_CONTENT;
}

async function leave(parts: ServerParts, group: string, body: Uint8Array): Promise<ServerAnswer> {
  const outcome = await parts.engine.groups.leave(group, parseLeave(body));
  return outcome.kind === "group_missing" ? refuse(GROUP_MISSING) : NO_CONTENT;
}

function reset(
  parts: ServerParts,
  group: string,
  body: Uint8Array,
  exchange: Exchange,
): Promise<ServerAnswer> {
  const encode = ({ streams = 0 }: ActOutcome): WholeAnswer => json(200, { streams });
  return actOnce(exchange, parts, body, (act) => resetOnce(parts, group, body, act), encode);
}

async function resetOnce(
  parts: ServerParts,
  group: string,
  body: Uint8Array,
  act: Act | undefined,
): Promise<ServerAnswer> {
  const { stream, to } = parseGroupReset(body);
  const outcome = await parts.engine.groups.reset(group, stream, to, act);
  switch (outcome.kind) {
    case "group_missing":
      return refuse(GROUP_MISSING);
    case "stream_missing": {
      const facts = { stream: outcome.stream };
      return refuse({ code: "stream_not_found", detail: "the group has no such stream", facts });
    }
    case "beyond_tail":
      return refuseBeyond(outcome.stream);
    case "inside_record":
      return refuse(refuseInside(outcome.stream));
    case "reset": {
      const streams = outcome.change.offsets.length;
      const only = stream === undefined ? "" : ` stream=${quoteForAudit(stream)}`;
      const what = `group=${quoteForAudit(group)}${only} to=${formatStart(to)}`;
      parts.onAudit(`group reset: ${what} streams=${streams}`);
      return json(200, { streams });
    }
  }
}
