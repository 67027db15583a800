/**
 * Decides what a saga does next: run steps, undo steps, wait, end, or ask for an operator.
 *
 *   SA1   a step is begun, and its outcome recorded, by the owner of the saga's claim alone; a zombie records nothing;
 *   SA2   the writes of a `tx` step and its record are one transaction; the intent of a `call` or `probe` is recorded before it
 *         is sent, its outcome after it;
 *   SA3   the key of a step is the same in every attempt, process and version, and its undo has another one;
 *   SA4   undone are, last begun first, the steps that are done and those whose outcome is unknown; a step that has no effect for
 *         certain is not undone;
 *   SA5   an undo is counted, repeated, asked for and fenced as its step was, also if the saga was aborted;
 *   SA6   after the pivot a saga only goes forward; what cannot go on is stuck, with a reason, until an operator acts;
 *   SA7   a saga that is started twice under one identity is one saga; other input is refused;
 *   SA8   a saga goes on only with the definition that it was started with, or one that says how;
 *   SA9   a saga that cannot go on keeps no other from going on;
 *   SA10  the branches of a group have all settled before one of them is undone; its `tx` branches run one after the other.
 *
 * What a crash leaves, by the kind of the step. The same lines hold for its undo.
 *
 *   lost at                                    tx                     call                         probe
 *   before the intent                          begun by the next      same                         same
 *   after the intent, before the call          -                      repeated with the same key   asked: not done, repeated
 *   after the call, its answer lost            -                      repeated, the first result   asked: done, recorded
 *   after the answer, before the record        -                      same                         same
 *   inside the transaction                     rolled back, repeated  -                            -
 *   after the commit, its answer lost          looked up              recorded again               recorded again
 *   asleep beyond the lease                    rolled back            cannot record                cannot record
 *
 * Time is the saga's own: milliseconds since it was started, by the database's clock. Pure.
 */

import { withMoment } from "./saga-events.ts";
import {
  type SagaEnding,
  type SagaFailure,
  type SagaPlan,
  type SagaProgress,
  type SagaStagePlan,
  sagaStep,
  type SagaStepPlan,
  type SagaStepProgress,
  sagaSteps,
  type SagaStuck,
} from "./saga-plan.ts";

/** Processes end for many reasons. After so many that were to ask it is the question. */
const ASKS_LOST_MAX = 3;

/** Something to do for a step. `ask`: find out the outcome of what was begun. */
export interface SagaTask {
  readonly step: string;
  readonly mode: "run" | "ask" | "sleep" | "listen";
}

/** The result of `decideNext()`. */
export type SagaNext =
  /** All at once, but its `tx` steps one after the other. */
  | { readonly kind: "run"; readonly tasks: readonly SagaTask[] }
  | { readonly kind: "undo"; readonly task: SagaTask }
  /** `untilMs` undefined: until a signal comes. */
  | {
      readonly kind: "wait";
      readonly for: "sleep" | "signal" | "retry";
      readonly step: string;
      readonly untilMs: number | undefined;
    }
  | { readonly kind: "end"; readonly ending: SagaEnding }
  | { readonly kind: "stuck"; readonly stuck: SagaStuck };

/** What is next, and the progress with everything that followed without doing anything: a sleep that is over, a turn. */
export interface SagaDecision {
  readonly progress: SagaProgress;
  readonly next: SagaNext;
}

/** Decides what a saga does next. The same progress at the same time has the same answer, in every process. */
export function decideNext(plan: SagaPlan, given: SagaProgress, nowMs: number): SagaDecision {
  const passed = passWaits(plan, given, nowMs);
  const progress = turned(plan, passed, nowMs);
  if (progress.ended !== undefined)
    return { progress, next: { kind: "end", ending: progress.ended } };
  if (progress.stuck !== undefined)
    return { progress, next: { kind: "stuck", stuck: progress.stuck } };
  const next =
    progress.direction === "forward"
      ? nextForward(plan, progress, nowMs)
      : nextUndo(plan, progress, nowMs);
  if (next.kind === "end") return { progress: ended(progress, next.ending, nowMs), next };
  if (next.kind === "stuck") return { progress: stuckIn(progress, next.stuck, nowMs), next };
  return { progress, next };
}

function ended(progress: SagaProgress, ending: SagaEnding, atMs: number): SagaProgress {
  return {
    ...progress,
    ended: ending,
    history: withMoment(progress.history, { atMs, what: ending }),
  };
}

