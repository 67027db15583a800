/** Counts of latencies in 32 buckets, each 74 % wider than the one before: from 1 ms to 8 hours. Small enough for a row. Pure. */

const BUCKETS = 32;
const STEPS_PER_DOUBLING = 1.25;

/** Counts a latency. Changes `counts` in place. */
export function countLatency(counts: number[], ms: number): void {
  const at = Math.ceil(Math.log2(Math.max(1, ms)) * STEPS_PER_DOUBLING);
  const bucket = Math.min(BUCKETS - 1, at);
  while (counts.length < BUCKETS) counts.push(0);
  counts[bucket] = (counts[bucket] ?? 0) + 1;
}

/** The latency that a share of all did not exceed, as the upper end of its bucket; 0 if there are none. */
export function latencyAt(counts: readonly number[], share: number): number {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return 0;
  let seen = 0;
  for (const [at, count] of counts.entries()) {
    seen += count;
    if (seen >= total * share) return Math.ceil(2 ** (at / STEPS_PER_DOUBLING));
  }
  throw new Error("all of them are in the buckets");
}
