/**
 * Decides what a relay sends, under which number, and what happens to events that could not be published.
 *
 *   - a number that was sent always belongs to the same content: the rest of a batch goes under a new number;
 *   - a number follows the one before it only if that was published as a whole; otherwise a new epoch begins;
 *   - an event goes after all earlier events with its key: events behind a failure wait for it;
 *   - a failure concerns its key alone: all other events of the batch go on;
 *   - a pause doubles with every failure, with jitter, up to a maximum; after `attemptsMax` attempts an event is dead.
 *
 * Content is a span of the log or a list of held events, without the marked events. Pure.
 */

import { backoffMs } from "../../base/backoff.ts";
import type { RetryOptions } from "../../base/retry-options.ts";

/** The number that a batch is published under. The next one to use, or the one of the intent. */
export interface BatchNumber {
  readonly epoch: number;
  readonly sequence: number;
}

/** Why an event could not be published. */
export interface Failure {
  readonly fingerprint: string;
  readonly message: string;
}

/**
 * The outcome of one event of an intent, by its place. An event without a mark is still to be sent. `gone`: an operator has
 * deleted its row.
 */
export type Mark =
  | { readonly at: number; readonly kind: "published" }
  | { readonly at: number; readonly kind: "gone" }
  | { readonly at: number; readonly kind: "blocked" }
  | {
      readonly at: number;
      readonly kind: "failed";
      readonly failure: Failure;
      readonly isFinal: boolean;
    };

/** The events of an intent. A later read gets the same events again; the ids show which rows are gone since. */
export type Subject =
  | {
      readonly kind: "span";
      readonly from: string;
      readonly to: string;
      readonly ids: readonly string[];
    }
  | { readonly kind: "held"; readonly ids: readonly string[] };

/** The events that a relay is about to publish. Kept before anything is sent. */
export interface Intent {
  readonly subject: Subject;
  readonly marks: readonly Mark[];
  /** The most events of one batch. Undefined: all. */
  readonly takeMax: number | undefined;
  /** How many events the batch under the present number has, if not all of them fit. */
  readonly sent?: number | undefined;
  /** The relay cancels the refused batch, because an attempt may still be on its way. */
  readonly isCancelling: boolean;
}

/** The state that a relay keeps between two steps. */
export interface RelayState extends BatchNumber {
  /** Part of every number: a new relay under an old name uses none of the old numbers again. */
  readonly life: string | undefined;
  /** The place behind the last event that needs no more work. */
  readonly position: string | undefined;
  readonly intent: Intent | undefined;
}

/** A publisher's answer for one event. `skipped`: it was not tried, or is certainly not published; it is not at fault. */
export type EventOutcome =
  | { readonly kind: "published" }
  | { readonly kind: "skipped" }
  | { readonly kind: "failed"; readonly failure: Failure; readonly isFinal: boolean };

/** When to try failed events again, and how often. */
export interface RetryPolicy extends Required<
  Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">
> {
  /** Whether later events of a key wait for an operator when one is dead. */
  readonly afterDead: "block" | "continue";
}

/** The facts about an event that these rules need. */
export interface KeyedEvent {
  readonly key: string | undefined;
  /** How often the event was tried before. */
  readonly attempts: number;
}

/** Begins an intent. It does not send events whose key waits already. */
export function beginIntent(
  subject: Subject,
  events: readonly KeyedEvent[],
  isWaiting: (key: string) => boolean,
): Intent {
  const marks: Mark[] = [];
  for (const [at, { key }] of events.entries()) {
    if (key !== undefined && isWaiting(key)) marks.push({ at, kind: "blocked" });
  }
  return { subject, marks, takeMax: undefined, isCancelling: false };
}

/** Returns the places of the events that go next, in their order. */
export function selectEvents(
  { marks, takeMax, sent }: Pick<Intent, "marks" | "takeMax" | "sent">,
  count: number,
): readonly number[] {
  const marked = new Set(marks.map(({ at }) => at));
  const left: number[] = [];
  const max = sent ?? takeMax ?? count;
  for (let at = 0; at < count && left.length < max; at += 1) {
    if (!marked.has(at)) left.push(at);
  }
  return left;
}

