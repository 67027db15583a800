/**
 * `hapax/meters/prometheus`: what the primitives count, as text in Prometheus' exposition format (version 0.0.4).
 *
 *   MT1  every value is a line of its own, below the help and the kind of its family, and reads back as what was counted,
 *        whatever characters a label has;
 *   MT2  counting never throws, and a counter never falls;
 *   MT3  a label with endless values does not eat the memory: beyond a limit, new ones are counted together.
 */

import { type Meter, METRICS, type MetricLabels } from "./meter.ts";

/** A meter that shows what it has counted. */
export interface PrometheusMeter extends Meter {
  /** What a scrape is answered with, as `contentType`. */
  text(): string;
  readonly contentType: string;
}

/** Settings of `prometheusMeter`. */
export interface PrometheusSettings {
  /** Before every name. Default `hapax_ledger_`. */
  readonly prefix?: string;
  /** Added to every line: the name of a shard, for example. */
  readonly labels?: MetricLabels;
}

type Name = keyof typeof METRICS;

/** Label sets of one family. The primitives have about ten. */
const SERIES_MAX = 200;
const OVERFLOW: MetricLabels = { overflow: "true" };

/**
 * Makes a meter for a program that is scraped. Beside a registry of another library, send its text and then this one.
 *
 * ```ts
 * import { prometheusMeter } from "hapax/meters/prometheus";
 *
 * const meter = prometheusMeter();
 * meter.add("claims_total", 1, { primitive: "once" });
 * meter.set("relay_lag_seconds", 0.25, { relay: "mail" });
 * console.assert(meter.text().includes('hapax_ledger_claims_total{primitive="once"} 1\n'));
 * console.assert(meter.text().includes("# TYPE hapax_ledger_relay_lag_seconds gauge\n"));
 * ```
 */
export function prometheusMeter(settings: PrometheusSettings = {}): PrometheusMeter {
  const { prefix = "hapax_ledger_", labels: common = {} } = settings;
  const families = new Map<Name, Map<string, number>>();
  const change = (
    name: Name,
    labels: MetricLabels,
    next: (before: number | undefined) => number,
  ): void => {
    let series = families.get(name);
    if (series === undefined) families.set(name, (series = new Map<string, number>()));
    let at = formatLabels({ ...common, ...labels });
    // MT3
    if (series.size >= SERIES_MAX && !series.has(at)) at = formatLabels({ ...common, ...OVERFLOW });
    series.set(at, next(series.get(at)));
  };
  return {
    contentType: "text/plain; version=0.0.4; charset=utf-8",
    add(name, value, labels = {}) {
      // MT2: what is no count is left out, for there is nobody to tell.
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
        lines.push(`# HELP ${full} ${escape(help)}`, `# TYPE ${full} ${kind}`);
        for (const [labels, value] of series) lines.push(`${full}${labels} ${formatNumber(value)}`);
      }
      return lines.map((line) => `${line}\n`).join("");
    },
  };
}

/** In the order of their names: the same labels are the same series. */
function formatLabels(labels: MetricLabels): string {
  const pairs = Object.entries(labels)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, value]) => `${nameOf(name)}="${escape(String(value)).replaceAll('"', '\\"')}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

/** A name that Prometheus takes: one bad one would cost the whole scrape. */
function nameOf(name: string): string {
  const plain = name.replaceAll(/[^a-zA-Z0-9_]/g, "_");
  return /^[a-zA-Z_]/.test(plain) ? plain : `_${plain}`;
}

function escape(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

function formatNumber(value: number): string {
  if (value === Infinity) return "+Inf";
  return value === -Infinity ? "-Inf" : String(value);
}
