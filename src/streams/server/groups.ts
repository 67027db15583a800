/** Groups: members that share streams under leases. PROTOCOL.md §20. */

import type { Act, ActOutcome } from "../engine/acts.ts";
import type { CursorView, GroupView, LeaseView } from "../engine/groups.ts";
import { notAllowed } from "../access/access.ts";
import { NO_NAME } from "../core/scoped-name.ts";
import { HapaxError } from "../../base/errors.ts";
import { refuseEncoding } from "../../protocol/content-encoding.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
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
import { invalid, type Refusal } from "../../protocol/refusal.ts";
import { encodeLeaseRefusal, refuseInside } from "../../protocol/transaction-answer.ts";
import { formatOffset, formatRfc3339, parseQuery } from "../../protocol/values.ts";
import { actOnce } from "./acts.ts";
import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import { findShownGroup, mayFollow } from "./following.ts";
import { json, jsonWithList, parseLimit, queryText } from "./json.ts";
import { refuse } from "./problem.ts";
import { readRequestBody } from "./request-body.ts";
import { refuseTrimmed } from "./retention.ts";
import { type RouteOperation, readRoute, type Route, type RouteCall } from "./route.ts";

const GROUPS_PATH = "/_hapax/groups";

const NO_CONTENT: WholeAnswer = { status: 204, headers: { [HEADER.cacheControl]: "no-store" } };
export const GROUP_MISSING: Refusal = {
  code: "group_not_found",
  detail: "there is no group of this name",
};

/**
 * Handlers of one group: its name as the caller knows it, and the one under which the engine keeps it. For a group that follows more
 * than the caller may read, that is a name which no group has.
 */
export interface GroupCall extends RouteCall {
  readonly group: string;
  readonly kept: string;
  /** Empty for methods without one. */
  readonly body: Uint8Array;
}

const NO_BODY = new Uint8Array(0);

type GroupHandler = (call: GroupCall) => Promise<ServerAnswer>;

const groupOf = ([encoded = ""]: readonly string[]): string => parseGroupId(encoded);

function operation(action: "consume" | "admin", handle: GroupHandler): RouteOperation {
  return {
    needs: [action],
    subject: (_exchange, params) => ({ group: groupOf(params) }),
    handle: async (call) => {
      const { parts, access, exchange } = call;
      const group = groupOf(call.params);
      // Before the check: while a body comes, the group can become another one.
      const body = exchange.method === "POST" ? await readGroupBody(call) : NO_BODY;
      const keptName = await findShownGroup(parts, access, action, group);
      return handle({ ...call, group, kept: keptName(), body });
    },
  };
}

export function postToGroup(
  name: string,
  action: "consume" | "admin",
  handle: GroupHandler,
): Route {
  const methods = { POST: operation(action, handle) };
  return { path: `${GROUPS_PATH}/{group}/${name}`, methods, allow: "POST, OPTIONS" };
}

const SHOW = operation("consume", show);

export const GROUP_ROUTES: readonly Route[] = [
  readRoute(GROUPS_PATH, {
    needs: ["consume"],
    handle: list,
  }),
  {
    path: `${GROUPS_PATH}/{group}`,
    methods: {
      GET: SHOW,
      HEAD: SHOW,
      PUT: {
        needs: ["consume"],
        subject: (_exchange, params) => ({ group: groupOf(params) }),
        handle: create,
      },
      DELETE: operation("admin", (call) =>
        actOnce(
          call,
          undefined,
          (act) => remove(call, act),
          () => NO_CONTENT,
        ),
      ),
    },
    allow: "GET, HEAD, PUT, DELETE, OPTIONS",
  },
  postToGroup("join", "consume", join),
  postToGroup("claim", "consume", claim),
  postToGroup("commit", "consume", commit),
  postToGroup("release", "consume", release),
  postToGroup("leave", "consume", leave),
  postToGroup("reset", "admin", reset),
];

