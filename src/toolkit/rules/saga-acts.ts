/**
 * What operators and signals make of the progress of a saga (SA6). They need no definition: everything that they are
 * decided by is in the progress. Pure.
 */

import { withMoment } from "./saga-events.ts";
import { type SagaProgress, sagaStep, type SagaStepProgress } from "./saga-plan.ts";

/** An act of an operator. `by` says who it was, `note` why. */
export type SagaAct = { readonly by: string; readonly note?: string | undefined } & (
  | { readonly kind: "retry" }
  /** The result is JSON; undefined is the result undefined. */
  | { readonly kind: "skip"; readonly step: string; readonly result: string | undefined }
  | { readonly kind: "abort" }
  | { readonly kind: "finish" }
);

/** The result of `decideAct()`. */
export type SagaActDecision =
  | { readonly kind: "applied"; readonly progress: SagaProgress }
  /** It is so already. */
  | { readonly kind: "unchanged" }
  | { readonly kind: "refused"; readonly why: string };

/** Decides an act of an operator, at a time of the saga. */
export function decideAct(progress: SagaProgress, act: SagaAct, nowMs: number): SagaActDecision {
  if (progress.ended !== undefined) return refused(`the saga has ended: ${progress.ended}`);
  switch (act.kind) {
    case "abort":
      return decideAbort(progress, act, nowMs);
    case "retry":
      return decideRetry(progress, act, nowMs);
    case "skip":
      return decideSkip(progress, act, nowMs);
    case "finish":
      if (progress.stuck === undefined) return refused("the saga is not stuck");
      return applied({ ...progress, stuck: undefined, ended: "finished" }, act, nowMs);
  }
}

function decideAbort(progress: SagaProgress, act: SagaAct, nowMs: number): SagaActDecision {
  if (progress.direction === "undo" || progress.abort !== undefined) return { kind: "unchanged" };
  if (progress.isPastPivot) return refused("the saga is past its pivot, and only goes forward");
  const { by, note } = act;
  return applied({ ...progress, stuck: undefined, abort: { by, note } }, act, nowMs);
}

function decideRetry(progress: SagaProgress, act: SagaAct, nowMs: number): SagaActDecision {
  const { stuck } = progress;
  if (stuck === undefined) return refused("the saga is not stuck");
  const at = stuck.step === undefined ? undefined : sagaStep(progress, stuck.step);
  if (stuck.step === undefined || at === undefined)
    return applied({ ...progress, stuck: undefined }, act, nowMs);
  const again: SagaStepProgress = {
    ...at,
    state: at.state === "failed" ? "open" : at.state,
    attempts: 0,
    asks: 0,
    asksLost: undefined,
    // The time in which its outcome has to be found out begins anew.
    sinceMs: nowMs,
    dueMs: undefined,
    isFinal: undefined,
  };
  const steps = withStep(progress, stuck.step, stuck.reason === "timed_out" ? undefined : again);
  return applied({ ...progress, stuck: undefined, steps }, act, nowMs);
}

function decideSkip(
  progress: SagaProgress,
  act: Extract<SagaAct, { readonly kind: "skip" }>,
  nowMs: number,
): SagaActDecision {
  const { stuck, direction } = progress;
  const { step, result } = act;
  if (stuck === undefined) return refused("the saga is not stuck");
  if (stuck.step !== step) return refused(`the saga is stuck at ${stuck.step ?? "no step"}`);
  const at = sagaStep(progress, step);
  if (at === undefined) return refused(`the step ${step} has not begun`);
  const known = { ...at, isUnknown: false, dueMs: undefined, failure: undefined };
  const after: SagaStepProgress =
    direction === "undo"
      ? { ...known, state: "undone" }
      : { ...known, state: "done", outcome: "done", result };
  const steps = withStep(progress, step, after);
  return applied({ ...progress, stuck: undefined, steps }, act, nowMs, step);
}

function withStep(
  { steps }: SagaProgress,
  name: string,
  after: SagaStepProgress | undefined,
): SagaProgress["steps"] {
  if (after !== undefined) return { ...steps, [name]: after };
  return Object.fromEntries(Object.entries(steps).filter(([one]) => one !== name));
}

function applied(
  progress: SagaProgress,
  { kind: what, by, note }: SagaAct,
  atMs: number,
  step?: string,
): SagaActDecision {
  const history = withMoment(progress.history, { atMs, what, step, note, by });
  return { kind: "applied", progress: { ...progress, history } };
}

function refused(why: string): SagaActDecision {
  return { kind: "refused", why };
}

/** Decides a signal. The first one of a name counts; it may come before the saga waits for it. */
export function decideSignal(
  progress: SagaProgress,
  name: string,
  payload: string | undefined,
  atMs: number,
): SagaActDecision {
  if (Object.hasOwn(progress.signals, name)) return { kind: "unchanged" };
  if (progress.ended !== undefined) return refused(`the saga has ended: ${progress.ended}`);
  const history = withMoment(progress.history, { atMs, what: "signal", step: name });
  const signals = { ...progress.signals, [name]: { payload } };
  return { kind: "applied", progress: { ...progress, signals, history } };
}
