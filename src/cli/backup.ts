/** `hapax backup`: a copy of all streams of a running server, as they are at one instant. */

import { mkdir, open, rename } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { isHapaxError } from "../base/errors.ts";
import { type BackupDocument, backupBytes } from "../streams/stores/backup/document.ts";
import { parseCountOption } from "./arguments.ts";
import { ServerSource } from "./backups/server-source.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { type Bar, createBar, formatBytes, PROGRESS_OPTION } from "./directory.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { countOf, printable } from "./terminal.ts";

const RATE_DEFAULT = 50_000_000;
const RATE_MIN = 200_000;

interface Made {
  readonly document: BackupDocument;
  /** Older backups that `--keep` has removed. */
  readonly removed: readonly string[];
}

async function runBackup(invocation: Invocation, context: Context): Promise<number> {
  const [to = ""] = invocation.positionals;
  const keep = keepOf(invocation, to);
  const ended = new AbortController();
  const forget = context.onSignal((signal) => {
    ended.abort(signal);
  });
  const bar = createBar(invocation, context, "backing up");
  try {
    const source = await ServerSource.begin(invocation, context, {
      ...ratesOf(invocation),
      signal: ended.signal,
    });
    const made = await makeInto(to, source, keep, context, bar).catch(async (error: unknown) => {
      // A courtesy: the server gives up what it holds after a minute by itself.
      if (!ended.signal.aborted) await source.end(false).catch(() => undefined);
      throw error;
    });
    await source.end(true);
    await bar.finish();
    const out = to === "-" ? context.stderr : context.stdout;
    await out.write(reportText(to, made, source.fetched, invocation.has("json")));
    return EXIT.done;
  } catch (error) {
    await bar.finish();
    if (!ended.signal.aborted) throw asBackupFailure(error);
    const code = ended.signal.reason === "SIGTERM" ? 143 : 130;
    throw new CommandFailure(code, "interrupted", [
      "earlier backups are as they were; run it again",
    ]);
  } finally {
    forget();
  }
}

/** A file or a stream has one backup. */
const isFolder = (to: string): boolean => to !== "-" && !to.endsWith(".tar");

function keepOf(invocation: Invocation, to: string): number | undefined {
  const given = invocation.value("keep");
  if (given === undefined) return undefined;
  if (!isFolder(to)) throw usageFailure("--keep is for a directory: a file has one backup");
  return parseCountOption("keep", given, { min: 1, max: 1_000_000, fallback: 1 });
}

function ratesOf(invocation: Invocation) {
  const seconds = { min: 0, max: 86_400, fallback: 60 };
  const rate = { min: 0, max: 1e12, fallback: RATE_DEFAULT };
  const bytesPerSecond = parseCountOption(
    "bytes-per-second",
    invocation.value("bytes-per-second"),
    rate,
  );
  if (bytesPerSecond > 0 && bytesPerSecond < RATE_MIN) {
    throw usageFailure(`--bytes-per-second is 0, or at least ${RATE_MIN}`, [
      "a backup without a request for a minute has ended, and a request takes up to a MiB",
    ]);
  }
  return {
    retrySeconds: parseCountOption("retry-seconds", invocation.value("retry-seconds"), seconds),
    bytesPerSecond,
  };
}

async function makeInto(
  to: string,
  source: ServerSource,
  keep: number | undefined,
  context: Context,
  bar: Bar,
): Promise<Made> {
  const { makeBackup } = await import("../streams/stores/backup/making.ts");
  if (isFolder(to)) return await makeIntoFolder(resolve(to), source, keep, bar);
  const { TarTarget } = await import("../streams/stores/backup/tar-target.ts");
  if (to === "-") {
    if (context.stdout.isTerminal) {
      throw usageFailure("a backup is not for a terminal", ["hapax backup - > backup.tar"]);
    }
    const target = new TarTarget((bytes) => context.stdout.write(bytes));
    return { document: await makeBackup(source, target, bar.show), removed: [] };
  }
  const path = resolve(to);
  const unfinished = `${path}.unfinished`;
  const file = await open(unfinished, "w", 0o600);
  let document: BackupDocument;
  try {
    const target = new TarTarget((bytes) => file.writeFile(bytes));
    document = await makeBackup(source, target, bar.show);
    await file.sync();
  } finally {
    await file.close();
  }
  // Under its name a file is whole: one that was there before is replaced by it, and never by a part.
  await rename(unfinished, path);
  await syncFolder(dirname(path));
  return { document, removed: [] };
}

