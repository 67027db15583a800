/** `hapax restore`: puts a backup into a directory, and checks it in the same step. */

import { createReadStream } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { HapaxError } from "../base/errors.ts";
import { formatIncarnation } from "../base/incarnation.ts";
import type { KeptDocument } from "../streams/stores/backup/folder.ts";
import { type BackupDocument, backupBytes } from "../streams/stores/backup/document.ts";
import type { BackupReader, RestoreReport } from "../streams/stores/backup/restoring.ts";
import { quote } from "./arguments.ts";
import { asBackupFailure } from "./backup.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { asDatabaseFailure, requireDatabase, SCHEMA_OPTION, schemaOf } from "./database.ts";
import { createBar, formatBytes, PROGRESS_OPTION, withDirectory } from "./directory.ts";
import { EXIT, systemCode, usageFailure } from "./failure.ts";
import { countOf, createPaint, formatTable, printable } from "./terminal.ts";

const ACCEPT =
  "clients that know more than the backup get server_restored: docs/guides/backup-and-restore.md";

/** More than clocks of machines differ. */
const AHEAD_MS = 600_000;

async function runRestore(invocation: Invocation, context: Context): Promise<number> {
  const ways = ["list", "check", "in-place"].filter((name) => invocation.has(name));
  if (ways.length > 1) throw usageFailure(`--${ways[0] ?? ""} and --${ways[1] ?? ""}: give one`);
  try {
    if (invocation.has("in-place")) return await runInPlace(invocation, context);
    const [from = "", to] = invocation.positionals;
    if (from === "") throw usageFailure("restore needs a backup");
    if (invocation.has("list")) return await runList(from, invocation, context);
    if (invocation.has("check")) return await runCheck(from, invocation, context);
    if (to === undefined) throw usageFailure("restore needs a directory for the streams");
    return await runInto(from, resolve(to), invocation, context);
  } catch (error) {
    throw asBackupFailure(error);
  }
}

/** Opens what `from` names: a directory of backups, a file, or standard input. */
async function openBackup(
  from: string,
  invocation: Invocation,
  context: Context,
): Promise<BackupReader> {
  const { folderReader, tarReader } = await import("../streams/stores/backup/readers.ts");
  const named = invocation.value("backup");
  if (from !== "-" && (await isFolder(from))) {
    const { disk, kept } = await readFolder(from, context);
    const found =
      named === undefined ? kept[0] : kept.find(({ name }) => nameOf(name) === nameOf(named));
    if (found === undefined) {
      const words =
        named === undefined ? "there is no backup in" : `no backup ${quote(named)} is in`;
      throw usageFailure(`${words} ${quote(from)}`, ["see: hapax restore --list <directory>"]);
    }
    return folderReader(disk, found.document);
  }
  if (named !== undefined) throw usageFailure("--backup is for a directory: a file has one backup");
  return tarReader(from === "-" ? context.stdin.bytes : createReadStream(resolve(from)));
}

const nameOf = (name: string): string => name.replace(/\.json$/, "");

async function isFolder(from: string): Promise<boolean> {
  try {
    return (await stat(resolve(from))).isDirectory();
  } catch (error) {
    throw usageFailure(`cannot open ${quote(from)} (${systemCode(error) ?? "unknown"})`);
  }
}

async function readFolder(from: string, context: Context) {
  const { openNodeDisk } = await import("../streams/stores/file/node-disk.ts");
  const { listBackups } = await import("../streams/stores/backup/folder.ts");
  const disk = openNodeDisk(resolve(from), true);
  const damage: string[] = [];
  const kept = await listBackups(disk, ({ message }) => damage.push(message));
  for (const message of damage) await context.stderr.write(`hapax: left out: ${message}\n`);
  const ahead = kept.find(
    ({ document }) => Date.parse(document.takenAt) > context.nowMs() + AHEAD_MS,
  );
  if (ahead !== undefined) {
    const words = `${nameOf(ahead.name)} was taken after the present time: a clock is or was wrong`;
    await context.stderr.write(`hapax: ${words}. Compare the LSNs before you restore\n`);
  }
  return { disk, kept };
}

