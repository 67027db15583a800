/**
 * processOnce: does the work of a key once, and gives its result to every caller.
 *
 *   - of all calls for a key, in all processes, one has an effect; the others get its result, or `in_progress`;
 *   - a call waits until there is a result, until it can take the work over, or until `waitMs` or its signal ends it;
 *   - the first caller gets what the others get: the result as it was kept;
 *   - inside the caller's transaction everything stays or goes with it.
 *
 * attempt.ts makes the attempt; toolkit/rules/claim.ts decides who may make it.
 */

import type { JsonOf } from "../../base/json-of.ts";
import { unlessAborted } from "../../base/aborts.ts";
import { HapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Entry, Ledger } from "../ledgers/ledger.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { attemptOnce, type AttemptOutcome } from "./attempt.ts";
import { exhausted } from "./attempt-end.ts";
import { type Flight, flightAt, startFlight } from "./flights.ts";
import { growingPauses } from "./pauses.ts";
import { decodeFailure, jsonCodec, type ResultCodec } from "./result.ts";
import {
  type Bytes,
  type OnceCallContext,
  type OnceInTransaction,
  type OnceJob,
  type OnceProbed,
  type OnceRepeatable,
  type ResolvedOnceOptions,
  type OnceTransactionContext,
  resolveOnce,
} from "./options.ts";

/** The result of a key. */
export interface OnceResult<T> {
  readonly result: T;
  /** True if the work was done before, by another call. */
  readonly isDuplicate: boolean;
  /** The token of the attempt that did the work. */
  readonly token: number;
}

/**
 * The error `in_progress`: another call does the work of the key. `retryAfterMs` is the rest of its lease: after that the
 * work has ended, has renewed its lease, or can be taken over.
 *
 * ```ts
 * import { isHapaxError } from "hapax";
 * import { InProgress } from "hapax/ledger";
 *
 * const error = new InProgress("scope=* key=order 17", 2_000);
 * console.assert(isHapaxError(error, "in_progress") && error.retryAfterMs === 2_000);
 * ```
 */
export class InProgress extends HapaxError {
  readonly retryAfterMs: number;

  constructor(where: string, retryAfterMs: number) {
    const message = `another call does the work; ${where} retryAfterMs=${Math.ceil(retryAfterMs)}`;
    super("in_progress", message, { status: 409 });
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * Does the work of a key once, and returns its result to every call with this key. Work in a transaction is committed
 * together with its record; with `ledger.in(tx)` both are part of your own transaction. Throws what the work throws, and
 * `in_progress`, `key_reused`, `lease_lost`, `failure_kept`, `attempts_exhausted`, `outcome_unknown`.
 *
 * ```ts
 * import { GLOBAL, processOnce } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * let charged = 0;
 * const charge = () =>
 *   processOnce(ledger, { scope: GLOBAL, key: "charge order 17" }, ({ tx }) => {
 *     charged += 100;
 *     tx.undo(() => (charged -= 100)); // What a database does by itself.
 *     return { receipt: "r1" };
 *   });
 * const [first, second] = [await charge(), await charge()];
 * console.assert(charged === 100 && second.isDuplicate && second.result.receipt === first.result.receipt);
 * ```
 */
export async function processOnce<Tx, T>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  fn: (context: OnceTransactionContext<Tx>) => T | Promise<T>,
  options: OnceInTransaction<T> & { readonly codec: ResultCodec<T> },
): Promise<OnceResult<T>>;
/** Without a codec the result goes through JSON, for the first caller too: a `Date` becomes a string. */
export async function processOnce<Tx, T>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  fn: (context: OnceTransactionContext<Tx>) => T | Promise<T>,
  options?: OnceInTransaction<T>,
): Promise<OnceResult<JsonOf<T>>>;
/** For work that happens elsewhere: it gets a key for the other side, and no transaction. */
export async function processOnce<Tx, T>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  fn: (context: OnceCallContext) => T | Promise<T>,
  options: (OnceRepeatable<T> | OnceProbed<T>) & { readonly codec: ResultCodec<T> },
): Promise<OnceResult<T>>;
/** The same without a codec. */
export async function processOnce<Tx, T>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  fn: (context: OnceCallContext) => T | Promise<T>,
  options: OnceRepeatable<T> | OnceProbed<T>,
): Promise<OnceResult<JsonOf<T>>>;
/** The implementation of all of them. */
export async function processOnce<Tx, T>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  fn:
    | ((context: OnceTransactionContext<Tx>) => T | Promise<T>)
    | ((context: OnceCallContext) => T | Promise<T>),
  options: ResolvedOnceOptions<T> = {},
): Promise<OnceResult<T>> {
  const job = resolveOnce(identity, fn, withinTransactions(ledger, options));
  requireSupport(ledger, job);
  const { data, isDuplicate, token } = await ended(ledger, job);
  const { fresh } = job;
  // Cast: the copy of a result has its type.
  if (data !== undefined && data === fresh.bytes)
    return { result: fresh.copy as T, isDuplicate, token };
  // The default codec can decode everything that it has encoded.
  const codec = options.codec ?? (jsonCodec as ResultCodec<T>);
  return { result: decode(data, codec), isDuplicate, token };
}

