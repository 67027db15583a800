/**
 * What a saga consists of, and how far one is. saga.ts decides with it, saga-events.ts changes it. Pure.
 */

/** What a step does. `tx`: writes of the ledger's database. `call` and `probe`: an effect elsewhere. */
export type SagaStepKind = "tx" | "call" | "probe" | "sleep" | "signal";

/** A step without its functions. */
export interface SagaStepPlan {
  readonly name: string;
  readonly kind: SagaStepKind;
  /** From here on the saga only goes forward. */
  readonly isPivot: boolean;
  readonly hasUndo: boolean;
  /** How often the step, and its undo, may be begun. */
  readonly attemptsMax: number;
  /** Of a signal that does not come in time. */
  readonly onTimeout: "undo" | "continue" | "stuck";
}

/** Steps that run side by side; most stages have one. */
export interface SagaStagePlan {
  readonly group: string | undefined;
  readonly steps: readonly SagaStepPlan[];
}

/** A definition without its functions. Stages follow one another. */
export interface SagaPlan {
  readonly stages: readonly SagaStagePlan[];
  /** How long the outcome of a step may stay unknown, in milliseconds. */
  readonly deadlineMs: number;
}

/** The stored description of an error. */
export interface SagaFailure {
  readonly name: string;
  readonly message: string;
}

/**
 * The progress of a step. `open`: begun, or tried and failed. `failed`: it certainly has no effect, and is not tried
 * again. `undoing`: its undo has begun. A step that has not begun has no entry. Times are milliseconds since the saga
 * was started, by the database's clock.
 */
export interface SagaStepProgress {
  readonly state: "open" | "done" | "failed" | "undoing" | "undone";
  /** The attempts of the step while it is open, or of its undo while that is open. */
  readonly attempts: number;
  /** An attempt has begun, and its outcome is not recorded. */
  readonly isUnknown: boolean;
  /** The time at which the outcome became unknown. */
  readonly sinceMs: number;
  /** Nothing happens before this time. For a sleep: its end. For a signal: its time limit. */
  readonly dueMs?: number | undefined;
  /** How often the probe was asked and did not know. */
  readonly asks: number;
  /** How often a process ended while it was asking the probe. */
  readonly asksLost?: number | undefined;
  /** The effect of the step. `unknown`: there may be an effect, and its result is not known. */
  readonly outcome: "none" | "done" | "unknown";
  /** The result as JSON; undefined if it is undefined. */
  readonly result?: string | undefined;
  readonly failure?: SagaFailure | undefined;
  /** True for an undo that has failed for good: another attempt does not help. */
  readonly isFinal?: boolean | undefined;
}

/** Why a saga is stuck. */
export type SagaStuckReason =
  | "failed"
  | "exhausted"
  | "undo_failed"
  | "undo_exhausted"
  | "outcome_unknown"
  | "timed_out"
  | "definition_changed";

/** A saga that does nothing until an operator acts. */
export interface SagaStuck {
  readonly reason: SagaStuckReason;
  readonly step?: string | undefined;
  readonly message: string;
}

/** Something that happened to a saga. */
export interface SagaMoment {
  /** Milliseconds since the saga was started. */
  readonly atMs: number;
  readonly what: string;
  readonly step?: string | undefined;
  readonly note?: string | undefined;
  /** The operator, if an operator did it. */
  readonly by?: string | undefined;
}

/** How a saga has ended. `finished`: an operator has ended it as it was. */
export type SagaEnding = "completed" | "undone" | "finished";

/** How far a saga is: all that is kept of it. */
export interface SagaProgress {
  readonly saga: string;
  readonly version: number;
  readonly digest: string;
  /** JSON; undefined if the input is undefined. */
  readonly input: string | undefined;
  readonly direction: "forward" | "undo";
  readonly steps: Readonly<Record<string, SagaStepProgress>>;
  /** Signals that have come, as JSON. */
  readonly signals: Readonly<Record<string, { readonly payload?: string | undefined }>>;
  readonly isPastPivot: boolean;
  /** Why it is being undone. */
  readonly cause?: (SagaFailure & { readonly step?: string | undefined }) | undefined;
  /** An operator wants it to be undone. */
  readonly abort?: { readonly by: string; readonly note?: string | undefined } | undefined;
  readonly stuck?: SagaStuck | undefined;
  readonly ended?: SagaEnding | undefined;
  /** What it waits for while no runner holds it. */
  readonly waiting?: { readonly for: SagaWait; readonly step?: string | undefined } | undefined;
  readonly history: readonly SagaMoment[];
  /** The number of the last write of a runner. Acts and signals keep it: a runner without an answer knows its own write by it. */
  readonly write?: number | undefined;
}

/** Why no runner holds a saga. `runner`: it is free for the next one. `definition`: none here knows its definition. */
export type SagaWait = "runner" | "sleep" | "signal" | "retry" | "definition";

/** The progress of a step; undefined if it has not begun. */
export function sagaStep(progress: SagaProgress, name: string): SagaStepProgress | undefined {
  // A step may have the name of a member that every object has.
  return Object.hasOwn(progress.steps, name) ? progress.steps[name] : undefined;
}

/** All steps, in the order in which they begin. */
export function sagaSteps(plan: SagaPlan): readonly SagaStepPlan[] {
  return plan.stages.flatMap(({ steps }) => steps);
}
