/** Reads the figures that a server shows as Prometheus text, and compares two looks at them. Pure. */

/** The metrics of a server at one moment. */
export interface MetricsLook {
  readonly atMs: number;
  /**
   * The values by name with labels, such as `hapax_appends_total{outcome="gap"}`. The shards of a cluster's node are
   * added up.
   */
  readonly values: ReadonlyMap<string, number>;
  /** The values as in the text, each shard by itself: a shard that moves takes its counters with it. */
  readonly samples: ReadonlyMap<string, number>;
}

export function lookAt(atMs: number, text: string): MetricsLook {
  const samples = parseMetrics(text);
  const values = new Map<string, number>();
  for (const [key, value] of samples) {
    const whole = withoutShard(key);
    values.set(whole, (values.get(whole) ?? 0) + value);
  }
  return { atMs, values, samples };
}

/** The first label of what a node of a cluster shows of each of its shards. */
const SHARD_LABEL = /\{shard="[^"]*"(?:,|\}$)/;

/** `a{shard="3",b="c"}` without its shard. */
function withoutShard(key: string): string {
  return key.replace(SHARD_LABEL, (label) => (label.endsWith(",") ? "{" : ""));
}

/** Parses the text. Ignores lines that are not a name and a number. */
function parseMetrics(text: string): ReadonlyMap<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    const value = Number(line.slice(space + 1));
    if (space > 0 && !Number.isNaN(value)) values.set(line.slice(0, space), value);
  }
  return values;
}

/** Returns the sum over all labels of a metric. */
export function sumOfMetric(values: ReadonlyMap<string, number>, name: string): number {
  let sum = 0;
  for (const [key, value] of values) {
    if (isOf(key, name)) sum += value;
  }
  return sum;
}

/** Returns by how much a counter grows in a second. A counter begins anew when its server starts. */
export function rateOfMetric(before: MetricsLook, now: MetricsLook, name: string): number {
  const passedS = Math.max(0.001, (now.atMs - before.atMs) / 1000);
  let sum = 0;
  for (const [key, value] of now.samples) {
    if (isOf(withoutShard(key), name)) sum += growth(before.samples.get(key) ?? 0, value);
  }
  return sum / passedS;
}

function growth(before: number, now: number): number {
  return now < before ? now : now - before;
}

function isOf(key: string, name: string): boolean {
  return key === name || key.startsWith(`${name}{`);
}

/**
 * Returns the time within which a share of the events of a histogram was done since the last look, in milliseconds.
 * Null: there were none.
 */
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
  const bounds = new Map<number, number>();
  for (const [key, value] of now.samples) {
    const whole = withoutShard(key);
    if (!whole.startsWith(prefix)) continue;
    const text = whole.slice(prefix.length, -2);
    const bound = text === "+Inf" ? Infinity : Number(text);
    const grown = growth(before.samples.get(key) ?? 0, value);
    bounds.set(bound, (bounds.get(bound) ?? 0) + grown);
  }
  return [...bounds].toSorted(([one], [other]) => one - other);
}