/** `undefined` has no bytes. */
function decode<T>(data: Bytes, codec: ResultCodec<T>): T {
  return data === undefined ? (undefined as T) : codec.decode(data);
}

interface Result {
  readonly data: Bytes;
  readonly isDuplicate: boolean;
  readonly token: number;
}

/** Refuses times that no transaction of the ledger may take. The default becomes the longest one. */
function withinTransactions<Tx, T>(
  { name, supports }: Ledger<Tx>,
  options: ResolvedOnceOptions<T>,
): ResolvedOnceOptions<T> {
  const { transactionMsMax: most } = supports;
  if (most === undefined || (options.effect ?? "transaction") !== "transaction") return options;
  for (const [word, ms = 0] of [
    ["leaseMs", options.leaseMs],
    ["workMsMax", options.workMsMax],
  ] as const)
    if (ms > most) {
      const facts = `${word}=${ms} transactionMsMax=${most}`;
      throw new HapaxError("unsupported", `ledger=${name} ends longer transactions; ${facts}`);
    }
  return { ...options, workMsMax: options.workMsMax ?? most };
}

function requireSupport<Tx>(ledger: Ledger<Tx>, { work, onFailure, waitMs }: OnceJob<Tx>): void {
  if (work.effect === "transaction" && !ledger.supports.transactions)
    throw new HapaxError("unsupported", `ledger=${ledger.name} has no transactions`);
  if (!ledger.isJoined) return;
  const problems = [
    work.effect === "transaction"
      ? ""
      : "effect must be transaction: others could not see the claim",
    onFailure === "remember" ? "onFailure=remember would be rolled back with the transaction" : "",
    waitMs > 0 ? "waitMs must be 0: the transaction would keep from others what it waits for" : "",
  ].filter((problem) => problem !== "");
  if (problems.length > 0)
    throw new HapaxError("unsupported", `in the caller's transaction ${problems.join("; ")}`);
}

/** Most calls end with their first attempt, and wait for nothing. */
function ended<Tx>(ledger: Ledger<Tx>, job: OnceJob<Tx>): Promise<Result> {
  const { clock, signal, waitMs } = job;
  const endMs = waitMs > 0 ? clock.steadyMs() + waitMs : 0;
  signal?.throwIfAborted();
  const own = startOwn(ledger, job, false);
  if (own === undefined) return untilEnded(ledger, job, endMs, undefined);
  return own.then((outcome) => {
    const verdict = judge(outcome, job, true);
    return verdict.kind === "result" ? verdict.result : untilEnded(ledger, job, endMs, verdict);
  });
}

