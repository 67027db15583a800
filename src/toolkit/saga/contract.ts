/** The public interface of sagas. sagas.ts implements it. */

import type { Tools } from "../once/tools.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import type { Saga } from "./definition.ts";
import type { SagaActor, SagaFilter } from "./operating.ts";
import type { SagaRef } from "./record.ts";
import type { SagaStatus, SagaView } from "./view.ts";

/** Options of `createSagas`. All are optional. */
export interface SagasOptions extends Tools {
  /**
   * How long others wait after a crash before they take over a saga, in milliseconds. The lease is renewed while a step
   * runs. Default 30,000.
   */
  readonly leaseMs?: number;
  /** How long a saga is kept after its end, in milliseconds. During this time `start` recognises its identity. Default 7 days. */
  readonly retainMs?: number;
  /** The time between two searches of `run` for sagas that are due, in milliseconds. Default 1,000. */
  readonly everyMs?: number;
  /** The most sagas that this process works on at once. Default 20. */
  readonly concurrency?: number;
  /** Called with every error that no caller gets. Default: errors are ignored. The saga is tried again in any case. */
  readonly onError?: (error: unknown) => void;
}

/** Options of one start. */
export interface SagaStartOptions {
  /**
   * How long to wait for the end, in milliseconds. A saga that no process drives is driven here meanwhile. Default 0: return as soon
   * as the saga is stored.
   */
  readonly waitMs?: number;
  /** Stops waiting. The saga goes on. */
  readonly signal?: AbortSignal;
}

/** The operations of sagas inside a transaction of the caller. */
export interface JoinedSagas<Tx> {
  /** Starts a saga if and only if the transaction is committed. A runner finds it then. */
  start<Input, Results>(
    saga: Saga<Input, Results, Tx>,
    identity: ScopedKey,
    input: Input,
  ): Promise<SagaStatus<Results>>;
  /** Sends a signal to a saga if and only if the transaction is committed. */
  signal(ref: SagaRef, name: string, payload?: unknown): Promise<SagaView>;
}

/**
 * Starts sagas, runs their steps, and lets operators act on them. `createSagas` creates it. Every process that has the
 * definitions may have one.
 */
export interface Sagas<Tx> extends JoinedSagas<Tx>, AsyncDisposable {
  /**
   * Starts a saga, and runs its steps in this process. A second start under the same identity returns the same saga.
   * Throws `key_reused` if its input is another one.
   */
  start<Input, Results>(
    saga: Saga<Input, Results, Tx>,
    identity: ScopedKey,
    input: Input,
    options?: SagaStartOptions,
  ): Promise<SagaStatus<Results>>;
  /** Returns the same operations inside a transaction that you have begun and will end. */
  in(tx: Tx): JoinedSagas<Tx>;
  /** Runs all sagas that are due, again and again, until the signal aborts. Resolves when this process holds no saga any more. */
  run(signal: AbortSignal): Promise<void>;
  /** Runs all sagas that are due now. Returns how many, and in how many milliseconds the next one is due. */
  runDue(): Promise<{ readonly ran: number; readonly nextDueMs: number | undefined }>;
  /** Lists sagas, oldest first. It reads the oldest 10,000 of each kind: running, stuck, and ended. */
  list(filter?: SagaFilter): Promise<readonly SagaView[]>;
  /** Returns one saga. Returns undefined if there is none. */
  find(ref: SagaRef): Promise<SagaView | undefined>;
  /** Lets a stuck saga try its step again, with the attempts counted from one. Throws `saga_not_found` and `act_refused`. */
  retry(ref: SagaRef, actor: SagaActor): Promise<SagaView>;
  /** Marks the step at which a saga is stuck as done, with a result, or as undone. Throws the same as `retry`. */
  skip(
    ref: SagaRef,
    step: string,
    actor: SagaActor & { readonly result?: unknown },
  ): Promise<SagaView>;
  /** Undoes a saga that has not passed its pivot. Throws the same as `retry`. */
  abort(ref: SagaRef, actor: SagaActor): Promise<SagaView>;
  /** Ends a stuck saga without another step or undo. Throws the same as `retry`. */
  finish(ref: SagaRef, actor: SagaActor): Promise<SagaView>;
  /** Counts sagas by state for the meter. It reads up to 10,000 running and 10,000 stuck sagas, so call it seldom. */
  measure(): Promise<void>;
  /** Begins no more steps. Resolves when no step of this process runs. Other processes go on with its sagas. */
  stop(): Promise<void>;
}
