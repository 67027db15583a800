/** Every limit of sagas, with its reason. */

/** The longest name of a saga, in characters. It is a part of the scope of its entry, beside the scope of the user. */
export const SAGA_NAME_CHARS_MAX = 100;
/** The most steps of a definition: people should be able to read it as a whole. */
export const SAGA_STEPS_MAX = 200;
/**
 * The most bytes of a saga. A saga is one row, which every step writes again. A write that brings a value is refused
 * above this.
 */
export const SAGA_BYTES_MAX = 1024 * 1024;
/** The bytes that stay free for the progress of a saga, beside its values: its steps and a shortened history need less. */
export const SAGA_ROOM_BYTES = 256 * 1024;
/**
 * What stays of the history of a saga that has no more room: its first and its last moments, and the beginning of each
 * error text.
 */
export const SAGA_SHORT_MOMENTS = 10;
export const SAGA_SHORT_CHARS = 50;
/** The most bytes of a result. A larger result belongs in a table of the user's own. */
export const SAGA_RESULT_BYTES_MAX = 64 * 1024;
/** The default retries of a step: they bridge some seconds in which a provider does not answer. */
export const SAGA_ATTEMPTS_DEFAULT = 5;
export const SAGA_ATTEMPTS_MAX = 1_000_000;
export const SAGA_PAUSE_MS_DEFAULT = 500;
export const SAGA_PAUSE_MS_MAX_DEFAULT = 60_000;
/** The default time limit of an attempt. Most calls answer in seconds, and one that hangs must not hold its saga. */
export const SAGA_TIMEOUT_MS_DEFAULT = 60_000;
/** Ten years: times in milliseconds stay exact integers. */
export const SAGA_MS_MAX = 3_653 * 86_400_000;
/** The default time for which an outcome may stay unknown: people need about a day to find out what became of a payment. */
export const SAGA_DEADLINE_MS_DEFAULT = 86_400_000;
/** The default time for which an ended saga is kept: callers may try to start it again for a week. */
export const SAGA_RETAIN_MS_DEFAULT = 7 * 86_400_000;
/** The default time between two searches: a saga that another process has left waits at most this long. */
export const SAGA_EVERY_MS_DEFAULT = 1_000;
export const SAGA_BATCH_DEFAULT = 20;
/** For a shorter wait the process keeps the claim: giving the saga back would cost two writes. */
export const SAGA_HELD_WAIT_MS = 1_000;
/** The time after which a process looks again at a saga whose definition it does not have, or which it cannot read. */
export const SAGA_LATER_MS = 60_000;
/** The most sagas that a list reads. */
export const SAGA_LIST_MAX = 10_000;
/** The most characters that are kept of an error text. */
export const SAGA_FAILURE_CHARS_MAX = 500;
