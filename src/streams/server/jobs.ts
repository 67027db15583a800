/** Jobs: workers take single records of a group's streams, and settle them. PROTOCOL.md §20.5. */

import { encodeBase64 } from "../../base/base64.ts";
import { invalid } from "../../protocol/refusal.ts";
import { parseSettle, parseTake, type TakeBody } from "../../protocol/job.ts";
import { encodeLeaseRefusal } from "../../protocol/transaction-answer.ts";
import { formatOffset } from "../../protocol/values.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { TakeCommand, TakenJob, TakeView } from "../engine/jobs.ts";
import type { Slices } from "../engine/turn-budget.ts";
import type { ServerAnswer } from "./exchange.ts";
import { GROUP_MISSING, type GroupCall, postToGroup } from "./groups.ts";
import { json } from "./json.ts";
import { refuse } from "./problem.ts";
import type { Route } from "./route.ts";

export const JOB_ROUTES: readonly Route[] = [
  postToGroup("take", "consume", take),
  postToGroup("settle", "consume", settle),
];

const utf8 = new TextEncoder();

async function take(call: GroupCall): Promise<ServerAnswer> {
  const { exchange, parts } = call;
  const request = parseTake(call.body);
  const untilMs = parts.clock.steadyMs() + request.waitMs;
  // A worker that waits is one of the live readers that its caller may have.
  const leave = request.waitMs === 0 ? undefined : call.ticket?.openReader();
  let isGone = false;
  exchange.onAbort(() => {
    isGone = true;
  });
  try {
    for (;;) {
      const answer = await takeOnce(call, { ...request, isGone: () => isGone });
      if ("status" in answer) return answer;
      const leftMs = untilMs - parts.clock.steadyMs();
      if (leftMs > 0 && !parts.drain.isDraining) await waitForJobs(call, request, leftMs);
      // A worker that has gone must get nothing: it would not learn of it.
      const isOver = isGone || leftMs <= 0 || parts.drain.isDraining;
      if (isOver) return encodeNothing(request, answer);
      call.access.requireCurrent(parts.clock.nowMs());
    }
  } finally {
    leave?.();
  }
}

/** Answers with jobs or a refusal; without a job, what was found. */
async function takeOnce(call: GroupCall, request: TakeCommand): Promise<ServerAnswer | TakeView> {
  const { exchange, parts, kept } = call;
  // The group may have become another one while the call waited.
  requireRead(call);
  const share = await parts.answers.take(LIMITS.pageBytesMax, exchange.peer);
  let isSent = false;
  try {
    const outcome = await parts.engine.jobs.take(kept, request);
    if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
    if (outcome.kind === "member_lost") return refuse(encodeLeaseRefusal(outcome));
    if (outcome.kind === "no_jobs") throw noJobs();
    if (outcome.jobs.length === 0) return outcome;
    const { pieces, bytes } = await encodeTaken(parts.engine.slices(), outcome);
    share.resize(bytes);
    isSent = true;
    return { ...json(200, {}), body: pieces, share };
  } finally {
    if (!isSent) share.release();
  }
}

function encodeNothing({ seen }: TakeBody, { leaseMs, isFull }: TakeView): ServerAnswer {
  return json(200, { token: seen, leaseMs, jobs: [], ...(isFull ? { full: true } : {}) });
}

/** An answer has records, so its caller must be one that may read them. */
function requireRead({ parts, access, kept }: GroupCall): void {
  const settings = parts.engine.world.groups.byId.get(kept)?.settings;
  if (settings === undefined || settings.jobs !== true) return;
  for (const stream of settings.streams) access.require("read", { stream });
}

/** Resolves when there may be something to take, or the time is over. */
function waitForJobs(call: GroupCall, request: TakeBody, leftMs: number): Promise<void> {
  const { exchange, parts, access, kept } = call;
  return new Promise((resolve) => {
    const ends: (() => void)[] = [];
    const finish = (): void => {
      for (const end of ends.splice(0)) end();
      // Other requests get their turn before the next look, also if there is always a reason to look.
      parts.clock.after(0, resolve);
    };
    ends.push(
      parts.engine.jobs.watch(kept, request, finish),
      parts.clock.after(leftMs, finish),
      parts.drain.onDrain(finish),
      access.onEnd(finish),
    );
    exchange.onAbort(finish);
  });
}

/** The records go as they are stored. */
async function encodeTaken(
  slices: Slices,
  { token, leaseMs, jobs }: TakeView,
): Promise<{ readonly pieces: readonly Uint8Array[]; readonly bytes: number }> {
  const pieces: Uint8Array[] = [utf8.encode(`{"token":${token},"leaseMs":${leaseMs},"jobs":[`)];
  for (const [index, job] of jobs.entries()) {
    if (!slices.take()) await slices.turn();
    pieces.push(...encodeJob(job, index === 0 ? "" : ","));
  }
  pieces.push(utf8.encode("]}"));
  let bytes = 0;
  for (const piece of pieces) bytes += piece.length;
  return { pieces, bytes };
}

function encodeJob(job: TakenJob, before: string): readonly Uint8Array[] {
  const { stream, life, offset, end, attempt, data, isJson } = job;
  const place = { stream, life, offset: formatOffset(offset), nextOffset: formatOffset(end) };
  const head = before + JSON.stringify({ ...place, attempt }).slice(0, -1);
  if (!isJson) return [utf8.encode(`${head},"base64":"${encodeBase64(data)}"}`)];
  return [utf8.encode(`${head},"data":`), data, utf8.encode("}")];
}

async function settle({ parts, kept, body }: GroupCall): Promise<ServerAnswer> {
  const { member, done, later } = parseSettle(body);
  const outcome = await parts.engine.jobs.settle(kept, member, done, later);
  if (outcome.kind === "group_missing") return refuse(GROUP_MISSING);
  if (outcome.kind === "member_lost") return refuse(encodeLeaseRefusal(outcome));
  if (outcome.kind === "no_jobs") throw noJobs();
  const lost = outcome.lost.map(({ stream, offset }) => ({ stream, offset: formatOffset(offset) }));
  return json(200, { leaseMs: outcome.leaseMs, lost });
}

function noJobs(): Error {
  return invalid("the group", "gives streams: create one with jobs, or claim the streams");
}
