/** The results of the peers as tables, as a verdict, and as a picture. */

import { format, table } from "../report.mjs";

const COLUMNS = [
  ["perSecond", "/s", 0],
  ["plainPerSecond", "plain /s", 0],
  ["p50Micros", "p50 µs", 0],
  ["p99Micros", "p99 µs", 0],
  ["cpuMicros", "CPU µs each", 1],
  ["loadPercent", "load %", 0],
  ["megabytes", "MB", 0],
  ["seconds", "restart s", 2],
  ["bytesEach", "B each", 0],
  ["longestMs", "ms held", 1],
];

/** A rate that a load on a schedule has says nothing. */
function shownOf({ row, measured }) {
  const isScheduled = row === "7" || row === "8";
  return measured.map(({ perSecond, seconds, count, ...rest }) => {
    const rate = isScheduled ? undefined : perSecond;
    return { ...rest, perSecond: rate, seconds: count === undefined ? seconds : undefined };
  });
}

export function formatRow(result) {
  const { row, title, failure } = result;
  const head = `\n${row}  ${title}`;
  if (failure !== undefined) return `${head}\n  not measured: ${failure}`;
  const shown = shownOf(result);
  const columns = COLUMNS.filter(([field]) => shown.some((one) => one[field] !== undefined));
  const rows = shown.map((one) => [
    one.title,
    ...columns.map(([field, , digits]) => format(one[field], digits)),
  ]);
  return `${head}\n${table([["", ...columns.map(([, heading]) => heading)], ...rows])}`;
}

const WORDS = new Map([
  [true, "met"],
  [false, "NOT met"],
  [undefined, "open"],
]);

export function formatVerdict(results) {
  const lines = [];
  const counts = { met: 0, "NOT met": 0, open: 0 };
  for (const { row, title, checks = [], failure } of results) {
    if (failure !== undefined) {
      counts.open += 1;
      lines.push([row, "open", `${title}: ${failure}`, "", ""]);
    }
    for (const { what, value, goal, direction, isMet } of checks) {
      const word = WORDS.get(isMet);
      counts[word] += 1;
      const bound = `${direction === "least" ? "at least" : "at most"} ${format(goal, decimals(goal))}`;
      const shown = value === undefined ? "–" : format(value, value < 1000 ? 2 : 0);
      lines.push([row, word, what, shown, bound]);
    }
  }
  const head = ["row", "verdict", "what", "measured", "goal"];
  const sum = Object.entries(counts).map(([word, count]) => `${count} ${word}`);
  return `\nverdict\n${table([head, ...lines])}\n\n  ${sum.join(", ")}`;
}

function decimals(value) {
  return Number.isInteger(value) ? 0 : 2;
}

/** As the picture of the other benchmarks takes it: one group of bars for each row that has rates. */
export function barsOf(results) {
  return results
    .filter(({ measured }) => measured?.some(({ perSecond }) => perSecond !== undefined))
    .map((result) => ({
      title: `${result.row}: ${result.title}`,
      kind: "append",
      contenders: shownOf(result)
        .filter(({ perSecond }) => perSecond !== undefined)
        .map(({ kind, title, perSecond }) => ({ kind, title, rate: perSecond })),
    }))
    .filter(({ contenders }) => contenders.length > 0);
}
