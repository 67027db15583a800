/** What users write for a step: its functions, what they get, and how often they are tried. */

import type { JsonOf } from "../../base/json-of.ts";
import type { RetryOptions } from "../../base/retry-options.ts";
import type { Reconciled } from "../once/options.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";

/** What every function of a step gets. */
export interface SagaContext<Input, Results> {
  readonly input: JsonOf<Input>;
  /** The results of the steps before this one, by name. */
  readonly results: Results;
  /** Pass it to the other side as the idempotency key. It is the same in every attempt; an undo has another one. */
  readonly key: string;
  /** The identity that the saga was started with. */
  readonly identity: ScopedKey;
  /** 1 is the first. */
  readonly attempt: number;
  /** Aborts after `timeoutMs`, and when another process has the saga, or may soon have it. */
  readonly signal: AbortSignal;
}

/** What the functions of a `tx` step get. */
export interface SagaTxContext<Tx, Input, Results> extends SagaContext<Input, Results> {
  /** Everything that is written with it is committed together with the record of the step. */
  readonly tx: Tx;
}

/** What every undo gets as well. */
export interface SagaUndoContext {
  /** The key that `run` got. If no answer came, the other side finds by it what was done. */
  readonly runKey: string;
}

/** Options of every step that does something. */
export interface SagaStepOptions {
  /** How often the step and its undo are tried: `attemptsMax` 5, `pauseMs` 500, `pauseMsMax` 60,000 by default. */
  readonly retry?: Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">;
  /** How long one attempt may take, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number;
  /** Says whether an error means that nothing was done and that repeating does not help: a card that was declined. */
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

/** A step that calls another system, which is asked before anything is repeated or undone. */
export interface SagaProbeWork<Input, Results, T> extends SagaCallWork<Input, Results, T> {
  /** Says whether the effect is there: after an attempt without an answer, and after an undo without one. */
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

/** A wait for something from outside, given by `signal()`. */
export interface SagaSignalStep<T> {
  /** How long to wait, in milliseconds. Default: without an end. */
  readonly timeoutMs?: number;
  /**
   * What happens when the time is over. `stuck` (default): an operator decides. `undo`: the saga is undone; not after the
   * pivot. `continue`: it goes on, and the result is undefined.
   */
  readonly onTimeout?: "undo" | "continue" | "stuck";
  /** Checks what was sent, and returns what the result shall be. Throws to refuse it. Default: takes everything. */
  readonly parse?: (payload: unknown) => T;
}
