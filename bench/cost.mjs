/**
 * `node bench/cost.mjs [<commit>] [--rounds 20] [--connections 64] [--appends 4000] [--store fsync]`: what an append costs the
 * server, in CPU time and in garbage, and what it costs at a commit, in turns. Figures that a busy machine spoils little: no rates.
 *
 * Garbage is exact: the young generation has room for a whole round, so nothing is collected in it, and what the heap has grown by
 * was allocated. CPU time is that of the cheapest tenth of the rounds, because neighbours only make it dearer. Point `TMPDIR` at
 * a folder in memory to leave the disk out.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { buildCommit, resolveCommit } from "./commits.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { runLoad } from "./peers/load.mjs";
import { createHttpStream, httpAppend } from "./peers/wire.mjs";
import { startServer } from "./processes.mjs";
import { table } from "./report.mjs";
import { optionOf } from "./results.mjs";
import { median, quantile } from "./statistics.mjs";

const ROOM = ["--max-semi-space-size=256", "--min-semi-space-size=256"];
const PATH = "/v1/stream/cost";

async function measure(server, round, { connections, appends }) {
  const { port, pid } = server;
  const load = httpAppend({ port, path: PATH, body: "x".repeat(100), producer: `r${round}` });
  const before = await server.stats();
  const { answered } = await runLoad({ ...load, mode: "count", connections, count: appends }, [
    pid,
  ]);
  const after = await server.stats();
  const each = (name) => (after[name] - before[name]) / answered;
  const isWhole = after.collections === before.collections;
  return {
    userMicros: each("userMicros"),
    systemMicros: each("systemMicros"),
    // A collection in between spoils it; then the round says nothing of memory.
    heapBytes: isWhole ? each("heapUsed") : undefined,
    externalBytes: isWhole ? each("external") : undefined,
    syncs: each("commits"),
  };
}

function summary(rounds, name) {
  const values = rounds.map((round) => round[name]).filter((value) => value !== undefined);
  return values.length === 0 ? [NaN, NaN] : [quantile(values, 0.1), median(values)];
}

function report(names, rounds) {
  const fields = ["userMicros", "systemMicros", "heapBytes", "externalBytes", "syncs"];
  const head = ["each append", ...fields.map((field) => `${field} (least, median)`)];
  const rows = names.map((name) => [
    name,
    ...fields.map((field) => {
      const [least, middle] = summary(rounds[name], field);
      const digits = field === "syncs" ? 3 : 1;
      return `${least.toFixed(digits)}, ${middle.toFixed(digits)}`;
    }),
  ]);
  console.log(table([head, ...rows]));
}

await main(async () => {
  if (process.platform !== "linux") throw new Failure("the benchmarks read /proc and need Linux");
  const [name] = process.argv.slice(2);
  const commit = name === undefined || name.startsWith("--") ? undefined : resolveCommit(name);
  const plan = {
    rounds: Number(optionOf("--rounds", 20)),
    connections: Number(optionOf("--connections", 64)),
    appends: Number(optionOf("--appends", 4000)),
  };
  const kind = `hapax-${optionOf("--store", "fsync")}`;
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-cost-"));
  const starters = { "this tree": startServer };
  const servers = {};
  try {
    if (commit !== undefined) starters[commit] = (await buildCommit(commit, folder)).startServer;
    console.log(formatMachine(machineOf(folder)));
    const names = Object.keys(starters);
    const rounds = Object.fromEntries(names.map((one) => [one, []]));
    for (const one of names) {
      const directory = join(folder, one.replace(" ", "-"));
      mkdirSync(directory);
      servers[one] = await starters[one](kind, directory, { execArgv: ROOM });
      await createHttpStream(servers[one].port, PATH);
      for (let warm = 0; warm < 10; warm += 1) await measure(servers[one], `w${warm}`, plan);
    }
    for (let round = 0; round < plan.rounds; round += 1) {
      const order = round % 2 === 0 ? names : names.toReversed();
      for (const one of order) rounds[one].push(await measure(servers[one], round, plan));
    }
    report(names, rounds);
  } finally {
    for (const server of Object.values(servers)) await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
