/** The types with which users write a step: its functions, their arguments, and its retries. */

import type { JsonOf } from "../../base/json-of.ts";
import type { RetryOptions } from "../../base/retry-options.ts";
import type { Reconciled } from "../once/options.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";

/** The argument of every function of a step. */
export interface SagaContext<Input, Results> {
  readonly input: JsonOf<Input>;
  /** The results of the steps before this one, by name. */
  readonly results: Results;
  /** Pass it to the other system as the idempotency key. It is the same in every attempt; an undo has a key of its own. */
  readonly key: string;
  /** The identity with which the saga was started. */
  readonly identity: ScopedKey;
  /** 1 is the first. */
  readonly attempt: number;
  /** Aborts after `timeoutMs`, and when another process has the saga, or may soon have it. */
  readonly signal: AbortSignal;
}

/** The argument of the functions of a `tx` step. */
export interface SagaTxContext<Tx, Input, Results> extends SagaContext<Input, Results> {
  /** The transaction of the step. All writes with it are committed together with the record of the step. */
  readonly tx: Tx;
}

/** The members that every undo gets as well. */
export interface SagaUndoContext {
  /** The `key` of `run`. If no answer came, the other system can find by it what was done. */
  readonly runKey: string;
}

/** Options of every step that runs a function. */
export interface SagaStepOptions {
  /** How the step and its undo are tried again. Defaults: `attemptsMax` 5, `pauseMs` 500, `pauseMsMax` 60,000. */
  readonly retry?: Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">;
  /** The time limit of one attempt, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number;
  /** Returns true for an error which means that nothing was done and that another attempt is useless, such as a declined card. */
  readonly isFinal?: (error: unknown) => boolean;
}

/** A step that writes to the ledger's database. */
export interface SagaTxWork<Tx, Input, Results, T> extends SagaStepOptions {
  readonly run: (context: SagaTxContext<Tx, Input, Results>) => T | Promise<T>;
}

export interface SagaTxStep<Tx, Input, Results, T> extends SagaTxWork<Tx, Input, Results, T> {
  readonly undo?: (
    context: SagaTxContext<Tx, Input, Results> &
      SagaUndoContext & { readonly result: JsonOf<NoInfer<T>> },
  ) => unknown;
}

/** A step that calls another system, which recognises `key`. */
export interface SagaCallWork<Input, Results, T> extends SagaStepOptions {
  readonly run: (context: SagaContext<Input, Results>) => T | Promise<T>;
}

export interface SagaCallStep<Input, Results, T> extends SagaCallWork<Input, Results, T> {
  /** `outcome` is unknown if no answer to the call has come: then it may have happened. */
  readonly undo?: (
    context: SagaContext<Input, Results> &
      SagaUndoContext & {
        readonly outcome:
          | { readonly kind: "done"; readonly result: JsonOf<NoInfer<T>> }
          | { readonly kind: "unknown" };
      },
  ) => unknown;
}

/** A step that calls another system. Before it is repeated or undone, `probe` asks that system. */
export interface SagaProbeWork<Input, Results, T> extends SagaCallWork<Input, Results, T> {
  /** Returns whether the effect exists. Called after an attempt without an answer, and after an undo without an answer. */
  readonly probe: (
    context: SagaContext<Input, Results>,
  ) => Reconciled<NoInfer<T>> | Promise<Reconciled<NoInfer<T>>>;
}

export interface SagaProbeStep<Input, Results, T> extends SagaProbeWork<Input, Results, T> {
  readonly undo?: (
    context: SagaContext<Input, Results> &
      SagaUndoContext & { readonly result: JsonOf<NoInfer<T>> },
  ) => unknown;
}

/** A step that waits for a `signal()` from outside. */
export interface SagaSignalStep<T> {
  /** How long to wait, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number;
  /**
   * What happens when the time is over. `stuck` (default): an operator decides. `undo`: the saga is undone; not allowed
   * after the pivot. `continue`: the saga goes on, and the result is undefined.
   */
  readonly onTimeout?: "undo" | "continue" | "stuck";
  /**
   * Checks the payload, and returns the result of the step. Throw to refuse the payload. Default: every payload is
   * accepted unchanged.
   */
  readonly parse?: (payload: unknown) => T;
}
