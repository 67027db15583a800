/**
 * The error class of Hapax: it looks its code up in the table of error-table.ts.
 *
 * The client has a class of its own, in error-codes.ts: a module that the client bundles makes its errors with that one.
 */

import { HapaxError as ClientError, isHapaxError } from "./error-codes.ts";
import { type ErrorCode, ERRORS, type ErrorSpec, type RetryAdvice } from "./error-table.ts";

export { isHapaxError } from "./error-codes.ts";
export { type ErrorCode, ERRORS, type RetryAdvice } from "./error-table.ts";

/**
 * The error class of Hapax. `status`, `retry` and `help` follow from `code`.
 *
 * ```ts
 * import { HapaxError, isHapaxError } from "hapax";
 *
 * const error = new HapaxError("stream_closed", "cannot append to stream=/orders");
 * console.assert(isHapaxError(error, "stream_closed") && error.retry === "never");
 * ```
 */
export class HapaxError extends ClientError {
  // The reference names what a class declares; they are set by the class above.
  /** The reason. Programs should look at no other part. */
  declare readonly code: ErrorCode;
  /** The HTTP status that a server answers with. */
  declare readonly status: number;
  /** Whether to repeat the call: as it is, after a pause, or not at all. */
  declare readonly retry: RetryAdvice;

  /** Pass the `status` of the answer: it counts for a code that this version does not know. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions & { status?: number }) {
    super(code, message, { ...options, status: specOf(code)?.status ?? options?.status ?? 500 });
  }

  /** What to do next, in one sentence. */
  override get help(): string {
    return specOf(this.code)?.help ?? super.help;
  }

  /** True for the client's errors too, and for those of another copy of the package. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return this === HapaxError ? isHapaxError(value) : super[Symbol.hasInstance](value);
  }
}

/** What to do next about any error, also one of the client, which has no texts. */
export function helpOf(error: ClientError): string {
  return specOf(error.code)?.help ?? error.help;
}

/** Nothing for a code of a newer server. */
function specOf(code: ErrorCode): ErrorSpec | undefined {
  return Object.hasOwn(ERRORS, code) ? ERRORS[code] : undefined;
}
