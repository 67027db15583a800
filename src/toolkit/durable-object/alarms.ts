/**
 * Many named alarms on the one alarm of a Durable Object. The rules are toolkit/rules/alarms.ts.
 *
 *   - which alarms there are is in a table of the object: an alarm of the platform that is lost, late, early or fired twice
 *     changes nothing of it;
 *   - work that does not await and the note that its alarm has ended are one transaction. Work that awaits may run again after a
 *     crash, under the same identity;
 *   - `run` never throws: the platform would try six times and then forget the alarm. A failure is tried again by the table;
 *   - while work runs, the platform's alarm is never set to a later time than that of the work: a crash repeats it;
 *   - slow work holds up no other alarm: what falls due meanwhile begins beside it, a hundred at most at a time. The platform ends
 *     everything after 15 minutes, so nothing begins that could last beyond them.
 */

import type { PauseBounds } from "../../base/backoff.ts";
import { type Clock, waitingClock } from "../../base/clock.ts";
import { tellSafely } from "../../base/error-words.ts";
import { HapaxError } from "../../base/errors.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { Check } from "../once/check.ts";
import {
  alarmAt,
  alarmEvery,
  applyFailedRun,
  applyRun,
  decideArming,
  missedOf,
  type NamedAlarm,
} from "../rules/alarms.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { type ObjectAlarmStorage, type ObjectRow, objectRows } from "./context.ts";

/** The argument of the work of an alarm. */
export interface AlarmCall {
  readonly name: string;
  /** The time for which the alarm was set, in milliseconds since 1970. It runs at this time or later. */
  readonly dueMs: number;
  /** 1 is the first. Counted by the object itself; the platform's count is lost when it restarts. */
  readonly attempt: number;
  /** How many further times of a repeating alarm have passed meanwhile. They are skipped: the work runs once for all of them. */
  readonly missed: number;
  /** The same in every attempt. Use it as the key of effects in other systems, so that they happen once. */
  readonly identity: ScopedKey;
}

/** The work of an alarm. If it does not await, what it writes and the end of the alarm are one transaction. */
export type AlarmWork = (call: AlarmCall) => void | Promise<void>;

/** Options of `objectAlarms`. All are optional. */
export interface ObjectAlarmsOptions {
  /** Pauses between attempts of an alarm whose work throws, in milliseconds. Default: 1,000, doubling up to 300,000. */
  readonly retry?: Partial<PauseBounds>;
  /**
   * How long the work of an alarm may take, in milliseconds. After that it counts as failed and is tried again. The platform itself
   * ends all work of an alarm after 15 minutes. Default 600,000.
   */
  readonly workMsMax?: number;
  /** Called with every error of the work of an alarm. Default: `console.error`. */
  readonly onError?: (error: unknown, name: string) => void;
  readonly clock?: Clock;
  readonly random?: Random;
}

/** Named alarms of an object. Made by `objectAlarms`. */
export interface ObjectAlarms {
  /** Sets an alarm for a time, in milliseconds since 1970. Replaces the one of this name. */
  set(name: string, atMs: number): void;
  /** Sets an alarm that repeats. A second call with the same arguments changes nothing, so a constructor can call it at every wake. */
  every(name: string, everyMs: number): void;
  /** Removes an alarm. */
  cancel(name: string): void;
  /** The alarms that are set, by name, with the times for which they were set. */
  list(): ReadonlyMap<string, number>;
  /**
   * Sets the platform's alarm if there is none, or a later one. Call it at every wake, in `ctx.blockConcurrencyWhile`;
   * `exactlyOnce` does.
   */
  ensureArmed(): Promise<void>;
  /** Runs what is due. Call it in `alarm()` of your object, and do nothing else there. Never throws. */
  run(): Promise<void>;
}

/** Runs statements of one step: all of them count, or none. */
export type ObjectStep = <T>(work: () => T) => T | Promise<T>;

const TABLE = `CREATE TABLE IF NOT EXISTS hapax_alarms (
  name TEXT PRIMARY KEY, due INTEGER NOT NULL, run_at INTEGER NOT NULL, every_ms INTEGER, failures INTEGER NOT NULL
) WITHOUT ROWID`;
const INDEX = "CREATE INDEX IF NOT EXISTS hapax_alarms_due ON hapax_alarms (run_at)";
const COLUMNS = "name, due, run_at, every_ms, failures";
const FIND = `SELECT ${COLUMNS} FROM hapax_alarms WHERE name = ?`;
const PUT = `INSERT OR REPLACE INTO hapax_alarms (${COLUMNS}) VALUES (?, ?, ?, ?, ?)`;
const REMOVE = "DELETE FROM hapax_alarms WHERE name = ?";
const FIRST = "SELECT MIN(run_at) AS first FROM hapax_alarms";
const DUE = `SELECT ${COLUMNS} FROM hapax_alarms WHERE run_at <= ? ORDER BY run_at LIMIT ?`;
const NEXT = "SELECT MIN(run_at) AS first FROM hapax_alarms WHERE run_at > ?";
const LIST = "SELECT name, due FROM hapax_alarms ORDER BY due";

