/**
 * `npm run bench:processing [-- --quick]`: what a transaction costs. A group copies records from 16 streams into one with
 * 1, 4 and 16 members: in transactions (output and offset together); plainly (a producer's flush, then the commit of the
 * offset); and loosely (a producer that is never waited for, and the offsets when all is over: a crash loses or repeats
 * everything). They take turns on the same server, round after round; of the ratios of the rounds the median counts.
 * Results go to bench/results/ as JSON.
 */

import { fork } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildIfNeeded, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { startServer } from "./processes.mjs";
import { optionOf, saveResults, stampOf } from "./results.mjs";

const WAYS = ["plain", "loose", "transaction"];

function median(values) {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

/** One copy in a process of its own; answers records a second. */
function copy(task) {
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(new URL("processing-copier.mjs", import.meta.url)));
    child.once("message", (answer) => {
      child.disconnect();
      if (answer.error === undefined) resolve(answer);
      else reject(new Error(answer.error));
    });
    child.once("exit", (code) => reject(new Error(`the copier ended with ${code}`)));
    child.send(task);
  });
}

async function measure(server, members, { records, rounds }) {
  const rates = { plain: [], loose: [], transaction: [] };
  const ratios = { plain: [], loose: [] };
  for (let round = 0; round < rounds; round += 1) {
    for (const way of WAYS) {
      const name = `${members}-${round}-${way}`;
      const { perSecond } = await copy({ port: server.port, name, members, records, way });
      rates[way].push(perSecond);
    }
    for (const way of ["plain", "loose"]) {
      ratios[way].push(rates.transaction.at(-1) / rates[way].at(-1));
    }
  }
  const medians = Object.fromEntries(WAYS.map((way) => [way, median(rates[way])]));
  const ofPlain = median(ratios.plain);
  return { members, ...medians, ofPlain, ofLoose: median(ratios.loose) };
}

await main(async () => {
  const isQuick = process.argv.includes("--quick");
  const usual = isQuick ? { records: 160_000, rounds: 3 } : { records: 200_000, rounds: 7 };
  const plan = {
    records: Number(optionOf("--records", usual.records)),
    rounds: Number(optionOf("--rounds", usual.rounds)),
  };
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-bench-"));
  const machine = machineOf(folder);
  console.log(formatMachine(machine));
  const results = [];
  try {
    for (const kind of optionOf("--only", "hapax-memory,hapax-fsync").split(",")) {
      const directory = join(folder, kind);
      mkdirSync(directory);
      const server = await startServer(kind, directory);
      console.log(
        `\n${kind}: ${plan.records.toLocaleString("en-US")} records of 100 B, ${plan.rounds} rounds`,
      );
      for (const members of [1, 4, 16]) {
        const result = { kind, ...(await measure(server, members, plan)) };
        results.push(result);
        const rates = WAYS.map(
          (way) => `${way} ${Math.round(result[way]).toLocaleString("en-US")}`,
        );
        const ratios = `${result.ofPlain.toFixed(2)} × plain, ${result.ofLoose.toFixed(2)} × loose`;
        console.log(
          `  ${String(members).padStart(2)} members  ${rates.join(", ")} records/s: ${ratios}`,
        );
      }
      await server.stop();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  saveResults(`processing-${stampOf(new Date().toISOString())}`, { machine, plan, results });
});
