/** The options of processOnce, and their check, once for each call. */

import { type Clock, waitingClock } from "../../base/clock.ts";
import type { Place } from "../ledgers/ledger.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { Check } from "./check.ts";
import type { ClaimTerms } from "./claiming.ts";
import { type ResolvedTools, resolveTools, type Tools } from "./tools.ts";
import * as limits from "./limits.ts";
import { remoteKey } from "./remote-key.ts";
import { encodeFresh, encodeResult, type FreshResult, type ResultCodec } from "./result.ts";

/** Options that all calls of `processOnce` share. */
export interface OnceOptions<T> extends Tools {
  /** How long a crash blocks the key, in milliseconds. The lease is renewed while the work runs. Default 30 s. */
  readonly leaseMs?: number;
  /** How long the result is kept, in milliseconds. Default 24 h. */
  readonly retainMs?: number;
  /** A digest of the content. The same key with another fingerprint is refused with `key_reused`. Default: not compared. */
  readonly fingerprint?: string;
  /**
   * What happens after work that throws. `retry` (default): the next call does it again. `remember`: later calls get
   * `failure_kept`. `forget`: the key is removed, and attempts are not counted.
   */
  readonly onFailure?: "retry" | "remember" | "forget";
  /** How often the work may be begun; after that, calls throw `attempts_exhausted`. Default: no limit. */
  readonly attemptsMax?: number;
  /**
   * True: the claim is committed before the work begins, so that others see it as running, and attempts are counted. That
   * costs a second commit. False: work in a transaction is one commit; others see it as running after a moment. Default: true
   * with `attemptsMax` or `onFailure: "remember"`, which need it, and for work whose effect is in another system.
   */
  readonly claimsFirst?: boolean;
  /** How long to wait for the result of another process, in milliseconds. Default 0: throw `in_progress` at once. */
  readonly waitMs?: number;
  /**
   * How long the work may take, in milliseconds. Then its signal aborts, its transaction is rolled back, its key is free, and
   * the call throws `lease_lost`. Default one hour.
   */
  readonly workMsMax?: number;
  /** The most bytes that a result may have when it is encoded. Default 1 MiB. */
  readonly resultBytesMax?: number;
  /** Encodes the result and decodes it. Default: JSON. */
  readonly codec?: ResultCodec<T>;
  readonly signal?: AbortSignal | undefined;
}

/** The effect is in the ledger's database: the work and its record are committed together. */
export interface OnceInTransaction<T> extends OnceOptions<T> {
  readonly effect?: "transaction";
}

/**
 * The effect is in another system. The work may be repeated, because that system recognises `context.key`.
 */
export interface OnceRepeatable<T> extends OnceOptions<T> {
  readonly effect: "repeatable";
}

/** The effect is in another system. The work is repeated only if that system says that it has not happened. */
export interface OnceProbed<T> extends OnceOptions<T> {
  readonly effect: "probed";
  /**
   * Called before work is repeated that had begun, and then crashed or failed. Returns whether it had its
   * effect.
   */
  readonly reconcile: (question: ReconcileQuestion) => Promise<Reconciled<T>>;
}

/** Says which work `reconcile` must look for. */
export interface ReconcileQuestion {
  /** The `context.key` of the work. */
  readonly key: string;
  /** How often the work was begun. */
  readonly attempt: number;
  readonly signal: AbortSignal;
}

/** The answer of `reconcile`. With `unknown` the call throws `outcome_unknown`, and the next call asks again. */
export type Reconciled<T> =
  | { readonly kind: "done"; readonly result: T }
  | { readonly kind: "not_done" }
  | { readonly kind: "unknown" };

/** The argument of work in a transaction. */
export interface OnceTransactionContext<Tx> {
  readonly tx: Tx;
  /** Aborts when the claim is lost, or may be lost soon; then nothing of this attempt is kept. */
  readonly signal: AbortSignal;
  /** The token of this attempt: greater than that of every attempt before. */
  readonly token: number;
  /** 1 is the first. */
  readonly attempt: number;
}

/** The argument of work whose effect is in another system. */
export interface OnceCallContext {
  /**
   * Pass it to the other system as the idempotency key. It is the same in every attempt, ASCII, and has at most 255
   * characters.
   */
  readonly key: string;
  readonly signal: AbortSignal;
  readonly token: number;
  readonly attempt: number;
}

/** A call with all options resolved. Its work returns the bytes that other calls will get. */
export interface OnceJob<Tx> {
  readonly place: Place;
  readonly terms: ClaimTerms;
  readonly tools: ResolvedTools;
  /** The clock for waiting: its timers keep the process alive. */
  readonly clock: Clock;
  readonly onFailure: "retry" | "remember" | "forget";
  readonly waitMs: number;
  readonly signal: AbortSignal | undefined;
  readonly work: JobWork<Tx>;
  readonly where: string;
  readonly fresh: FreshResult;
}

export type Bytes = Uint8Array | undefined;

export type JobWork<Tx> =
  | {
      readonly effect: "transaction";
      /** Answers at once if the work does. */
      readonly run: (context: OnceTransactionContext<Tx>) => Encodable | Promise<Encodable>;
    }
  | {
      readonly effect: "repeatable";
      readonly key: () => Promise<string>;
      readonly run: (context: OnceCallContext) => Promise<Encodable>;
    }
  | {
      readonly effect: "probed";
      readonly key: () => Promise<string>;
      readonly run: (context: OnceCallContext) => Promise<Encodable>;
      readonly reconcile: (question: ReconcileQuestion) => Promise<Reconciled<Encodable>>;
    };

