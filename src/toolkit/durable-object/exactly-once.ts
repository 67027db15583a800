/**
 * Exactly once in a Durable Object: what it processes, emits, receives and plans survives hibernation, eviction and crashes, and
 * counts once.
 *
 *   - everything that must go on is in tables of the object, and the alarm is set in the same transaction: an object goes
 *     on by itself, without a call;
 *   - at a wake the tables are made, what an earlier life had begun is freed, and the alarm is set if it was lost. Real work is
 *     done by the alarm;
 *   - an error at the wake is remembered and thrown by every call, which tries again: thrown in the constructor, it would reset the
 *     object again and again;
 *   - an object whose storage was emptied (`deleteAll`) makes its tables again, and its alarm falls silent.
 */

import { type Clock, waitingClock } from "../../base/clock.ts";
import { tellSafely } from "../../base/error-words.ts";
import { HapaxError } from "../../base/errors.ts";
import type { JsonOf } from "../../base/json-of.ts";
import { type DurableObjectLedger, durableObjectLedger } from "../ledgers/durable-object.ts";
import { Check } from "../once/check.ts";
import { RETAIN_MS_MAX } from "../once/limits.ts";
import type { OnceResult } from "../once/process-once.ts";
import type { OutboxMessage } from "../outbox/adding.ts";
import type { Relay } from "../outbox/relay.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import type { Sagas } from "../saga/contract.ts";
import { type AlarmCall, Alarms, type AlarmWork, type ObjectAlarms } from "./alarms.ts";
import { replacedStorages, objectRows } from "./context.ts";
import {
  type ExactlyOnce,
  type ExactlyOnceContext,
  type ExactlyOnceOptions,
  type ExactlyOnceStorage,
  type OnceInsides,
  onceInsides,
} from "./contract.ts";
import { makeFenceTable, type ObjectFence, takeFence } from "./fences.ts";
import {
  type ExactlyOnceMetrics,
  makeMetricsTable,
  type ObjectCounts,
  ObjectMetrics,
} from "./metrics.ts";
import { readSizes } from "./metrics-sizes.ts";
import { objectSagas, runDueSagas } from "./object-sagas.ts";
import {
  type ProcessCall,
  type ProcessElsewhereOptions,
  Processing,
  type ProcessOptions,
} from "./process.ts";
import {
  GAP_ALARM,
  makeSequenceTable,
  type ObjectSequence,
  SourceSequence,
  type SequenceOptions,
} from "./sequence.ts";
import { type ObjectWork, OUTBOX_ALARM, Steps } from "./steps.ts";

const RETAIN_MS_DEFAULT = 48 * 3_600_000;
const DAY_MS = 86_400_000;
const SAGAS_ALARM = "hapax:sagas";
const SWEEP_ALARM = "hapax:sweep";
const METRICS_ALARM = "hapax:metrics";
/** Counts are stored so long after they have changed. */
const METRICS_MS = 5_000;
const SWEEP_MAX = 1_000;
/** Names of alarms that begin so are the object's own. */
const OWN_ALARMS = "hapax:";
/** Held events that wait behind another one are due in a hundred years. */
const PARKED_MS = 3_660 * DAY_MS;

/**
 * Makes a Durable Object process each event exactly once. Call it once, in the constructor, and let `alarm()` of your object call
 * its `alarm()`. Throws `invalid_options`.
 *
 * ```ts
 * import { exactlyOnce, type ExactlyOnceStorage, type ExactlyOnceContext } from "hapax/durable-object";
 * import { GLOBAL } from "hapax/ledger";
 *
 * // In a Worker: `class Account extends DurableObject`, and `ctx` is `this.ctx`.
 * export class Account<Storage extends ExactlyOnceStorage> {
 *   readonly #once;
 *   constructor(ctx: ExactlyOnceContext<Storage>) {
 *     ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS balance (cents INTEGER)");
 *     this.#once = exactlyOnce(ctx);
 *   }
 *   book(id: string, cents: number) {
 *     return this.#once.process({ scope: GLOBAL, key: id }, ({ tx }) => {
 *       tx.sql.exec("INSERT INTO balance (cents) VALUES (?)", cents);
 *       return { booked: cents };
 *     });
 *   }
 *   alarm() {
 *     return this.#once.alarm();
 *   }
 * }
 * ```
 */
