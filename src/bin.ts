#!/usr/bin/env node
/** The program `hapax`: the real world for `cli/`, and nothing else. */

import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline/promises";
import { setTimeout as delay } from "node:timers/promises";

import type { Context, Output, StopSignal } from "./cli/context.ts";
import { CommandFailure, EXIT, systemCode } from "./cli/failure.ts";
import { runCommandLine } from "./cli/run.ts";
import { systemRandom } from "./base/random.ts";

function createOutput(stream: NodeJS.WriteStream, isEssential: boolean): Output {
  // Each write reports its own failure; without a listener Node would end the process with a trace.
  stream.on("error", () => {});
  return {
    isTerminal: stream.isTTY === true,
    write: (chunk) =>
      new Promise((resolve, reject) => {
        stream.write(chunk, (error) => {
          // A server goes on serving when the reader of its stderr has gone.
          if (error instanceof Error && isEssential) reject(error);
          else resolve();
        });
      }),
  };
}

async function* openFile(path: string): AsyncGenerator<Uint8Array> {
  try {
    yield* createReadStream(path, { highWaterMark: 256 * 1024 });
  } catch (error) {
    const code = systemCode(error);
    if (code === undefined) throw error;
    const message = `cannot read ${JSON.stringify(path)} (${code})`;
    throw new CommandFailure(EXIT.usage, message, [], { code }, { cause: error });
  }
}

async function ask(question: string): Promise<string> {
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await prompt.question(question);
  } finally {
    prompt.close();
  }
}

function onSignal(listener: (signal: StopSignal) => void): () => void {
  process.on("SIGINT", listener);
  process.on("SIGTERM", listener);
  return () => {
    process.off("SIGINT", listener);
    process.off("SIGTERM", listener);
  };
}

/** On Windows SIGHUP means that the console was closed, and the system ends the process. */
function onReload(listener: () => void): () => void {
  if (process.platform === "win32") return () => undefined;
  process.on("SIGHUP", listener);
  return () => process.off("SIGHUP", listener);
}

async function version(): Promise<string> {
  const text = await readFile(new URL("../package.json", import.meta.url), "utf8");
  const manifest: unknown = JSON.parse(text);
  const fields = new Map<string, unknown>(Object.entries(manifest ?? {}));
  return String(fields.get("version"));
}

const context: Context = {
  stdin: { isTerminal: process.stdin.isTTY === true, bytes: process.stdin },
  stdout: createOutput(process.stdout, true),
  stderr: createOutput(process.stderr, false),
  env: process.env,
  fetch: globalThis.fetch,
  random: systemRandom,
  nowMs: () => Date.now(),
  wait: (delayMs, signal) => delay(delayMs, undefined, signal === undefined ? {} : { signal }),
  openFile,
  readSecretFile: async (path) =>
    (await import("./streams/runtimes/node-secret-file.ts")).readSecretFile(path),
  // Loaded only by `tokens`.
  keyFiles: {
    read: async (path) => (await import("./streams/runtimes/node-key-file.ts")).readKeyFile(path),
    change: async (path, decide) =>
      (await import("./streams/runtimes/node-key-file.ts")).changeKeyFile(path, decide),
  },
  ask,
  onSignal,
  onReload,
  exitNow: (code) => process.exit(code),
  version,
  // Loaded only by `serve`: every other command starts faster without the server.
  startServer: async (options, listeners) =>
    (await import("./streams/runtimes/node-serve.ts")).serveAny({
      ...options,
      ...listeners,
      version: await version(),
    }),
};

// Every write was awaited, so nothing is lost; and an open pipe on stdin must not keep us here.
process.exit(await runCommandLine(process.argv.slice(2), context));
