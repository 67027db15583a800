/** Describes a saga for programs and operators, from its entry. */

import type { Entry, Place } from "../ledgers/ledger.ts";
import type {
  SagaFailure,
  SagaMoment,
  SagaProgress,
  SagaStepProgress,
  SagaStuck,
} from "../rules/saga-plan.ts";
import { decodeSaga, refOfPlace, type SagaRef } from "./record.ts";
import { resultsOf } from "./values.ts";

/**
 * The state of a saga. `sleeping`: it waits, and no process holds it. `completed`: all steps are done. `undone`: all
 * its effects are undone. `finished`: an operator has ended it without another step.
 */
export type SagaState =
  | "running"
  | "sleeping"
  | "undoing"
  | "stuck"
  | "completed"
  | "undone"
  | "finished";

/** A saga at one moment. */
export interface SagaView extends SagaRef {
  readonly version: number;
  readonly state: SagaState;
  /** Milliseconds since it was started. */
  readonly ageMs: number;
  /** While it sleeps: what it waits for, and for how many milliseconds at most. */
  readonly waiting?: {
    readonly for: string;
    readonly step?: string | undefined;
    readonly leftMs: number | undefined;
  };
  /** The failure for which the saga is being undone, or was undone. */
  readonly cause?: SagaFailure & { readonly step?: string | undefined };
  readonly stuck?: SagaStuck;
  /** The steps that have begun. */
  readonly steps: readonly {
    readonly name: string;
    readonly state: SagaStepProgress["state"];
    readonly attempts: number;
    readonly failure?: SagaFailure;
  }[];
  /** What has happened to the saga, oldest first. */
  readonly history: readonly SagaMoment[];
}

/** A saga at one moment, with the results of its steps. */
export type SagaStatus<Results> = SagaView & {
  /** An earlier call had started the saga. */
  readonly isDuplicate: boolean;
} & (
    | { readonly state: "completed"; readonly results: Results }
    | {
        readonly state: Exclude<SagaState, "completed">;
        /** The results of the steps that are done, or were done before their undo. */
        readonly results: Partial<Results>;
      }
  );

export function sagaStateOf(progress: SagaProgress): SagaState {
  if (progress.ended !== undefined) return progress.ended;
  if (progress.stuck !== undefined) return "stuck";
  if (progress.direction === "undo" || progress.abort !== undefined) return "undoing";
  const { waiting } = progress;
  return waiting === undefined || waiting.for === "runner" ? "running" : "sleeping";
}

export function sagaViewOf(place: Place, entry: Entry): SagaView {
  return viewOfProgress(refOfPlace(place), entry, decodeSaga(entry.data));
}

function viewOfProgress(ref: SagaRef, entry: Entry, progress: SagaProgress): SagaView {
  const { version, waiting, cause, stuck, steps, history } = progress;
  return {
    ...ref,
    version,
    state: sagaStateOf(progress),
    ageMs: entry.ageMs,
    ...(waiting && { waiting: { ...waiting, leftMs: entry.leaseLeftMs } }),
    ...(cause && { cause }),
    ...(stuck && { stuck }),
    steps: Object.entries(steps).map(([name, { state, attempts, failure }]) => ({
      name,
      state,
      attempts,
      ...(failure && { failure }),
    })),
    history,
  };
}

export function statusOf<Results>(
  place: Place,
  entry: Entry,
  isDuplicate: boolean,
): SagaStatus<Results> {
  const progress = decodeSaga(entry.data);
  const results = resultsOf(progress);
  const view = viewOfProgress(refOfPlace(place), entry, progress);
  // The definition that the saga was started with says which results a completed one has.
  return { ...view, isDuplicate, results } as SagaStatus<Results>;
}