function stuckIn(progress: SagaProgress, stuck: SagaStuck, atMs: number): SagaProgress {
  const { step, reason, message } = stuck;
  const moment = { atMs, what: "stuck", step, note: `${reason}: ${message}` };
  return { ...progress, stuck, history: withMoment(progress.history, moment) };
}

/** A sleep that is over and a signal that has come are done, one that is too late has failed or is skipped. */
function passWaits(plan: SagaPlan, given: SagaProgress, nowMs: number): SagaProgress {
  if (given.direction === "undo" || given.ended !== undefined || given.stuck !== undefined)
    return given;
  let progress = given;
  for (const step of sagaSteps(plan)) {
    const at = sagaStep(progress, step.name);
    if (at?.state !== "open") continue;
    const isOver = at.dueMs !== undefined && at.dueMs <= nowMs;
    if (step.kind === "sleep" && isOver) progress = passed(progress, step, at, undefined, nowMs);
    if (step.kind !== "signal") continue;
    const signal = Object.hasOwn(progress.signals, step.name)
      ? progress.signals[step.name]
      : undefined;
    if (signal !== undefined) progress = passed(progress, step, at, signal.payload, nowMs);
    else if (isOver) progress = late(progress, step, at, nowMs);
  }
  return progress;
}

function passed(
  progress: SagaProgress,
  { name, kind }: SagaStepPlan,
  at: SagaStepProgress,
  result: string | undefined,
  atMs: number,
): SagaProgress {
  const done = { ...at, state: "done", outcome: "done", result, dueMs: undefined } as const;
  const what = kind === "sleep" ? "woke" : "signalled";
  return {
    ...progress,
    steps: { ...progress.steps, [name]: done },
    history: withMoment(progress.history, { atMs, what, step: name }),
  };
}

function late(
  progress: SagaProgress,
  { name, onTimeout }: SagaStepPlan,
  at: SagaStepProgress,
  atMs: number,
): SagaProgress {
  const failure = { name: "Timeout", message: `the signal ${name} has not come in time` };
  if (onTimeout === "stuck")
    return stuckIn(progress, { reason: "timed_out", step: name, message: failure.message }, atMs);
  const over: SagaStepProgress =
    onTimeout === "continue"
      ? { ...at, state: "done", outcome: "done", result: undefined, dueMs: undefined }
      : { ...at, state: "failed", failure, dueMs: undefined };
  return {
    ...progress,
    steps: { ...progress.steps, [name]: over },
    history: withMoment(progress.history, { atMs, what: "timed out", step: name }),
  };
}

/** SA4 SA6: turns round, if a step is lost before the pivot or an operator has asked for it. */
function turned(plan: SagaPlan, progress: SagaProgress, atMs: number): SagaProgress {
  const { direction, isPastPivot, abort, ended: ending, stuck } = progress;
  if (direction === "undo" || isPastPivot || ending !== undefined || stuck !== undefined)
    return progress;
  const lost = plan.stages.flatMap(({ steps }) => steps).find((step) => isLost(progress, step));
  if (lost === undefined && abort === undefined) return progress;
  const cause =
    lost === undefined
      ? { name: "Aborted", message: `by ${abort?.by}` }
      : { ...failureOf(progress, lost), step: lost.name };
  const moment = { atMs, what: "turned round", step: lost?.name, note: cause.message };
  return { ...progress, direction: "undo", cause, history: withMoment(progress.history, moment) };
}

function failureOf(progress: SagaProgress, { name }: SagaStepPlan): SagaFailure {
  const failure = sagaStep(progress, name)?.failure;
  return failure ?? { name: "Error", message: "its process ended" };
}

/** Whether a step will not be done: it has failed for certain, or was begun as often as it may be. */
function isLost(progress: SagaProgress, { name, kind, attemptsMax }: SagaStepPlan): boolean {
  const at = sagaStep(progress, name);
  if (at?.state === "failed") return true;
  if (at?.state !== "open" || at.attempts < attemptsMax) return false;
  // The last attempt of a probe step may have had its effect: it is asked for first.
  return kind === "call" || kind === "tx" || (kind === "probe" && !at.isUnknown);
}

function nextForward(plan: SagaPlan, progress: SagaProgress, nowMs: number): SagaNext {
  const stage = plan.stages.find(({ steps }) =>
    steps.some(({ name }) => sagaStep(progress, name)?.state !== "done"),
  );
  if (stage === undefined) return { kind: "end", ending: "completed" };
  // SA6: before the pivot it has turned round.
  const lost = stage.steps.find((step) => isLost(progress, step));
  if (lost !== undefined) {
    const { message } = failureOf(progress, lost);
    const reason = sagaStep(progress, lost.name)?.state === "failed" ? "failed" : "exhausted";
    return { kind: "stuck", stuck: { reason, step: lost.name, message } };
  }
  return nextOfStage(plan, stage, progress, nowMs);
}