/** Alarms that run at once. */
const BATCH = 100;
/** The platform gives a call of `alarm()` 15 minutes. */
const PASS_MS_MAX = 870_000;
const SCOPE = "hapax:alarm";
const TIME_MS_MAX = 8_640_000_000_000_000;

/**
 * Gives an object any number of alarms, each with a name. `works` has the function for each name, and `fallback` is the function
 * for all other names. The alarm of the platform may fire late, early, twice or not at all. Even so, a function that does not
 * await has its effect once for each time that you set. Throws `invalid_options`.
 *
 * ```ts
 * import { objectAlarms, type ObjectAlarmStorage } from "hapax/durable-object";
 *
 * // In a Durable Object: `alarms = objectAlarms(this.ctx.storage, { … })`, and `alarm() { return this.alarms.run(); }`.
 * export const remind = (storage: ObjectAlarmStorage) => {
 *   const alarms = objectAlarms(storage, {
 *     "end of trial": ({ dueMs }) => void storage.sql.exec("INSERT INTO ended (at) VALUES (?)", dueMs),
 *   });
 *   alarms.set("end of trial", Date.now() + 14 * 86_400_000);
 *   return alarms;
 * };
 * ```
 */
export function objectAlarms(
  storage: ObjectAlarmStorage,
  works: Readonly<Record<string, AlarmWork>>,
  options: ObjectAlarmsOptions & { readonly fallback?: AlarmWork } = {},
): ObjectAlarms {
  const { fallback } = options;
  const find = (name: string): AlarmWork | undefined =>
    Object.hasOwn(works, name) ? works[name] : fallback;
  return new Alarms(storage, find, options, (work) => storage.transactionSync(work));
}

/** Thrown by work that has not failed, and must run again after a pause. */
export class RunAgain extends Error {}

/** The alarms of an object, with the counts that `exactlyOnce` tells. */
export class Alarms implements ObjectAlarms {
  readonly counts = { late: 0, repeated: 0, failed: 0 };
  readonly #storage: ObjectAlarmStorage;
  readonly #workOf: (name: string) => AlarmWork | undefined;
  readonly #step: ObjectStep;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #bounds: PauseBounds;
  readonly #workMsMax: number;
  readonly #onError: (error: unknown, name: string) => void;
  /** What the platform's alarm is set to, as far as this life knows. */
  #armedMs: number | undefined;
  /** The alarms whose work runs, by name. */
  readonly #running = new Map<string, NamedAlarm>();
  /** Each call of `run` that waits for news. */
  readonly #bells = new Set<Bell>();

  constructor(
    storage: ObjectAlarmStorage,
    workOf: (name: string) => AlarmWork | undefined,
    options: ObjectAlarmsOptions,
    step: ObjectStep,
  ) {
    const check = new Check();
    const { retry = {} } = options;
    const pauseMs = check.whole("retry.pauseMs", retry.pauseMs, 1000, 1, 86_400_000);
    const most = Math.max(300_000, pauseMs);
    const pauseMsMax = check.whole("retry.pauseMsMax", retry.pauseMsMax, most, pauseMs, 86_400_000);
    this.#bounds = { pauseMs, pauseMsMax };
    this.#workMsMax = check.whole("workMsMax", options.workMsMax, 600_000, 1, 840_000);
    check.end();
    this.#storage = storage;
    this.#workOf = workOf;
    this.#step = step;
    this.#clock = options.clock ?? waitingClock;
    this.#random = options.random ?? systemRandom;
    this.#onError = options.onError ?? tell;
    // Not at the first use: that may be inside a transaction which is rolled back.
    this.makeTable();
  }

  makeTable(): void {
    for (const text of [TABLE, INDEX]) this.#storage.sql.exec(text);
  }

  set(name: string, atMs: number): void {
    const check = new Check();
    check.name("name", name);
    check.whole("atMs", Math.ceil(atMs), 0, 0, TIME_MS_MAX);
    check.end("invalid_request");
    this.#put(alarmAt(name, Math.ceil(atMs)));
  }

  every(name: string, everyMs: number): void {
    const check = new Check();
    check.name("name", name);
    check.whole("everyMs", everyMs, everyMs, 1, TIME_MS_MAX);
    check.end("invalid_request");
    this.#put(alarmEvery(this.#find(name), name, everyMs, this.#clock.nowMs()));
  }