/** Marks these events as gone. The others keep their places and go on without them. */
export function markGone(intent: Intent, gone: readonly number[]): Intent {
  const marks = new Map(intent.marks.map((mark) => [mark.at, mark]));
  for (const at of gone) if (!marks.has(at)) marks.set(at, { at, kind: "gone" });
  return { ...intent, marks: inOrder(marks) };
}

/** An intent after one batch, and the next number. */
export interface Round extends BatchNumber {
  readonly intent: Intent;
  /** Whether any event was published or has failed. */
  readonly hasProgressed: boolean;
}

/** Applies the publisher's answers. `sent` has the places of the batch, `outcomes` the answer for each. */
export function applyOutcomes(
  number: BatchNumber,
  intent: Intent,
  events: readonly KeyedEvent[],
  sent: readonly number[],
  outcomes: readonly EventOutcome[],
  policy: RetryPolicy,
): Round {
  const marks = new Map(intent.marks.map((mark) => [mark.at, mark]));
  let isWhole = true;
  for (const [index, at] of sent.entries()) {
    const outcome = outcomes[index] ?? { kind: "skipped" };
    isWhole &&= outcome.kind === "published";
    if (outcome.kind !== "skipped") marks.set(at, { at, ...outcome });
  }
  const hasProgressed = marks.size > intent.marks.length;
  block(marks, events, policy);
  // The batch was refused as a whole, and the answer does not name the event: halving finds it.
  const takeMax = hasProgressed ? intent.takeMax : Math.max(1, Math.ceil(sent.length / 2));
  return {
    intent: { subject: intent.subject, marks: inOrder(marks), takeMax, isCancelling: false },
    hasProgressed,
    ...nextNumber(number, isWhole),
  };
}

export function nextNumber({ epoch, sequence }: BatchNumber, isWhole: boolean): BatchNumber {
  return isWhole ? { epoch, sequence: sequence + 1 } : { epoch: epoch + 1, sequence: 0 };
}

/** Marks the unpublished events behind a failure as blocked. */
function block(marks: Map<number, Mark>, events: readonly KeyedEvent[], policy: RetryPolicy): void {
  const waiting = new Set<string>();
  for (const [at, event] of events.entries()) {
    const { key } = event;
    if (key === undefined) continue;
    const mark = marks.get(at);
    if (mark?.kind === "failed") {
      if (blocksKey(event, mark.isFinal, policy)) waiting.add(key);
    } else if (mark === undefined && waiting.has(key)) marks.set(at, { at, kind: "blocked" });
  }
}

function blocksKey(event: KeyedEvent, isFinal: boolean, policy: RetryPolicy): boolean {
  return policy.afterDead === "block" || !isDead(event.attempts + 1, isFinal, policy);
}

function isDead(attempts: number, isFinal: boolean, { attemptsMax }: RetryPolicy): boolean {
  return isFinal || attempts >= attemptsMax;
}

function inOrder(marks: ReadonlyMap<number, Mark>): readonly Mark[] {
  return [...marks.values()].toSorted((one, other) => one.at - other.at);
}

/** The new state of an event that has failed once more. */
export interface FailedEvent {
  readonly state: "waiting" | "dead";
  readonly attempts: number;
  readonly dueInMs: number;
}

/** `unit` is a random number in [0, 1). */
export function decideFailed(
  attemptsBefore: number,
  isFinal: boolean,
  policy: RetryPolicy,
  unit: number,
): FailedEvent {
  const attempts = attemptsBefore + 1;
  if (isDead(attempts, isFinal, policy)) return { state: "dead", attempts, dueInMs: 0 };
  return { state: "waiting", attempts, dueInMs: Math.round(backoffMs(attempts, policy, unit)) };
}

/** Returns the first event of every key, and all events without a key. */
export function headsOf<Event extends { readonly key: string | undefined }>(
  events: readonly Event[],
): readonly Event[] {
  const seen = new Set<string>();
  return events.filter(({ key }) => {
    if (key === undefined) return true;
    if (seen.has(key)) return false;
    seen.add(key);
    return true;
  });
}
