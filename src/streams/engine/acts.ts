/**
 * Acts of administration: resets and deletions. Done twice they do harm, and an answer can be lost: so a request may
 * give its act a key, as a transaction has one. The key is written down in the same commit as what the act changed.
 * PROTOCOL.md §12.7.
 */

import type { KeyRefusal } from "../core/keys.ts";
import type { CommitBatch } from "./commit.ts";

/** The result of an act, as it is stored and as a retry reads it: plain JSON data. */
export interface ActOutcome {
  /** Of a group's reset: streams that it concerned. */
  readonly streams?: number;
}

/** What is known of an act before it is done. */
export type ActLook =
  | { readonly kind: "new" }
  | { readonly kind: "done"; readonly outcome: () => Promise<ActOutcome> }
  | KeyRefusal;

/** One act under a key. */
export interface Act {
  look(): ActLook;
  /** Throws `ActRepeated` if it was done meanwhile. Called in the same step as what it changes, before it. */
  guard(): void;
  /** Writes the key down, in the batch of what it changes. Called in the same step, after it. */
  note(outcome: ActOutcome, batch: CommitBatch): void;
}

/** Another request of the same key was faster. */
export class ActRepeated extends Error {
  override readonly name = "ActRepeated";
}
