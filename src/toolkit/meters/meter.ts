/**
 * PORT. The primitives count here what they do. Adapters: toolkit/meters/prometheus.ts, toolkit/meters/opentelemetry.ts.
 * METRICS lists all metrics. Labels have few values, never ids or keys.
 */

/** Takes counters and gauges. Both calls must be cheap, and must not throw. */
export interface Meter {
  /** Adds to a counter. */
  add(name: CounterName, value: number, labels?: MetricLabels): void;
  /** Sets a gauge to its present value. */
  set(name: GaugeName, value: number, labels?: MetricLabels): void;
}

/** The labels of a metric. Each has few values. */
export type MetricLabels = Readonly<Record<string, string>>;

/** Every counter and gauge, with its kind and its meaning. docs/guides/toolkit-metrics.md lists them. */
export const METRICS = {
  claims_total: { kind: "counter", help: "Claims that were given, by primitive." },
  duplicates_total: {
    kind: "counter",
    help: "Calls, messages and requests that had been done before, by primitive.",
  },
  in_progress_total: { kind: "counter", help: "Calls that found the work in progress." },
  mismatches_total: { kind: "counter", help: "Keys that came again with other content." },
  takeovers_total: { kind: "counter", help: "Claims that were taken after their lease was over." },
  fenced_total: {
    kind: "counter",
    help: "Writes that were refused because their claim was taken: alarm on it.",
  },
  failures_total: { kind: "counter", help: "Work that failed." },
  unknown_total: { kind: "counter", help: "Work whose outcome could not be found out." },
  expired_total: {
    kind: "counter",
    help: "Messages and retries that were older than what is remembered.",
  },
  saga_steps_total: {
    kind: "counter",
    help: "Attempts of steps of sagas, by saga and outcome: done, failed, unknown, undone, undo_failed.",
  },
  sagas: {
    kind: "gauge",
    help: "Sagas by state, as measured last: running, sleeping, undoing, stuck.",
  },
  swept_total: { kind: "counter", help: "Entries that were deleted past their retention." },
  published_total: { kind: "counter", help: "Events that a relay has published." },
  publish_failures_total: { kind: "counter", help: "Attempts to publish that failed." },
  dead_letters_total: { kind: "counter", help: "Events that were given up." },
  dead_letters: { kind: "gauge", help: "Events that wait for an operator." },
  held_events: { kind: "gauge", help: "Events that wait behind a failure of their key." },
  oldest_pending_seconds: {
    kind: "gauge",
    help: "Age of the oldest work that has begun and not ended.",
  },
  relay_lag_seconds: { kind: "gauge", help: "Age of the oldest event that is not published." },
  slot_lag_bytes: { kind: "gauge", help: "Journal that PostgreSQL keeps for the relay's slot." },
  window_headroom_ratio: {
    kind: "gauge",
    help: "What is left of the window when a retry comes: 1 at once, 0 when it would be too late.",
  },
} as const satisfies Record<string, { readonly kind: "counter" | "gauge"; readonly help: string }>;

type NamesOf<Kind> = {
  [Name in keyof typeof METRICS]: (typeof METRICS)[Name]["kind"] extends Kind ? Name : never;
}[keyof typeof METRICS];

/** The name of a counter. */
export type CounterName = NamesOf<"counter">;
/** The name of a gauge. */
export type GaugeName = NamesOf<"gauge">;

/** Counts nothing. */
export const noMeter: Meter = { add: () => undefined, set: () => undefined };
