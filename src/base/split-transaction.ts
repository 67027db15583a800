/** The error of work that has ended the transaction it was given. The databases and the claims find it out in two ways. */

import { HapaxError } from "./errors.ts";

/** Returns the error of work whose transaction is no longer the one that the ledger began. */
export function splitTransaction(cause?: unknown): HapaxError {
  return new HapaxError(
    "invalid_request",
    "the work ended the transaction that it was given, or began another one, or reset its settings: it is committed when the work returns",
    cause === undefined ? {} : { cause },
  );
}
