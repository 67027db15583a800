/** What rounds on a noisy machine say: the middle, how sure it is, and what the code costs when nothing disturbs it. */

export function quantile(values, share) {
  const sorted = values.toSorted((one, other) => one - other);
  const place = share * (sorted.length - 1);
  const [low, high] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  return low + (high - low) * (place - Math.floor(place));
}

export function median(values) {
  return quantile(values, 0.5);
}

const RESAMPLES = 1000;

/** The range that holds the median with 95 %: medians of rounds that are drawn again, with the same draws each time. */
export function medianRange(values) {
  let state = 1;
  const draw = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return values[Math.floor((state / 2 ** 32) * values.length)];
  };
  const medians = Array.from({ length: RESAMPLES }, () => median(values.map(draw)));
  return [quantile(medians, 0.025), quantile(medians, 0.975)];
}

/** `0.981 (0.965 to 0.998)` */
export function formatMedian(values) {
  const [low, high] = medianRange(values);
  return `${median(values).toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})`;
}

/**
 * How much CPU the first needs of the second in their best rounds: neighbours on the machine make a round dearer, never cheaper, so
 * the cheapest tenth says what the code itself costs.
 */
export function leastRatio(first, second) {
  return quantile(second, 0.1) / quantile(first, 0.1);
}
