/**
 * Server processes that are started, killed and started again on one directory.
 *
 * The port is another one each time: a client asks for the address when it calls. A fixed port would let a
 * client that connects to it while no server listens be connected to itself.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Sizes of the journal, and how the server breaks its promise, if it does. */
export interface JournalOptions {
  readonly segmentBytes?: number;
  readonly snapshotBytes?: number;
  readonly cacheBytes?: number;
  readonly durability?: "fsync" | "os";
  readonly fault?: "acknowledges-early" | "forgets-producers" | "forgets-keys";
}

export interface StartOptions {
  readonly dir: string;
  /** Without it the real `hapax serve` is started. */
  readonly journal?: JournalOptions;
  /** Words before the command: `prlimit`, `strace`. They must replace themselves by the server. */
  readonly wrapper?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Called with the process at once, before it is ready. */
  readonly onSpawn?: (child: ChildProcess) => void;
}

export interface ServerProcess {
  readonly url: string;
  readonly child: ChildProcess;
  /** Settles with the exit code or the signal when the process has ended. */
  readonly ended: Promise<number | NodeJS.Signals>;
  /** Everything on standard error so far. */
  stderr(): string;
  /** SIGKILL, and resolves when the process is gone. */
  kill(): Promise<void>;
  /** SIGTERM: the orderly end. Resolves with the exit code. */
  stop(): Promise<number | NodeJS.Signals>;
  /** Asks the journal to write a snapshot and to give room back. */
  maintain(): Promise<Readonly<Record<string, unknown>>>;
}

const BIN = fileURLToPath(new URL("../../dist/bin.js", import.meta.url));
const SERVER = fileURLToPath(new URL("server.mjs", import.meta.url));

const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** Starts a server; rejects with what it said if it ends before it is ready. */
export function startServer(options: StartOptions): Promise<ServerProcess> {
  const { dir, journal, wrapper = [], env = {} } = options;
  const command =
    journal === undefined
      ? [process.execPath, BIN, "serve", "--port", "0", "--dir", dir]
      : [process.execPath, SERVER, JSON.stringify({ dir, ...journal })];
  const [program = "", ...args] = [...wrapper, ...command];
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    env: { ...process.env, NODE_ENV: "production", ...env },
  });
  running.add(child);
  options.onSpawn?.(child);
  let [out, errors] = ["", ""];
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errors += text;
  });
  const ended = new Promise<number | NodeJS.Signals>((resolve) => {
    child.once("close", (code, signal) => {
      running.delete(child);
      resolve(signal ?? code ?? -1);
    });
  });
  child.on("error", () => undefined); // `close` follows, and settles the promises.
  return new Promise((resolve, reject) => {
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      out += text;
      const url = /^hapax listening on (\S+) \(durability: \w+\)$/m.exec(out)?.[1];
      if (url !== undefined) resolve(handle(child, url, ended, () => errors));
    });
    void ended.then((how) => {
      reject(new Error(`the server ended with ${how} before it was ready: ${out}${errors}`));
    });
  });
}

function handle(
  child: ChildProcess,
  url: string,
  ended: Promise<number | NodeJS.Signals>,
  stderr: () => string,
): ServerProcess {
  return {
    url,
    child,
    ended,
    stderr,
    async kill() {
      child.kill("SIGKILL");
      await ended;
    },
    stop() {
      child.kill("SIGTERM");
      return ended;
    },
    maintain: () =>
      new Promise((resolve, reject) => {
        child.once("message", (message) => {
          resolve(message as Readonly<Record<string, unknown>>); // What server.mjs sends.
        });
        void ended.then(() => {
          reject(new Error("the server ended"));
        });
        child.send("maintain", (error) => {
          if (error !== null) reject(error);
        });
      }),
  };
}

/** Runs with a directory of its own, which is removed afterwards. */
export async function inDirectory<T>(run: (dir: string) => Promise<T>): Promise<T> {
  const dir = mkdtempSync(join(tmpdir(), "hapax-crash-"));
  try {
    return await run(dir);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Runs a program of the system to its end; whether it is there and succeeded. */
export function runTool(program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { stdio: "ignore" }).status === 0;
}
