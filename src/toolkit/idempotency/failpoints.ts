/** Where a crash of a request with a key matters, in the order in which they come by. */

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
  /** A phase is committed, and the handler does not know. */
  "http.phase.done",
  /** The handler has answered, and nothing of it is recorded. */
  "http.worked",
  /** The answer is recorded, and not committed. */
  "http.completed",
  /** It is committed, and nothing has been sent. */
  "http.committed",
] as const;
