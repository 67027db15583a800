/** Where a crash of these primitives matters, in the order in which they come by. */

/**
 * The failpoints of processOnce, the inbox and leases: `setFailpoint` of `hapax/testing` is called with these names.
 *
 * ```ts
 * import { FAILPOINTS } from "hapax/ledger";
 *
 * console.assert(FAILPOINTS.includes("once.worked"));
 * ```
 */
export const FAILPOINTS = [
  /** The claim is committed. */
  "once.claimed",
  /** The work begins. */
  "once.began",
  /** It has ended, and nothing is recorded. */
  "once.worked",
  /** It is recorded, and not committed. */
  "once.completed",
  /** It is committed, and the caller does not know. */
  "once.committed",
  "inbox.began",
  "inbox.worked",
  "inbox.committed",
  "lease.acquired",
  /** The token was found to be the newest, and nothing is committed. */
  "lease.checked",
] as const;