async function runList(from: string, invocation: Invocation, context: Context): Promise<number> {
  if (from === "-" || !(await isFolder(from))) throw usageFailure("--list is for a directory");
  const { kept } = await readFolder(from, context);
  if (invocation.has("json")) {
    for (const one of kept) await context.stdout.write(`${JSON.stringify(factsOf(one))}\n`);
    return EXIT.done;
  }
  const rows = kept.map((one) => {
    const { backup, takenAt, lsn, incarnation, bytes } = factsOf(one);
    return [backup, takenAt, String(lsn), incarnation, formatBytes(bytes)];
  });
  const paint = createPaint(context.stdout, context.env);
  const header = ["BACKUP", "TAKEN AT", "LSN", "INCARNATION", "SIZE"];
  await context.stdout.write(formatTable(header, rows, paint));
  return EXIT.done;
}

function factsOf({ name, document }: KeptDocument) {
  const { takenAt, lsn, incarnation, storeId } = document;
  return { backup: nameOf(name), takenAt, lsn, incarnation, storeId, bytes: backupBytes(document) };
}

async function runCheck(from: string, invocation: Invocation, context: Context): Promise<number> {
  const { checkBackup } = await import("../streams/stores/backup/restoring.ts");
  const reader = await openBackup(from, invocation, context);
  const bar = createBar(invocation, context, "checking");
  let document: BackupDocument;
  try {
    document = await checkBackup(reader, (bytes) => bar.show(bytes, bytes + 1));
  } finally {
    await bar.finish();
  }
  const { takenAt, lsn } = document;
  const bytes = backupBytes(document);
  const line = invocation.has("json")
    ? JSON.stringify({ isSound: true, takenAt, lsn, bytes })
    : `${formatBytes(bytes)} of ${takenAt}, LSN ${lsn}: every byte is what was backed up`;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}

async function runInto(
  from: string,
  path: string,
  invocation: Invocation,
  context: Context,
): Promise<number> {
  const { openNodeDisk } = await import("../streams/stores/file/node-disk.ts");
  const { lockDirectory } = await import("../streams/stores/file/lock.ts");
  const { restoreBackup } = await import("../streams/stores/backup/restoring.ts");
  const secret = await secretOf(invocation, context);
  const reader = await openBackup(from, invocation, context);
  await mkdir(path, { recursive: true, mode: 0o700 });
  const bar = createBar(invocation, context, "verifying");
  const lock = await lockDirectory(path);
  let report: RestoreReport;
  try {
    report = await restoreBackup(reader, openNodeDisk(path, true), secret, {
      onProgress: (step, bytes, total) =>
        step === "verifying" ? bar.show(bytes, total) : Promise.resolve(),
    });
  } finally {
    await bar.finish();
    await lock.release();
  }
  await context.stdout.write(restoredText(report, invocation.has("json")));
  return EXIT.done;
}

function restoredText(report: RestoreReport, isJson: boolean): string {
  if (isJson) return `${JSON.stringify({ isSound: true, ...report })}\n`;
  const { takenAt, lsn, bytes, streams, records, incarnation } = report;
  const lines = [
    `restored all of ${takenAt}, LSN ${lsn}: ${countOf(streams, "stream")}, ${countOf(records, "record")} of the journal, ${formatBytes(bytes)}`,
    "sound: every checksum, and every record against the index",
    `the server goes on as incarnation ${incarnation}; ${ACCEPT}`,
  ];
  return printable(lines.join("\n")).concat("\n");
}

/** The text of the file SECRET of the server that was backed up. */
async function secretOf(invocation: Invocation, context: Context): Promise<string | undefined> {
  const path = invocation.value("secret-file");
  if (path === undefined) return undefined;
  const secret = (await context.readSecretFile(path)).trim();
  if (/^[\da-f]{64}$/.test(secret)) return secret;
  throw usageFailure(`--secret-file ${quote(path)} is not the SECRET of a server`);
}

