/** The steps of these primitives at which a crash matters, in the order in which the code reaches them. */

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
  /** The work has ended, and nothing is recorded. */
  "once.worked",
  /** The end is recorded, and not committed. */
  "once.completed",
  /** The end is committed, and the caller does not know yet. */
  "once.committed",
  "inbox.began",
  "inbox.worked",
  "inbox.committed",
  "lease.acquired",
  /** The token is the newest, and nothing is committed. */
  "lease.checked",
] as const;