export function exactlyOnce<Storage extends ExactlyOnceStorage>(
  ctx: ExactlyOnceContext<Storage>,
  options: ExactlyOnceOptions<Storage> = {},
): ExactlyOnce<Storage> {
  return new OnceInObject(ctx, options);
}

class OnceInObject<Storage extends ExactlyOnceStorage> implements ExactlyOnce<Storage> {
  readonly ledger: DurableObjectLedger<Storage>;
  readonly alarms: ExactlyOnce<Storage>["alarms"];
  readonly #ctx: ExactlyOnceContext<Storage>;
  readonly #clock: Clock;
  readonly #retainMs: number;
  readonly #onError: (error: unknown) => void;
  readonly #works: Readonly<Record<string, AlarmWork>>;
  readonly #alarms: Alarms;
  readonly #steps: Steps<Storage>;
  readonly #relay: Relay<Storage> | undefined;
  readonly #made: Sagas<Storage> | undefined;
  readonly #sagas: Sagas<Storage> | undefined;
  readonly #processing: Processing<Storage>;
  readonly #metrics: ObjectMetrics;
  readonly #sequences = new Map<string, { askAgain(call: AlarmCall): Promise<void> }>();
  #woken: Promise<void>;
  #broken: { readonly error: unknown } | undefined;
  #flushing: Promise<void> | undefined;
  #isSweepSet = false;
  #isMetricsSet = false;

