/**
 * The metrics of the primitives as text in Prometheus' exposition format (version 0.0.4).
 *
 *   - every value is a line of its own, below the help and the kind of its family, and a parser reads the same value back,
 *     for labels with any characters;
 *   - counting never throws, and a counter never falls;
 *   - a label with endless values does not fill the memory: beyond a limit, new values are counted together.
 */

import { METRICS_TYPE, metricHead, metricLabels, metricLine } from "../../base/prometheus-text.ts";
import { type Meter, METRICS, type MetricLabels } from "./meter.ts";

/** A meter that returns its counts as text. */
export interface PrometheusMeter extends Meter {
  /** Returns the body of the answer to a scrape. Its media type is `contentType`. */
  text(): string;
  readonly contentType: string;
}

/** Options of `prometheusMeter`. */
export interface PrometheusOptions {
  /** Stands before every name. Default `hapax_ledger_`. */
  readonly prefix?: string;
  /** Added to every line: the name of a shard, for example. */
  readonly labels?: MetricLabels;
}

type Name = keyof typeof METRICS;

/** The most label sets of one family. The primitives have about ten. */
const SERIES_MAX = 200;
const OVERFLOW: MetricLabels = { overflow: "true" };

/**
 * Creates a meter for a program that Prometheus scrapes. If another library has a registry too, send its text and then this.
 *
 * ```ts
 * import { prometheusMeter } from "hapax/meters";
 *
 * const meter = prometheusMeter();
 * meter.add("claims_total", 1, { primitive: "once" });
 * meter.set("relay_lag_seconds", 0.25, { relay: "mail" });
 * console.assert(meter.text().includes('hapax_ledger_claims_total{primitive="once"} 1\n'));
 * console.assert(meter.text().includes("# TYPE hapax_ledger_relay_lag_seconds gauge\n"));
 * ```
 */
export function prometheusMeter(options: PrometheusOptions = {}): PrometheusMeter {
  const { prefix = "hapax_ledger_", labels: common = {} } = options;
  const families = new Map<Name, Map<string, number>>();
  const change = (
    name: Name,
    labels: MetricLabels,
    next: (before: number | undefined) => number,
  ): void => {
    let series = families.get(name);
    if (series === undefined) families.set(name, (series = new Map<string, number>()));
    let at = formatLabels({ ...common, ...labels });
    if (series.size >= SERIES_MAX && !series.has(at)) at = formatLabels({ ...common, ...OVERFLOW });
    series.set(at, next(series.get(at)));
  };
  return {
    contentType: METRICS_TYPE,
    add(name, value, labels = {}) {
      // A value that is not a count is ignored, because counting must not throw.
      if (value >= 0 && value < Infinity) change(name, labels, (before = 0) => before + value);
    },
    set(name, value, labels = {}) {
      change(name, labels, () => value);
    },
    text() {
      const lines: string[] = [];
      for (const [name, { kind, help }] of Object.entries(METRICS)) {
        // Cast: these are the names of METRICS.
        const series = families.get(name as Name);
        if (series === undefined) continue;
        const full = prefix + name;
        lines.push(...metricHead(full, kind, help));
        for (const [labels, value] of series) lines.push(metricLine(full, labels, value));
      }
      return lines.map((line) => `${line}\n`).join("");
    },
  };
}

/** Formats labels in the order of their names: the same labels are the same series. */
function formatLabels(labels: MetricLabels): string {
  return metricLabels(Object.entries(labels).toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
