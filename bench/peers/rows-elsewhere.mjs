/** Rows that other benchmarks measure: they run as they are, each in a process of its own, and their results are judged here. */

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { check, timesOf } from "./checks.mjs";
import { produceToKafka } from "./kafka.mjs";

const BENCH = fileURLToPath(new URL("..", import.meta.url));

/** Runs a benchmark and returns its results. What it prints is only shown if it fails. */
async function results({ cutMs }, file, ...args) {
  const folder = mkdtempSync(join(tmpdir(), "hapax-peers-row-"));
  const path = join(folder, "result.json");
  try {
    const child = spawn(process.execPath, [join(BENCH, file), ...args, "--result", path], {
      stdio: ["ignore", "pipe", "pipe"],
      timeout: cutMs,
      killSignal: "SIGKILL",
    });
    let words = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk) => (words = (words + chunk).slice(-4000)));
    }
    await new Promise((resolve, reject) => child.once("close", resolve).once("error", reject));
    try {
      return JSON.parse(readFileSync(path, "utf8"));
    } catch {
      throw new Error(`${file} left no result: ${words.trim().split("\n").at(-1)}`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const quick = ({ isQuick }, ...args) => (isQuick ? args : []);

async function catchUp(run) {
  const only = ["--only", "catch-up", "--contenders", "bare,hapax-fsync"];
  const { results: all } = await results(run, "run.mjs", ...only, ...quick(run, "--quick"));
  const measured = [];
  const checks = [];
  for (const { name, title, contenders } of all) {
    const rows = contenders.map(({ kind, title: who, rate }) => {
      return { kind: `${name} ${kind}`, title: `${who}: ${title}`, perSecond: rate, unit: "MB/s" };
    });
    measured.push(...rows);
    if (name !== "catch-up" && name !== "catch-up-8") continue;
    const ratio = timesOf(rows, `${name} hapax-fsync`, `${name} bare`, 1);
    checks.push({ ...ratio, what: `of a bare server that streams a file, ${title}` });
  }
  return { measured, checks };
}

async function producers(run) {
  const only = ["--only", "peer-hapax-fsync", ...quick(run, "--quick")];
  const { results: all } = await results(run, "client.mjs", ...only);
  const measured = (all[0]?.contenders ?? []).map(({ title, rate, cpuMicros }) => {
    return { kind: title, title, perSecond: rate, cpuMicros };
  });
  const [defaults] = measured;
  const peer = measured.find(({ kind }) => kind.startsWith("@durable-streams/client"));
  const records = run.isQuick ? 100_000 : 400_000;
  try {
    measured.push(...(await produceToKafka(records, run.plan.rounds)));
  } catch (error) {
    run.say(error.message);
  }
  const checks = [
    timesOf(measured, defaults?.kind, peer?.kind ?? "@durable-streams/client", 2),
    timesOf(measured, defaults?.kind, "kafka", 1),
    timesOf(measured, defaults?.kind, "kafka, batches of 1 MiB", 1),
  ];
  return { measured, checks };
}

/** A part of the size shows that it runs, and says nothing of the whole: then nothing is judged. */
async function sizes(run) {
  const { share } = run.plan;
  const measured = [];
  const checks = [];
  const cases = [
    ["streams", "fillStreams", "rssMB", 500, "openStreams"],
    ["sessions", "fillSessions", "rssMB", 300, "openSessions"],
    ["keys", "fillOneKeys", "windowMB", 60, "replayOneKeys"],
  ];
  for (const [name, step, field, goal, restart] of cases) {
    const args = ["--only", name, "--share", String(share)];
    const { cases: done } = await results(run, "scale.mjs", ...args);
    const steps = done[0].results;
    const megabytes = steps[step][field];
    const seconds = steps[restart].restartSeconds;
    const { pauseMs } = Object.values(steps).find((one) => one.pauseMs !== undefined) ?? {};
    measured.push({ kind: name, title: `${share * 1e6} ${name}`, megabytes, seconds });
    const whole = (value) => (share === 1 ? value : undefined);
    checks.push(check(`MB for a million ${name}`, whole(megabytes), goal, "most"));
    checks.push(check(`seconds of their restart`, whole(seconds), 4, "most"));
    checks.push(check(`ms held by a snapshot of them`, whole(pauseMs), 10, "most"));
  }
  return { measured, checks };
}

async function stalls(run) {
  const small = ["--streams", "10000", "--readers", "200", "--only", "list,groups,bodies"];
  const { results: all } = await results(run, "turns.mjs", ...quick(run, ...small));
  const measured = all.map(({ what, longestMs }) => {
    return { kind: what, title: what, longestMs };
  });
  const checks = measured.map(({ title, longestMs }) =>
    check(`ms held by ${title}`, longestMs, 10, "most"),
  );
  return { measured, checks };
}

async function transactions(run) {
  const small = quick(run, "--records", "10000", "--rounds", "1");
  const { results: all } = await results(
    run,
    "processing.mjs",
    ...["--quick", "--only", "hapax-fsync", ...small],
  );
  const measured = all.map(({ members, transaction, plain }) => {
    const title = `${members} members: transactions`;
    return { kind: String(members), title, perSecond: transaction, plainPerSecond: plain };
  });
  const checks = all.map(({ members, ofPlain }) =>
    check(`of the plain copy, ${members} members`, ofPlain, 1),
  );
  return { measured, checks };
}

export const ELSEWHERE = [
  ["6", "catch-up, one reader and eight", catchUp],
  ["9", "a producer of the client, records of 100 B, defaults", producers],
  ["10", "a million streams, producers with sessions, and keys", sizes],
  ["11", "how long the loop is held", stalls],
  ["12", "a transactional copy against a plain one", transactions],
];
