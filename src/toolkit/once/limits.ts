/** Every limit of processOnce, inbox, leases, versions and sweeper, with its reason. */

/** Scope, key, id and name, in UTF-8 bytes: three of them fit an index entry of every database. */
export const NAME_BYTES_MAX = 512;
/** Shorter ones are over before a busy database has answered a renewal. */
export const LEASE_MS_MIN = 100;
/** A crash keeps the key from everybody for so long. */
export const LEASE_MS_MAX = 24 * 3_600_000;
/** Long enough for a pause of a process, short enough to wait for after a crash. */
export const LEASE_MS_DEFAULT = 30_000;
/** Work that has not ended by then never will: its key would be kept from everybody. */
export const WORK_MS_DEFAULT = 3_600_000;
export const WORK_MS_MAX = 24 * 3_600_000;
/** What common services keep keys for. */
export const RETAIN_MS_DEFAULT = 24 * 3_600_000;
/** Ten years: deadlines in milliseconds stay exact integers. */
export const RETAIN_MS_MAX = 3_653 * 86_400_000;
/** Proxies and people give up long before. */
export const WAIT_MS_MAX = 3_600_000;
/** A result is kept in a row: more belongs into a table of its own. */
export const RESULT_BYTES_DEFAULT = 1024 * 1024;
/** What a row of the databases carries without harm. */
export const RESULT_BYTES_MAX = 64 * 1024 * 1024;
/** Of a failure that is kept: enough to see what it was. */
export const FAILURE_CHARS_MAX = 2_000;
/** A derived key for others: what they take as an Idempotency-Key. */
export const REMOTE_KEY_CHARS_MAX = 255;
/** The first pause of whoever waits for somebody else's work, and the longest. */
export const PAUSE_MS_MIN = 20;
export const PAUSE_MS_MAX = 1_000;
/** One statement that deletes: well under a second everywhere. */
export const SWEEP_BATCH_DEFAULT = 200;
export const SWEEP_BATCH_MAX = 10_000;
