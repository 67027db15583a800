/** Options of the engine. They are checked once; one error lists all problems. */

import { IDEMPOTENCY_KEY } from "../../protocol/header-names.ts";
import type { Digest } from "../../base/digest.ts";
import { platformDigest } from "../../base/platform-digest.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { Check } from "../once/check.ts";
import { GLOBAL, SCOPE_RULE } from "../rules/scoped-key.ts";
import { type ResolvedTools, resolveTools, type Tools } from "../once/tools.ts";
import {
  LEASE_MS_DEFAULT,
  LEASE_MS_MAX,
  LEASE_MS_MIN,
  RETAIN_MS_DEFAULT,
  RETAIN_MS_MAX,
  WAIT_MS_MAX,
  WORK_MS_DEFAULT,
  WORK_MS_MAX,
} from "../once/limits.ts";
import {
  ANSWER_BYTES_DEFAULT,
  ANSWER_BYTES_MAX,
  BODY_BYTES_DEFAULT,
  BODY_BYTES_MAX,
  STORED_BYTES_DEFAULT,
  WAIT_MS_DEFAULT,
  WAIT_MS_MAX_DEFAULT,
} from "./limits.ts";
import type { IdempotencyRequest } from "./request.ts";

/** Says which answers are kept and repeated: all, those from 200 to 299, or those for which a function returns true. */
export type KeepRule = "all" | "success" | ((status: number) => boolean);

/** Returns the tenant of a request: a text of at most 512 bytes. `GLOBAL`: keys are not per tenant. */
export type ScopeRule<Source> =
  | typeof GLOBAL
  | ((request: IdempotencyRequest<Source>) => string | Promise<string>);

/** Options of `createIdempotency`. Only `scope` has no default. */
export interface IdempotencyOptions<Source = unknown> extends Tools {
  /**
   * Returns the tenant of a request, best from its authenticated identity. Two tenants can use the same key without meeting.
   * Use `GLOBAL` when keys are not per tenant.
   */
  readonly scope: ScopeRule<Source>;
  /**
   * `transaction`: the handler writes with `context.tx`, and its writes and its answer are committed together. `phases`: the
   * handler has named steps, each with its own commit. Default: `transaction` if the ledger has transactions.
   */
  readonly mode?: "transaction" | "phases";
  /** The name of the header with the key. Default `Idempotency-Key`. */
  readonly header?: string;
  /** The methods that take a key. Default POST and PATCH. Other methods refuse a key, because it would protect nothing. */
  readonly methods?: readonly ("POST" | "PATCH" | "PUT" | "DELETE")[];
  /** Whether a request without a key is refused. Default true. */
  readonly isRequired?: boolean;
  /** How long a crash blocks the key, in milliseconds. Default 30,000. */
  readonly leaseMs?: number;
  /**
   * How long a handler may take, in milliseconds. After that its transaction is rolled back, and the key is free once the lease
   * has ended. Default one hour.
   */
  readonly workMsMax?: number;
  /** How long answers are kept, in milliseconds. Default 24 hours. */
  readonly retainMs?: number;
  /**
   * How long a repeated request waits while the first one still runs, in milliseconds. After that it gets 409 with a short
   * `Retry-After`. A client can ask for another time with `Prefer: wait`. Default 5,000, and never more than `waitMsMax`.
   */
  readonly waitMs?: number;
  /** The most that `Prefer: wait` may ask for, in milliseconds. Default 30,000. */
  readonly waitMsMax?: number;
  /** How many times the work of a request may start. Default: no limit. */
  readonly attemptsMax?: number;
  /**
   * `true`: the claim of a key is committed before its handler starts, so that attempts are counted and other processes see them.
   * This costs a second commit. `false`: the handler's transaction is the only one. Default: `true` with `attemptsMax` or
   * `completes`, which need it, and in the mode `phases`.
   */
  readonly claimsFirst?: boolean;
  /**
   * Returns a text that must be the same whenever a key is used; another one is refused with `key_reused`. Default: made of
   * method, path and query, content type, and the JSON or bytes of the body.
   */
  readonly fingerprint?: (
    request: IdempotencyRequest<Source>,
  ) => string | undefined | Promise<string | undefined>;
  /**
   * Says which answers are kept. Default `all`. If an answer is not kept, its writes are rolled back and the key is free.
   * Never kept, unless a function returns true: 401, 403, 404, 409, 425, 429, and 503 with Retry-After.
   */
  readonly keep?: KeepRule;
  /** Larger answers are sent but not kept: a repetition gets `answer_not_kept`. Default 1 MiB. */
  readonly answerBytesMax?: number;
  /** Larger requests are refused. Default 16 MiB. */
  readonly bodyBytesMax?: number;
  /**
   * Refuses, as `key_expired`, unknown keys that carry their time (UUIDv7, ULID) and are older than `retainMs`: they may have
   * been used and forgotten. Default false.
   */
  readonly refusesOldKeys?: boolean;
  /** Whether requests are stored, so that a completer can finish them after a crash. Default false. */
  readonly completes?: boolean;
  /** The headers that are stored with a request. Default: content-type and accept. */
  readonly storedHeaders?: readonly string[];
  /** Requests with larger bodies are not stored. Default 256 KiB. */
  readonly storedBytesMax?: number;
  /** The address of a document about keys, for `Link: <…>; rel="describedby"` of refusals. */
  readonly describedBy?: string;
  /** Hashes the content of requests. Default: the platform's SHA-256. */
  readonly digest?: Digest;
  /** Called with each failure that is not thrown to a caller, such as a key that could not be freed. Default: writes to standard error. */
  readonly onError?: (error: unknown) => void;
}

