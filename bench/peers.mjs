/**
 * `npm run bench:peers [-- --quick] [-- --only 1,2a] [-- --rounds 5] [-- --cut 600]`: Hapax beside Redis, Valkey, PostgreSQL, NATS, Kafka and bare
 * servers, in one run, with a verdict on each goal. Every contender does the same work: records of 100 B, deduplicated, durable
 * before the answer. They take turns in rounds, and the median counts. The load is a small C program, so that one of two cores is
 * enough for it; it needs `cc`. What is missing is installed outside the repository where that is possible, and named where not.
 * Results go to bench/results/ as JSON and as a picture.
 */

import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { redisKinds, startContender } from "./peers/contenders.mjs";
import { compileLoad, runLoad } from "./peers/load.mjs";
import { ROWS } from "./peers/rows.mjs";
import { barsOf, formatRow, formatVerdict } from "./peers/verdict.mjs";
import { drawResults } from "./report.mjs";
import { optionOf, saveResults, stampOf } from "./results.mjs";

const PLANS = {
  quick: { rounds: 1, warmMs: 200, measureMs: 400, tails: 60, fans: 25, idle: 1000, share: 0.02 },
  whole: { rounds: 5, warmMs: 500, measureMs: 2000, tails: 400, fans: 150, idle: 10_000, share: 1 },
};
/** A row that takes longer is given up; the others go on. `--cut` says how many seconds that are. */
const CUT_MS = { quick: 60_000, whole: 600_000 };

const say = (words) => console.log(`  ${words}`);

/** A server that has compiled nothing yet says nothing of one that has run for a minute. */
async function warmUp(contender) {
  await contender.prepare("warm");
  // 100 bytes that are JSON: one of the bare servers parses what it gets.
  const load = contender.append("warm", JSON.stringify(["x".repeat(96)]), "warm");
  await runLoad({ ...load, connections: 32, "warm-ms": 0, "measure-ms": 1500 }, contender.pids);
}

/** Starts contenders when a row first needs them. One that cannot start is named once, and does not take part. */
class Field {
  #running = new Map();
  #folder = mkdtempSync(join(tmpdir(), "hapax-peers-"));

  constructor() {
    chmodSync(this.#folder, 0o711); // A database may run as another user.
  }

  async take(kinds) {
    const taken = [];
    for (const kind of kinds) {
      if (!this.#running.has(kind)) this.#running.set(kind, await this.#start(kind));
      const contender = this.#running.get(kind);
      if (contender !== undefined) taken.push(contender);
    }
    return taken;
  }

  async #start(kind) {
    try {
      const folder = join(this.#folder, kind.replaceAll(/\W+/g, "-"));
      const contender = await startContender(kind, folder);
      await warmUp(contender);
      return contender;
    } catch (error) {
      say(`missing: ${error.message}`);
      return undefined;
    }
  }

  /** Also between rows: those that other benchmarks measure want the machine for themselves. */
  async rest() {
    for (const contender of this.#running.values()) await contender?.stop();
    this.#running.clear();
  }

  async stop() {
    await this.rest();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function withCut(run, cutMs) {
  let timer;
  const cut = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it took longer than ${cutMs / 1000} s`)), cutMs);
  });
  return Promise.race([run, cut]).finally(() => clearTimeout(timer));
}

function chosenRows() {
  const only = optionOf("--only", undefined)?.split(",");
  const rows = ROWS.filter(({ row }) => only === undefined || only.includes(row));
  if (rows.length > 0) return rows;
  throw new Failure(`there are these rows: ${ROWS.map(({ row }) => row).join(", ")}`);
}

async function measureRows(rows, run, field) {
  const results = [];
  for (const { row, title, run: measure } of rows) {
    const isElsewhere = Number.parseInt(row, 10) === 6 || Number.parseInt(row, 10) > 8;
    if (isElsewhere) await field.rest();
    let result;
    try {
      result = { row, title, ...(await withCut(measure(run), run.cutMs)) };
    } catch (error) {
      result = { row, title, failure: error.message };
    }
    results.push(result);
    console.log(formatRow(result));
  }
  return results;
}

await main(async () => {
  if (process.platform !== "linux") throw new Failure("the benchmarks read /proc and need Linux");
  const rows = chosenRows();
  const isQuick = process.argv.includes("--quick");
  const size = isQuick ? "quick" : "whole";
  const plan = { ...PLANS[size] };
  plan.rounds = Number(optionOf("--rounds", plan.rounds));
  compileLoad();
  await buildIfNeeded();
  const machine = machineOf(tmpdir());
  const startedAt = new Date().toISOString();
  console.log(formatMachine(machine));
  console.log(
    "durability  each record is on the disk before its answer, for every contender but the bare ones",
  );
  const needsRedis = rows.some(({ row }) => ["1", "2a", "2b", "7"].includes(row));
  const { kinds: redis, missing } = needsRedis ? await redisKinds() : { kinds: [], missing: [] };
  for (const words of missing) say(`missing: ${words}`);
  const field = new Field();
  const take = (kinds) => field.take(kinds);
  try {
    const cutMs = Number(optionOf("--cut", CUT_MS[size] / 1000)) * 1000;
    const run = { take, say, redis, plan, isQuick, cutMs };
    const results = await measureRows(rows, run, field);
    console.log(formatVerdict(results));
    const report = { startedAt, machine, durability: "fsync", plan, results };
    const picture = drawResults({ ...report, results: barsOf(results) });
    saveResults(`peers-${stampOf(startedAt)}`, report, { svg: picture });
  } finally {
    await field.stop();
  }
});
