/**
 * `hapax/meters/opentelemetry`: what the primitives count, given to a meter of `@opentelemetry/api`, of which only the few
 * members below are used: nothing is imported.
 *
 *   MT4  names and units are as OpenTelemetry has them: `hapax.ledger.claims`, and seconds, bytes and ratios as units;
 *   MT5  a gauge tells at every collection what it was set to last, for each label set that it was set for, up to a limit.
 */

import {
  type CounterName,
  type GaugeName,
  type Meter,
  METRICS,
  type MetricLabels,
} from "./meter.ts";

/** What is used of the `Meter` of `@opentelemetry/api` 1.x. */
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

/** What an instrument is described by. */
export interface InstrumentOptions {
  readonly description?: string;
  readonly unit?: string;
}

/** What a gauge tells its levels to when they are collected. */
export interface GaugeResult {
  observe(value: number, attributes?: Record<string, string>): void;
}

type Counter = ReturnType<OpenTelemetryMeter["createCounter"]>;
type Levels = Map<string, { readonly value: number; readonly labels: Record<string, string> }>;

/** Label sets of one gauge. */
const SERIES_MAX = 200;

/**
 * Gives everything to an OpenTelemetry meter: `openTelemetryMeter(metrics.getMeter("hapax"))`.
 *
 * ```ts
 * import { openTelemetryMeter } from "hapax/meters/opentelemetry";
 *
 * // What metrics.getMeter(…) of @opentelemetry/api answers, as far as it is used.
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
  settings: { readonly prefix?: string } = {},
): Meter {
  const { prefix = "hapax.ledger." } = settings;
  const counters = new Map<CounterName, Counter>();
  const gauges = new Map<GaugeName, Levels>();
  // Made at the first use: what is never counted is not reported as zero.
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

/** The same labels are the same place, in whatever order they come. */
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

/** MT4: the unit is told beside the name, and not in it. */
function instrument(
  prefix: string,
  name: CounterName | GaugeName,
): [name: string, options: InstrumentOptions] {
  const description = METRICS[name].help;
  const [suffix, unit] = UNITS.find(([end]) => name.endsWith(end)) ?? ["", "1"];
  const bare = name.slice(0, name.length - suffix.length);
  // Two instruments of one name are an error there: a level keeps the name, the count of its changes the suffix.
  return [prefix + (Object.hasOwn(METRICS, bare) ? name : bare), { description, unit }];
}