/** `first`: the verdict on the first attempt. */
async function untilEnded<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
  endMs: number,
  first: Verdict | undefined,
): Promise<Result> {
  const { clock, signal, tools } = job;
  const nextMs = growingPauses(tools.random);
  let isKnown = false;
  let begun = first;
  for (;;) {
    let verdict = begun;
    begun = undefined;
    if (verdict === undefined) {
      signal?.throwIfAborted();
      const own = startOwn(ledger, job, isKnown);
      const outcome = await (own ?? outcomeOfOther(ledger, job));
      // Undefined: the other one has ended before this call could join it.
      if (outcome === undefined) continue;
      verdict = judge(outcome, job, own !== undefined);
    }
    if (verdict.kind === "result") return verdict.result;
    if (verdict.kind === "again") continue;
    if (!isKnown) tools.meter.add("in_progress_total", 1, { primitive: "once" });
    isKnown = true;
    const leftMs = endMs - clock.steadyMs();
    if (leftMs <= 0) throw new InProgress(job.where, verdict.leaseLeftMs);
    // Not longer than its lease: then this call can take the work over.
    const pauseMs = Math.max(1, Math.min(nextMs(), leftMs, Math.ceil(verdict.leaseLeftMs)));
    await pause(clock, pauseMs, signal);
  }
}

/** Starts an attempt of this call. Returns undefined if an attempt of this process has the key. */
function startOwn<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
  isKnown: boolean,
): Promise<AttemptOutcome> | undefined {
  // Two transactions of the caller do not see each other: calls do not join across them.
  if (ledger.isJoined) return attemptOnce(ledger, job, isKnown, () => undefined);
  if (flightAt(ledger, job.place) !== undefined) return undefined;
  return startFlight(ledger, job.place, job.terms.fingerprint, (onClaimed) =>
    attemptOnce(ledger, job, isKnown, onClaimed),
  ).outcome;
}

/** Joins the running attempt of this process. Undefined: it has ended without the key. */
async function outcomeOfOther<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
): Promise<AttemptOutcome | undefined> {
  const { place, terms, signal } = job;
  const flight = flightAt(ledger, place);
  if (flight === undefined) return undefined;
  if (!isOtherContent(flight, terms.fingerprint))
    return await unlessAborted(flight.outcome, signal);
  // Only when it is certain that the other attempt has the key.
  if (flight.isClaimed) throw reused(job);
  await unlessAborted(flight.claimed, signal);
  return undefined;
}

function isOtherContent(flight: Flight, fingerprint: string | undefined): boolean {
  return (
    fingerprint !== undefined &&
    flight.fingerprint !== undefined &&
    fingerprint !== flight.fingerprint
  );
}

type Verdict =
  | { readonly kind: "result"; readonly result: Result }
  | { readonly kind: "again" }
  | { readonly kind: "wait"; readonly leaseLeftMs: number };

/** Decides what an outcome means for this call. A call that only joined tries again after an outcome without a result. */
function judge<Tx>(outcome: AttemptOutcome, job: OnceJob<Tx>, isOwn: boolean): Verdict {
  const { meter } = job.tools;
  switch (outcome.kind) {
    case "ended": {
      const isDuplicate = outcome.isDuplicate || !isOwn;
      if (isDuplicate) meter.add("duplicates_total", 1, { primitive: "once" });
      if (isOwn) tellHeadroom(outcome.keepLeftMs, job);
      const { data, token } = outcome;
      return { kind: "result", result: { data, token, isDuplicate } };
    }
    case "running":
      return { kind: "wait", leaseLeftMs: leaseLeftOf(outcome.entry) };
    case "failed":
      throw decodeFailure(outcome.entry.data, job.where);
    case "exhausted":
      if (!isOwn) return { kind: "again" };
      throw exhausted(job, outcome.entry.attempts);
    case "mismatch":
      if (!isOwn) return { kind: "again" };
      throw reused(job);
    case "threw":
      if (!isOwn) return { kind: "again" };
      throw outcome.error;
  }
}

function leaseLeftOf({ leaseLeftMs }: Entry): number {
  return Math.max(0, leaseLeftMs ?? 0);
}

function tellHeadroom<Tx>(keepLeftMs: number | undefined, { terms, tools }: OnceJob<Tx>): void {
  if (keepLeftMs === undefined) return;
  const ratio = Math.min(1, keepLeftMs / terms.retainMs);
  tools.meter.set("window_headroom_ratio", ratio, { primitive: "once" });
}

function reused<Tx>(job: OnceJob<Tx>): HapaxError {
  job.tools.meter.add("mismatches_total", 1, { primitive: "once" });
  return new HapaxError("key_reused", `the key was used for other content; ${job.where}`);
}
