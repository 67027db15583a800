/** Every limit of the console, with its reason. */

/** Entries that one request reads: what a person can look through, and little for a database. */
export const PAGE_ENTRIES_MAX = 50;
/** Entries that are counted of each kind and state: "100 or more" says as much as any greater number. */
export const COUNTED_MAX = 100;
/** Relays that one request measures. Each costs three statements. */
export const RELAYS_MAX = 20;
/** Held events that are counted. */
export const HELD_COUNTED_MAX = 1_000;
/** Dead events that one act changes: it is one transaction, and relays wait for it. */
export const LETTERS_MAX = 500;
/** The shown part of a value. More does not help a person, and would hold the page. */
export const VALUE_BYTES_MAX = 64 * 1024;
/** An act has a few names, and perhaps the result of a step. */
export const BODY_BYTES_MAX = 128 * 1024;
/** A name in a request, in characters: no entry has a longer one. */
export const NAME_CHARS_MAX = 2_048;
