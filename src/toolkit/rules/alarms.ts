/**
 * Decides when named alarms run, and when the one alarm of an object must be set for them.
 *
 *   - an alarm is a name and the time for which it was set. It ends once: after that it has another time, or it is gone;
 *   - a failure moves the next attempt, and never the time for which the alarm was set;
 *   - the object's alarm is never moved to a later time, so that no amount of wakes keeps it from firing;
 *   - an alarm that repeats and was missed many times runs once.
 *
 * The platform fires an alarm late, early, twice, or not at all; what is due follows from the table alone. Pure.
 */

import { backoffMs, type PauseBounds } from "../../base/backoff.ts";

/** A named alarm as it is stored. */
export interface NamedAlarm {
  readonly name: string;
  /** The time for which it was set. With the name it is the identity of one run. */
  readonly dueMs: number;
  /** The time of the next attempt: `dueMs`, or later after a failure. */
  readonly runAtMs: number;
  /** Undefined: it runs once. */
  readonly everyMs: number | undefined;
  /** How often the run of this `dueMs` has failed. */
  readonly failures: number;
}

/** An alarm of the platform that is so much overdue counts as lost. */
const LOST_MS = 60_000;

/** An alarm that runs once, at `dueMs`. */
export function alarmAt(name: string, dueMs: number): NamedAlarm {
  return { name, dueMs, runAtMs: dueMs, everyMs: undefined, failures: 0 };
}

/**
 * An alarm that repeats. One of the same interval stays as it is: saying it again moves nothing. Only one that is further away than its
 * interval begins anew: it was set while the clock was ahead.
 */
export function alarmEvery(
  known: NamedAlarm | undefined,
  name: string,
  everyMs: number,
  nowMs: number,
): NamedAlarm {
  if (known?.everyMs === everyMs && known.dueMs <= nowMs + everyMs) return known;
  return { ...alarmAt(name, nowMs + everyMs), everyMs };
}

/** What an alarm is after a run that has ended. Undefined: gone. */
export function applyRun(alarm: NamedAlarm, nowMs: number): NamedAlarm | undefined {
  const { name, everyMs, dueMs } = alarm;
  if (everyMs === undefined) return undefined;
  const nextMs = dueMs + everyMs * (1 + missedOf(alarm, nowMs));
  return { ...alarmAt(name, nextMs), everyMs };
}

/** What an alarm is after a run that has failed. `unit` is a random number in [0, 1). */
export function applyFailedRun(
  alarm: NamedAlarm,
  nowMs: number,
  bounds: PauseBounds,
  unit: number,
): NamedAlarm {
  const failures = alarm.failures + 1;
  return { ...alarm, failures, runAtMs: nowMs + Math.ceil(backoffMs(failures, bounds, unit)) };
}

/** How many later times of an alarm that repeats have passed too. */
export function missedOf({ dueMs, everyMs }: NamedAlarm, nowMs: number): number {
  if (everyMs === undefined) return 0;
  return Math.max(0, Math.floor((nowMs - dueMs) / everyMs));
}

/**
 * Returns the time to set the object's alarm to; undefined: it stays. `armedMs` is the time that it is set to, `firstMs` the
 * first time of the table.
 */
export function decideArming(
  armedMs: number | undefined,
  firstMs: number | undefined,
  nowMs: number,
): number | undefined {
  if (firstMs === undefined) return undefined;
  const wantedMs = Math.max(firstMs, nowMs);
  if (armedMs === undefined) return wantedMs;
  if (armedMs > wantedMs) return wantedMs;
  // It should have fired long ago. The same time again, or a later one, is still as early as the table wants.
  return armedMs + LOST_MS <= nowMs && firstMs <= nowMs ? wantedMs : undefined;
}
