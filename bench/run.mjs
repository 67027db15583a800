/**
 * `npm run bench [-- --quick] [-- --only <scenario>]`: our server, the limits and the peers, side by side in
 * one run. All servers run at once, each in its process, and take turns round after round, so that a noisy
 * machine is noisy for all of them; of the rounds the median counts. Results go to bench/results/ as JSON
 * and as a picture.
 */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { startLoad, startServer } from "./processes.mjs";
import { drawResults, formatScenario, formatTargets } from "./report.mjs";
import { optionOf, saveResults, stampOf } from "./results.mjs";
import { CONTENDERS, scenariosOf } from "./scenarios.mjs";

const REFERENCE = "@durable-streams/server@0.3.7";

/**
 * The reference has a native module, so it is not among our dependencies: it is installed once into a folder
 * of its own outside the repository. Undefined if it cannot be had.
 */
function installReference() {
  const home = join(tmpdir(), "hapax-bench", REFERENCE.replaceAll("/", "-"));
  if (existsSync(join(home, "node_modules", "@durable-streams", "server"))) return home;
  console.log(`installing ${REFERENCE} into ${home}`);
  mkdirSync(home, { recursive: true });
  const npm = process.platform === "win32" ? "npm.cmd" : "npm";
  try {
    execFileSync(npm, ["install", "--prefix", home, "--no-audit", "--no-fund", REFERENCE], {
      stdio: ["ignore", "ignore", "pipe"],
      timeout: 120_000,
    });
    return home;
  } catch {
    console.log(`${REFERENCE} cannot be installed here: it does not take part`);
    return undefined;
  }
}

/** Starts servers when a scenario first needs them; a contender that cannot start does not take part. */
class Field {
  #servers = new Map();
  #folder = mkdtempSync(join(tmpdir(), "hapax-bench-"));
  #hasReference;
  #load;

  constructor(hasReference, load) {
    this.#hasReference = hasReference;
    this.#load = load;
  }

