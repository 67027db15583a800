/**
 * Gives the metrics of the primitives to a meter of `@opentelemetry/api`. It uses only the few
 * members below, and imports nothing.
 *
 *   - names and units are as OpenTelemetry has them: `hapax.ledger.claims`, and seconds, bytes and ratios as units;
 *   - at every collection a gauge reports its last value for each of its label sets, up to a limit.
 */

import {
  type CounterName,
  type GaugeName,
  type Meter,
  METRICS,
  type MetricLabels,
} from "./meter.ts";

/** The members of the `Meter` of `@opentelemetry/api` 1.x that are used. */
export interface OpenTelemetryMeter {
  createCounter(
    name: string,
    options?: InstrumentOptions,
  ): { add(value: number, attributes?: Record<string, string>): void };
  createObservableGauge(
    name: string,
    options?: InstrumentOptions,
  ): { addCallback(callback: (result: GaugeResult) => void): void };
}

/** The description of an instrument. */
export interface InstrumentOptions {
  readonly description?: string;
  readonly unit?: string;
}

/** Takes the values of a gauge at a collection. */
export interface GaugeResult {
  observe(value: number, attributes?: Record<string, string>): void;
}

type Counter = ReturnType<OpenTelemetryMeter["createCounter"]>;
type Levels = Map<string, { readonly value: number; readonly labels: Record<string, string> }>;

/** The most label sets of one gauge. */
const SERIES_MAX = 200;

/**
 * Returns a meter that gives all metrics to an OpenTelemetry meter: `openTelemetryMeter(metrics.getMeter("hapax"))`.
 *
 * ```ts
 * import { openTelemetryMeter } from "hapax/meters";
 *
 * // Stands for the result of metrics.getMeter(…) of @opentelemetry/api.
 * const counted: string[] = [];
 * const meter = openTelemetryMeter({
 *   createCounter: (name) => ({ add: (value) => counted.push(`${name} ${value}`) }),
 *   createObservableGauge: () => ({ addCallback: () => undefined }),
 * });
 * meter.add("claims_total", 1, { primitive: "once" });
 * console.assert(counted[0] === "hapax.ledger.claims 1");
 * ```
 */
export function openTelemetryMeter(
  meter: OpenTelemetryMeter,
  options: { readonly prefix?: string } = {},
): Meter {
  const { prefix = "hapax.ledger." } = options;
  const counters = new Map<CounterName, Counter>();
  const gauges = new Map<GaugeName, Levels>();
  // Created at the first use: a metric that never counted is not reported as zero.
  const counterOf = (name: CounterName): Counter => {
    const counter = counters.get(name) ?? meter.createCounter(...instrument(prefix, name));
    counters.set(name, counter);
    return counter;
  };
  const levelsOf = (name: GaugeName): Levels => {
    const known = gauges.get(name);
    if (known !== undefined) return known;
    const levels: Levels = new Map();
    gauges.set(name, levels);
    meter.createObservableGauge(...instrument(prefix, name)).addCallback((result) => {
      for (const { value, labels } of levels.values()) result.observe(value, labels);
    });
    return levels;
  };
  return {
    add(name, value, labels = {}) {
      if (value >= 0 && value < Infinity) counterOf(name).add(value, { ...labels });
    },
    set(name, value, labels = {}) {
      const levels = levelsOf(name);
      const at = placeOf(labels);
      if (levels.has(at) || levels.size < SERIES_MAX)
        levels.set(at, { value, labels: { ...labels } });
    },
  };
}

/** Returns the same text for the same labels, in any order. */
function placeOf(labels: MetricLabels): string {
  const pairs = Object.entries(labels).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return JSON.stringify(pairs);
}

const UNITS = [
  ["_total", "1"],
  ["_seconds", "s"],
  ["_bytes", "By"],
  ["_ratio", "1"],
] as const;

/** The unit is an option, and not a part of the name. */
function instrument(
  prefix: string,
  name: CounterName | GaugeName,
): [name: string, options: InstrumentOptions] {
  const description = METRICS[name].help;
  const [suffix, unit] = UNITS.find(([end]) => name.endsWith(end)) ?? ["", "1"];
  const bare = name.slice(0, name.length - suffix.length);
  // Two instruments of one name are an error in OpenTelemetry: the gauge keeps the name, the counter keeps the suffix.
  return [prefix + (Object.hasOwn(METRICS, bare) ? name : bare), { description, unit }];
}
