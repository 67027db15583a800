/** Every limit of processOnce, inbox, leases, versions and sweeper, with its reason. */

/** Scope, key, id and name, in UTF-8 bytes: three of them fit in an index entry of every database. */
export const NAME_BYTES_MAX = 512;
/** Work in a transaction that takes longer is written down as running. Most work is over by then, and costs one commit. */
export const UNWRITTEN_MS = 300;
/** A lock that is older, without an entry, may be taken over: even a busy database has written the claim down by then. */
export const LOCK_MS_MAX = 5_000;
/** How often a call begins again because another one was first. Each time may repeat the work, so the caller decides then. */
export const TAKEN_MAX = 5;
/** A shorter lease ends before a busy database has answered a renewal. */
export const LEASE_MS_MIN = 100;
/** After a crash all callers wait this long for the key. */
export const LEASE_MS_MAX = 24 * 3_600_000;
/** Long enough for a pause of a process, short enough to wait for after a crash. */
export const LEASE_MS_DEFAULT = 30_000;
/** Work that has not ended by then probably never ends, and would block its key. */
export const WORK_MS_DEFAULT = 3_600_000;
export const WORK_MS_MAX = 24 * 3_600_000;
/** As long as common services keep keys. */
export const RETAIN_MS_DEFAULT = 24 * 3_600_000;
/** Ten years: deadlines in milliseconds stay exact integers. */
export const RETAIN_MS_MAX = 3_653 * 86_400_000;
/** Proxies and people give up long before. */
export const WAIT_MS_MAX = 3_600_000;
/** A result is kept in a row: a larger one belongs in a table of its own. */
export const RESULT_BYTES_DEFAULT = 1024 * 1024;
/** The databases keep a row of this size without harm. */
export const RESULT_BYTES_MAX = 64 * 1024 * 1024;
/** The kept part of a failure's text: enough to see what it was. */
export const FAILURE_CHARS_MAX = 2_000;
/** A derived key for other services: the length that they take as an Idempotency-Key. */
export const REMOTE_KEY_CHARS_MAX = 255;
/** How far a stamp may be ahead: more than clocks are ever off by accident, less than a stamp of a broken clock. */
export const AHEAD_MS_DEFAULT = 24 * 3_600_000;
export const AHEAD_MS_MAX = 3_653 * 86_400_000;
/** The first and the longest pause of a call that waits for the work of another one. */
export const PAUSE_MS_MIN = 20;
export const PAUSE_MS_MAX = 1_000;
/** Entries that one statement deletes: well under a second in every database. */
export const SWEEP_BATCH_DEFAULT = 200;
export const SWEEP_BATCH_MAX = 10_000;
