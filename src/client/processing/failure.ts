/** The failure of a transaction that was not confirmed. */

import { type ErrorCode, HapaxError } from "../../base/errors.ts";

/** The outcome of a transaction without a confirmation: certainly not stored, or unknown. */
export type TransactionOutcome = "not_stored" | "unknown";

/**
 * The error of a transaction that was not confirmed. `code` says why.
 *
 * ```ts
 * import { TransactionFailure } from "hapax/processing";
 *
 * const failure = new TransactionFailure("lease_lost", "another member has it", {
 *   outcome: "not_stored",
 *   operation: 2,
 * });
 * console.assert(failure.outcome === "not_stored" && failure.operation === 2);
 * ```
 */
export class TransactionFailure extends HapaxError {
  /** `not_stored` is certain. `unknown`: an attempt got no answer, and no later one can tell. */
  readonly outcome: TransactionOutcome;
  /** The index of the operation that cannot be done. The first one in the callback is 0. */
  readonly operation: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    facts: { readonly outcome: TransactionOutcome; readonly operation?: number | undefined },
    options?: ErrorOptions & { status?: number },
  ) {
    super(code, message, options);
    this.outcome = facts.outcome;
    this.operation = facts.operation;
  }
}

/** Creates the failure of a transaction for a cause. */
export function transactionFailure(
  cause: HapaxError,
  outcome: TransactionOutcome,
  operation?: number,
): TransactionFailure {
  const facts = { outcome, operation };
  const { code, status, message } = cause;
  return new TransactionFailure(code, `${message} outcome=${outcome}`, facts, { cause, status });
}
