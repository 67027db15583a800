/**
 * A worker of a group of jobs at the server: joins, takes, settles, and stays alive. PROTOCOL.md §20.5.
 *
 *   - an answer that was lost is asked for again: each call names the last answer that was received;
 *   - what is settled while a call is on its way goes with the next one;
 *   - a worker of a server whose data went back in time fails: it does not do jobs again in silence;
 *   - a worker that the server has forgotten has lost all its jobs, and joins again as another one.
 */

import { assert } from "../../base/assert.ts";
import { decodeBase64 } from "../../base/base64.ts";
import { decodeText, utf8Of } from "../../base/bytes.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { elementStarts, memberText } from "../../protocol/json.ts";
import type { Caller } from "../attempt.ts";
import { JsonText } from "../records.ts";
import { callJson, jsonCall, listOf, mapOf, memberMapOf, settleCall, withRetry } from "./calls.ts";
import { numberIn } from "./claim.ts";
import type { JobLease } from "./lease.ts";
import type { Addresses } from "./paths.ts";
import { KnownLives } from "./restored.ts";

/** A job as it was given. */
export interface GivenJob {
  readonly lease: JobLease;
  readonly life: string;
  readonly attempt: number;
  readonly record: unknown;
  /** The record as it is stored, with every digit. */
  readonly stored: () => JsonText | Uint8Array;
}

/** How a job is settled. */
export type Settlement =
  | { readonly kind: "done" }
  | { readonly kind: "later"; readonly delayMs: number; readonly isCounted: boolean };

interface Waiting {
  readonly lease: JobLease;
  readonly settlement: Settlement;
  readonly resolve: (isKept: boolean) => void;
  readonly reject: (error: unknown) => void;
}

/** The most that the server takes in one call. */
const CALL_MAX = 1000;
const DELAY_MS_MAX = 30 * 86_400_000;
/** Leaving is a courtesy: without it the jobs are free after their time. */
const LEAVE_MS_MAX = 3_000;

export interface JobMembershipParts {
  readonly caller: Caller;
  readonly addresses: Addresses;
  readonly group: string;
  /** Called when the server has forgotten the worker. */
  readonly forgotten: () => void;
  /** How long a call that settles may be repeated. Undefined: as the connection says. */
  readonly limitMs: () => number | undefined;
}

export class JobMembership {
  readonly #parts: JobMembershipParts;
  #member: string | undefined;
  #seen = 0;
  #leaseMs = 30_000;
  #queue: Waiting[] = [];
  readonly #lives = new KnownLives();
  #isSending = false;
  #isWaiting = false;

  constructor(parts: JobMembershipParts) {
    this.#parts = parts;
  }

  get leaseMs(): number {
    return this.#leaseMs;
  }

  /** A call for jobs was given up: the server may have answered it. */
  get isWaiting(): boolean {
    return this.#isWaiting && this.#member !== undefined;
  }

  /** Joins the group. Nothing is taken before. */
  async join(signal: AbortSignal): Promise<string> {
    const answer = await this.#call("join", { name: "worker" }, signal);
    const member = answer.get("member");
    if (typeof member !== "string") throw new HapaxError("internal", "a join without a member");
    this.#leaseMs = numberIn(answer, "leaseMs") ?? this.#leaseMs;
    this.#member = member;
    this.#seen = 0;
    return member;
  }