/** For data that was put back without this command: a snapshot of a disk, a copy, or a database. */
async function runInPlace(invocation: Invocation, context: Context): Promise<number> {
  const store = invocation.value("store");
  const isDirectory = invocation.positionals.length > 0;
  if (isDirectory === (store !== undefined)) {
    throw usageFailure("--in-place needs a directory, or --store with the URL of a database");
  }
  if (invocation.positionals.length > 1) throw usageFailure("--in-place needs one directory");
  const incarnation =
    store === undefined
      ? await withDirectory(invocation, "write", async ({ disk }) => {
          const { beginNext } = await import("../streams/stores/backup/restoring.ts");
          return beginNext(disk);
        })
      : await beginInDatabase(requireDatabase(store), invocation, context);
  const line = invocation.has("json")
    ? JSON.stringify({ incarnation })
    : `the server goes on as incarnation ${incarnation}; ${ACCEPT}`;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}

async function beginInDatabase(
  url: string,
  invocation: Invocation,
  context: Context,
): Promise<string> {
  const { openPostgresStore } = await import("../streams/stores/postgres.ts");
  const { beginIncarnation } = await import("../streams/stores/backup/incarnations.ts");
  const { systemClock: clock } = await import("../base/clock.ts");
  try {
    // The database decides what a commit promises: this is one commit of an operator.
    const store = await openPostgresStore(url, {
      schema: schemaOf(invocation),
      durability: "os",
      onWarning: (warning) => void context.stderr.write(`hapax: ${warning}\n`),
    });
    try {
      const commit = store.commit.bind(store);
      const { random } = context;
      return formatIncarnation(
        await beginIncarnation({ world: store.world, commit }, { clock, random }),
      );
    } finally {
      await store.close();
    }
  } catch (error) {
    throw error instanceof HapaxError ? error : asDatabaseFailure(error);
  }
}

export const restoreCommand: Command = {
  name: "restore",
  summary: "put a backup into a directory for a server, and check it",
  usage: [
    "hapax restore <backups | file.tar | -> <directory> [options]",
    "hapax restore --list <backups>",
    "hapax restore --check <backups | file.tar | -> [options]",
    "hapax restore --in-place <directory>",
    "hapax restore --in-place --store <url>",
  ],
  positionalsMin: 0,
  positionalsMax: 2,
  options: [
    { name: "list", help: "show the backups of a directory, newest first" },
    { name: "check", help: "compare every byte with what was backed up, and restore nothing" },
    { name: "backup", value: "name", help: "which one of the directory (default: the newest)" },
    {
      name: "secret-file",
      value: "path",
      help: "the SECRET of the server, which is not in backups: webhooks are signed with the old keys",
    },
    {
      name: "in-place",
      help: "the data was put back in another way: only let clients notice that it went back in time",
    },
    {
      name: "store",
      value: "url",
      help: "--in-place: streams in this PostgreSQL, while no server runs",
    },
    SCHEMA_OPTION,
    PROGRESS_OPTION,
  ],
  details: [
    "The directory must be new or empty, or have the same restore, interrupted. No server opens it before everything was checked: every",
    "byte against the backup, then everything against everything, as hapax verify does.",
    "",
    "The restored server is another incarnation. Readers with positions, members of groups, pipelines, relays and copies that know",
    "the server from before stop with server_restored, and do not skip or repeat in silence.",
  ],
  examples: [
    ["the newest backup", "hapax restore /backups/hapax ./hapax-data"],
    ["is it still whole?", "hapax restore --check /backups/hapax"],
    ["from a stream", "age -d hapax.tar.age | hapax restore - ./hapax-data"],
    ["after a disk was put back to a snapshot", "hapax restore --in-place ./hapax-data"],
  ],
  run: runRestore,
};