function readGroupBody(call: RouteCall): Promise<Uint8Array> {
  refuseEncoding((name) => call.exchange.header(name));
  return readRequestBody(call, LIMITS.groupBodyBytesMax);
}

async function create(call: RouteCall): Promise<ServerAnswer> {
  const { parts, access, params } = call;
  const group = groupOf(params);
  const settings = parseGroupSettings(await readGroupBody(call));
  if (!(await mayFollow(parts, access, "consume", { group }, settings))) {
    throw notAllowed("consume");
  }
  const keptName = await findShownGroup(parts, access, "consume", group);
  // There cannot be two groups of one name. Of one that is hidden the caller learns nothing else.
  const isHidden = keptName() === NO_NAME;
  const outcome = await parts.engine.groups.create(access.scoped(group), settings);
  switch (outcome.kind) {
    case "conflict":
      throw new HapaxError(
        "group_exists",
        isHidden ? "the name is taken" : `the group differs in ${outcome.reason}`,
      );
    case "beyond_tail":
      return refuseBeyond(outcome.stream);
    case "trimmed":
      return refuseTrimmed(outcome, { stream: outcome.stream });
    case "inside_record":
      return refuse(refuseInside(outcome.stream));
    default: {
      const { pattern, streams, leaseMs, jobs } = settings;
      const start = formatStart(settings.start);
      const status = outcome.kind === "created" ? 201 : 200;
      return json(status, { group, pattern, streams, start, leaseMs, jobs });
    }
  }
}

function refuseBeyond(stream: string): ServerAnswer {
  const detail = `the stream does not reach so far: ${JSON.stringify(stream)}`;
  return refuse({ code: "offset_beyond_tail", detail, facts: { stream } });
}

async function list({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const limit = parseLimit(queryText(query, "limit"));
  // One more than asked for tells whether there is a next page.
  const after = access.scoped(queryText(query, "after") ?? "");
  const found = await parts.engine.groups.list(after, limit + 1, (kept, settings) => {
    const group = access.unscoped(kept);
    return group !== undefined && mayFollow(parts, access, "consume", { group }, settings);
  });
  const groups = found.slice(0, limit).map(({ id, members, streams, lag }) => {
    return { group: access.unscoped(id), members, streams, lag };
  });
  const next = found.length > limit ? groups.at(-1)?.group : undefined;
  return json(200, { groups, next });
}

async function show({ exchange, parts, group, kept }: GroupCall): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const limit = parseLimit(queryText(query, "limit"));
  const after = queryText(query, "after") ?? "";
  const view = await parts.engine.groups.describe(kept, after, limit + 1);
  return view === undefined ? refuse(GROUP_MISSING) : json(200, encodeView(group, view, limit));
}

/** What an operator asks of jobs: how many are given and not done, how many of these have no worker, and how often one was tried. */
function countJobs({ members, nowMs }: GroupView, { jobs }: CursorView): object {
  const working = new Set<string>();
  for (const { id, expiresAtMs } of members) if (expiresAtMs > nowMs) working.add(id);
  let [waitingJobs, attemptMax] = [0, 0];
  for (const { holder, attempts } of jobs?.open.values() ?? []) {
    if (holder === undefined || !working.has(holder)) waitingJobs += 1;
    attemptMax = Math.max(attemptMax, attempts);
  }
  return { openJobs: jobs?.open.size ?? 0, waitingJobs, attemptMax };
}

function encodeView(group: string, view: GroupView, limit: number): unknown {
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
    ...(view.settings.jobs === true ? countJobs(view, cursor) : {}),
  }));
  const members = view.members.map(({ id, leases, expiresAtMs }) => {
    return { member: id, leases, expiresInMs: Math.max(0, expiresAtMs - view.nowMs) };
  });
  return {
    group,
    pattern,
    streams,
    start: formatStart(start),
    leaseMs,
    jobs: view.settings.jobs,
    createdAt: formatRfc3339(view.createdAtMs),
    members,
    cursors,
    next: view.cursors.length > limit ? cursors.at(-1)?.stream : undefined,
  };
}

