/**
 * What an object counts. Counts are kept in memory and added to one row by the alarm, not with every event: processing costs
 * nothing more for them. What is counted between the last alarm and a crash is not in them.
 */

import { countLatency, latencyAt } from "../rules/latency-buckets.ts";
import { type ObjectSql, objectRows } from "./context.ts";

/**
 * The result of `ExactlyOnce.metrics()`. Counts include all restarts of the object; sizes are those of this
 * moment.
 */
export interface ExactlyOnceMetrics {
  /** Events that came again: of `process`, of sequences, and of other objects. */
  readonly duplicatesDetected: number;
  /** Work of `process` that was done, also if its result is no longer kept. */
  readonly processedCount: number;
  /** How often the object woke up and found work that it had begun before it was evicted. */
  readonly hibernationRecoveries: number;
  /** Milliseconds from `emit` to the publisher's answer, for 99 of 100 events. */
  readonly outboxFlushLatencyP99: number;
  /** Results that are kept now. */
  readonly dedupCacheSize: number;
  /** Work that has begun and has not ended: claims, sagas, and events that are not published. */
  readonly walEntriesPending: number;
  /** Alarms that ran more than a minute late. */
  readonly alarmsLate: number;
  /** Alarms whose work had ended when they fired again. */
  readonly alarmsRepeated: number;
  /** Runs of alarms that failed and were tried again. */
  readonly alarmsFailed: number;
  /** Claims from before an eviction that were freed. */
  readonly takeovers: number;
  /** Sagas that wait for an operator. */
  readonly sagasStuck: number;
  /** Events of the outbox that failed too often, and wait for an operator. */
  readonly deadLetters: number;
  /** How long the oldest event of the outbox has waited, in milliseconds. */
  readonly oldestPendingMs: number;
  /** Gaps that sequences have found. */
  readonly sequenceGaps: number;
}

/** What is added up. */
export interface ObjectCounts {
  duplicates: number;
  recoveries: number;
  late: number;
  repeated: number;
  failed: number;
  takeovers: number;
  gaps: number;
  /** Entries that were kept and are gone. */
  swept: number;
}

export const NO_COUNTS: Readonly<ObjectCounts> = {
  duplicates: 0,
  recoveries: 0,
  late: 0,
  repeated: 0,
  failed: 0,
  takeovers: 0,
  gaps: 0,
  swept: 0,
};

const TABLE =
  "CREATE TABLE IF NOT EXISTS hapax_metrics (id INTEGER PRIMARY KEY, data TEXT NOT NULL)";
const FIND = "SELECT data FROM hapax_metrics WHERE id = 1";
const PUT = "INSERT OR REPLACE INTO hapax_metrics (id, data) VALUES (1, ?)";

interface KeptMetrics {
  readonly counts: ObjectCounts;
  readonly latencies: number[];
}

export function makeMetricsTable(sql: ObjectSql): void {
  sql.exec(TABLE);
}

export class ObjectMetrics {
  readonly #sql: ObjectSql;
  readonly #own: ObjectCounts = { ...NO_COUNTS };
  #latencies: number[] = [];
  #isChanged = false;

  constructor(sql: ObjectSql) {
    this.#sql = sql;
  }

  /** Whether there is something that is not stored. */
  get isChanged(): boolean {
    return this.#isChanged;
  }

  add(name: keyof ObjectCounts, count: number): void {
    if (count === 0) return;
    this.#own[name] += count;
    this.#isChanged = true;
  }

  latency(ms: number): void {
    countLatency(this.#latencies, ms);
    this.#isChanged = true;
  }

  /** Adds to what is stored. In a step. */
  store(): void {
    if (!this.#isChanged) return;
    this.#sql.exec(PUT, JSON.stringify(this.read()));
    Object.assign(this.#own, NO_COUNTS);
    this.#latencies = [];
    this.#isChanged = false;
  }

  read(): KeptMetrics {
    const [row] = objectRows(this.#sql, FIND);
    // Cast: only this class writes it.
    const kept = row === undefined ? undefined : (JSON.parse(String(row["data"])) as KeptMetrics);
    const counts: ObjectCounts = { ...this.#own };
    for (const name of Object.keys(NO_COUNTS) as (keyof ObjectCounts)[])
      counts[name] += kept?.counts[name] ?? 0;
    const latencies = Array.from(
      { length: Math.max(this.#latencies.length, kept?.latencies.length ?? 0) },
      (_, at) => (this.#latencies[at] ?? 0) + (kept?.latencies[at] ?? 0),
    );
    return { counts, latencies };
  }

  get p99(): number {
    return latencyAt(this.read().latencies, 0.99);
  }
}
