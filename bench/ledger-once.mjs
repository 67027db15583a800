/** What processOnce costs beside the transaction that it makes safe. */

import { processOnce } from "../dist/toolkit/ledger.js";

/** Runs `work` for each number below `count`, so many at a time; answers calls a second. */
export async function rateOf(count, width, work) {
  let next = 0;
  const lane = async () => {
    while (next < count) await work(next++);
  };
  const startMs = performance.now();
  await Promise.all(Array.from({ length: width }, lane));
  return (count * 1000) / (performance.now() - startMs);
}

export function median(values) {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

/** The ways take turns, round after round; of the ratios of the rounds the median counts. */
export async function compare(ways, rounds) {
  const rates = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, run] of Object.entries(ways)) {
      const rate = await run(round);
      if (round >= 0) rates[name].push(rate); // The first one warms up.
    }
  }
  const [first] = Object.keys(ways);
  return Object.fromEntries(
    Object.entries(rates).map(([name, all]) => {
      const ofFirst = median(all.map((rate, index) => rate / rates[first][index]));
      return [name, { perSecond: Math.round(median(all)), ofFirst }];
    }),
  );
}

/** `insert(tx, number)` is the business: one row. */
export function measureOnce(ledger, insert, { calls, width, rounds }) {
  const once = (key, number) =>
    processOnce(ledger, { scope: "bench", key }, ({ tx }) => insert(tx, number));
  const ways = {
    "bare transaction": () =>
      rateOf(calls, width, (number) => ledger.transaction((tx) => insert(tx, number))),
    processOnce: (round) =>
      rateOf(calls, width, (number) => once(`${width}/${round}/${number}`, number)),
    "processOnce, joined": (round) =>
      rateOf(calls, width, (number) =>
        ledger.transaction((joined) =>
          processOnce(
            ledger.in(joined),
            { scope: "bench", key: `joined/${width}/${round}/${number}` },
            ({ tx }) => insert(tx, number),
          ),
        ),
      ),
    "processOnce, duplicate": (round) =>
      rateOf(calls, width, (number) => once(`${width}/${round}/${number}`, number)),
  };
  return compare(ways, rounds);
}