async function remove({ parts, kept }: GroupCall, act: Act | undefined): Promise<WholeAnswer> {
  const isThere = parts.engine.world.groups.byId.has(kept);
  await parts.engine.groups.delete(kept, act);
  return isThere ? NO_CONTENT : { ...NO_CONTENT, audit: false };
}

async function join({ parts, kept, body }: GroupCall): Promise<ServerAnswer> {
  const outcome = await parts.engine.groups.join(kept, parseJoin(body));
  if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
  const { member, leaseMs } = outcome;
  return json(201, { member, leaseMs });
}

async function claim({ parts, kept, body }: GroupCall): Promise<ServerAnswer> {
  const { member, max } = parseGroupClaim(body);
  if (parts.engine.world.groups.byId.get(kept)?.settings.jobs === true) {
    throw invalid("the group", "gives jobs: take them, instead of claiming streams");
  }
  const outcome = await parts.engine.groups.claim(kept, member, max);
  if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
  if (outcome.kind === "member_lost") return refuse(encodeLeaseRefusal(outcome));
  const { leases, handOver, leaseMs, share } = outcome;
  const show = ({ stream, life, token, offset }: LeaseView): unknown => {
    return { stream, life, token, offset: formatOffset(offset) };
  };
  const list = { name: "leases", items: leases, show };
  return jsonWithList(parts.engine.slices(), list, { handOver, leaseMs, share });
}

async function commit({ parts, kept, body }: GroupCall): Promise<ServerAnswer> {
  const { member, commits } = parseGroupCommit(body);
  const outcome = await parts.engine.groups.commit(kept, member, commits);
  if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
  if (outcome.kind !== "committed") return refuse(encodeLeaseRefusal(outcome));
  const { leaseMs, handOver } = outcome;
  return json(200, { leaseMs, handOver });
}

async function release({ parts, kept, body }: GroupCall): Promise<ServerAnswer> {
  const { member, leases } = parseGroupRelease(body);
  const outcome = await parts.engine.groups.release(kept, member, leases);
  return outcome.kind === "group_missing" ? refuse(GROUP_MISSING) : NO_CONTENT;
}

async function leave({ parts, kept, body }: GroupCall): Promise<ServerAnswer> {
  const outcome = await parts.engine.groups.leave(kept, parseLeave(body));
  return outcome.kind === "group_missing" ? refuse(GROUP_MISSING) : NO_CONTENT;
}

function reset(call: GroupCall): Promise<ServerAnswer> {
  const { body } = call;
  const encode = ({ streams = 0 }: ActOutcome): WholeAnswer => json(200, { streams });
  return actOnce(call, body, (act) => resetOnce(call, act), encode);
}

async function resetOnce(
  { parts, group, kept, body }: GroupCall,
  act: Act | undefined,
): Promise<ServerAnswer> {
  const { stream, to } = parseGroupReset(body);
  const outcome = await parts.engine.groups.reset(kept, stream, to, act);
  switch (outcome.kind) {
    case "group_missing":
      return refuse(GROUP_MISSING);
    case "stream_missing": {
      const facts = { stream: outcome.stream };
      return refuse({ code: "stream_not_found", detail: "the group has no such stream", facts });
    }
    case "beyond_tail":
      return refuseBeyond(outcome.stream);
    case "trimmed":
      return refuseTrimmed(outcome, { stream: outcome.stream });
    case "inside_record":
      return refuse(refuseInside(outcome.stream));
    case "reset": {
      const streams = outcome.change.offsets.length;
      const only = stream === undefined ? {} : { stream };
      const acts = [{ act: "group.reset", target: group }];
      const audit = { acts, details: { ...only, to: formatStart(to), streams } };
      return { ...json(200, { streams }), audit };
    }
  }
}
