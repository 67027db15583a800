/**
 * Decides whether a saga goes on with other steps than those that it was started with (SA8).
 *
 *   - a step keeps its progress under its name, and its kind with it: the key of a step is made of its name (SA3);
 *   - what an old step has left behind is forgotten only if the migration says so;
 *   - a saga that is past its pivot stays so, and one that is being undone does not get past it (SA6).
 *
 * Pure.
 */

import { isPastPivot, withMoment } from "./saga-events.ts";
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
  /** Old steps that are forgotten, with what they have left behind. */
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
  const kinds = new Map(sagaSteps(plan).map(({ name, kind }) => [name, kind]));
  const before = kindsOf(progress.digest);
  for (const name of done.keys()) {
    if (!kinds.has(name)) return `there is no step ${name} that could be done`;
    if (sagaStep(progress, name) !== undefined) return `the step ${name} has begun already`;
  }
  for (const name of dropped) if (kinds.has(name)) return `the step ${name} is still there`;
  for (const [name, at] of Object.entries(progress.steps)) {
    const kind = kinds.get(name);
    if (kind === undefined && !dropped.includes(name) && hasLeftSomething(at))
      return `the step ${name} is gone, and may have left something behind`;
    if (kind !== undefined && kind !== before.get(name))
      return `the step ${name} was a ${before.get(name)}, and is a ${kind}`;
  }
  return undefined;
}

function hasLeftSomething({ state, isUnknown }: SagaStepProgress): boolean {
  return state === "done" || state === "undoing" || (state === "open" && isUnknown);
}

/** The kinds of the steps of an outline: `reserve tx; book (charge call, label probe); confirm tx pivot`. */
function kindsOf(outline: string): ReadonlyMap<string, string> {
  const words = outline.split("; ").flatMap((stage) => {
    const group = /^[^(]* \((.*)\)$/.exec(stage);
    return (group?.[1] ?? stage).split(", ");
  });
  return new Map(
    words.map((word) => {
      const [, name = "", kind = ""] =
        /^(.*) (tx|call|probe|sleep|signal)(?: pivot)?$/.exec(word) ?? [];
      return [name, kind];
    }),
  );
}