  /** Gives at most `max` jobs; waits for the first one. */
  async take(max: number, waitMs: number, signal: AbortSignal): Promise<readonly GivenJob[]> {
    const member = this.#member ?? (await this.join(signal));
    const body = { member, max: Math.min(max, CALL_MAX), seen: this.#seen, waitMs };
    const { caller } = this.#parts;
    const timeoutMs = caller.options.timeoutMs + waitMs;
    const call = { method: "POST", url: this.#url("take"), signal, timeoutMs };
    this.#isWaiting = true;
    const { text, refusal } = await settleCall(caller, jsonCall(call, body));
    this.#isWaiting = false;
    if (refusal !== undefined) throw this.#heard(refusal.error, member);
    const answer = memberMapOf(text);
    const token = numberIn(answer, "token");
    if (token === undefined) throw new HapaxError("internal", "the answer has no token");
    this.#seen = Math.max(this.#seen, token);
    this.#leaseMs = numberIn(answer, "leaseMs") ?? this.#leaseMs;
    const { group } = this.#parts;
    const stored = storedIn(text);
    return listOf(answer.get("jobs")).map((value, index) => {
      const job = jobOf(value, { group, member, token });
      this.#lives.meet(job.lease.stream, job.life);
      return { ...job, stored: () => stored(index) };
    });
  }

  /** Settles a job. Resolves to false if it is not this worker's any more. */
  settle(lease: JobLease, settlement: Settlement): Promise<boolean> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ lease, settlement, resolve, reject });
      if (!this.#isSending) void this.#sendAll();
    });
  }

  /** Shows that the worker lives. */
  async beat(signal: AbortSignal): Promise<void> {
    const member = this.#member;
    if (member === undefined) return;
    try {
      await this.#call("settle", { member }, signal);
    } catch (error) {
      throw this.#heard(error, member);
    }
  }

  /** Leaves the group: its jobs are free for others at once. */
  async leave(): Promise<void> {
    const member = this.#member;
    this.#member = undefined;
    if (member === undefined) return;
    try {
      await this.#call("leave", { member }, undefined, LEAVE_MS_MAX);
    } catch (error) {
      if (!isHapaxError(error)) throw error;
    }
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    // What is settled in one turn goes together.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const member = this.#queue[0]?.lease.member ?? "";
      const batch = this.#queue.filter(({ lease }) => lease.member === member).slice(0, CALL_MAX);
      const taken = new Set(batch);
      this.#queue = this.#queue.filter((one) => !taken.has(one));
      assert(batch.length > 0, "jobs wait, and no call takes one");
      await this.#send(member, batch);
    }
    this.#isSending = false;
  }

  async #send(member: string, batch: readonly Waiting[]): Promise<void> {
    const done: unknown[] = [];
    const later: unknown[] = [];
    for (const { lease, settlement } of batch) {
      const { stream, offset, token } = lease;
      const claim = { stream, offset, token };
      if (settlement.kind === "done") done.push(claim);
      else later.push({ ...claim, ...laterOf(settlement) });
    }
    try {
      const limitMs = this.#parts.limitMs();
      const answer = await this.#call("settle", { member, done, later }, undefined, limitMs);
      const lost = new Set(listOf(answer.get("lost")).map((one) => placeOf(mapOf(one))));
      for (const { lease, resolve } of batch) {
        resolve(!lost.has(`${lease.offset} ${lease.stream}`));
      }
    } catch (error) {
      const heard = this.#heard(error, member);
      const isLost = isHapaxError(heard, "member_lost");
      for (const { resolve, reject } of batch) {
        if (isLost) resolve(false);
        else reject(heard);
      }
    }
  }

  #heard(error: unknown, member: string): unknown {
    if (isHapaxError(error, "member_lost") && this.#member === member) {
      this.#member = undefined;
      this.#parts.forgotten();
    }
    return error;
  }

  #url(action: string): string {
    return this.#parts.addresses.group(this.#parts.group, action);
  }

  #call(
    action: string,
    body: unknown,
    signal: AbortSignal | undefined,
    limitMs?: number,
  ): Promise<ReadonlyMap<string, unknown>> {
    const { caller } = this.#parts;
    const { options } = caller;
    // An attempt without an answer must not use up the time of the next ones.
    const timeoutMs = Math.min(options.timeoutMs, this.#leaseMs / 3, limitMs ?? Infinity);
    const call = { method: "POST", url: this.#url(action), signal, timeoutMs };
    const pauseMsMax = Math.min(options.retry.pauseMsMax, Math.max(1, this.#leaseMs / 6));
    const retry = { pauseMsMax, pauseMs: Math.min(options.retry.pauseMs, pauseMsMax) };
    const total = limitMs === undefined ? {} : { totalMs: limitMs };
    return callJson(withRetry(caller, { ...retry, ...total }), call, body);
  }
}

function laterOf({ delayMs, isCounted }: Extract<Settlement, { kind: "later" }>): object {
  const bounded = Math.min(Math.max(0, Math.ceil(delayMs)), DELAY_MS_MAX);
  return { delayMs: bounded, ...(isCounted ? {} : { uncounted: true }) };
}

function placeOf(members: ReadonlyMap<string, unknown>): string {
  return `${String(members.get("offset"))} ${String(members.get("stream"))}`;
}

function jobOf(
  value: unknown,
  owner: Pick<JobLease, "group" | "member" | "token">,
): Omit<GivenJob, "stored"> {
  const members = mapOf(value);
  const [stream, offset, life] = [
    members.get("stream"),
    members.get("offset"),
    members.get("life"),
  ];
  const attempt = numberIn(members, "attempt");
  const isWhole = typeof stream === "string" && typeof offset === "string";
  if (!isWhole || typeof life !== "string" || attempt === undefined) {
    throw new HapaxError("internal", "the server's answer has no valid job");
  }
  const base64 = members.get("base64");
  const record = typeof base64 === "string" ? decodeBase64(base64) : members.get("data");
  return { lease: { ...owner, stream, offset }, life, attempt, record };
}

/** Returns what finds the records of an answer as they are stored. It scans the answer only if it is asked. */
function storedIn(text: string): (index: number) => JsonText | Uint8Array {
  return (index) => {
    const jobs = memberText(utf8Of(text), "jobs") ?? new Uint8Array();
    const starts = elementStarts(jobs);
    const end = (starts[index + 1] ?? jobs.length) - 1;
    const job = jobs.subarray(starts[index] ?? 0, end);
    const data = memberText(job, "data");
    if (data !== undefined) return new JsonText(decodeText(data));
    const base64 = memberText(job, "base64");
    const words: unknown = base64 === undefined ? undefined : JSON.parse(decodeText(base64));
    return typeof words === "string" ? (decodeBase64(words) ?? new Uint8Array()) : new Uint8Array();
  };
}
