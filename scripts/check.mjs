/** `npm run check`: everything that can be said about the code without running it. */

import { join } from "node:path";
import { buildIfNeeded, Failure, install, main } from "./prepare.mjs";
import { inParallel, isMain, run, seconds, tool } from "./run.mjs";

const NODE = process.execPath;

// The long ones first, so that two cores end together.
const STEPS = [
  { name: "types", command: tool("tsc"), args: ["-p", "tsconfig.json"] },
  { name: "lint", command: tool("oxlint"), args: ["--deny-warnings"] },
  { name: "planted faults", command: NODE, args: [join("scripts", "fault-list.mjs")] },
  { name: "unused code", command: tool("knip"), args: ["--no-progress", "--no-config-hints"] },
  { name: "package", command: tool("publint"), args: ["run", "--strict", "--pack", "npm"] },
  { name: "types of core", command: tool("tsc"), args: ["-p", "tsconfig.core.json"] },
  { name: "format", command: tool("oxfmt"), args: ["--check", "."] },
  { name: "tidy", command: NODE, args: [join("scripts", "tidy.mjs")] },
];

/** Runs all steps, two at a time, and throws after the last one if any failed. */
export async function check() {
  const results = await inParallel(STEPS, 2, async ({ name, command, args }) => {
    const { code, output, tookMs } = await run(command, args, { env: { NO_COLOR: "1" } });
    console.log(`${code === 0 ? "ok    " : "FAILED"}  ${name} (${seconds(tookMs)})`);
    if (code !== 0) console.log(output.trimEnd().replace(/^/gm, "        "));
    return code;
  });
  const failed = results.filter((code) => code !== 0).length;
  if (failed > 0) throw new Failure(`check: ${failed} of ${STEPS.length} steps failed`);
  console.log(`check: ${STEPS.length} steps passed`);
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await install();
    await buildIfNeeded();
    await check();
  });
}
