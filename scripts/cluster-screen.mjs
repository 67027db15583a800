/** What `npm run cluster` shows each second: on a terminal one block that is drawn again, elsewhere one line. */

import { ownersOf } from "./cluster-nodes.mjs";

const EVERY_MS = 1000;
const NUMBER_WIDTH = 10;

/** Counts what was acknowledged, and how long each writer waited. */
export class Tally {
  acknowledged = 0;
  longestMs = 0;
  #writers = new Map();

  /** A writer gives one more payment. */
  give(writer) {
    const state = this.#writers.get(writer) ?? { open: 0, sinceMs: 0 };
    if (state.open === 0) state.sinceMs = performance.now();
    state.open += 1;
    this.#writers.set(writer, state);
  }

  acknowledge(writer, records) {
    const state = this.#writers.get(writer);
    const nowMs = performance.now();
    this.longestMs = Math.max(this.longestMs, nowMs - state.sinceMs);
    state.open -= records;
    state.sinceMs = nowMs;
    this.acknowledged += records;
  }

  /** The longest time in which a writer that waited had no answer, with those that wait now. */
  pauseMs() {
    const nowMs = performance.now();
    const waits = [...this.#writers.values()].filter(({ open }) => open > 0);
    return Math.max(this.longestMs, ...waits.map(({ sinceMs }) => nowMs - sinceMs));
  }
}

/** Shows what happens until the returned function is called. */
export function showCluster({ run, database, nodes, tally, hasKeys }) {
  const isTerminal = process.stdout.isTTY === true;
  let [drawn, before, beforeMs, isDrawing] = [0, 0, performance.now(), false];
  const draw = async () => {
    if (isDrawing) return; // The database is slow: the next second is soon enough.
    isDrawing = true;
    const owners = await ownersOf(database).catch(() => new Map());
    const nowMs = performance.now();
    const rate = Math.round(((tally.acknowledged - before) * 1000) / Math.max(nowMs - beforeMs, 1));
    [before, beforeMs, isDrawing] = [tally.acknowledged, nowMs, false];
    const facts = { run, nodes, tally, owners, rate };
    if (!isTerminal) {
      console.log(line(facts));
      return;
    }
    const lines = [...block(facts), ...(hasKeys ? KEYS : [])];
    const up = drawn === 0 ? "" : `\u001b[${drawn}A`;
    drawn = lines.length;
    process.stdout.write(`${up}${lines.map((text) => `\u001b[2K${text}\n`).join("")}`);
  };
  const timer = setInterval(() => void draw(), EVERY_MS);
  let isEnded = false;
  return async () => {
    clearInterval(timer);
    if (!isEnded) await draw();
    isEnded = true;
  };
}

const KEYS = [
  "",
  "  1 2 3  kill -9 a node; again: start it (it starts by itself after 7 s)",
  "  s      stop one beyond its lease        q  end and judge",
];

const secondsOf = (run) => `${Math.floor((performance.now() - run.startMs) / 1000)} s`;
const sumOf = (nodes, what) => nodes.reduce((sum, node) => sum + node[what], 0);

function countsOf({ run, nodes, tally, rate }) {
  return [
    ["acknowledged", tally.acknowledged],
    ["acknowledged/s", rate],
    ["kill -9", sumOf(nodes, "kills")],
    ["stops", sumOf(nodes, "stops")],
    ["sent again", run.counts.retries],
    ["duplicates stopped", run.counts.duplicatesStopped],
    ["longest pause ms", Math.round(tally.pauseMs())],
  ];
}

function line(facts) {
  const nodes = facts.nodes.map(
    ({ name, state }) => `${name} ${state} ${facts.owners.get(name)?.length ?? 0}`,
  );
  const counts = countsOf(facts).map(([name, value]) => `${name} ${value}`);
  return [secondsOf(facts.run), ...nodes, ...counts].join(", ");
}

function block(facts) {
  const nodes = facts.nodes.map(({ name, state, url }) => {
    const shards = facts.owners.get(name)?.join(" ") ?? "-";
    return `  ${name}  ${url}  ${state.padEnd(8)}  shards ${shards}`;
  });
  const counts = countsOf(facts).map(
    ([name, value]) => `  ${name.padEnd(20)}${String(value).padStart(NUMBER_WIDTH)}`,
  );
  return [`  ${secondsOf(facts.run)}`, ...nodes, "", ...counts];
}
