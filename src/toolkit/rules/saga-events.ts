/**
 * What an attempt, a probe or a lost claim makes of the progress of a saga. The rules are those of saga.ts: a runner
 * records these events, and decides anew. Pure.
 */

import {
  type SagaFailure,
  type SagaMoment,
  type SagaPlan,
  type SagaProgress,
  sagaStep,
  type SagaStepProgress,
  sagaSteps,
} from "./saga-plan.ts";

/** Something that a runner has to record. `pauseMs`: how long to wait before the next attempt. */
export type SagaEvent =
  /** SA2: the intent of a call or a probe; of a sleep or a signal, with its end. */
  | { readonly kind: "began"; readonly step: string; readonly forMs?: number | undefined }
  | { readonly kind: "done"; readonly step: string; readonly result: string | undefined }
  /** `isCertain`: the attempt had no effect. `isFinal`: another one would fail as well. */
  | {
      readonly kind: "failed";
      readonly step: string;
      readonly failure: SagaFailure;
      readonly isCertain: boolean;
      readonly isFinal: boolean;
      readonly pauseMs: number;
    }
  | {
      readonly kind: "asked";
      readonly step: string;
      readonly answer: "done" | "not_done" | "unknown";
      readonly result?: string | undefined;
      readonly pauseMs: number;
    }
  | { readonly kind: "undo began"; readonly step: string }
  | { readonly kind: "undone"; readonly step: string }
  | {
      readonly kind: "undo failed";
      readonly step: string;
      readonly failure: SagaFailure;
      readonly isCertain: boolean;
      readonly isFinal: boolean;
      readonly pauseMs: number;
    }
  /**
   * A claim was lost while this `tx` step, or its undo, was next, or while its outcome was to be asked for: it may be what
   * ends its processes.
   */
  | { readonly kind: "lost"; readonly step: string };

/** An event that cannot have happened to this saga. Writing it again does not help. */
export class SagaContradiction extends Error {}

/** A longer history is cut in its middle: how it began, and what happened last, stays. */
const HISTORY_MAX = 200;
const HISTORY_HEAD = 20;

const FRESH: SagaStepProgress = {
  state: "open",
  attempts: 0,
  isUnknown: false,
  sinceMs: 0,
  asks: 0,
  outcome: "none",
};

/** Returns the progress after an event, at a time of the saga. */
export function applySagaEvent(
  plan: SagaPlan,
  progress: SagaProgress,
  event: SagaEvent,
  nowMs: number,
): SagaProgress {
  const step = sagaSteps(plan).find(({ name }) => name === event.step);
  if (step === undefined) throw new SagaContradiction(`SA8 the plan has no step ${event.step}`);
  const before = sagaStep(progress, step.name) ?? FRESH;
  requireUnsettled(before, event);
  const after = stepAfter(before, event, step.attemptsMax, nowMs);
  const changed = {
    ...progress,
    steps: { ...progress.steps, [step.name]: after },
    history: withMoment(progress.history, momentOf(event, nowMs)),
  };
  return { ...changed, isPastPivot: isPastPivot(plan, changed) };
}

/** SA2 SA4: what is done, or undone, has not failed. The first failure of an undo finds its step done. */
function requireUnsettled({ state }: SagaStepProgress, { kind, step }: SagaEvent): void {
  const isSettled =
    (kind === "failed" && (state === "done" || state === "undone")) ||
    (kind === "undo failed" && state === "undone");
  if (isSettled)
    throw new SagaContradiction(`SA2 the step ${step} is ${state}, and has not failed`);
}

