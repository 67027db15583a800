/** What can be done with sagas: the face of sagas.ts. */

import type { Tools } from "../once/tools.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import type { Saga } from "./definition.ts";
import type { SagaActor, SagaFilter } from "./operating.ts";
import type { SagaRef } from "./record.ts";
import type { SagaStatus, SagaView } from "./view.ts";

/** Options of `createSagas`. All are optional. */
export interface SagasOptions extends Tools {
  /** How long a crash keeps a saga from others, in milliseconds. The lease is renewed while a step runs. Default 30 s. */
  readonly leaseMs?: number;
  /** How long a saga that has ended is kept, in milliseconds; as long `start` knows its identity. Default 7 days. */
  readonly retainMs?: number;
  /** Time between two searches of `run`, in milliseconds. Default 1,000. */
  readonly everyMs?: number;
  /** How many sagas this process drives at once. Default 20. */
  readonly concurrency?: number;
  /** Called with every error that no caller gets. Default: errors are ignored; the saga is driven again. */
  readonly onError?: (error: unknown) => void;
}

/** Options of one start. */
export interface SagaStartOptions {
  /** How long to wait for the end, in milliseconds. Default 0: return as soon as the saga is stored. */
  readonly waitMs?: number;
  /** Stops waiting. The saga goes on. */
  readonly signal?: AbortSignal;
}

/** What can be done with sagas in a transaction of the caller. */
export interface JoinedSagas<Tx> {
  /** Starts a saga if and only if the transaction is committed. A runner finds it then. */
  start<Input, Results>(
    saga: Saga<Input, Results, Tx>,
    identity: ScopedKey,
    input: Input,
  ): Promise<SagaStatus<Results>>;
  /** Gives a saga what it waits for if and only if the transaction is committed. */
  signal(ref: SagaRef, name: string, payload?: unknown): Promise<SagaView>;
}

/** Starts, drives and oversees sagas. Every process that has the definitions may have one. */
export interface Sagas<Tx> extends JoinedSagas<Tx>, AsyncDisposable {
  /**
   * Starts a saga, and drives it in this process. A second start under the same identity returns the same saga. Throws
   * `key_reused` if its input was another one.
   */
  start<Input, Results>(
    saga: Saga<Input, Results, Tx>,
    identity: ScopedKey,
    input: Input,
    options?: SagaStartOptions,
  ): Promise<SagaStatus<Results>>;
  /** The same inside a transaction that the caller has begun and will end. */
  in(tx: Tx): JoinedSagas<Tx>;
  /** Drives all sagas that are due, again and again, until the signal aborts. Resolves when this process holds none. */
  run(signal: AbortSignal): Promise<void>;
  /** Drives all sagas that are due now. Returns how many, and when the next one is due: milliseconds from now. */
  runDue(): Promise<{ readonly ran: number; readonly nextDueMs: number | undefined }>;
  /** Reads sagas, oldest first. It looks at the oldest 10,000 of those that are stored alike: that run, are stuck, have ended. */
  list(filter?: SagaFilter): Promise<readonly SagaView[]>;
  /** Reads one saga; undefined if there is none. */
  find(ref: SagaRef): Promise<SagaView | undefined>;
  /** Lets a stuck saga try again; its attempts begin at one. Throws `saga_not_found` and `act_refused`. */
  retry(ref: SagaRef, actor: SagaActor): Promise<SagaView>;
  /** Takes the step at which a saga is stuck for done, with a result, or for undone. Throws as `retry`. */
  skip(
    ref: SagaRef,
    step: string,
    actor: SagaActor & { readonly result?: unknown },
  ): Promise<SagaView>;
  /** Has a saga undone that is not past its pivot. Throws as `retry`. */
  abort(ref: SagaRef, actor: SagaActor): Promise<SagaView>;
  /** Ends a stuck saga as it is. Throws as `retry`. */
  finish(ref: SagaRef, actor: SagaActor): Promise<SagaView>;
  /** Counts sagas by state for the meter. Reads up to 10,000 that run and as many that are stuck, so call it seldom. */
  measure(): Promise<void>;
  /** Begins no more steps, and resolves when no step of this process runs. Others go on with its sagas. */
  stop(): Promise<void>;
}
