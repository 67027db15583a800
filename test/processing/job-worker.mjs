/**
 * One worker of jobs, in a process of its own: `node job-worker.mjs <options as JSON>`. It reports each attempt as a line, and ends
 * in order at SIGTERM. See jobs-kills.test.ts.
 */

import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connectServer } from "../../dist/client/processing.js";

const { url, streams, to, leaseMs, slowMs } = JSON.parse(process.argv[2] ?? "{}");
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
process.on("disconnect", () => process.exit(3));

const worker = connectServer(url).jobs({
  from: { streams, leaseMs },
  group: "work",
  to,
  concurrency: 2,
  closeMs: 60_000,
  retry: { attemptsMax: 1000, pauseMs: 10, pauseMsMax: 100 },
  signal: stop.signal,
  each: async (record, { attempt }) => {
    writeSync(1, `${JSON.stringify({ begun: record.n, attempt })}\n`);
    await sleep(record.isSlow ? slowMs : 10);
    return record;
  },
});
await worker.run();
process.exit(0);