function nextOfStage(
  plan: SagaPlan,
  stage: SagaStagePlan,
  progress: SagaProgress,
  nowMs: number,
): SagaNext {
  const tasks: SagaTask[] = [];
  let wait: Extract<SagaNext, { readonly kind: "wait" }> | undefined;
  for (const step of stage.steps) {
    const at = sagaStep(progress, step.name);
    if (at?.state === "done") continue;
    if (at !== undefined && isUnknownTooLong(plan, step, at, nowMs))
      return { kind: "stuck", stuck: unknownTooLong(step) };
    const untilMs = at?.dueMs;
    const isWaiting = isWait(step) ? at !== undefined : untilMs !== undefined && untilMs > nowMs;
    if (!isWaiting) tasks.push(taskOf(step, at));
    else if (wait === undefined || (untilMs ?? Infinity) < (wait.untilMs ?? Infinity))
      wait = { kind: "wait", for: waitOf(step), step: step.name, untilMs };
  }
  if (tasks.length > 0 || wait === undefined) return { kind: "run", tasks };
  return wait;
}

function isWait({ kind }: SagaStepPlan): boolean {
  return kind === "sleep" || kind === "signal";
}

function waitOf({ kind }: SagaStepPlan): "sleep" | "signal" | "retry" {
  return kind === "sleep" || kind === "signal" ? kind : "retry";
}

function taskOf({ name, kind }: SagaStepPlan, at: SagaStepProgress | undefined): SagaTask {
  if (kind === "sleep") return { step: name, mode: "sleep" };
  if (kind === "signal") return { step: name, mode: "listen" };
  const mustAsk = kind === "probe" && at?.isUnknown === true;
  return { step: name, mode: mustAsk ? "ask" : "run" };
}

function isUnknownTooLong(
  { deadlineMs }: SagaPlan,
  { kind }: SagaStepPlan,
  { isUnknown, asks, asksLost = 0, sinceMs }: SagaStepProgress,
  nowMs: number,
): boolean {
  // It is asked for at least once, also after a long outage.
  const isAsked = asks > 0 || asksLost > ASKS_LOST_MAX;
  return kind === "probe" && isUnknown && isAsked && nowMs - sinceMs >= deadlineMs;
}

function unknownTooLong({ name }: SagaStepPlan): SagaStuck {
  const message = "the other side does not know whether it has happened";
  return { reason: "outcome_unknown", step: name, message };
}

/** SA4: the last step that has left, or may have left, something behind. */
function nextUndo(plan: SagaPlan, progress: SagaProgress, nowMs: number): SagaNext {
  for (const step of sagaSteps(plan).toReversed()) {
    const at = sagaStep(progress, step.name);
    if (at === undefined || !needsUndo(step, at)) continue;
    const { name, kind, attemptsMax } = step;
    const mustAsk = kind === "probe" && at.isUnknown;
    const isOver = at.isFinal === true || at.attempts >= attemptsMax;
    if (at.state === "undoing" && !mustAsk && isOver)
      return { kind: "stuck", stuck: undoLost(name, at) };
    if (isUnknownTooLong(plan, step, at, nowMs))
      return { kind: "stuck", stuck: unknownTooLong(step) };
    const { dueMs } = at;
    if (dueMs !== undefined && dueMs > nowMs)
      return { kind: "wait", for: "retry", step: name, untilMs: dueMs };
    return { kind: "undo", task: { step: name, mode: mustAsk ? "ask" : "run" } };
  }
  return { kind: "end", ending: "undone" };
}

function undoLost(step: string, { failure, isFinal }: SagaStepProgress): SagaStuck {
  const message = failure?.message ?? "its process ended";
  return { reason: isFinal === true ? "undo_failed" : "undo_exhausted", step, message };
}

/** Whether a step may have left something behind that its undo can take back. */
function needsUndo({ kind, hasUndo }: SagaStepPlan, at: SagaStepProgress): boolean {
  if (!hasUndo || kind === "sleep" || kind === "signal") return false;
  if (at.state === "undone" || at.state === "failed") return false;
  if (at.state === "open") return (kind === "call" || kind === "probe") && at.isUnknown;
  return true;
}
