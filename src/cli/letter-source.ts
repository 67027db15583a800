/**
 * PORT. Where `hapax dead-letters` finds dead letters: a stream of a server (letters-of-stream.ts), or the outbox of a
 * database (letters-of-outbox.ts). Both have the same words and the same listing.
 */

import type { DeadLetterFilter, DeadLetterReason } from "../base/dead-letter.ts";

/** A dead letter as it is listed. */
export interface ListedLetter {
  readonly id: string;
  /** The stream of a record, the topic of an event. */
  readonly from: string;
  readonly key: string | undefined;
  readonly attempts: number;
  /** When the record was given up, or the event was added; RFC 3339. */
  readonly at: string;
  readonly reason: DeadLetterReason | undefined;
  /** What only one kind has, as members of the line of JSON. */
  readonly facts: object;
  /** The content as one member of JSON, such as `"record":{"n":1}`. */
  readonly content: string;
}

/** Which letters. An outbox has keys too. */
export interface LetterFilter extends DeadLetterFilter {
  readonly key?: string;
}

export interface LetterSource {
  /** For people: `/v1/stream/dead`, `relay mail`. */
  readonly label: string;
  /** What a discard means here. */
  readonly warning: string;
  list(filter: LetterFilter, max: number): Promise<readonly ListedLetter[]>;
  /** Answers how many. */
  replay(filter: LetterFilter): Promise<number>;
  discard(ids: readonly string[]): Promise<number>;
  /** An error of the source as a failure of the command. */
  failureOf(error: unknown, action: string): unknown;
  close(): Promise<void>;
}