  folderOf(kind) {
    return join(this.#folder, kind);
  }

  async take(kinds) {
    const servers = [];
    for (const kind of kinds) {
      if (kind.startsWith("reference") && !this.#hasReference) continue;
      if (!this.#servers.has(kind)) {
        mkdirSync(this.folderOf(kind), { recursive: true });
        // The reference reports every slow append: that is not what is wanted here.
        const stdio = ["ignore", "ignore", "inherit", "ipc"];
        const server = await startServer(kind, this.folderOf(kind), { stdio });
        this.#servers.set(kind, server);
        await warmUp(this.#load, server);
      }
      servers.push(this.#servers.get(kind));
    }
    return servers;
  }

  async stop() {
    for (const server of this.#servers.values()) await server.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** A server that has compiled nothing yet says nothing of one that has run for a minute. */
async function warmUp(load, { port }) {
  const [paths, contentType] = [["/v1/stream/warm-up"], "application/json"];
  await load.run({ task: "createStreams", port, paths, contentType });
  const times = { connections: 32, warmMs: 0, measureMs: 2000 };
  const body = '[{"warm":true},{"warm":true}]';
  await load.run({ task: "append", port, paths, contentType, body, producer: "warm", ...times });
}

async function runAppends(scenario, servers, load, plan) {
  const { name, contentType, body, connections, streams } = scenario;
  const paths = Array.from({ length: streams }, (_, index) => `/v1/stream/${name}/${index}`);
  for (const { port } of servers)
    await load.run({ task: "createStreams", port, paths, contentType });
  return inRounds(servers, plan.rounds, async (server, round) => {
    const { port } = server;
    const task = { task: "append", port, paths, contentType, body, connections };
    const producer = `${name}-${round}`;
    const times = { warmMs: plan.warmMs, measureMs: plan.measureMs };
    const measured = await load.measure({ ...task, ...times, producer }, server);
    return appendResult(measured, scenario.recordsEach);
  });
}

function appendResult({ perSecond, p50Ms, p99Ms, usage }, recordsEach) {
  const appends = perSecond * usage.seconds;
  const records = appends * recordsEach;
  return {
    rate: perSecond * recordsEach,
    p50Ms,
    p99Ms,
    cpuMicros: ((usage.userMs + usage.systemMs) * 1000) / appends,
    syncsPerSecond: usage.commitsPerSecond,
    diskBytesEach: usage.liveBytes === undefined ? undefined : usage.liveBytes / records,
  };
}

async function runCatchUp(scenario, servers, load, plan, field) {
  const { name, bytes, appendBytes, readers, passes } = scenario;
  const path = `/v1/stream/${name}`;
  const body = "y".repeat(appendBytes);
  const count = bytes / appendBytes;
  for (const { kind, port } of servers) {
    if (kind === "bare") {
      writeFileSync(join(field.folderOf(kind), "content"), Buffer.alloc(bytes, "y"));
      continue;
    }
    await load.run({ task: "createStreams", port, paths: [path], contentType: "text/plain" });
    await load.run({ task: "fill", port, path, contentType: "text/plain", body, count });
  }
  return inRounds(servers, plan.rounds, async ({ port }) => {
    const read = await load.run({ task: "catchUp", port, path, readers, passes });
    if (read.bytes < bytes * readers * passes)
      throw new Error(`only ${read.bytes} bytes were read`);
    return { rate: read.megabytesPerSecond };
  });
}

async function runTail(scenario, servers, load, plan) {
  const { name, count, everyMs } = scenario;
  return inRounds(servers, plan.rounds, async ({ port }, round) => {
    const path = `/v1/stream/${name}-${round}`;
    await load.run({ task: "createStreams", port, paths: [path], contentType: "text/plain" });
    return load.run({ task: "tail", port, path, contentType: "text/plain", count, everyMs });
  });
}

/** A B C, A B C, …: what each server measured, as medians over the rounds. */
async function inRounds(servers, rounds, run) {
  const measured = new Map(servers.map(({ kind }) => [kind, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const server of servers) {
      if (!measured.has(server.kind)) continue;
      try {
        measured.get(server.kind).push(await run(server, round));
      } catch (error) {
        console.log(`\n${CONTENDERS[server.kind]} has failed: ${error.message}`);
        measured.delete(server.kind);
      }
    }
  }
  return [...measured].map(([kind, all]) => ({
    kind,
    title: CONTENDERS[kind],
    ...mediansOf(all),
    all,
  }));
}

function mediansOf(all) {
  const names = Object.keys(all[0] ?? {});
  return Object.fromEntries(
    names.map((name) => {
      const sorted = all.map((one) => one[name]).toSorted((one, other) => one - other);
      return [name, sorted[Math.floor(sorted.length / 2)]];
    }),
  );
}

/** `--contenders bare,hapax-fsync` leaves out the others. */
function isAsked(kind) {
  const asked = optionOf("--contenders", undefined);
  return asked === undefined || asked.split(",").includes(kind);
}

const CONTENDERS_OF_REFERENCE = ["reference-files", "reference-memory"];
const RUNNERS = { append: runAppends, "catch-up": runCatchUp, tail: runTail };

async function runAll(scenarios, plan, hasReference) {
  const load = await startLoad();
  const field = new Field(hasReference, load);
  const results = [];
  try {
    for (const scenario of scenarios) {
      const servers = await field.take(scenario.contenders.filter(isAsked));
      const measured = await RUNNERS[scenario.kind](scenario, servers, load, plan, field);
      const { name, kind, title, recordsEach } = scenario;
      const result = { name, kind, title, recordsEach, contenders: measured };
      results.push(result);
      console.log(formatScenario(result));
    }
  } finally {
    load.stop();
    await field.stop();
  }
  return results;
}

await main(async () => {
  if (process.platform !== "linux") throw new Failure("the benchmarks read /proc and need Linux");
  const isQuick = process.argv.includes("--quick");
  const only = optionOf("--only", undefined);
  const all = scenariosOf(isQuick);
  const scenarios = all.filter(({ name }) => only === undefined || name.startsWith(only));
  if (scenarios.length === 0) {
    throw new Failure(`there are these scenarios: ${all.map(({ name }) => name).join(", ")}`);
  }
  await buildIfNeeded();
  const isReference = CONTENDERS_OF_REFERENCE.some(isAsked);
  const home = isReference ? installReference() : undefined;
  process.env.BENCH_REFERENCE = home ?? "";
  const machine = machineOf(tmpdir());
  const startedAt = new Date().toISOString();
  console.log(formatMachine(machine));
  console.log(
    "durability  fsync before the answer for hapax on files; the others as their names say",
  );
  const plan = isQuick
    ? { rounds: 3, warmMs: 200, measureMs: 500 }
    : { rounds: 3, warmMs: 300, measureMs: 1000 };
  const results = await runAll(scenarios, plan, home !== undefined);
  console.log(formatTargets(results));
  const result = { startedAt, machine, durability: "fsync", plan, results };
  saveResults(stampOf(startedAt), result, { svg: drawResults(result) });
});
