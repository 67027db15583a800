/** Checks of arguments and options. One error lists all problems of a call. */

import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { SCOPE_RULE, type ScopedKey } from "../rules/scoped-key.ts";
import { NAME_BYTES_MAX } from "./limits.ts";

const encoder = new TextEncoder();

export class Check extends OptionsCheck {
  constructor() {
    super(HapaxError);
  }

  /** The value or its default; a problem if it is not a whole number from `min` to `max`. */
  whole(
    name: string,
    value: number | undefined,
    fallback: number,
    min: number,
    max: number,
  ): number {
    const chosen = value ?? fallback;
    if (!Number.isSafeInteger(chosen) || chosen < min || chosen > max)
      this.problem(`${name}=${chosen} is not a whole number from ${min} to ${max}`);
    return chosen;
  }

  word(name: string, value: string, words: readonly string[]): void {
    if (!words.includes(value)) this.problem(`${name}=${value} is none of ${words.join(", ")}`);
  }

  /** Notes a problem unless every database can keep the name: not empty, not too long, no NUL, no half characters. */
  name(name: string, value: string): string {
    const problem = problemOfName(value);
    if (problem !== undefined) this.problem(`${name} ${problem}`);
    return value;
  }

  /** The one rule about scopes. */
  scope(value: string): string {
    const problem = problemOfName(value);
    if (problem !== undefined) this.problem(`scope ${problem}: ${SCOPE_RULE}`);
    return value;
  }

  /** Returns the identity alone: callers may pass what has more members. */
  identity(identity: ScopedKey): ScopedKey {
    // In JavaScript it may be anything: a text, as the key alone, or nothing.
    const given: Partial<ScopedKey> = Object(identity);
    return { scope: this.scope(given.scope as string), key: this.name("key", given.key as string) };
  }
}

function problemOfName(value: unknown): string | undefined {
  if (typeof value !== "string") return "is not a string";
  if (value === "") return "is empty";
  if (value.includes("\0")) return "has a NUL character";
  if (/\p{Surrogate}/u.test(value)) return "has half of a surrogate pair";
  // A character has at most three bytes for each of its UTF-16 units.
  if (value.length * 3 <= NAME_BYTES_MAX) return undefined;
  const bytes = value.length > NAME_BYTES_MAX ? value.length : encoder.encode(value).length;
  return bytes > NAME_BYTES_MAX ? `has more than ${NAME_BYTES_MAX} bytes` : undefined;
}

/**
 * Throws `invalid_request` unless the ledger is inside the caller's transaction, and `unsupported` if it has no transactions.
 */
export function requireJoined<Tx>(ledger: Ledger<Tx>, what: string): void {
  if (!ledger.supports.transactions)
    throw new HapaxError("unsupported", `ledger=${ledger.name} has no transactions`);
  if (!ledger.isJoined)
    throw new HapaxError(
      "invalid_request",
      `pass ledger.in(tx): ${what} belongs to the transaction`,
    );
}
