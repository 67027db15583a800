/** Results as tables, as a verdict on the targets, and as a picture. */

const COLUMNS = {
  append: [
    ["rate", "records/s", 0],
    ["ratio", "of the first", 2],
    ["p50Ms", "p50 ms", 2],
    ["p99Ms", "p99 ms", 2],
    ["cpuMicros", "CPU µs each", 1],
    ["syncsPerSecond", "syncs/s", 0],
    ["diskBytesEach", "disk B each", 0],
  ],
  "catch-up": [
    ["rate", "MB/s", 0],
    ["ratio", "of the first", 2],
  ],
  tail: [
    ["p50Ms", "p50 ms", 2],
    ["p99Ms", "p99 ms", 2],
  ],
};

export function formatScenario({ name, kind, title, contenders }) {
  const columns = COLUMNS[kind];
  const first = contenders[0]?.rate;
  const rows = contenders.map((one) => {
    const values = { ...one, ratio: one.rate / first };
    return [one.title, ...columns.map(([field, , digits]) => format(values[field], digits))];
  });
  const head = ["", ...columns.map(([, heading]) => heading)];
  return `\n${name}: ${title}\n${table([head, ...rows])}`;
}

export function table(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  return rows
    .map((row) =>
      row
        .map((cell, at) => pad(cell, widths[at], at === 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

function pad(cell, width, isLeft) {
  return isLeft ? `  ${cell.padEnd(width)}` : cell.padStart(width);
}

export function format(value, digits) {
  if (value === undefined || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** What we have promised ourselves: ratios within one run, because machines differ. */
const TARGETS = [
  ["append-100-64c-1s", "hapax-fsync", "bare", 0.65],
  ["append-100-64c-1s", "hapax-fsync", "reference-files", 15],
  ["append-100-64c-1s", "hapax-fsync", "reference-memory", 1.2],
  ["json-batches", "hapax-fsync", "bare-json", 0.65],
  ["catch-up", "hapax-fsync", "bare", 0.8],
];

export function formatTargets(results) {
  const lines = ["\ntargets"];
  for (const [name, ours, other, least] of TARGETS) {
    const contenders = results.find((result) => result.name === name)?.contenders ?? [];
    const rate = contenders.find(({ kind }) => kind === ours)?.rate;
    const limit = contenders.find(({ kind }) => kind === other);
    if (rate === undefined || limit === undefined) continue;
    const ratio = rate / limit.rate;
    const verdict = ratio >= least ? "met    " : "NOT met";
    lines.push(`  ${verdict}  ${name}: ${format(ratio, 2)} × ${limit.title}, at least ${least}`);
  }
  const batches = results.find(({ name }) => name === "json-batches");
  const rate = batches?.contenders.find(({ kind }) => kind === "hapax-fsync")?.rate;
  if (rate !== undefined) {
    const verdict = rate >= 800_000 ? "met    " : "NOT met";
    lines.push(`  ${verdict}  json-batches: ${format(rate, 0)} records/s, at least 800,000`);
  }
  return lines.join("\n");
}

const COLOURS = {
  bare: "#8a8f98",
  "bare-json": "#8a8f98",
  "hapax-fsync": "#1f6feb",
  "hapax-memory": "#79b0ff",
  "reference-files": "#b35900",
  "reference-memory": "#e6a15c",
  postgres: "#336791",
  nats: "#27aae1",
};
const OTHER_COLOUR = "#c0392b";
const BAR = 16;
const LEFT = 330;
const WIDTH = 900;

/** Bars by hand: one group for each scenario, each scaled to its own largest value. */
export function drawResults({ machine, startedAt, results }) {
  const parts = [];
  let y = 60;
  for (const { title, kind, contenders } of results) {
    const field = kind === "tail" ? "p50Ms" : "rate";
    const unit = { append: "records/s", "catch-up": "MB/s", tail: "ms (p50, less is better)" }[
      kind
    ];
    const most = Math.max(...contenders.map((one) => one[field]));
    parts.push(text(16, y, `${title}, ${unit}`, "bold"));
    y += 10;
    for (const one of contenders) {
      const length = Math.max(1, ((WIDTH - LEFT - 110) * one[field]) / most);
      parts.push(text(32, y + 12, one.title, "normal"));
      parts.push(
        `<rect x="${LEFT}" y="${y}" width="${length.toFixed(1)}" height="${BAR - 3}" ` +
          `fill="${COLOURS[one.kind] ?? OTHER_COLOUR}"/>`,
      );
      parts.push(
        text(LEFT + length + 6, y + 12, format(one[field], kind === "tail" ? 2 : 0), "normal"),
      );
      y += BAR;
    }
    y += 26;
  }
  const where = `${machine.cpu}, ${machine.cores} cores, ${machine.kernel}, Node ${machine.node}`;
  const heading = `hapax ${machine.hapax} (${machine.commit}), ${startedAt.slice(0, 10)}`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y}" ` +
    `font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n` +
    `${text(16, 20, heading, "bold")}\n${text(16, 38, where, "normal")}\n${parts.join("\n")}\n</svg>\n`
  );
}

function text(x, y, content, weight) {
  const safe = content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${x.toFixed(1)}" y="${y}" font-weight="${weight}">${safe}</text>`;
}