async function makeIntoFolder(
  path: string,
  source: ServerSource,
  keep: number | undefined,
  bar: Bar,
): Promise<Made> {
  const { openNodeDisk } = await import("../streams/stores/file/node-disk.ts");
  const { lockDirectory } = await import("../streams/stores/file/lock.ts");
  const { BackupFolder, keepNewest } = await import("../streams/stores/backup/folder.ts");
  const { makeBackup } = await import("../streams/stores/backup/making.ts");
  await mkdir(path, { recursive: true, mode: 0o700 });
  const lock = await lockDirectory(path);
  try {
    const disk = openNodeDisk(path, true);
    const target = await BackupFolder.open(disk, source.plan.storeId);
    const document = await makeBackup(source, target, bar.show);
    const removed = keep === undefined ? [] : await keepNewest(disk, keep, document);
    return { document, removed };
  } finally {
    await lock.release();
  }
}

async function syncFolder(path: string): Promise<void> {
  // Windows syncs no directories.
  if (process.platform === "win32") return;
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function reportText(to: string, made: Made, fetched: number, isJson: boolean): string {
  const { document, removed } = made;
  const { takenAt, lsn, incarnation, storeId, segments, snapshots } = document;
  const bytes = backupBytes(document);
  if (isJson) {
    const counts = { segments: segments.length, snapshots: snapshots.length };
    const facts = { takenAt, lsn, storeId, incarnation, ...counts, bytes, fetched, removed };
    return `${JSON.stringify(facts)}\n`;
  }
  const files = `${countOf(segments.length, "segment")} and ${countOf(snapshots.length, "snapshot")}`;
  const older = removed.length === 0 ? "" : `; ${countOf(removed.length, "older backup")} removed`;
  return printable(
    `backed up all of ${takenAt}, LSN ${lsn}, to ${to}: ${files}, ${formatBytes(bytes)}, ${formatBytes(fetched)} fetched${older}`,
  ).concat("\n");
}

/** Errors of the file system and of the format say what to do. */
export function asBackupFailure(error: unknown): unknown {
  if (error instanceof CommandFailure || !isHapaxError(error)) return error;
  const { code, message, help } = error;
  return new CommandFailure(EXIT.refused, message, [help], { code }, { cause: error });
}

export const backupCommand: Command = {
  name: "backup",
  summary: "back up all streams of a running server, as they are at one instant",
  usage: ["hapax backup <directory | file.tar | -> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    {
      name: "keep",
      value: "count",
      help: "a directory: remove all but so many newest backups (default: keep all)",
    },
    {
      name: "bytes-per-second",
      value: "bytes",
      help: "read no faster than this; 0 is as fast as possible (default 50000000)",
    },
    {
      name: "retry-seconds",
      value: "seconds",
      help: "give up after this many seconds without an answer (default 60)",
    },
    PROGRESS_OPTION,
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Everything that the server had acknowledged at the instant of the backup is in it, and nothing of later. The server goes",
    "on as before, but gives no room back meanwhile. The token needs the right admin on the whole server.",
    "",
    "A directory takes many backups: the next one fetches only what is new since the last. A .tar, or - for standard output, has",
    "one. Every byte that arrives is checked. A backup that was killed counts for nothing, and changes no earlier one.",
    "",
    "The file SECRET of the server is not in backups: keep a copy of it apart. Streams in PostgreSQL are in the backups of the",
    "database. A server that is stopped: copy its directory.",
  ],
  examples: [
    ["every hour, for a week", "hapax backup /backups/hapax --keep 168"],
    [
      "encrypted, and off this machine",
      "hapax backup - | age -r age1… | ssh vault 'cat > hapax.tar.age'",
    ],
    ["put it back", "hapax restore /backups/hapax ./hapax-data"],
  ],
  run: runBackup,
};
