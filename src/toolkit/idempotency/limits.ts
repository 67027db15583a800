/** Every limit of idempotency keys on the server side, with its reason. */

/** An answer is kept in a row: larger answers are sent and not kept. */
export const ANSWER_BYTES_DEFAULT = 1024 * 1024;
/** The databases keep a row of this size without harm. */
export const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
/** The whole request is held in memory, because it is compared. */
export const BODY_BYTES_DEFAULT = 16 * 1024 * 1024;
export const BODY_BYTES_MAX = 256 * 1024 * 1024;
/** The body of a request that is kept for the completer, and the values of all its phases. */
export const STORED_BYTES_DEFAULT = 256 * 1024;
export const PROGRESS_BYTES_MAX = 1024 * 1024;
/** How long a repetition without `Prefer: wait` waits. Most work is over by then, and no proxy gives up so early. */
export const WAIT_MS_DEFAULT = 5000;
/** The most that `Prefer: wait` may ask for. Proxies give up after 60 s. */
export const WAIT_MS_MAX_DEFAULT = 30_000;
/** Repetitions that wait at once: each keeps its connection, and its body in memory. Others get 409 at once. */
export const WAITING_MAX = 1000;
/** The bounds of `Retry-After`: work that has taken long may take as long again. */
export const RETRY_AFTER_MS_MIN = 1000;
export const RETRY_AFTER_MS_MAX = 5000;
/** A holder renews its lease at each third. One with less than this share left has missed a renewal. */
export const RENEWED_SHARE = 0.6;
/** Searching for abandoned requests. */
export const COMPLETER_EVERY_MS_DEFAULT = 10_000;
export const COMPLETER_BATCH_DEFAULT = 20;
export const COMPLETER_ATTEMPTS_DEFAULT = 10;
/** The most requests that a search skips because it cannot complete them. */
export const COMPLETER_PASSED_MAX = 10_000;
/** The longest pause between two attempts of one request. */
export const COMPLETER_PAUSE_MS_MAX = 3_600_000;
