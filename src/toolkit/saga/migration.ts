/** The types with which users migrate a saga to other steps (SA8), and the call of their function. */

import { wordsOfError } from "../../base/error-words.ts";
import type { SagaProgress, SagaStepProgress } from "../rules/saga-plan.ts";
import {
  decideMigration,
  type SagaMigrationDecision,
  type SagaMove,
} from "../rules/saga-migration.ts";
import type { SagaDefinition } from "./definition.ts";
import { SAGA_FAILURE_CHARS_MAX } from "./limits.ts";
import { encodeSaga } from "./record.ts";
import { jsonOf, parsed, resultsOf } from "./values.ts";

/** Describes a saga that was started with older steps. */
export interface SagaBefore {
  /** The version of the definition with which it was started. */
  readonly version: number;
  readonly input: unknown;
  /** The results of the steps that are done, by name. */
  readonly results: Readonly<Record<string, unknown>>;
  /** The states of the steps that have begun, by name. */
  readonly states: Readonly<Record<string, SagaStepProgress["state"]>>;
}

/** Says how the saga goes on. All members are optional: steps keep their progress under their names. */
export interface SagaMigration<Input> {
  /** The input for the new steps. Default: the input with which the saga was started. */
  readonly input?: Input;
  /** New steps that this saga must not run, with the results that later steps get. */
  readonly done?: Readonly<Record<string, unknown>>;
  /** Steps that were removed, or have no undo any more, although they may have had an effect. Nothing will undo that effect. */
  readonly dropped?: readonly string[];
}

/**
 * Migrates an older saga. Return undefined, or throw, if it cannot go on: then it is stuck. The function is called
 * again after a crash.
 */
export type SagaMigrate<Input> = (before: SagaBefore) => SagaMigration<Input> | undefined;

/** Asks a definition how an older saga goes on. */
export function migrateSaga<Tx>(
  target: SagaDefinition<Tx>,
  progress: SagaProgress,
  atMs: number,
): SagaMigrationDecision {
  try {
    const move = target.migrate?.(beforeOf(progress));
    if (move === undefined) return { kind: "refused", why: "its migrate has no answer" };
    const decision = decideMigration(progress, target, moveOf(move), atMs);
    if (decision.kind === "migrated" && !hasRoom(decision.progress))
      return { kind: "refused", why: "it would be too large" };
    return decision;
  } catch (error) {
    const { name, message } = wordsOfError(error, SAGA_FAILURE_CHARS_MAX);
    return { kind: "refused", why: `its migrate has thrown ${name}: ${message}` };
  }
}

function hasRoom(progress: SagaProgress): boolean {
  try {
    return encodeSaga(progress, true).length > 0;
  } catch {
    return false;
  }
}

function beforeOf(progress: SagaProgress): SagaBefore {
  const { version, input, steps } = progress;
  const states = Object.entries(steps).map(([name, { state }]) => [name, state] as const);
  return {
    version,
    input: parsed(input),
    results: resultsOf(progress),
    states: Object.fromEntries(states),
  };
}

function moveOf(move: SagaMigration<unknown>): SagaMove {
  const { done = {}, dropped = [] } = move;
  return {
    ...("input" in move ? { input: { json: jsonOf(move.input, "input") } } : {}),
    done: new Map(Object.entries(done).map(([name, result]) => [name, jsonOf(result)])),
    dropped,
  };
}
