/**
 * What is compared, row by row, with its goal. A row takes the contenders it needs, measures them in turns, and returns what each
 * of them did and the checks: a value, what it must be, and whether it is. A contender that is missing leaves its check open.
 */

import { tmpdir } from "node:os";
import { probeDisk } from "../machine.mjs";
import { jsonBatch } from "../scenarios.mjs";
import { median } from "../statistics.mjs";
import { check, timesOf } from "./checks.mjs";
import { rssBytesOf, runLoad } from "./load.mjs";
import { ELSEWHERE } from "./rows-elsewhere.mjs";

const HAPAX = "hapax-fsync";
const RECORD = "x".repeat(100);
const MIB = 1024 * 1024;

/** The best of Redis and its kin, by what they have measured. */
function bestRedis(measured, pick = (one) => one.perSecond) {
  const kin = measured.filter(({ kind }) => kind.startsWith("redis"));
  return kin.toSorted((one, other) => pick(other) - pick(one))[0]?.kind ?? "redis";
}

/** Every contender once a round; of the rounds the medians. One that fails is left out, and said. */
async function inTurns(contenders, rounds, run, say) {
  const all = new Map(contenders.map((one) => [one, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const contender of contenders) {
      const kept = all.get(contender);
      if (kept === undefined) continue;
      try {
        kept.push(await run(contender, round));
      } catch (error) {
        say(`${contender.title} has failed: ${error.message}`);
        all.delete(contender);
      }
    }
  }
  return [...all].map(([{ kind, title }, rounded]) => ({
    kind,
    title,
    ...medians(rounded),
    rounds: rounded,
  }));
}

function medians(all) {
  const names = Object.keys(all[0] ?? {});
  return Object.fromEntries(names.map((name) => [name, median(all.map((one) => one[name]))]));
}

/** `load`: connections, depth and the like, as load.c has them. */
async function appends({ take, plan, say }, name, kinds, load, body = RECORD, contentType) {
  const contenders = await take(kinds);
  for (const one of contenders) await one.prepare(name, contentType);
  const times = { "warm-ms": plan.warmMs, "measure-ms": plan.measureMs };
  return inTurns(
    contenders,
    plan.rounds,
    (one, round) =>
      runLoad({ ...one.append(name, body, `r${round}`, contentType), ...load, ...times }, one.pids),
    say,
  );
}

const PEERS = ["postgres", "nats"];

async function sixtyFour(run) {
  const contenders = [HAPAX, ...run.redis, ...PEERS, "bare"];
  const measured = await appends(run, "appends64", contenders, { connections: 64 });
  const checks = [
    timesOf(measured, HAPAX, bestRedis(measured), 1.15),
    timesOf(measured, HAPAX, "postgres", 2.5),
    timesOf(measured, HAPAX, "nats", 7),
    timesOf(measured, HAPAX, "bare", 0.75),
  ];
  return { measured, checks };
}

async function manyConnections(run) {
  const contenders = [HAPAX, ...run.redis, ...PEERS, "bare"];
  const measured = await appends(run, "appends256", contenders, { connections: 256 });
  const checks = [
    timesOf(measured, HAPAX, bestRedis(measured), 1.15),
    timesOf(measured, HAPAX, "bare", 1.1),
  ];
  return { measured, checks };
}

async function oneConnection(run) {
  const contenders = [HAPAX, ...run.redis, ...PEERS, "bare"];
  const measured = await appends(run, "appends1", contenders, { connections: 1 });
  const disk = Array.from({ length: run.plan.rounds }, () => probeDisk(tmpdir()));
  measured.push({
    kind: "disk",
    title: "the disk: durable writes of 4 KiB",
    perSecond: median(disk),
  });
  const checks = [
    timesOf(measured, HAPAX, bestRedis(measured), 0.85),
    timesOf(measured, HAPAX, "postgres", 1.1),
    timesOf(measured, HAPAX, "nats", 1.1),
    timesOf(measured, HAPAX, "disk", 0.5),
  ];
  return { measured, checks };
}

async function pipelined(run) {
  const load = { connections: 64, depth: 16 };
  const measured = await appends(run, "pipelined", [HAPAX, "bare-net"], load);
  const ours = measured.find(({ kind }) => kind === HAPAX)?.perSecond;
  const ratio = timesOf(measured, HAPAX, "bare-net", 0.55);
  const rate = check("appends/s (one of the two is enough)", ours, 150_000);
  // Either is enough.
  if (ratio.isMet === true || rate.isMet === true) ratio.isMet = rate.isMet = true;
  return { measured, checks: [rate, ratio] };
}

async function json(run) {
  const load = { connections: 64 };
  const kinds = [HAPAX, "bare-json"];
  const measured = await appends(run, "json", kinds, load, jsonBatch(), "application/json");
  return { measured, checks: [timesOf(measured, HAPAX, "bare-json", 0.9)] };
}

async function largeBodies(run) {
  const measured = await appends(run, "large", [HAPAX], { connections: 4 }, "x".repeat(MIB));
  const rounds = Array.from({ length: run.plan.rounds }, () => probeDisk(tmpdir(), MIB, 64 * MIB));
  const disk = {
    kind: "disk",
    title: "the disk: durable writes of 1 MiB",
    perSecond: median(rounds),
  };
  measured.push(disk);
  return { measured, checks: [timesOf(measured, HAPAX, "disk", 0.5)] };
}

async function live(run) {
  const contenders = await run.take([HAPAX, ...run.redis, "nats"]);
  const measured = await inTurns(
    contenders,
    run.plan.rounds,
    async (one, round) => {
      const stream = `tail${round}`;
      await one.prepare(stream);
      const load = { mode: "tail", readers: 1, count: run.plan.tails, "every-us": 5000 };
      return runLoad({ ...one.tail(stream), ...load }, one.pids);
    },
    run.say,
  );
  const writeMs = 1000 / median(Array.from({ length: run.plan.rounds }, () => probeDisk(tmpdir())));
  const ms = (kind, name) => {
    const found = measured.find((one) => one.kind === kind);
    return found === undefined ? undefined : found[name] / 1000;
  };
  const ours = ms(HAPAX, "p50Micros");
  const ratio = (other) => (ours === undefined || other === undefined ? undefined : ours / other);
  const redis = bestRedis(measured, (one) => -one.p50Micros);
  const checks = [
    check("p50 of one durable write", ratio(writeMs), 1.3, "most"),
    check("p99 in ms", ms(HAPAX, "p99Micros"), 2, "most"),
    check(`p50 of ${redis}`, ratio(ms(redis, "p50Micros")), 1, "most"),
    check("p50 of NATS", ratio(ms("nats", "p50Micros")), 1, "most"),
  ];
  return { measured, checks };
}

async function manyReaders(run) {
  const [hapax] = await run.take([HAPAX]);
  const measured = await inTurns(
    [hapax],
    run.plan.rounds,
    async (one, round) => {
      const stream = `fan${round}`;
      await one.prepare(stream);
      const load = { mode: "tail", readers: 1000, count: run.plan.fans, "every-us": 20_000 };
      return runLoad({ ...one.tail(stream), ...load }, one.pids);
    },
    run.say,
  );
  const p99 = measured[0]?.p99Micros;
  const bytesEach = await idleReaders(hapax, run.plan.idle);
  measured.push({ kind: HAPAX, title: `${run.plan.idle} idle readers`, bytesEach });
  const checks = [
    check(
      "p99 in ms, 1,000 readers × 50 events/s",
      p99 === undefined ? undefined : p99 / 1000,
      10,
      "most",
    ),
    check("bytes of memory for an idle reader", bytesEach, 6 * 1024, "most"),
  ];
  return { measured, checks };
}

/**
 * The memory of the server with readers that wait, less what it was before. A first turn makes what stays. It is a small one: memory that many readers
 * leave behind is taken again by as many others, and would not show.
 */
async function idleReaders(hapax, readers) {
  await hapax.prepare("idle");
  const hold = (count, during) =>
    runLoad({ ...hapax.tail("idle"), mode: "hold", readers: count }, hapax.pids, during);
  await hold(Math.ceil(readers / 100), () => undefined);
  await pause(2000);
  const before = rssBytesOf(hapax.pids);
  let after = before;
  await hold(readers, async () => {
    await pause(3000);
    after = rssBytesOf(hapax.pids);
  });
  return Math.max(0, after - before) / readers;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const ROWS = [
  ["1", "appends of 100 B with producer headers, 64 connections", sixtyFour],
  ["2a", "the same, 256 connections", manyConnections],
  ["2b", "the same, 1 connection", oneConnection],
  ["3", "the same over HTTP, pipelined 16 deep, 64 connections", pipelined],
  ["4", "JSON bodies of 100 records, 64 connections", json],
  ["5", "bodies of 1 MiB, 4 connections", largeBodies],
  ["7", "an append every 5 ms until a live reader has it", live],
  ["8", "1,000 readers × 50 events/s, and readers that wait", manyReaders],
  ...ELSEWHERE,
].map(([row, title, run]) => ({ row, title, run }));
