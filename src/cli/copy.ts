/** `hapax copy`: moves a store from a directory to a database, or back, and streams between servers and lines of JSON. */

import { resolve } from "node:path";
import type { CopyOptions, CopyPlaces } from "../streams/stores/copy/between.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { placeOf as streamsPlaceOf, runStreamsCopy } from "./copying/run.ts";
import { asDatabaseFailure, isDatabase, SCHEMA_OPTION, schemaOf } from "./database.ts";
import { createBar, formatBytes, PROGRESS_OPTION } from "./directory.ts";
import { type CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { countOf } from "./terminal.ts";

async function runCopy(invocation: Invocation, context: Context): Promise<number> {
  const [from = "", to = ""] = invocation.positionals;
  const [fromStreams, toStreams] = [streamsPlaceOf(from), streamsPlaceOf(to)];
  if (fromStreams !== undefined && toStreams !== undefined) {
    return await runStreamsCopy(invocation, context, fromStreams, toStreams);
  }
  if (fromStreams !== undefined || toStreams !== undefined) throw mixed();
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

function mixed(): CommandFailure {
  return usageFailure(
    "a directory or a database is copied as a whole store, to a database or a directory",
    [
      "to copy its streams to another server or to lines of JSON, start a server on it and give its URL",
    ],
  );
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
  summary: "copy streams between servers and files, or a store to PostgreSQL",
  usage: [
    "hapax copy <url of a stream or server> <url of a stream or server> [options]",
    "hapax copy <url of a stream or server> <file.jsonl | -> [options]",
    "hapax copy <file.jsonl> <url of a stream or server> [options]",
    "hapax copy <directory> <postgres url> [options]",
    "hapax copy <postgres url> <directory> [options]",
  ],
  positionalsMin: 2,
  positionalsMax: 2,
  options: [
    { name: "follow", help: "go on with what is appended to the source, until Ctrl-C or SIGTERM" },
    {
      name: "prefix",
      value: "prefix",
      help: "of a whole server: only streams that begin with this",
    },
    {
      name: "from-token-file",
      value: "path",
      help: "the token for the source, as --token-file; without it HAPAX_FROM_TOKEN",
    },
    {
      name: "to-token-file",
      value: "path",
      help: "the token for the target; without it HAPAX_TO_TOKEN",
    },
    {
      name: "retry-seconds",
      value: "seconds",
      help: "give up after this many seconds without an answer (default 60)",
    },
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
    "Streams: records, order, type, expiry, retention and the close are copied, each byte once. Run the command again after",
    "any crash: it goes on where the target is. At the end both sides are read and their SHA-256 compared. A target that",
    "has other data is refused. Ids of producers and keys are not copied. Appends arrive in larger pieces.",
    "A file has sections of lines: a head, a line for each record, an end with a digest (docs/guides/command-line.md).",
    "",
    "Stores: frames and snapshots are copied as they are: ids, offsets, producers and keys stay, and a retry after the move is",
    "a duplicate. Stop the server first: a store with a living owner is refused. The target must be empty, or have the same",
    "copy, interrupted: then it goes on. Before everything was compared with the source no server opens the target. The source",
    "is not changed. Put the password into PGPASSWORD.",
  ],
  examples: [
    [
      "one stream to another server",
      "hapax copy http://a:4437/v1/stream/orders http://b:4437/v1/stream/orders",
    ],
    [
      "all streams, and what is appended to them",
      "hapax copy http://a:4437 http://b:4437 --follow",
    ],
    ["a stream to a file, and back", "hapax copy http://a:4437/v1/stream/orders orders.jsonl"],
    ["a store to a database", "hapax copy /var/lib/hapax postgres://hapax@db-a,db-b/hapax"],
    ["and back", "hapax copy postgres://hapax@db-a,db-b/hapax ./hapax-data"],
  ],
  run: runCopy,
};
