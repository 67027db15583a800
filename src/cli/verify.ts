/** `hapax verify`: whether a directory or a database is what was written. */

import type { StoreProblem } from "../streams/stores/journal/problem.ts";
import type { Verification, VerificationEvents } from "../streams/stores/journal/verification.ts";
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
import { asDatabaseFailure, requireDatabase, SCHEMA_OPTION, schemaOf } from "./database.ts";
import { EXIT, usageFailure } from "./failure.ts";
import { countOf, createPaint, printable } from "./terminal.ts";

async function runVerify(invocation: Invocation, context: Context): Promise<number> {
  const isDirectory = invocation.positionals.length > 0;
  const store = invocation.value("store") ?? (isDirectory ? undefined : context.env["HAPAX_STORE"]);
  if (isDirectory === (store !== undefined)) {
    throw usageFailure("give a directory, or --store with the URL of a database");
  }
  if (store !== undefined) return runOnDatabase(requireDatabase(store), invocation, context);
  const hold = await chooseHold(invocation, context);
  return withDirectory(invocation, hold, (directory) =>
    verifyAndPrint(directory, invocation, context),
  );
}

/** In one transaction that may not write: a server that uses the database goes on. */
async function runOnDatabase(
  url: string,
  invocation: Invocation,
  context: Context,
): Promise<number> {
  const { openOneConnection } = await import("../streams/stores/postgres/hosts.ts");
  const { quoteSchema } = await import("../streams/stores/postgres/schema.ts");
  const { verifyTables } = await import("../streams/stores/postgres/verification.ts");
  try {
    const schema = quoteSchema(schemaOf(invocation));
    const session = await openOneConnection(url);
    try {
      const advice = "see: docs/guides/postgres-store.md";
      const verify = (events: VerificationEvents) => verifyTables(session, schema, events);
      return await printVerification(verify, advice, invocation, context);
    } finally {
      await session.close().catch(() => undefined);
    }
  } catch (error) {
    throw asDatabaseFailure(error);
  }
}

export async function verifyAndPrint(
  { disk }: OpenedDirectory,
  invocation: Invocation,
  context: Context,
): Promise<number> {
  const { verifyDisk } = await import("../streams/stores/file/verification.ts");
  const verify = (events: VerificationEvents) => verifyDisk(disk, events);
  return printVerification(verify, "see: hapax repair", invocation, context);
}

/** Prints each problem as it is found, then the result; answers the exit code. */
async function printVerification(
  verify: (events: VerificationEvents) => Promise<Verification>,
  advice: string,
  invocation: Invocation,
  context: Context,
): Promise<number> {
  const bar = createBar(invocation, context, "verifying");
  const result = await verify({
    onProgress: bar.show,
    onProblem: (problem) => printProblem(problem, invocation, context, bar),
  });
  await bar.finish();
  const isSound = result.problems === 0;
  if (invocation.has("json")) {
    await context.stdout.write(`${JSON.stringify({ isSound, ...result })}\n`);
  } else {
    await context.stdout.write(resultText(result, advice, context));
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

function resultText(result: Verification, advice: string, context: Context): string {
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
      : `${paint("red", `${countOf(result.problems, "problem")}`)}; ${advice}`,
  );
  return `${lines.join("\n")}\n`;
}

export const verifyCommand: Command = {
  name: "verify",
  summary: "check every checksum and every index entry of a directory or a database",
  usage: ["hapax verify <directory> [options]", "hapax verify --store <url> [options]"],
  positionalsMin: 0,
  positionalsMax: 1,
  options: [
    {
      name: "store",
      value: "url",
      help: "streams in this PostgreSQL (postgres://user@host,host/database); without a directory also HAPAX_STORE",
    },
    SCHEMA_OPTION,
    NO_LOCK_OPTION,
    PROGRESS_OPTION,
  ],
  details: [
    "Exit code 0: sound. 1: damaged; each problem is one line with its file, offset, LSN and consequence.",
    "A write that a kill has cut short at the end of the journal is not damage. The command changes nothing. --json prints",
    "one object a line.",
    "With --store everything is read in one transaction that may not write, while servers go on; a standby will do.",
  ],
  examples: [
    ["is it sound?", "hapax verify ./hapax-data"],
    ["in a nightly job", "hapax verify ./backup --json --progress"],
    ["streams in PostgreSQL", "hapax verify --store postgres://hapax@db-b/hapax"],
  ],
  run: runVerify,
};
