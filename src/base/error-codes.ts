/**
 * The error class of the client, and what all errors share. It has no table of all codes: a page that bundles the client
 * has no room for it. It knows the codes that a client gives by itself; all others have the status of an answer.
 * errors.ts has the class of all other wings, which knows every code.
 *
 * An error has its status and its advice from its construction. No module registers anything, so a bundler that leaves
 * modules out cannot change them.
 */

import type { ErrorCode, ERRORS, RetryAdvice } from "./error-table.ts";

type StatusOf<Code extends ErrorCode> = (typeof ERRORS)[Code]["status"];
type RetryOf<Code extends ErrorCode> = (typeof ERRORS)[Code]["retry"];

/** The codes of errors that the client makes without an answer of a server. */
export type ClientErrorCode =
  | "body_too_large"
  | "internal"
  | "invalid_request"
  | "invalid_options"
  | "offset_beyond_tail"
  | "producer_closed"
  | "producer_fenced"
  | "producer_full"
  | "refused"
  | "unreachable"
  | "unsupported";

/**
 * The statuses of the client's own codes, and of those that it gives an answer of another status. One that differs from
 * `ERRORS` does not compile.
 */
const STATUS: { readonly [Code in ErrorCode]?: StatusOf<Code> } & {
  readonly [Code in ClientErrorCode]: StatusOf<Code>;
} = {
  invalid_request: 400,
  refused: 400,
  producer_fenced: 403,
  producer_closed: 409,
  offset_beyond_tail: 410,
  body_too_large: 413,
  producer_full: 429,
  too_many: 429,
  internal: 500,
  invalid_options: 500,
  unsupported: 501,
  unreachable: 503,
};

/** What a status says of repeating the call: the rule of `retryAfter`, for the compiler. */
type RetryAfter<Status extends number> = Status extends 408
  ? "same"
  : `${Status}` extends "429" | `5${number}`
    ? "later"
    : "never";

/** The codes whose advice is another one than that of their status. */
type Retries = {
  readonly [
    Code in ErrorCode as RetryOf<Code> extends RetryAfter<StatusOf<Code>> ? never : Code
  ]: RetryOf<Code>;
};

/** Complete, also with the codes that no client meets: a line too few, or a wrong one, does not compile. */
const RETRY: Retries & { readonly [Code in ErrorCode]?: RetryOf<Code> } = {
  producer_full: "same",
  already_claimed: "later",
  in_progress: "later",
  no_pending_work: "later",
  producer_gap: "later",
  data_damaged: "never",
  directory_unusable: "never",
  format_unknown: "never",
  invalid_options: "never",
  schema_newer: "never",
  store_closed: "never",
  unsupported: "never",
};

function retryAfter(status: number): RetryAdvice {
  if (status === 408) return "same";
  return status === 429 || status >= 500 ? "later" : "never";
}

/** Whether a server's word looks like a code; a newer server has codes that this side does not know. */
export function isErrorCode(word: string): word is ErrorCode {
  // `constructor` is a member of every object, also of the tables.
  return /^[a-z_]+$/.test(word) && !(word in {});
}

/**
 * The error class of the client. An error of a server's answer has the status of the answer.
 *
 * ```ts
 * import { HapaxError, isHapaxError } from "hapax/client";
 *
 * const error = new HapaxError("unreachable", "no answer");
 * console.assert(isHapaxError(error, "unreachable") && error.status === 503);
 * const refusal = new HapaxError("stream_closed", "cannot append", { status: 409 });
 * console.assert(refusal.retry === "never");
 * ```
 */
export class HapaxError extends Error {
  override readonly name = "HapaxError";
  // Declared, and set by the constructor: as fields they would be written out in every page.
  /** The reason. Programs should look at no other part. */
  declare readonly code: ErrorCode;
  /** The HTTP status: the one of the answer, or the one that a server would answer. */
  declare readonly status: number;
  /** Whether to repeat the call: as it is, after a pause, or not at all. */
  declare readonly retry: RetryAdvice;

  /** Makes an error of the client, without an answer. */
  constructor(code: ClientErrorCode, message: string, options?: ErrorOptions);
  /** Makes an error with the code and the status of an answer. */
  constructor(code: ErrorCode, message: string, options: ErrorOptions & { status: number });
  constructor(code: ErrorCode, message: string, options?: ErrorOptions & { status?: number }) {
    super(message, options);
    this.code = code;
    // A program without types may leave the status out.
    this.status = STATUS[code] ?? options?.status ?? 500;
    this.retry = RETRY[code] ?? retryAfter(this.status);
  }

  /** Where to read what to do next. `ERRORS` of `hapax` has the texts themselves. */
  get help(): string {
    return `See ${this.code} in docs/errors.md.`;
  }
}

/**
 * Returns whether a value is an error of Hapax, and has this code if you name one. It also knows the errors of another
 * copy of the package, which `instanceof` does not.
 */
export function isHapaxError(value: unknown, code?: ErrorCode): value is HapaxError {
  if (!(value instanceof Error && value.name === "HapaxError")) return false;
  return code === undefined || (value as HapaxError).code === code;
}