/** Encodes the result when it is called. Throws if the result cannot be encoded. */
export type Encodable = () => Bytes;

export type ResolvedOnceOptions<T> = OnceInTransaction<T> | OnceRepeatable<T> | OnceProbed<T>;

type Work<Tx, T> =
  | ((context: OnceTransactionContext<Tx>) => T | Promise<T>)
  | ((context: OnceCallContext) => T | Promise<T>);

export function resolveOnce<Tx, T>(
  identity: ScopedKey,
  fn: Work<Tx, T>,
  options: ResolvedOnceOptions<T>,
): OnceJob<Tx> {
  const check = new Check();
  const { fingerprint, onFailure = "retry", effect = "transaction", signal } = options;
  const place = { kind: "once", ...check.identity(identity) };
  check.end("invalid_request");
  if (fingerprint !== undefined) check.name("fingerprint", fingerprint);
  const { LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX, RETAIN_MS_DEFAULT, RETAIN_MS_MAX } = limits;
  const leaseMs = check.whole(
    "leaseMs",
    options.leaseMs,
    LEASE_MS_DEFAULT,
    LEASE_MS_MIN,
    LEASE_MS_MAX,
  );
  const leastMs = Math.max(RETAIN_MS_DEFAULT, leaseMs);
  const retainMs = check.whole("retainMs", options.retainMs, leastMs, leaseMs, RETAIN_MS_MAX);
  const most = Number.MAX_SAFE_INTEGER;
  const attemptsMax = check.whole("attemptsMax", options.attemptsMax, most, 1, most);
  const waitMs = check.whole("waitMs", options.waitMs, 0, 0, limits.WAIT_MS_MAX);
  const { RESULT_BYTES_DEFAULT, RESULT_BYTES_MAX, WORK_MS_DEFAULT, WORK_MS_MAX } = limits;
  const workMsMax = check.whole("workMsMax", options.workMsMax, WORK_MS_DEFAULT, 1, WORK_MS_MAX);
  const bytesMax = check.whole(
    "resultBytesMax",
    options.resultBytesMax,
    RESULT_BYTES_DEFAULT,
    1,
    RESULT_BYTES_MAX,
  );
  if (effect === "probed" && onFailure === "forget")
    check.problem(
      "onFailure=forget would repeat, unasked, what effect=probed says must be asked for",
    );
  // Attempts that leave no trace cannot be counted, and a failure that is kept needs an entry.
  const isCounted = options.attemptsMax !== undefined || onFailure === "remember";
  const claimsFirst = options.claimsFirst ?? isCounted;
  if (isCounted && !claimsFirst)
    check.problem("claimsFirst=false keeps no count of attempts and no failure");
  checkWords(check, fn, options);
  check.end();
  const { codec } = options;
  const fresh: FreshResult = { bytes: undefined, copy: undefined };
  const encode = (result: T): Bytes =>
    codec === undefined
      ? encodeFresh(result, bytesMax, fresh)
      : encodeResult(result, codec, bytesMax);
  return {
    place,
    terms: {
      fingerprint,
      effect,
      attemptsMax,
      leaseMs,
      retainMs,
      workMsMax,
      locks: effect === "transaction" && !claimsFirst,
    },
    tools: resolveTools(options),
    clock: options.clock ?? waitingClock,
    onFailure,
    waitMs,
    signal,
    work: workOf(fn, options, place, (result) => () => encode(result)),
    fresh,
    where: `scope=${place.scope} key=${place.key}`,
  };
}

/** Checks what TypeScript checks for others: in JavaScript a wrong `effect` would silently lose its key. */
function checkWords<T>(check: Check, fn: unknown, options: ResolvedOnceOptions<T>): void {
  const { effect = "transaction", onFailure = "retry" } = options;
  if (typeof fn !== "function") check.problem("the work is not a function");
  check.word("effect", effect, ["transaction", "repeatable", "probed"]);
  check.word("onFailure", onFailure, ["retry", "remember", "forget"]);
  if (options.effect === "probed" && typeof options.reconcile !== "function")
    check.problem("effect=probed needs reconcile");
}

function workOf<Tx, T>(
  fn: Work<Tx, T>,
  options: ResolvedOnceOptions<T>,
  place: Place,
  encodable: (result: T) => Encodable,
): JobWork<Tx> {
  // The overloads of processOnce pair the work with its options.
  const begin = fn as (context: unknown) => T | Promise<T>;
  if (options.effect !== "repeatable" && options.effect !== "probed")
    return {
      effect: "transaction",
      run(context) {
        const result = begin(context);
        return isAwaited(result) ? Promise.resolve(result).then(encodable) : encodable(result);
      },
    };
  const run = async (context: unknown): Promise<Encodable> => encodable(await begin(context));
  const key = (): Promise<string> => remoteKey([place.scope, place.key]);
  if (options.effect === "repeatable") return { effect: "repeatable", key, run };
  const { reconcile } = options;
  return {
    effect: "probed",
    key,
    run,
    async reconcile(question) {
      const answer = await reconcile(question);
      return answer.kind === "done" ? { kind: "done", result: encodable(answer.result) } : answer;
    },
  };
}

/** Whether `await` would wait for it: a promise, or the query of a builder. */
function isAwaited<T>(result: T | Promise<T>): result is Promise<T> {
  return typeof (result as { readonly then?: unknown } | undefined)?.then === "function";
}
