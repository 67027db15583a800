/**
 * `npm run test:crash`: the crash tests at full length. 500 cycles of kill -9, a kill at every system call,
 * 10,000 power cuts, a power cut at every call of the start after every kill, every torn byte, every flipped bit; races and
 * storms of a thousand seeds. Without arguments, also every test but the heavy ones on the other lines of Node.
 * Takes the better part of an hour.
 */

import { buildIfNeeded, install, main } from "./prepare.mjs";
import { run, tool } from "./run.mjs";
import { testLines } from "./test-lines.mjs";

const FILES = [
  "test/power-cut",
  "test/start-cuts",
  "test/torn",
  "test/bit-flips",
  "test/io-errors",
  "test/storms",
  "test/races",
  "test/client/writes-storms",
  "test/processing/jobs-kills",
  "test/client/reads-storms",
  "src/streams/stores/file/verification",
  "src/streams/stores/backup",
  "test/protocol/conformance-bun",
  "test/protocol/conformance-deno",
  "test/protocol/conformance-fetch",
  "test/protocol/conformance-hono",
  "test/protocol/conformance-next",
  "test/protocol/extensions-fetch",
  "test/workers",
  "src/toolkit/rules/saga",
  "test/ledgers/redis-conformance",
  "test/objects",
  "test/window",
  "test/postgres",
  "test/cluster",
  "test/heavy",
];

await main(async () => {
  await install();
  await buildIfNeeded();
  const { code } = await run(tool("vitest"), ["run", ...FILES, ...process.argv.slice(2)], {
    env: { HAPAX_LONG: "1", HAPAX_CRASH_CYCLES: "500" },
    show: true,
  });
  process.exitCode = code;
  if (process.argv.length > 2) return;
  const { lines, problems } = await testLines(true);
  for (const line of [...lines, ...problems]) console.log(line);
  if (problems.length > 0) process.exitCode = 1;
});
