/** The steps of a request with a key at which a crash matters, in the order in which the code reaches them. */

/**
 * The failpoints of HTTP idempotency keys: `setFailpoint` of `hapax/testing` is called with these names.
 *
 * ```ts
 * import { HTTP_FAILPOINTS } from "hapax/idempotency";
 *
 * console.assert(HTTP_FAILPOINTS.includes("http.committed"));
 * ```
 */
export const HTTP_FAILPOINTS = [
  /** The claim is committed, and the handler has not begun. */
  "http.claimed",
  /** A phase is committed, and the handler does not know yet. */
  "http.phase.done",
  /** The handler has answered, and nothing of it is recorded. */
  "http.worked",
  /** The answer is recorded, and not committed. */
  "http.completed",
  /** The answer is committed, and nothing has been sent. */
  "http.committed",
] as const;
