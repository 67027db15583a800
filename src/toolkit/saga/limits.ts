/** Every limit of sagas, with its reason. */

/** The name of a saga is a part of the scope of its entry, beside the scope of the user. */
export const SAGA_NAME_CHARS_MAX = 100;
/** A definition is read as a whole, by people too. */
export const SAGA_STEPS_MAX = 200;
/** All that is kept of a saga is one row, which is written with every step. What brings a value must leave it below this. */
export const SAGA_BYTES_MAX = 1024 * 1024;
/** What happens to a saga may always be written: its steps and a shortened history have less than this, beside its values. */
export const SAGA_ROOM_BYTES = 256 * 1024;
/** What is kept, of a saga that has no more room, of its first and of its last moments, and of the text of an error. */
export const SAGA_SHORT_MOMENTS = 10;
export const SAGA_SHORT_CHARS = 50;
/** A larger result belongs in a table of the user's. */
export const SAGA_RESULT_BYTES_MAX = 64 * 1024;
/** Long enough for a provider that is away for some seconds. */
export const SAGA_ATTEMPTS_DEFAULT = 5;
export const SAGA_ATTEMPTS_MAX = 1_000_000;
export const SAGA_PAUSE_MS_DEFAULT = 500;
export const SAGA_PAUSE_MS_MAX_DEFAULT = 60_000;
/** Most calls answer in seconds. One that hangs must not hold its saga. */
export const SAGA_TIMEOUT_MS_DEFAULT = 60_000;
/** Ten years: times in milliseconds stay exact integers. */
export const SAGA_MS_MAX = 3_653 * 86_400_000;
/** As long as people need to find out what became of a payment. */
export const SAGA_DEADLINE_MS_DEFAULT = 86_400_000;
/** A week: as long as those who start a saga may try again. */
export const SAGA_RETAIN_MS_DEFAULT = 7 * 86_400_000;
/** One search of a runner: a saga that another process has left behind waits at most this long. */
export const SAGA_EVERY_MS_DEFAULT = 1_000;
export const SAGA_BATCH_DEFAULT = 20;
/** Shorter waits are waited for with the claim held: parking would cost two writes. */
export const SAGA_HELD_WAIT_MS = 1_000;
/** When a process looks again at a saga whose definition it does not know, or which it cannot read. */
export const SAGA_LATER_MS = 60_000;
/** What a list looks at. */
export const SAGA_LIST_MAX = 10_000;
/** The kept part of the text of an error. */
export const SAGA_FAILURE_CHARS_MAX = 500;
