/** What an object can do once: the face of exactly-once.ts. */

import type { Clock } from "../../base/clock.ts";
import type { JsonOf } from "../../base/json-of.ts";
import type { Random } from "../../base/random.ts";
import type { DurableObjectLedger, ObjectStorage } from "../ledgers/durable-object.ts";
import type { OnceResult } from "../once/process-once.ts";
import type { OutboxMessage } from "../outbox/adding.ts";
import type { Relay } from "../outbox/relay.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import type { Sagas } from "../saga/contract.ts";
import type { AlarmWork, ObjectAlarms, ObjectAlarmsOptions } from "./alarms.ts";
import type { ObjectAlarmStorage, ObjectSql } from "./context.ts";
import type { ObjectFence } from "./fences.ts";
import type { ExactlyOnceMetrics } from "./metrics.ts";
import type { ProcessCall, ProcessElsewhereOptions, ProcessOptions } from "./process.ts";
import type { ObjectSequence, SequenceOptions } from "./sequence.ts";
import type { ObjectWork, Steps } from "./steps.ts";

/** `ctx.storage` as `exactlyOnce` needs it. */
export type ExactlyOnceStorage = ObjectStorage & ObjectAlarmStorage;

/** The members of `ctx` that `exactlyOnce` uses. `ctx` of every Durable Object with SQLite has them. */
export interface ExactlyOnceContext<Storage extends ExactlyOnceStorage = ExactlyOnceStorage> {
  readonly storage: Storage;
  blockConcurrencyWhile<T>(work: () => Promise<T>): Promise<T>;
}

/** Options of `exactlyOnce`. All are optional. */
export interface ExactlyOnceOptions<Storage extends ExactlyOnceStorage> extends Pick<
  ObjectAlarmsOptions,
  "retry" | "workMsMax"
> {
  /**
   * How long results are kept, in milliseconds. Choose it longer than any sender repeats an event. Default 48 hours.
   */
  readonly retainMs?: number;
  /** Makes the relay that publishes what is emitted: `(ledger) => createRelay(ledger, publisher)`. */
  readonly outbox?: (ledger: DurableObjectLedger<Storage>) => Relay<Storage>;
  /** Makes the sagas: `(ledger) => createSagas(ledger, [checkout])`. Alarms drive them. */
  readonly sagas?: (ledger: DurableObjectLedger<Storage>) => Sagas<Storage>;
  /** The work of your own alarms, by name: see `objectAlarms`. */
  readonly alarms?: Readonly<Record<string, AlarmWork>>;
  /** Called with each error that is not thrown to a caller, such as one of an alarm. Default: `console.error`. */
  readonly onError?: (error: unknown) => void;
  readonly clock?: Clock;
  readonly random?: Random;
}

/** Processes events once, publishes what they emit, runs alarms and drives sagas, in one object. `exactlyOnce` makes it. */
export interface ExactlyOnce<Storage extends ExactlyOnceStorage> {
  /** The ledger of the object. Use it with `processOnce`, inboxes, leases and the rest of `hapax/ledger`. */
  readonly ledger: DurableObjectLedger<Storage>;
  /** Named alarms on the one alarm of the object. */
  readonly alarms: Pick<ObjectAlarms, "set" | "every" | "cancel" | "list">;
  /** The sagas of the object. Throws `unsupported` without the option `sagas`. */
  readonly sagas: Sagas<Storage>;
  /**
   * Does the work of a key once, and returns its result to every call with this key. The work must not be async: it, its record
   * and its events are one transaction. Throws what the work throws, and `in_progress`, `key_reused`, `key_expired`.
   */
  process<T>(
    identity: ScopedKey,
    work: (work: ObjectWork<Storage>) => T,
    options?: ProcessOptions & { readonly effect?: "transaction" },
  ): Promise<OnceResult<JsonOf<T>>>;
  /**
   * Does the same for work that is async and has its effect in another system. Calls with the same key that arrive while the
   * work runs wait for its outcome.
   */
  process<T>(
    identity: ScopedKey,
    work: (call: ProcessCall) => Promise<T>,
    options: ProcessElsewhereOptions<Storage, T>,
  ): Promise<OnceResult<JsonOf<T>>>;
  /** Adds an event to the outbox in a transaction of its own. Returns its id. The alarm publishes it. */
  emit(message: OutboxMessage): Promise<string>;
  /** Publishes emitted events now, without waiting for the alarm. Throws what the relay throws; the alarm then tries again. */
  flush(): Promise<void>;
  /**
   * Handles numbered messages of a source in order, each once. Call it in the constructor, so that each wake can ask for missing
   * messages.
   */
  sequence<Message>(
    source: string,
    options: SequenceOptions<Storage, Message>,
  ): ObjectSequence<Message>;
  /**
   * Takes a new fence: a lock with a number that only grows. From now on every older fence of this name is refused. With a
   * `token` it returns the fence of that token.
   */
  fence(name: string, token?: number): Promise<ObjectFence<Storage>>;
  /** Runs what is due. Call it in `alarm()` of your object, and do nothing else there. Never throws. */
  alarm(info?: unknown): Promise<void>;
  /** Returns counts and sizes. Reads one row for each kept result. */
  metrics(): Promise<ExactlyOnceMetrics>;
}

/** What parts outside of `ExactlyOnce` need of it. */
export interface OnceInsides<Storage extends ExactlyOnceStorage> {
  readonly sql: ObjectSql;
  readonly steps: Steps<Storage>;
  readonly ready: () => Promise<void>;
  readonly onDuplicate: () => void;
}

/** The insides of each one. Parts that take them from here are not in the bundle of a program that does not use them. */
export const onceInsides = new WeakMap<object, OnceInsides<ExactlyOnceStorage>>();
