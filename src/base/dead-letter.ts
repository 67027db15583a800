/**
 * The vocabulary of all dead letters: of records that a pipeline has given up (in a stream), and of events that a relay
 * has given up (in the outbox of a database). A dead letter is held until a person replays or discards it. It names the
 * number of attempts and the reason.
 */

import { wordsOfError } from "./error-words.ts";
import { FNV_START, fnvStep } from "./fnv.ts";

/** Why something failed, and a digest by which you find others that failed for the same reason. */
export interface DeadLetterReason {
  readonly fingerprint: string;
  /** The code or the name of the error, and what it says: `TypeError: cents is no number`. */
  readonly message: string;
}

/** Selects dead letters: those that match all given members. */
export interface DeadLetterFilter {
  readonly ids?: readonly string[];
  /** The fingerprint of their reason. */
  readonly fingerprint?: string;
}

/** Dead letters with the same reason. */
export interface DeadLetterGroup {
  readonly fingerprint: string;
  /** The message of the first letter. */
  readonly message: string;
  readonly count: number;
  /** The ids of the first and the last of them. */
  readonly firstId: string;
  readonly lastId: string;
}

/** The longest kept message, in characters: enough to know what happened. */
const MESSAGE_CHARS_MAX = 1000;

/** Returns the reason to keep for an error. Accepts any thrown value, and never throws. */
export function reasonOf(error: unknown): DeadLetterReason {
  const { name, message, code } = wordsOfError(error, MESSAGE_CHARS_MAX);
  const kind = code ?? name;
  return { fingerprint: fingerprintFailure(kind, message), message: `${kind}: ${message}` };
}

/** Groups dead letters by their reasons, the most frequent first. */
export function groupLetters(
  letters: Iterable<{ readonly id: string; readonly reason: DeadLetterReason | undefined }>,
): readonly DeadLetterGroup[] {
  const groups = new Map<string, DeadLetterGroup>();
  for (const { id, reason } of letters) {
    const { fingerprint, message } = reason ?? { fingerprint: "", message: "" };
    const known = groups.get(fingerprint);
    groups.set(fingerprint, {
      fingerprint,
      message: known?.message ?? message,
      count: (known?.count ?? 0) + 1,
      firstId: known?.firstId ?? id,
      lastId: id,
    });
  }
  return [...groups.values()].toSorted((one, other) => other.count - one.count);
}

/** Returns the same fingerprint for failures that differ only in numbers and ids. */
export function fingerprintFailure(name: string, message: string): string {
  // Cut first: the search takes the square of the length for some texts, as `a-a-a-…`.
  const text = message.slice(0, 1000).replace(/\b[0-9a-f-]*[0-9][0-9a-f-]*\b/gi, "#");
  return digest(`${name}: ${text}`);
}

/** FNV-1a, twice with other beginnings: 64 bits. It tells failures apart, and protects nothing. */
function digest(text: string): string {
  let [one, other] = [FNV_START, 0x1b873593];
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    one = fnvStep(one, unit);
    other = Math.imul(other ^ unit, 0x85ebca6b);
    other ^= other >>> 13;
  }
  return [one, other].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
}
