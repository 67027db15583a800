/** What the commands for a directory share: finding it, locking it, and a bar while it is read. */

import { stat } from "node:fs/promises";
import { resolve } from "node:path";

import { isHapaxError } from "../base/errors.ts";
import type { Disk } from "../streams/stores/file/disk.ts";
import { quote } from "./arguments.ts";
import type { Invocation, OptionSpec } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, systemCode, usageFailure } from "./failure.ts";

export const PROGRESS_OPTION: OptionSpec = {
  name: "progress",
  help: "show progress also without a terminal",
};

export const NO_LOCK_OPTION: OptionSpec = {
  name: "no-lock",
  help: "read it even if a server is using it; the result may mix two moments",
};

export interface OpenedDirectory {
  readonly path: string;
  readonly disk: Disk;
}

/** How the directory is held while a command runs. */
export type Hold = "read" | "write" | "none";

/** Runs with the directory locked, so that what is seen is one moment and not two. */
export async function withDirectory<T>(
  invocation: Invocation,
  hold: Hold,
  run: (directory: OpenedDirectory) => Promise<T>,
): Promise<T> {
  const given = invocation.positionals[0] ?? "";
  const path = resolve(given);
  // Loaded here: every other command starts faster without the file store.
  const { openNodeDisk } = await import("../streams/stores/file/node-disk.ts");
  const { lockDirectory, lockForReading } = await import("../streams/stores/file/lock.ts");
  const { asDirectoryError } = await import("../streams/stores/file/directory-error.ts");
  const disk = openNodeDisk(path, true);
  try {
    await requireStore(given, path, disk);
    const lock =
      hold === "none"
        ? undefined
        : await (hold === "write" ? lockDirectory(path) : lockForReading(path));
    try {
      return await run({ path, disk });
    } finally {
      await lock?.release();
    }
  } catch (error) {
    throw asFailure(asDirectoryError(error, path), invocation);
  }
}

async function requireStore(given: string, path: string, disk: Disk): Promise<void> {
  let isDirectory = false;
  try {
    isDirectory = (await stat(path)).isDirectory();
  } catch (error) {
    const code = systemCode(error);
    if (code === undefined) throw error;
    throw usageFailure(`cannot open ${quote(given)} (${code})`);
  }
  if (!isDirectory) throw usageFailure(`${quote(given)} is not a directory`);
  const names = await disk.list();
  if (names.includes("COPY")) {
    throw new CommandFailure(
      EXIT.refused,
      `a copy or a restore into ${quote(given)} is not finished`,
      ["run hapax copy or hapax restore again, or empty the directory"],
    );
  }
  if (!names.some((name) => /^((journal|snapshot|spare)-\d+\.(seg|snap|tmp)|STORE)$/.test(name))) {
    throw usageFailure(`no streams are kept in ${quote(given)}`, [
      "give the directory that the server uses (its --dir)",
    ]);
  }
}

function asFailure(error: unknown, invocation: Invocation): unknown {
  if (!isHapaxError(error)) return error;
  const advice = [error.help];
  if (error.code === "directory_locked" && !invocation.has("apply")) {
    advice.push("use --no-lock to read it anyway; the result may then mix two moments");
  }
  const problem = { code: error.code };
  return new CommandFailure(EXIT.refused, error.message, advice, problem, { cause: error });
}

/** Whether to lock; says on stderr what it means not to. */
export async function chooseHold(invocation: Invocation, context: Context): Promise<Hold> {
  if (!invocation.has("no-lock")) return "read";
  await context.stderr.write(
    "hapax: not locked: if a server is writing, the result may mix two moments\n",
  );
  return "none";
}

const TERMINAL_EVERY_MS = 100;
const PIPE_EVERY_MS = 2000;
const BAR_CELLS = 30;

export interface Bar {
  readonly show: (bytes: number, bytesTotal: number) => Promise<void>;
  readonly finish: () => Promise<void>;
}

/** A bar on stderr: for a person who watches, or as lines for who asked. */
export function createBar(invocation: Invocation, context: Context, verb: string): Bar {
  const { stderr } = context;
  const isShown = stderr.isTerminal || invocation.has("progress");
  const everyMs = stderr.isTerminal ? TERMINAL_EVERY_MS : PIPE_EVERY_MS;
  let shownMs = Number.NEGATIVE_INFINITY;
  let isOpen = false;
  return {
    async show(bytes, bytesTotal) {
      const isDue = context.nowMs() - shownMs >= everyMs || bytes === bytesTotal;
      if (!isShown || !isDue) return;
      shownMs = context.nowMs();
      const share = bytesTotal === 0 ? 1 : bytes / bytesTotal;
      const filled = Math.round(share * BAR_CELLS);
      const bar = `[${"#".repeat(filled)}${".".repeat(BAR_CELLS - filled)}]`;
      const percent = `${String(Math.floor(share * 100)).padStart(3)} %`;
      const line = `${verb} ${bar} ${percent} of ${formatBytes(bytesTotal)}`;
      isOpen = stderr.isTerminal;
      await stderr.write(isOpen ? `\r\u001b[K${line}` : `${line}\n`);
    },
    async finish() {
      if (isOpen) await stderr.write("\r\u001b[K");
      isOpen = false;
    },
  };
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? String(value) : value.toFixed(1)} ${units[unit] ?? "B"}`;
}

export function formatTime(timeMs: number | undefined): string {
  return timeMs === undefined ? "unknown" : new Date(timeMs).toISOString();
}
