/** `hapax copy`: moves a store from a directory to a database, or back. */

import { resolve } from "node:path";
import type { CopyOptions, CopyPlaces } from "../streams/stores/copy/between.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { asDatabaseFailure, isDatabase, SCHEMA_OPTION, schemaOf } from "./database.ts";
import { createBar, formatBytes, PROGRESS_OPTION } from "./directory.ts";
import { EXIT, usageFailure } from "./failure.ts";
import { countOf } from "./terminal.ts";

async function runCopy(invocation: Invocation, context: Context): Promise<number> {
  const [from = "", to = ""] = invocation.positionals;
  const places: CopyPlaces = { from: placeOf(from), to: placeOf(to) };
  const copying = createBar(invocation, context, "copying");
  const comparing = createBar(invocation, context, "comparing");
  const options: CopyOptions = {
    schema: schemaOf(invocation),
    durability: choiceOf(invocation, "durability", ["replicated", "fsync", "os"]),
    replication: choiceOf(invocation, "replication", ["standby", "storage"]),
    onWarning: (warning) => void context.stderr.write(`hapax: ${warning}\n`),
    onProgress: (step, bytes, total) => {
      return step === "copying" ? copying.show(bytes, total) : comparing.show(bytes, total);
    },
  };
  try {
    const { copyBetween } = await import("../streams/stores/copy/between.ts");
    const report = await copyBetween(places, options);
    await comparing.finish();
    await context.stdout.write(
      invocation.has("json")
        ? `${JSON.stringify(report)}\n`
        : `${countOf(report.segments, "segment")} with ${countOf(report.frames, "frame")} and ${countOf(report.snapshots, "snapshot")}, ${formatBytes(report.bytes)}, equal on both sides: SHA-256 ${report.digest}\n` +
            `the store ${report.storeId} goes on as incarnation ${report.incarnation}; start no server on the old place any more\n`,
    );
    return EXIT.done;
  } catch (error) {
    await comparing.finish();
    throw asDatabaseFailure(error);
  }
}

function placeOf(given: string): string {
  return isDatabase(given) ? given : resolve(given.replace(/^file:(\/\/(?=\/))?/, ""));
}

function choiceOf<const Choice extends string>(
  invocation: Invocation,
  name: string,
  choices: readonly [Choice, ...Choice[]],
): Choice {
  const given = invocation.value(name);
  const found = given === undefined ? choices[0] : choices.find((choice) => choice === given);
  if (found === undefined) throw usageFailure(`--${name} must be ${choices.join(" or ")}`);
  return found;
}

export const copyCommand: Command = {
  name: "copy",
  summary: "move streams from a directory to PostgreSQL, or back",
  usage: ["hapax copy <directory> <url> [options]", "hapax copy <url> <directory> [options]"],
  positionalsMin: 2,
  positionalsMax: 2,
  options: [
    SCHEMA_OPTION,
    {
      name: "durability",
      value: "replicated|fsync|os",
      help: "what the target database must promise (default replicated)",
    },
    {
      name: "replication",
      value: "standby|storage",
      help: "storage if the disks below PostgreSQL are replicated (default standby)",
    },
    PROGRESS_OPTION,
  ],
  details: [
    "Frames and snapshots are copied as they are: ids, offsets, producers and keys stay, and a retry after the move is a duplicate.",
    "Stop the server first: a store with a living owner is refused. The target must be empty, or have the same copy, interrupted:",
    "then it goes on. Before everything was compared with the source no server opens the target. The source is not changed.",
    "Put the password into PGPASSWORD.",
  ],
  examples: [
    ["to a database", "hapax copy /var/lib/hapax postgres://hapax@db-a,db-b/hapax"],
    ["and back", "hapax copy postgres://hapax@db-a,db-b/hapax ./hapax-data"],
  ],
  run: runCopy,
};