  constructor(ctx: ExactlyOnceContext<Storage>, options: ExactlyOnceOptions<Storage>) {
    const check = new Check();
    const { retainMs, clock = waitingClock } = options;
    this.#retainMs = check.whole("retainMs", retainMs, RETAIN_MS_DEFAULT, 1, RETAIN_MS_MAX);
    for (const name of Object.keys(options.alarms ?? {}))
      if (name.startsWith(OWN_ALARMS)) check.problem(`alarms has a name of the object: ${name}`);
    check.end();
    this.#ctx = ctx;
    this.#clock = clock;
    this.#onError = options.onError ?? tell;
    this.#works = options.alarms ?? {};
    const { storage } = ctx;
    const nowMs = (): number => clock.nowMs();
    this.ledger = durableObjectLedger(storage);
    this.#alarms = new Alarms(
      storage,
      (name) => this.#workOf(name),
      options,
      (work) => this.#steps.run(work),
    );
    const canEmit = options.outbox !== undefined;
    this.#steps = new Steps(this.ledger, this.#alarms, canEmit, nowMs, this.#onFailure);
    this.alarms = usersAlarms(this.#alarms);
    this.#relay = options.outbox?.(this.ledger);
    this.#made = options.sagas?.(this.ledger);
    this.#sagas =
      this.#made === undefined
        ? undefined
        : objectSagas(this.#made, this.#armSagas, () => this.ledger.entries.nextDue(["saga"]));
    const duplicate = (): void => {
      this.#count("duplicates", 1);
    };
    const tellers = { duplicate, kept: this.#keepSwept };
    this.#processing = new Processing(this.#steps, this.#retainMs, nowMs, tellers);
    this.#metrics = new ObjectMetrics(storage.sql);
    this.#makeTables();
    this.#woken = this.#wake();
    const insides: OnceInsides<Storage> = {
      sql: storage.sql,
      steps: this.#steps,
      ready: () => this.#ready(),
      onDuplicate: duplicate,
    };
    // Cast: the map is asked with the object, which has the type of its own storage.
    onceInsides.set(this, insides as unknown as OnceInsides<ExactlyOnceStorage>);
  }

  get sagas(): Sagas<Storage> {
    if (this.#sagas === undefined) throw new HapaxError("unsupported", "the object has no sagas");
    return this.#sagas;
  }

  process<T>(
    identity: ScopedKey,
    work: ((work: ObjectWork<Storage>) => T) | ((call: ProcessCall) => Promise<T>),
    options:
      | (ProcessOptions & { readonly effect?: "transaction" })
      | ProcessElsewhereOptions<Storage, T> = {},
  ): Promise<OnceResult<JsonOf<T>>> {
    return this.#when(() => {
      // Casts: the overloads pair the work with its options.
      if (options.effect === "repeatable") {
        const call = work as (call: ProcessCall) => Promise<T>;
        return this.#processing.elsewhere(identity, call, options);
      }
      const step = work as (work: ObjectWork<Storage>) => T;
      return this.#processing.inTransaction(identity, step, options);
    });
  }

  emit(message: OutboxMessage): Promise<string> {
    return this.#when(() => this.#steps.run((work) => work.emit(message)));
  }

  flush(): Promise<void> {
    return this.#when(() => this.#flush());
  }

  sequence<Message>(
    source: string,
    options: SequenceOptions<Storage, Message>,
  ): ObjectSequence<Message> {
    const sequence = new SourceSequence<Storage, Message>(
      {
        sql: this.#ctx.storage.sql,
        ready: () => this.#ready(),
        steps: this.#steps,
        alarms: this.#alarms,
        nowMs: () => this.#clock.nowMs(),
        onError: this.#onError,
        onDuplicate: () => {
          this.#count("duplicates", 1);
        },
        onGap: () => {
          this.#count("gaps", 1);
        },
      },
      source,
      options,
    );
    if (this.#sequences.has(source))
      throw new HapaxError("invalid_options", `the sequence is there already; source=${source}`);
    this.#sequences.set(source, sequence);
    this.#ready()
      .then(() => sequence.ask())
      .catch((error: unknown) => {
        tellSafely(this.#onError, error);
      });
    return sequence;
  }

  fence(name: string, token?: number): Promise<ObjectFence<Storage>> {
    const { storage } = this.#ctx;
    const nowMs = (): number => this.#clock.nowMs();
    return this.#when(() => takeFence(storage.sql, this.#steps, nowMs, name, token));
  }

  async alarm(): Promise<void> {
    try {
      await this.#runAlarms().catch((error: unknown) => {
        this.#onFailure(error);
        if (this.#broken === undefined) throw error;
        tellSafely(this.#onError, error);
        return this.#runAlarms();
      });
    } catch (error) {
      // Thrown, the platform would try six times, and then forget the alarm.
      tellSafely(this.#onError, error);
      await this.#armLater();
    }
  }

  async #runAlarms(): Promise<void> {
    await this.#ready();
    await this.#alarms.run();
    this.#countAlarms();
    if (this.#metrics.isChanged) await this.#storeMetrics();
  }

  metrics(): Promise<ExactlyOnceMetrics> {
    return this.#when(async () => {
      this.#countAlarms();
      const sizes = await readSizes(this.#ctx.storage.sql, this.ledger, {
        relay: this.#relay?.options.name,
        hasSagas: this.#sagas !== undefined,
        nowMs: this.#clock.nowMs(),
      });
      return this.#steps.run(() => {
        const { counts } = this.#metrics.read();
        const { kept, ...rest } = sizes;
        return {
          duplicatesDetected: counts.duplicates,
          processedCount: kept + counts.swept,
          hibernationRecoveries: counts.recoveries,
          outboxFlushLatencyP99: this.#metrics.p99,
          dedupCacheSize: kept,
          alarmsLate: counts.late,
          alarmsRepeated: counts.repeated,
          alarmsFailed: counts.failed,
          takeovers: counts.takeovers,
          sequenceGaps: counts.gaps,
          ...rest,
        };
      });
    });
  }

  async #when<T>(work: () => Promise<T>): Promise<T> {
    await this.#ready();
    return await work();
  }

  /** Throws what went wrong at the wake, after it has tried again. */
  async #ready(): Promise<void> {
    if (replacedStorages.has(this.#ctx.storage)) {
      const words = "the object was imported: call ctx.abort()";
      throw new HapaxError("unsupported", words);
    }
    await this.#woken;
    if (this.#broken === undefined) return;
    this.#woken = this.#wake();
    await this.#woken;
    if (this.#broken !== undefined) throw this.#broken.error;
  }

  #wake(): Promise<void> {
    return this.#ctx.blockConcurrencyWhile(async () => {
      try {
        await this.#recover();
        this.#broken = undefined;
      } catch (error) {
        this.#broken = { error };
      }
    });
  }

  async #recover(): Promise<void> {
    const { ledger } = this;
    const { sql } = this.#ctx.storage;
    this.#makeTables();
    await ledger.migrate();
    const takeovers = await ledger.recover();
    const dueMs = this.#sagas === undefined ? undefined : await ledger.entries.nextDue(["saga"]);
    const hasEvents =
      this.#relay !== undefined && objectRows(sql, "SELECT 1 FROM hapax_outbox LIMIT 1").length > 0;
    await this.#alarms.ensureArmed();
    if (hasEvents) this.#alarms.atLatest(OUTBOX_ALARM, this.#clock.nowMs());
    if (dueMs !== undefined) this.#armSagas(Math.max(0, dueMs));
    this.#count("takeovers", takeovers);
    const isRecovery = takeovers > 0 || hasEvents || (dueMs !== undefined && dueMs <= 0);
    if (isRecovery) this.#count("recoveries", 1);
  }

  /** Writes nothing if they are there. */
  #makeTables(): void {
    const { sql } = this.#ctx.storage;
    for (const make of [makeSequenceTable, makeFenceTable, makeMetricsTable]) make(sql);
    this.#alarms.makeTable();
  }

  /** The storage was emptied: the next call makes the tables again. */
  readonly #onFailure = (error: unknown): void => {
    if (/no such table: hapax_/.test(String(error))) this.#broken = { error };
  };

  #workOf(name: string): AlarmWork | undefined {
    if (Object.hasOwn(this.#works, name)) return this.#works[name];
    if (name === OUTBOX_ALARM) return () => this.#flush();
    if (name === SWEEP_ALARM) return () => this.#sweep();
    if (name === METRICS_ALARM) return () => this.#storeMetrics();
    const sagas = this.#made;
    if (name === SAGAS_ALARM && sagas !== undefined)
      return () => runDueSagas(sagas, this.#armSagas);
    const sequence = name.startsWith(GAP_ALARM)
      ? this.#sequences.get(name.slice(GAP_ALARM.length))
      : undefined;
    return sequence === undefined ? undefined : (call) => sequence.askAgain(call);
  }

  readonly #armSagas = (inMs: number): void => {
    this.#alarms.atLatest(SAGAS_ALARM, this.#clock.nowMs() + inMs);
  };

  /** In the step that keeps a result: some day it is past its retention. */
  readonly #keepSwept = (): void => {
    if (this.#isSweepSet) return;
    this.#isSweepSet = true;
    this.#alarms.atLatest(SWEEP_ALARM, this.#clock.nowMs() + this.#retainMs + DAY_MS);
  };

  /** One after the other: a relay runs once at a time. */
  async #flush(): Promise<void> {
    const relay = this.#relay;
    if (relay === undefined) throw new HapaxError("unsupported", "the object has no outbox");
    while (this.#flushing !== undefined) await this.#flushing.catch(() => undefined);
    this.#flushing = this.#publish(relay);
    try {
      await this.#flushing;
    } finally {
      this.#flushing = undefined;
    }
  }

  async #publish(relay: Relay<Storage>): Promise<void> {
    const { sql } = this.#ctx.storage;
    const waiting = "SELECT id, added_at FROM hapax_outbox ORDER BY id LIMIT 1000";
    const before = await this.#steps.run(() => objectRows(sql, waiting));
    try {
      await relay.runOnce();
    } finally {
      const after = await this.#steps.run(() => objectRows(sql, waiting));
      const left = new Set(after.map(({ id }) => id));
      const nowMs = this.#clock.nowMs();
      for (const { id, added_at: addedAt } of before)
        if (!left.has(id)) this.#metrics.latency(Math.max(0, nowMs - Number(addedAt)));
    }
    const held = await this.ledger.outbox.held.list({
      relay: relay.options.name,
      state: "waiting",
      max: 1000,
    });
    const dueMs = Math.min(...held.map(({ dueInMs }) => dueInMs));
    if (dueMs < PARKED_MS)
      this.#alarms.atLatest(OUTBOX_ALARM, this.#clock.nowMs() + Math.max(1, dueMs));
  }

  async #sweep(): Promise<void> {
    const { entries } = this.ledger;
    for (
      let swept = await entries.sweep(SWEEP_MAX);
      swept > 0;
      swept = await entries.sweep(SWEEP_MAX)
    )
      this.#count("swept", swept);
    const { sql } = this.#ctx.storage;
    const soonMs = this.#clock.nowMs() + this.#retainMs + 2 * DAY_MS;
    const isLeft = await this.#steps.run(
      () =>
        objectRows(
          sql,
          `SELECT 1 FROM sqlite_master WHERE type = 'table' AND name GLOB 'hapax_done_*'
           UNION ALL SELECT 1 FROM hapax_open WHERE expires_at < ? LIMIT 1`,
          soonMs,
        ).length > 0,
    );
    this.#isSweepSet = isLeft;
    if (isLeft) this.#alarms.atLatest(SWEEP_ALARM, this.#clock.nowMs() + DAY_MS);
  }

  #count(name: keyof ObjectCounts, count: number): void {
    if (count === 0) return;
    this.#metrics.add(name, count);
    if (this.#isMetricsSet) return;
    this.#isMetricsSet = true;
    this.#alarms.atLatest(METRICS_ALARM, this.#clock.nowMs() + METRICS_MS);
  }

  #countAlarms(): void {
    const { counts } = this.#alarms;
    for (const name of ["late", "repeated", "failed"] as const) {
      this.#metrics.add(name, counts[name]);
      counts[name] = 0;
    }
  }

  async #storeMetrics(): Promise<void> {
    this.#countAlarms();
    await this.#steps.run(() => {
      this.#metrics.store();
    });
    this.#isMetricsSet = false;
  }

  /** The object could not even begin: it is tried again, and nothing is counted for it. */
  async #armLater(): Promise<void> {
    try {
      await this.#ctx.storage.setAlarm(this.#clock.nowMs() + METRICS_MS);
    } catch (error) {
      tellSafely(this.#onError, error);
    }
  }
}

/** A user's alarm must not replace one of the object. */
function usersAlarms(alarms: Alarms): Pick<ObjectAlarms, "set" | "every" | "cancel" | "list"> {
  const own = (name: string): string => {
    if (!String(name).startsWith(OWN_ALARMS)) return name;
    throw new HapaxError("invalid_request", `the name is one of the object's own; name=${name}`);
  };
  return {
    set: (name, atMs) => {
      alarms.set(own(name), atMs);
    },
    every: (name, everyMs) => {
      alarms.every(own(name), everyMs);
    },
    cancel: (name) => {
      alarms.cancel(own(name));
    },
    list: () => alarms.list(),
  };
}

function tell(error: unknown): void {
  console.error("a Durable Object goes on after an error:", error);
}
