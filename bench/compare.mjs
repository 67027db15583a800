/**
 * `node bench/compare.mjs <commit> [--starts 4] [--rounds 8] [--seconds 0.5] [--connections 64] [--least 0.97] [--only memory]`:
 * this tree against an earlier commit of it, in one run. Appends with producer headers and nothing else, on 64
 * connections; the two servers run at once, each in its process, and take turns, so that a noisy machine is noisy
 * for both. They start anew several times, since two processes of one program can differ by a fifth. Of the ratios of
 * the rounds the median counts; the range beside it holds it with 95 %. `--control` compares the commit with itself:
 * what is left of 1 is the noise of the machine. `--without-lane` takes the fast lane away from both, so that what it
 * gains does not hide what something else costs.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { buildCommit, resolveCommit } from "./commits.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { startLoad, startServer } from "./processes.mjs";
import { optionOf } from "./results.mjs";
import { formatMedian, leastRatio, median } from "./statistics.mjs";

const STORES = { memory: "hapax-memory", fsync: "hapax-fsync" };
const BODY = "x".repeat(100);
const TYPE = "text/plain";

async function measure(load, server, round, { connections, seconds }) {
  const path = `/v1/stream/compare-${round}`;
  const { port } = server;
  await load.run({ task: "createStreams", port, paths: [path], contentType: TYPE });
  const task = { task: "append", port, paths: [path], contentType: TYPE, body: BODY, connections };
  const times = { warmMs: 300, measureMs: seconds * 1000 };
  const measured = await load.measure({ ...task, ...times, producer: `round-${round}` }, server);
  const { perSecond, usage } = measured;
  const appends = perSecond * usage.seconds;
  return { perSecond, cpuMicros: ((usage.userMs + usage.systemMs) * 1000) / appends };
}

async function compareOn(kind, starters, folder, plan) {
  const rounds = [];
  for (let start = 0; start < plan.starts; start += 1) {
    console.error(`${kind}: start ${start + 1} of ${plan.starts}`);
    const names = start % 2 === 0 ? ["here", "there"] : ["there", "here"];
    const directory = join(folder, `${kind}-${start}`);
    rounds.push(...(await runRounds(kind, starters, names, directory, plan)));
  }
  return rounds;
}

/** A B, B A, A B, …: neither is always the one that comes after the other. */
async function runRounds(kind, starters, names, folder, plan) {
  const load = await startLoad();
  const servers = {};
  try {
    for (const name of names) {
      const directory = join(folder, name);
      mkdirSync(directory, { recursive: true });
      servers[name] = await starters[name](kind, directory);
      await measure(load, servers[name], "warm-up", { ...plan, seconds: 2 });
    }
    const rounds = [];
    for (let round = 0; round < plan.rounds; round += 1) {
      const order = round % 2 === 0 ? names : names.toReversed();
      const measured = {};
      for (const name of order) measured[name] = await measure(load, servers[name], round, plan);
      rounds.push(measured);
    }
    return rounds;
  } finally {
    load.stop();
    for (const server of Object.values(servers)) await server.stop();
  }
}

function report(kind, rounds, here, there, least) {
  const rates = (name) => median(rounds.map((round) => round[name].perSecond));
  const cpu = (name) => median(rounds.map((round) => round[name].cpuMicros));
  const ratios = rounds.map(({ here, there }) => here.perSecond / there.perSecond);
  const ratio = median(ratios);
  const cpuRatios = rounds.map(({ here, there }) => there.cpuMicros / here.cpuMicros);
  const cpus = (name) => rounds.map((round) => round[name].cpuMicros);
  const least10 = leastRatio(cpus("here"), cpus("there"));
  const shown = (value) => Math.round(value).toLocaleString("en-US");
  console.log(`\n${kind}: 100 B, producer headers, median of ${rounds.length} rounds`);
  for (const [title, name] of [
    [here, "here"],
    [there, "there"],
  ]) {
    const each = `${cpu(name).toFixed(1)} CPU µs each`;
    console.log(`  ${title.padEnd(9)}  ${shown(rates(name))} appends/s, ${each}`);
  }
  console.log(
    `  by CPU     ${formatMedian(cpuRatios)}, in the cheapest tenth ${least10.toFixed(3)}`,
  );
  const verdict = ratio >= least ? "met    " : "NOT met";
  console.log(`  ${verdict}    ratio ${formatMedian(ratios)}, at least ${least}`);
  return ratio >= least;
}

await main(async () => {
  if (process.platform !== "linux") throw new Failure("the benchmarks read /proc and need Linux");
  const [name] = process.argv.slice(2);
  if (name === undefined || name.startsWith("--")) {
    throw new Failure("which commit? node bench/compare.mjs <commit>");
  }
  const commit = resolveCommit(name);
  const plan = {
    starts: Number(optionOf("--starts", 4)),
    rounds: Number(optionOf("--rounds", 8)),
    seconds: Number(optionOf("--seconds", 0.5)),
    connections: Number(optionOf("--connections", 64)),
  };
  const least = Number(optionOf("--least", 0.97));
  const only = optionOf("--only", undefined);
  if (only !== undefined && STORES[only] === undefined) {
    throw new Failure(`there are these stores: ${Object.keys(STORES).join(", ")}`);
  }
  if (process.argv.includes("--without-lane")) process.env.BENCH_FAST_LANE = "off";
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-compare-"));
  try {
    const other = await buildCommit(commit, folder);
    console.log(formatMachine(machineOf(folder)));
    console.log("durability  as the name says; fsync is before the answer");
    const isControl = process.argv.includes("--control");
    const here = isControl ? other.startServer : startServer;
    const starters = { here, there: other.startServer };
    let isMet = true;
    for (const [store, kind] of Object.entries(STORES)) {
      if (only !== undefined && only !== store) continue;
      const rounds = await compareOn(kind, starters, folder, plan);
      isMet = report(kind, rounds, isControl ? commit : "this tree", commit, least) && isMet;
    }
    process.exitCode = isMet ? 0 : 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
