/** `hapax verify`: whether a directory is what was written. */

import type { StoreProblem, Verification } from "../streams/stores/file/verification.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import {
  type Bar,
  chooseHold,
  createBar,
  formatBytes,
  NO_LOCK_OPTION,
  type OpenedDirectory,
  PROGRESS_OPTION,
  withDirectory,
} from "./directory.ts";
import { EXIT } from "./failure.ts";
import { countOf, createPaint, printable } from "./terminal.ts";

async function runVerify(invocation: Invocation, context: Context): Promise<number> {
  const hold = await chooseHold(invocation, context);
  return withDirectory(invocation, hold, (directory) =>
    verifyAndPrint(directory, invocation, context),
  );
}

/** Prints each problem as it is found, then the result; answers the exit code. */
export async function verifyAndPrint(
  { disk }: OpenedDirectory,
  invocation: Invocation,
  context: Context,
): Promise<number> {
  const { verifyDisk } = await import("../streams/stores/file/verification.ts");
  const bar = createBar(invocation, context, "verifying");
  const result = await verifyDisk(disk, {
    onProgress: bar.show,
    onProblem: (problem) => printProblem(problem, invocation, context, bar),
  });
  await bar.finish();
  const isSound = result.problems === 0;
  if (invocation.has("json")) {
    await context.stdout.write(`${JSON.stringify({ isSound, ...result })}\n`);
  } else {
    await context.stdout.write(resultText(result, context));
  }
  return isSound ? EXIT.done : EXIT.refused;
}

async function printProblem(
  problem: StoreProblem,
  invocation: Invocation,
  context: Context,
  bar: Bar,
): Promise<void> {
  await bar.finish();
  const line = invocation.has("json") ? JSON.stringify({ problem }) : problemLine(problem, context);
  await context.stdout.write(`${line}\n`);
}

export function problemLine(problem: StoreProblem, context: Context): string {
  const { file, offset, lsn, what, meaning } = problem;
  const paint = createPaint(context.stdout, context.env);
  const where = `${file} offset ${offset}${lsn === undefined ? "" : ` LSN ${lsn}`}`;
  return printable(`${paint("red", "damaged:")} ${where}: ${what}; ${meaning}`);
}

function resultText(result: Verification, context: Context): string {
  const paint = createPaint(context.stdout, context.env);
  const journal = `${countOf(result.frames, "frame")} with ${countOf(result.records, "record")}`;
  const lines = [
    `${countOf(result.segments, "segment")}: ${journal}, ${formatBytes(result.bytes)} read`,
    `${countOf(result.snapshots, "snapshot")}: ${countOf(result.blocks, "block")}`,
    result.isIndexChecked
      ? `${countOf(result.streams, "stream")}: ${countOf(result.extents, "extent")} of data`
      : "streams: not checked, because the journal cannot be replayed",
  ];
  if (result.torn !== undefined) {
    const { file, position } = result.torn;
    lines.push(
      `torn end in ${file} at ${position}: a write that was cut short and never acknowledged; not damage`,
    );
  }
  if (result.refusal !== undefined) lines.push(`a server would not start: ${result.refusal}`);
  lines.push(
    result.problems === 0
      ? paint("green", "sound")
      : `${paint("red", `${countOf(result.problems, "problem")}`)}; see: hapax repair`,
  );
  return `${lines.join("\n")}\n`;
}

export const verifyCommand: Command = {
  name: "verify",
  summary: "check every checksum and every index entry of a directory",
  usage: ["hapax verify <directory> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [NO_LOCK_OPTION, PROGRESS_OPTION],
  details: [
    "Exit code 0: sound. 1: damaged; each problem is one line with its file, offset, LSN and consequence.",
    "A write that a kill has cut short at the end of the journal is not damage. The command changes nothing. --json prints",
    "one object a line.",
  ],
  examples: [
    ["is it sound?", "hapax verify ./hapax-data"],
    ["in a nightly job", "hapax verify ./backup --json --progress"],
  ],
  run: runVerify,
};
