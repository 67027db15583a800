/** The failure of a writer that could not store everything: it has the data and their outcomes. */

import { type ClientErrorCode, HapaxError } from "../base/error-codes.ts";
import type { ErrorCode } from "../base/errors.ts";
import type { NotConfirmed } from "./batching.ts";

/** Data that no answer has confirmed. */
export interface Unconfirmed {
  /** The data. Append it again to store the same bytes. */
  readonly data: unknown;
  /** `not_stored` is certain. `unknown`: an attempt got no answer, and no later one can tell. */
  readonly outcome: "not_stored" | "unknown";
  /** True for the data whose own append failed; false for data that waited behind it. */
  readonly isCause: boolean;
}

/**
 * The error of a write that was not confirmed. `code` says why; `unconfirmed` has the data, in the order of the calls.
 *
 * ```ts
 * import { AppendFailure } from "hapax/client";
 *
 * const failure = new AppendFailure("producer_fenced", "a newer session exists", [
 *   { data: { id: 7 }, outcome: "not_stored", isCause: true },
 * ]);
 * const again = failure.unconfirmed.filter(({ outcome }) => outcome === "not_stored");
 * console.assert(again.length === 1 && failure.retry === "never");
 * ```
 */
export class AppendFailure extends HapaxError {
  declare readonly unconfirmed: readonly Unconfirmed[];

  /** Makes an error with a code of the client, without an answer. */
  constructor(
    code: ClientErrorCode,
    message: string,
    unconfirmed: readonly Unconfirmed[],
    options?: ErrorOptions,
  );
  /** Makes an error with the code and the status of an answer. */
  constructor(
    code: ErrorCode,
    message: string,
    unconfirmed: readonly Unconfirmed[],
    options: ErrorOptions & { status: number },
  );
  constructor(
    code: ErrorCode,
    message: string,
    unconfirmed: readonly Unconfirmed[],
    options?: ErrorOptions,
  ) {
    // Cast: where the code is none of the client's own, the declaration above asks for a status.
    super(code as ClientErrorCode, message, options);
    this.unconfirmed = unconfirmed;
  }
}

/** Returns data with its outcome, to hand it back. */
export function unconfirmed(data: unknown, { outcome, isCause }: NotConfirmed): Unconfirmed {
  return { data, outcome, isCause };
}

/** Creates the failure of appends that failed for one cause. */
export function failureOf(cause: HapaxError, all: readonly Unconfirmed[]): AppendFailure {
  const { code, message, status } = cause;
  const unknown = all.filter(({ outcome }) => outcome === "unknown").length;
  const words = `${message} (unconfirmed=${all.length} unknown=${unknown})`;
  return new AppendFailure(code, words, all, { cause, status });
}
