/**
 * What the file store promises at size, each with its bound: `npm run bench:scale [-- --only <case>]`.
 *
 * Every step runs in a process of its own, so that its memory and its restart are measured alone. Filling
 * goes through the engine, not through HTTP.
 */

import { fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildIfNeeded, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { optionOf, saveResults } from "./results.mjs";

/** Each case: steps in order, all on one directory, and the bounds on what they measured. */
const CASES = [
  {
    name: "streams",
    title: "1,000,000 streams with one record each",
    steps: ["fillStreams", "openStreams"],
    bounds: [
      ["memory after filling", "fillStreams", "rssMB", 1000, "MB"],
      ["longest pause during a snapshot, best of three", "fillStreams", "pauseMs", 20, "ms"],
      ["restart from the snapshot", "openStreams", "restartSeconds", 20, "s"],
      ["memory after the restart", "openStreams", "rssMB", 1000, "MB"],
    ],
  },
  {
    name: "replay",
    title: "10,000,000 appends, then a kill: replay is bounded by the snapshot policy",
    steps: ["fillAppends", "openAppends"],
    bounds: [
      // A snapshot is begun after 2,000,000 changes or 256 MiB; what comes while it is written adds to it.
      ["changes replayed", "openAppends", "replayedChanges", 4_000_000, "changes"],
      ["restart after the kill", "openAppends", "restartSeconds", 20, "s"],
    ],
  },
  {
    name: "large",
    title: "one stream of more than 4 GiB",
    steps: ["fillLarge", "openLarge"],
    bounds: [
      ["bytes that differ after a restart", "openLarge", "differingBytes", 0, "bytes"],
      ["restart", "openLarge", "restartSeconds", 20, "s"],
    ],
  },
  {
    name: "producers",
    title: "1,000,000 producers on one stream",
    steps: ["fillProducers", "openProducers"],
    bounds: [
      ["memory after filling", "fillProducers", "rssMB", 1000, "MB"],
      ["longest pause during a snapshot, best of three", "fillProducers", "pauseMs", 20, "ms"],
      ["restart from the snapshot", "openProducers", "restartSeconds", 20, "s"],
      ["retries not known as duplicates", "openProducers", "unknownRetries", 0, "retries"],
    ],
  },
  {
    name: "keys",
    title: "1,000,000 idempotency keys in one stream, then a tenth more",
    steps: ["fillOneKeys", "replayOneKeys", "evictOneKeys"],
    bounds: [
      ["memory of the window", "fillOneKeys", "windowMB", 80, "MB"],
      ["restart after a kill, without a snapshot", "replayOneKeys", "restartSeconds", 20, "s"],
      ["keys not known after the kill", "replayOneKeys", "unknownKeys", 0, "keys"],
      ["longest pause during a snapshot, best of three", "replayOneKeys", "pauseMs", 20, "ms"],
      ["restart from the snapshot", "evictOneKeys", "restartSeconds", 20, "s"],
      ["keys not known although they are among the last", "evictOneKeys", "unknownKeys", 0, "keys"],
      ["keys that are known for too long", "evictOneKeys", "keptTooLong", 0, "keys"],
      ["memory of the window after that", "evictOneKeys", "windowMB", 80, "MB"],
    ],
  },
  {
    name: "keys-many",
    title: "1,000,000 idempotency keys over 10,000 streams",
    steps: ["fillManyKeys", "replayManyKeys", "openManyKeys"],
    bounds: [
      ["memory of the windows", "fillManyKeys", "windowMB", 160, "MB"],
      ["restart after a kill, without a snapshot", "replayManyKeys", "restartSeconds", 20, "s"],
      ["keys not known after the kill", "replayManyKeys", "unknownKeys", 0, "keys"],
      ["longest pause during a snapshot, best of three", "replayManyKeys", "pauseMs", 20, "ms"],
      ["restart from the snapshot", "openManyKeys", "restartSeconds", 20, "s"],
      ["keys not known after the restart", "openManyKeys", "unknownKeys", 0, "keys"],
    ],
  },
  {
    name: "sessions",
    title: "1,000,000 producers with sessions on one stream",
    steps: ["fillSessions", "replaySessions", "openSessions"],
    bounds: [
      ["memory after filling", "fillSessions", "rssMB", 1000, "MB"],
      ["restart after a kill, without a snapshot", "replaySessions", "restartSeconds", 20, "s"],
      ["retries not known after the kill", "replaySessions", "unknownRetries", 0, "retries"],
      ["longest pause during a snapshot, best of three", "replaySessions", "pauseMs", 20, "ms"],
      ["restart from the snapshot", "openSessions", "restartSeconds", 20, "s"],
      ["retries not known after the restart", "openSessions", "unknownRetries", 0, "retries"],
    ],
  },
];

const stepFile = fileURLToPath(new URL("scale-steps.mjs", import.meta.url));

/** Runs a step and resolves with what it measured. A step that is killed on purpose has sent it before. */
function runStep(step, directory, size) {
  return new Promise((resolve, reject) => {
    const child = fork(stepFile, [step, directory, String(size)], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    let result;
    child.on("message", (message) => {
      result = message;
    });
    child.once("exit", (code, signal) => {
      if (result === undefined) reject(new Error(`${step} ended with ${code ?? signal}`));
      else resolve(result);
    });
  });
}

function judge(bounds, results) {
  let failures = 0;
  for (const [what, step, field, max, unit] of bounds) {
    const value = results[step][field];
    const isMet = value <= max;
    if (!isMet) failures += 1;
    const shown = `${formatNumber(value)} ${unit}, at most ${formatNumber(max)}`;
    console.log(`  ${isMet ? "pass" : "FAIL"}  ${what}: ${shown}`);
  }
  return failures;
}

function formatNumber(value) {
  return value >= 100
    ? Math.round(value).toLocaleString("en-US")
    : String(Number(value.toFixed(2)));
}

async function runCase({ name, title, steps, bounds }, share) {
  console.log(`\n${name}: ${title}${share === 1 ? "" : ` (at ${share} of the size)`}`);
  const directory = mkdtempSync(join(tmpdir(), "hapax-scale-"));
  const results = {};
  try {
    for (const step of steps) {
      results[step] = await runStep(step, directory, share);
      const facts = Object.entries(results[step]).map(
        ([key, value]) => `${key}=${formatNumber(value)}`,
      );
      console.log(`        ${step}: ${facts.join(" ")}`);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return { name, share, results, failures: judge(bounds, results) };
}

await main(async () => {
  const only = optionOf("--only", undefined);
  const share = Number(optionOf("--share", 1));
  await buildIfNeeded();
  console.log(formatMachine(machineOf(tmpdir())));
  console.log("durability  os: what is measured is memory and restarts, not the disk");
  const done = [];
  for (const one of CASES) {
    if (only === undefined || only === one.name) done.push(await runCase(one, share));
  }
  const failures = done.reduce((sum, one) => sum + one.failures, 0);
  if (optionOf("--result", undefined) !== undefined) saveResults("scale", { cases: done });
  console.log(failures === 0 ? "\nall bounds are met" : `\n${failures} bounds are not met`);
  process.exitCode = failures === 0 ? 0 : 1;
});
