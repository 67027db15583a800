/**
 * Decides whether a saga goes on with other steps than those that it was started with (SA8).
 *
 *   - a step keeps its progress under its name, and its kind with it: the key of a step is made of its name (SA3);
 *   - what an old step has left behind is forgotten, or stays without an undo, only if the migration says so;
 *   - a saga that is past its pivot stays so, and one that is being undone does not get past it (SA6).
 *
 * Pure.
 */

import { isPastPivot, withMoment } from "./saga-events.ts";
import { stepsOfOutline } from "./saga-outline.ts";
import {
  type SagaPlan,
  type SagaProgress,
  sagaStep,
  type SagaStepProgress,
  sagaSteps,
} from "./saga-plan.ts";

/** What a definition says of a saga that older steps have begun. Values are JSON. */
export interface SagaMove {
  /** The input as the new steps have it. Undefined: as it was. */
  readonly input?: { readonly json: string | undefined } | undefined;
  /** New steps that are taken for done, with their results. */
  readonly done: ReadonlyMap<string, string | undefined>;
  /** Old steps that are gone, or have no undo any more: what they have left behind stays. */
  readonly dropped: readonly string[];
}

/** The steps that a saga shall go on with. */
export interface SagaTarget {
  readonly version: number;
  readonly outline: string;
  readonly plan: SagaPlan;
}

/** The result of `decideMigration()`. */
export type SagaMigrationDecision =
  | { readonly kind: "migrated"; readonly progress: SagaProgress }
  | { readonly kind: "refused"; readonly why: string };

/** Decides what becomes of a saga with other steps, at a time of the saga. */
export function decideMigration(
  progress: SagaProgress,
  target: SagaTarget,
  move: SagaMove,
  atMs: number,
): SagaMigrationDecision {
  const why = problemOf(progress, target, move);
  if (why !== undefined) return { kind: "refused", why };
  const { version, outline, plan } = target;
  const names = new Set(sagaSteps(plan).map(({ name }) => name));
  const kept = Object.entries(progress.steps).filter(([name]) => names.has(name));
  const added = [...move.done].map(([name, result]) => [name, takenForDone(result)] as const);
  const moved: SagaProgress = {
    ...progress,
    version,
    digest: outline,
    input: move.input === undefined ? progress.input : move.input.json,
    steps: Object.fromEntries([...kept, ...added]),
    history: withMoment(progress.history, {
      atMs,
      what: "migrated",
      note: `version ${progress.version} to ${version}`,
    }),
  };
  const isPast = isPastPivot(plan, moved);
  if (progress.isPastPivot && !isPast)
    return { kind: "refused", why: "the saga is past its pivot, and would not be" };
  if (progress.direction === "undo" && isPast)
    return { kind: "refused", why: "the saga is being undone, and would be past its pivot" };
  return { kind: "migrated", progress: { ...moved, isPastPivot: isPast } };
}

function takenForDone(result: string | undefined): SagaStepProgress {
  const known = { attempts: 1, isUnknown: false, sinceMs: 0, asks: 0 };
  return { ...known, state: "done", outcome: "done", result };
}

function problemOf(
  progress: SagaProgress,
  { plan }: SagaTarget,
  { done, dropped }: SagaMove,
): string | undefined {
  const steps = new Map(sagaSteps(plan).map((step) => [step.name, step]));
  const before = stepsOfOutline(progress.digest);
  for (const name of done.keys()) {
    if (!steps.has(name)) return `there is no step ${name} that could be done`;
    if (sagaStep(progress, name) !== undefined) return `the step ${name} has begun already`;
  }
  const hasLostUndo = (name: string): boolean =>
    before.get(name)?.hasUndo === true && steps.get(name)?.hasUndo === false;
  for (const name of dropped)
    if (steps.has(name) && !hasLostUndo(name)) return `the step ${name} is still there`;
  for (const [name, at] of Object.entries(progress.steps)) {
    const kind = steps.get(name)?.kind;
    const was = before.get(name)?.kind;
    const isForgotten = !dropped.includes(name) && hasLeftSomething(at);
    if (kind === undefined && isForgotten)
      return `the step ${name} is gone, and may have left something behind`;
    if (kind !== undefined && kind !== was)
      return `the step ${name} was a ${was}, and is a ${kind}`;
    // SA6: after the pivot nothing is undone.
    if (hasLostUndo(name) && isForgotten && !progress.isPastPivot)
      return `the step ${name} has no undo any more, and may have left something behind`;
  }
  return undefined;
}

function hasLeftSomething({ state, isUnknown }: SagaStepProgress): boolean {
  return state === "done" || state === "undoing" || (state === "open" && isUnknown);
}
