/**
 * The outline of the steps of a saga (SA8). A saga goes on only with a definition of the same one. It says what decides which
 * steps run, in which order, and what is taken back: names, kinds, order, groups, the pivot, which steps have an undo, and
 * what follows a signal that does not come. Pure.
 *
 *   reserve tx undo; book (charge call undo, label probe); confirm tx pivot; paid signal else continue
 */

import type { SagaStagePlan, SagaStepPlan } from "./saga-plan.ts";

export function outlineOf(stages: readonly SagaStagePlan[]): string {
  const words = stages.map(({ group, steps }) => {
    const all = steps.map(wordsOf).join(", ");
    return group === undefined ? all : `${group} (${all})`;
  });
  return words.join("; ");
}

function wordsOf({ name, kind, isPivot, hasUndo, onTimeout }: SagaStepPlan): string {
  const isElse = kind === "signal" && onTimeout !== "stuck";
  return [
    name,
    kind,
    ...(isPivot ? ["pivot"] : []),
    ...(hasUndo ? ["undo"] : []),
    ...(isElse ? ["else", onTimeout] : []),
  ].join(" ");
}

/** What an outline says of a step. */
export interface OutlinedStep {
  readonly kind: string;
  readonly hasUndo: boolean;
}

/** The steps of an outline, by name. */
export function stepsOfOutline(outline: string): ReadonlyMap<string, OutlinedStep> {
  const words = outline.split("; ").flatMap((stage) => {
    const group = /^[^(]* \((.*)\)$/.exec(stage);
    return (group?.[1] ?? stage).split(", ");
  });
  return new Map(
    words.map((word) => {
      const [, name = "", kind = "", undo] =
        /^(.*) (tx|call|probe|sleep|signal)(?: pivot)?( undo)?(?: else (?:undo|continue))?$/.exec(
          word,
        ) ?? [];
      return [name, { kind, hasUndo: undo !== undefined }];
    }),
  );
}
