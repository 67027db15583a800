/** The text format of Prometheus, version 0.0.4: what the server and the toolkit's meter answer a scrape with. */

/** The media type of the format. */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** The two lines before the series of a metric. */
export function metricHead(name: string, kind: string, help: string): readonly string[] {
  return [`# HELP ${name} ${escape(help)}`, `# TYPE ${name} ${kind}`];
}

/** One series: the metric, its labels in the given order, and the value. */
export function metricLine(name: string, labels: string, value: number): string {
  return `${name}${labels} ${metricNumber(value)}`;
}

/** The labels in braces; nothing if there are none. */
export function metricLabels(
  labels: Iterable<readonly [string, string | number | boolean]>,
): string {
  const pairs = Array.from(
    labels,
    ([name, value]) => `${nameOf(name)}="${escape(String(value)).replaceAll('"', '\\"')}"`,
  );
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

/** The number as the format has it. */
export function metricNumber(value: number): string {
  if (value === Infinity) return "+Inf";
  return value === -Infinity ? "-Inf" : String(value);
}

/** Returns a valid name. One invalid name would make Prometheus drop the whole answer. */
function nameOf(name: string): string {
  const plain = name.replaceAll(/[^a-zA-Z0-9_]/g, "_");
  return /^[a-zA-Z_]/.test(plain) ? plain : `_${plain}`;
}

function escape(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}