  /**
   * Sees to it that the alarm runs at `atMs` or before. Work that runs already may have begun too early for the caller: then it
   * runs again.
   */
  atLatest(name: string, atMs: number): void {
    const known = this.#find(name);
    const running = this.#running.get(name);
    const isStale = running !== undefined && known !== undefined && isSameRun(running, known);
    if (known !== undefined && !isStale && known.runAtMs <= atMs) {
      this.#arm();
      return;
    }
    // Another time than that of the run, so that its end does not remove it.
    const dueMs = Math.ceil(isStale ? Math.max(atMs, running.dueMs + 1) : atMs);
    this.#write(alarmAt(name, dueMs));
    this.#arm();
  }

  /** What this life has set may have been rolled back: the next step sets it anew. */
  forgetArmed(): void {
    this.#armedMs = undefined;
  }

  cancel(name: string): void {
    this.#rows(REMOVE, name);
  }

  list(): ReadonlyMap<string, number> {
    return new Map(this.#rows(LIST).map(({ name, due }) => [String(name), Number(due)]));
  }

  async ensureArmed(): Promise<void> {
    this.#armedMs = (await this.#storage.getAlarm()) ?? undefined;
    this.#arm();
  }

  async run(): Promise<void> {
    // The platform has used its alarm up. Until the end of this call it repeats it if the object is lost.
    this.#armedMs = undefined;
    const bell = new Bell(this.#clock);
    this.#bells.add(bell);
    try {
      await this.#pass(bell);
    } catch (error) {
      this.#tell(error, "");
    } finally {
      this.#bells.delete(bell);
    }
    this.#arm();
  }

  /** Ends when nothing runs and nothing else is due. */
  async #pass(bell: Bell): Promise<void> {
    const endMs = this.#clock.steadyMs() + PASS_MS_MAX - this.#workMsMax;
    const tried = new Map<string, NamedAlarm>();
    let [running, failed] = [0, 0];
    for (;;) {
      const canBegin = this.#clock.steadyMs() < endMs;
      const most = BATCH - running;
      const due = canBegin ? this.#due(tried, running + failed).slice(0, most) : [];
      for (const alarm of due) {
        tried.set(alarm.name, alarm);
        running += 1;
        void this.#runOne(alarm)
          .catch((error: unknown) => {
            this.#tell(error, alarm.name);
            return false;
          })
          .then((isOver) => {
            running -= 1;
            if (!isOver) failed += 1;
            // Of many, half of the places are filled at once: looking for each one would read all of them each time.
            if (due.length < most || running <= BATCH / 2) bell.ring();
          });
      }
      if (running === 0) return;
      await bell.wait(canBegin && running < BATCH ? this.#nextMs() : undefined);
    }
  }

  /**
   * What is due, and does not run. While nothing else runs, an alarm is tried once in a pass, and the platform's next alarm goes on:
   * work that sets itself again at once would keep the pass from its end. `more`: how many that are due may be no candidates.
   */
  #due(tried: ReadonlyMap<string, NamedAlarm>, more: number): readonly NamedAlarm[] {
    const isIdle = this.#running.size === 0;
    return this.#rows(DUE, this.#clock.nowMs(), BATCH + more)
      .map(alarmOf)
      .filter((alarm) => {
        const before = tried.get(alarm.name);
        if (this.#running.has(alarm.name)) return false;
        return before === undefined || (!isIdle && !isSameRun(before, alarm));
      });
  }

  /** How long it is until the next alarm that is not due yet. */
  #nextMs(): number | undefined {
    const nowMs = this.#clock.nowMs();
    const first = this.#rows(NEXT, nowMs)[0]?.["first"];
    return typeof first === "number" ? first - nowMs : undefined;
  }

  /** Returns whether the alarm has ended. */
  async #runOne(alarm: NamedAlarm): Promise<boolean> {
    const { name, dueMs, failures, everyMs } = alarm;
    const nowMs = this.#clock.nowMs();
    if (nowMs - alarm.runAtMs > LATE_MS) this.counts.late += 1;
    const identity = { scope: SCOPE, key: `${name}@${dueMs}` };
    const missed = missedOf(alarm, nowMs);
    const call = { name, dueMs, attempt: failures + 1, missed, identity };
    const end = (): void => {
      this.#record(alarm, applyRun(alarm, everyMs === undefined ? nowMs : this.#clock.nowMs()));
    };
    this.#running.set(name, alarm);
    try {
      const work = this.#workOf(name);
      if (work === undefined)
        throw new HapaxError("invalid_request", `the alarm has no work; name=${name}`);
      const under = await this.#step(() => {
        // Another run may have ended it while this one waited for its turn.
        if (!this.#isSame(alarm)) {
          this.counts.repeated += 1;
          return { isOver: true };
        }
        const ending: unknown = work(call);
        if (ending instanceof Promise) return { ending };
        end();
        return { isOver: true };
      });
      if ("isOver" in under) return true;
      await this.#within(under.ending, name);
      await this.#step(end);
      return true;
    } catch (error) {
      this.#tell(error, name);
      await this.#step(() => {
        const unit = this.#random.unit();
        this.#record(alarm, applyFailedRun(alarm, this.#clock.nowMs(), this.#bounds, unit));
      });
      return false;
    } finally {
      this.#running.delete(name);
    }
  }

  #tell(error: unknown, name: string): void {
    if (error instanceof RunAgain) return;
    this.counts.failed += 1;
    tellSafely((thrown) => {
      this.#onError(thrown, name);
    }, error);
  }

  async #within(ending: Promise<unknown>, name: string): Promise<void> {
    let cancel: () => void = () => undefined;
    const over = new Promise<never>((_, reject) => {
      cancel = this.#clock.after(this.#workMsMax, () => {
        const words = `the work of the alarm takes too long; name=${name} workMsMax=${this.#workMsMax}`;
        reject(new HapaxError("outcome_unknown", words));
      });
    });
    try {
      await Promise.race([ending, over]);
    } finally {
      cancel();
    }
  }

  /** Only if the work has not set its name anew. */
  #record(alarm: NamedAlarm, next: NamedAlarm | undefined): void {
    if (!this.#isSame(alarm)) return;
    if (next === undefined) this.#rows(REMOVE, alarm.name);
    else this.#write(next);
  }

  #isSame(alarm: NamedAlarm): boolean {
    const known = this.#find(alarm.name);
    return known !== undefined && isSameRun(known, alarm);
  }

  #find(name: string): NamedAlarm | undefined {
    return this.#rows(FIND, name).map(alarmOf)[0];
  }

  #put(alarm: NamedAlarm): void {
    const known = this.#find(alarm.name);
    const isKnown = known?.dueMs === alarm.dueMs && known.everyMs === alarm.everyMs;
    if (!isKnown) this.#write(alarm);
    this.#arm();
  }

  #write({ name, dueMs, runAtMs, everyMs, failures }: NamedAlarm): void {
    this.#rows(PUT, name, dueMs, runAtMs, everyMs ?? null, failures);
  }

  /** In the same turn as what was written before it: the platform commits both together. */
  #arm(): void {
    for (const bell of this.#bells) bell.ring();
    const first = this.#rows(FIRST)[0]?.["first"];
    const firstMs = typeof first === "number" ? first : undefined;
    const atMs = decideArming(this.#armedMs, firstMs, this.#clock.nowMs());
    if (atMs === undefined) return;
    this.#armedMs = atMs;
    this.#storage.setAlarm(atMs).catch((error: unknown) => {
      // The object is being reset: its next life sets it.
      this.#armedMs = undefined;
      this.#tell(error, "");
    });
  }

  #rows(query: string, ...bindings: unknown[]): readonly ObjectRow[] {
    return objectRows(this.#storage.sql, query, ...bindings);
  }
}