/** Options with their defaults. */
export interface ResolvedOptions<Source> {
  readonly scope: ScopeRule<Source>;
  readonly mode: "transaction" | "phases";
  readonly header: string;
  readonly methods: ReadonlySet<string>;
  readonly isRequired: boolean;
  readonly leaseMs: number;
  readonly workMsMax: number;
  readonly retainMs: number;
  readonly waitMs: number;
  readonly waitMsMax: number;
  readonly attemptsMax: number;
  readonly claimsFirst: boolean;
  readonly fingerprint: IdempotencyOptions<Source>["fingerprint"];
  readonly keep: KeepRule;
  readonly answerBytesMax: number;
  readonly bodyBytesMax: number;
  readonly refusesOldKeys: boolean;
  readonly completes: boolean;
  readonly storedHeaders: readonly string[];
  readonly storedBytesMax: number;
  readonly describedBy: string | undefined;
  readonly digest: Digest;
  readonly onError: (error: unknown) => void;
  readonly tools: ResolvedTools;
}

const METHODS: readonly string[] = ["POST", "PATCH", "PUT", "DELETE"];
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

export function resolveOptions<Tx, Source>(
  ledger: Ledger<Tx>,
  options: IdempotencyOptions<Source>,
): ResolvedOptions<Source> {
  const check = new Check();
  const { scope, methods = ["POST", "PATCH"], header = IDEMPOTENCY_KEY, keep = "all" } = options;
  const mode = options.mode ?? (ledger.supports.transactions ? "transaction" : "phases");
  if (scope !== GLOBAL && typeof scope !== "function")
    check.problem(`scope is neither a function of the request nor GLOBAL: ${SCOPE_RULE}`);
  if (mode !== "transaction" && mode !== "phases") check.problem(`mode=${String(mode)} is unknown`);
  if (mode === "transaction" && !ledger.supports.transactions)
    check.problem(`mode=transaction needs transactions, and ledger=${ledger.name} has none`);
  if (ledger.isJoined) check.problem("the ledger is inside a transaction");
  if (!TOKEN.test(header)) check.problem(`header=${header} is not the name of a header`);
  for (const method of methods)
    if (!METHODS.includes(method)) check.problem(`methods has ${method}, which takes no key`);
  if (keep !== "all" && keep !== "success" && typeof keep !== "function")
    check.problem(`keep=${String(keep)} is unknown`);
  if (options.describedBy !== undefined && /[<>\s]/.test(options.describedBy))
    check.problem(`describedBy=${options.describedBy} is not an address`);
  const claimsFirst = claimsFirstOf(check, options);
  const whole = check.whole.bind(check);
  const waitMsMax = whole("waitMsMax", options.waitMsMax, WAIT_MS_MAX_DEFAULT, 0, WAIT_MS_MAX);
  const resolved: ResolvedOptions<Source> = {
    scope,
    mode,
    header,
    methods: new Set(methods),
    isRequired: options.isRequired ?? true,
    leaseMs: whole("leaseMs", options.leaseMs, LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX),
    workMsMax: whole("workMsMax", options.workMsMax, WORK_MS_DEFAULT, 1, WORK_MS_MAX),
    retainMs: whole("retainMs", options.retainMs, RETAIN_MS_DEFAULT, 1000, RETAIN_MS_MAX),
    waitMs: whole("waitMs", options.waitMs, Math.min(WAIT_MS_DEFAULT, waitMsMax), 0, WAIT_MS_MAX),
    waitMsMax,
    attemptsMax: whole("attemptsMax", options.attemptsMax, ANY, 1, ANY),
    claimsFirst,
    fingerprint: options.fingerprint,
    keep,
    answerBytesMax: whole(
      "answerBytesMax",
      options.answerBytesMax,
      ANSWER_BYTES_DEFAULT,
      0,
      ANSWER_BYTES_MAX,
    ),
    bodyBytesMax: whole(
      "bodyBytesMax",
      options.bodyBytesMax,
      BODY_BYTES_DEFAULT,
      0,
      BODY_BYTES_MAX,
    ),
    refusesOldKeys: options.refusesOldKeys ?? false,
    completes: options.completes ?? false,
    storedHeaders: options.storedHeaders ?? ["content-type", "accept"],
    storedBytesMax: whole(
      "storedBytesMax",
      options.storedBytesMax,
      STORED_BYTES_DEFAULT,
      0,
      BODY_BYTES_MAX,
    ),
    describedBy: options.describedBy,
    digest: options.digest ?? platformDigest(),
    onError: options.onError ?? ((error) => console.error(error)),
    tools: resolveTools(options),
  };
  check.end();
  return Object.freeze(resolved);
}

/** A completer looks for claims, and attempts that leave no trace cannot be counted. */
function claimsFirstOf(
  check: Check,
  {
    claimsFirst,
    attemptsMax,
    completes,
  }: Pick<IdempotencyOptions, "claimsFirst" | "attemptsMax" | "completes">,
): boolean {
  const isNeeded = attemptsMax !== undefined || completes === true;
  if (isNeeded && claimsFirst === false)
    check.problem("claimsFirst=false keeps no count of attempts, and nothing for a completer");
  return claimsFirst ?? isNeeded;
}

const ANY = Number.MAX_SAFE_INTEGER;
