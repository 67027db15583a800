/**
 * The error class, and what it needs in a client's bundle. The table with all codes and texts is errors.ts: it is not
 * part of a bundle that does not use it, and hands itself over where it is loaded.
 */

import type { ErrorCode, ERRORS, RetryAdvice } from "./errors.ts";

interface ErrorRule {
  readonly status: number;
  readonly retry: RetryAdvice;
  readonly help?: string;
}

/** Of the codes that a client gives by itself. Others have the status of their answer. */
const CLIENT_STATUS: Statuses = {
  invalid_request: 400,
  refused: 400,
  producer_fenced: 403,
  producer_closed: 409,
  offset_beyond_tail: 410,
  body_too_large: 413,
  producer_full: 429,
  unsupported: 501,
  unreachable: 503,
};

/** Of the codes whose status does not say whether to repeat the call. */
const CLIENT_RETRY: Retries = {
  producer_gap: "later",
  producer_full: "same",
  data_damaged: "never",
  invalid_settings: "never",
  unsupported: "never",
};

type Statuses = { readonly [Code in ErrorCode]?: (typeof ERRORS)[Code]["status"] };
type Retries = { readonly [Code in ErrorCode]?: (typeof ERRORS)[Code]["retry"] };

let errors: Readonly<Partial<Record<string, ErrorRule>>> | undefined;

/** Gives all errors of the process their texts, and those that only servers know their status. */
export function setErrors(all: Readonly<Record<string, ErrorRule>>): void {
  errors = all;
}

/** Whether a server's word is one of the codes; where not all are known, whether it looks like one. */
export function isErrorCode(word: string): word is ErrorCode {
  return errors === undefined ? /^[a-z_]+$/.test(word) : Object.hasOwn(errors, word);
}

/**
 * The one error class of Hapax.
 *
 * ```ts
 * import { HapaxError, isHapaxError } from "hapax";
 *
 * const error = new HapaxError("stream_closed", "cannot append to stream=/orders");
 * console.assert(isHapaxError(error, "stream_closed") && error.retry === "never");
 * ```
 */
export class HapaxError extends Error {
  override readonly name = "HapaxError";
  readonly code: ErrorCode;
  readonly #status: number;

  /** `status` is the one of the answer, for codes that this side does not know. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions & { status?: number }) {
    super(message, options);
    this.code = code;
    this.#status = options?.status ?? 500;
  }

  get retry(): RetryAdvice {
    const { code, status } = this;
    const known = errors?.[code]?.retry ?? CLIENT_RETRY[code];
    const isBusy = status === 429 || status >= 500;
    return known ?? (status === 408 ? "same" : isBusy ? "later" : "never");
  }

  get status(): number {
    return errors?.[this.code]?.status ?? CLIENT_STATUS[this.code] ?? this.#status;
  }

  /** What to do next, in one sentence. Bundles have no texts, and name the document that has. */
  get help(): string {
    return errors?.[this.code]?.help ?? `See ${this.code} in docs/errors.md.`;
  }
}

/** By name and code, not by instanceof: two copies of the package may live in one process. */
export function isHapaxError(value: unknown, code?: ErrorCode): value is HapaxError {
  if (!(value instanceof Error) || value.name !== "HapaxError") return false;
  return code === undefined || (value as HapaxError).code === code;
}