/** Wakes one that waits for news, also for news that came before it waited. */
class Bell {
  readonly #clock: Clock;
  #hasRung = false;
  #wake: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  ring(): void {
    this.#hasRung = true;
    this.#wake();
  }

  /** Resolves when it rings, or after so many milliseconds. */
  async wait(forMs: number | undefined): Promise<void> {
    let cancel: () => void = () => undefined;
    if (!this.#hasRung)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (forMs !== undefined) cancel = this.#clock.after(forMs, resolve);
      });
    cancel();
    this.#hasRung = false;
  }
}

/** An alarm that runs so much later than it should counts as late. */
const LATE_MS = 60_000;

function isSameRun(one: NamedAlarm, other: NamedAlarm): boolean {
  return (
    one.dueMs === other.dueMs && one.failures === other.failures && one.everyMs === other.everyMs
  );
}

function alarmOf(row: ObjectRow): NamedAlarm {
  const { name, due, run_at: runAt, every_ms: everyMs, failures } = row;
  return {
    name: String(name),
    dueMs: Number(due),
    runAtMs: Number(runAt),
    everyMs: typeof everyMs === "number" ? everyMs : undefined,
    failures: Number(failures),
  };
}

function tell(error: unknown, name: string): void {
  console.error(`an alarm is tried again; name=${name}`, error);
}