function stepAfter(
  before: SagaStepProgress,
  event: SagaEvent,
  attemptsMax: number,
  nowMs: number,
): SagaStepProgress {
  switch (event.kind) {
    case "began":
      return {
        ...begunAgain(before, nowMs),
        state: "open",
        outcome: "unknown",
        dueMs: event.forMs === undefined ? undefined : nowMs + event.forMs,
      };
    case "done":
      return { ...doneWith(before, event.result), attempts: Math.max(1, before.attempts) };
    case "failed":
      return afterFailure(before, event, attemptsMax, nowMs);
    case "asked":
      return afterAnswer(before, event, nowMs);
    case "undo began": {
      const first = before.state === "undoing" ? before : { ...before, attempts: 0 };
      return { ...begunAgain(first, nowMs), state: "undoing", dueMs: undefined };
    }
    case "undone":
      return { ...before, state: "undone", isUnknown: false, dueMs: undefined, failure: undefined };
    case "undo failed": {
      const { failure, isFinal, isCertain, pauseMs } = event;
      // A `tx` undo has no intent: this is its first record.
      const isBegun = before.state === "undoing" && before.isUnknown;
      const attempts = before.state === "undoing" ? before.attempts : 0;
      return {
        ...before,
        state: "undoing",
        attempts: isBegun ? attempts : attempts + 1,
        isUnknown: isBegun && !isCertain,
        failure,
        isFinal,
        dueMs: nowMs + pauseMs,
      };
    }
    case "lost": {
      if (before.isUnknown) return { ...before, asksLost: (before.asksLost ?? 0) + 1 };
      if (before.state === "open") return { ...before, attempts: before.attempts + 1 };
      const attempts = before.state === "undoing" ? before.attempts + 1 : 1;
      return { ...before, state: "undoing", attempts };
    }
  }
}

function begunAgain(before: SagaStepProgress, nowMs: number): SagaStepProgress {
  const { attempts, isUnknown, sinceMs } = before;
  return {
    ...before,
    attempts: attempts + 1,
    isUnknown: true,
    sinceMs: isUnknown ? sinceMs : nowMs,
    asks: isUnknown ? before.asks : 0,
  };
}

function doneWith(before: SagaStepProgress, result: string | undefined): SagaStepProgress {
  return {
    ...before,
    state: "done",
    outcome: "done",
    result,
    isUnknown: false,
    asks: 0,
    dueMs: undefined,
    failure: undefined,
  };
}

function afterFailure(
  before: SagaStepProgress,
  {
    failure,
    isCertain,
    isFinal,
    pauseMs,
  }: Extract<SagaEvent, { readonly kind: "failed" | "undo failed" }>,
  attemptsMax: number,
  nowMs: number,
): SagaStepProgress {
  // A `tx` step has no intent: this is its first record.
  const attempts = before.isUnknown ? before.attempts : before.attempts + 1;
  const common = { ...before, failure, dueMs: nowMs + pauseMs };
  if (isCertain && isFinal)
    return { ...common, state: "failed", attempts, isUnknown: false, outcome: "none" };
  if (isCertain) return { ...common, state: "open", attempts, isUnknown: false, outcome: "none" };
  // It may have had its effect, and is not repeated.
  return { ...common, attempts: isFinal ? Math.max(attempts, attemptsMax) : attempts };
}

function afterAnswer(
  before: SagaStepProgress,
  { answer, result, pauseMs }: Extract<SagaEvent, { readonly kind: "asked" }>,
  nowMs: number,
): SagaStepProgress {
  if (answer === "unknown") return { ...before, asks: before.asks + 1, dueMs: nowMs + pauseMs };
  const known = { ...before, isUnknown: false, asks: 0, asksLost: undefined, dueMs: undefined };
  if (before.state === "undoing")
    // What its undo was to take away is still there, or gone.
    return answer === "done" ? known : { ...known, state: "undone", failure: undefined };
  return answer === "done" ? doneWith(before, result) : { ...known, outcome: "none" };
}

/** SA6: whether the pivot is done, or may be. */
export function isPastPivot(plan: SagaPlan, progress: SagaProgress): boolean {
  return sagaSteps(plan).some(({ name, isPivot }) => {
    const at = isPivot ? sagaStep(progress, name) : undefined;
    return at?.state === "done" || (at?.state === "open" && at.isUnknown);
  });
}

function momentOf(event: SagaEvent, atMs: number): SagaMoment {
  const { kind, step } = event;
  if (kind === "failed" || kind === "undo failed") {
    const words = `${event.failure.name}: ${event.failure.message}`;
    return { atMs, what: kind, step, note: event.isFinal ? `${words} (final)` : words };
  }
  if (kind === "asked") return { atMs, what: kind, step, note: event.answer };
  if (kind === "lost") return { atMs, what: kind, step, note: "its process ended" };
  return { atMs, what: kind, step };
}

/** Adds to the history. */
export function withMoment(
  history: readonly SagaMoment[],
  moment: SagaMoment,
): readonly SagaMoment[] {
  const all = [...history, moment];
  if (all.length <= HISTORY_MAX) return all;
  return [...all.slice(0, HISTORY_HEAD), ...all.slice(HISTORY_HEAD + 1)];
}
