/** Reads the figures that a server shows as Prometheus text, and compares two looks at them. Pure. */

/** One look at the figures. */
export interface MetricsLook {
  readonly atMs: number;
  /** By name with labels, as the text has them: `hapax_appends_total{outcome="gap"}`. */
  readonly values: ReadonlyMap<string, number>;
}

/** Lines that are not a name and a number are left out. */
export function parseMetrics(text: string): ReadonlyMap<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    const value = Number(line.slice(space + 1));
    if (space > 0 && !Number.isNaN(value)) values.set(line.slice(0, space), value);
  }
  return values;
}

/** The sum over all labels of a metric. */
export function sumOfMetric(values: ReadonlyMap<string, number>, name: string): number {
  let sum = 0;
  for (const [key, value] of values) {
    if (key === name || key.startsWith(`${name}{`)) sum += value;
  }
  return sum;
}

/** How much a counter grew in a second. It begins anew when the server does. */
export function rateOfMetric(before: MetricsLook, now: MetricsLook, name: string): number {
  const passedS = Math.max(0.001, (now.atMs - before.atMs) / 1000);
  return growth(sumOfMetric(before.values, name), sumOfMetric(now.values, name)) / passedS;
}

function growth(before: number, now: number): number {
  return now < before ? now : now - before;
}

/** The time within which this share of a histogram's events since the look before was done, in milliseconds. Null: there were none. */
export function quantileMs(
  before: MetricsLook,
  now: MetricsLook,
  name: string,
  share: number,
): number | null {
  const bounds = boundsSince(before, now, `${name}_bucket{le="`);
  const total = bounds.at(-1)?.[1] ?? 0;
  if (total === 0) return null;
  const wanted = total * share;
  let [low, below] = [0, 0];
  for (const [bound, count] of bounds) {
    if (bound === Infinity) break;
    if (count >= wanted) {
      const part = count === below ? 1 : (wanted - below) / (count - below);
      return (low + (bound - low) * part) * 1000;
    }
    [low, below] = [bound, count];
  }
  // Slower than the last bound: it is the most that is known.
  return low * 1000;
}

/** The upper bounds of a histogram, and how many events each has since the look before. */
function boundsSince(
  before: MetricsLook,
  now: MetricsLook,
  prefix: string,
): readonly (readonly [number, number])[] {
  const bounds: [number, number][] = [];
  for (const [key, value] of now.values) {
    if (!key.startsWith(prefix)) continue;
    const text = key.slice(prefix.length, -2);
    const bound = text === "+Inf" ? Infinity : Number(text);
    bounds.push([bound, growth(before.values.get(key) ?? 0, value)]);
  }
  return bounds.toSorted(([one], [other]) => one - other);
}
