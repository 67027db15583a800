/**
 * The servers of the demo, each as a process of its own that is killed with SIGKILL and started again on
 * the same port and the same directory. Run as a script, this file is the reference server:
 *
 *   node scripts/demo-servers.mjs <port> <directory>
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isMain, root } from "./run.mjs";

/** What is started; every one prints a line when it accepts requests. */
const COMMANDS = {
  hapax: (port, directory) => [
    join(root, "dist", "bin.js"),
    "serve",
    "--port",
    String(port),
    "--dir",
    directory,
  ],
  reference: (port, directory) => [fileURLToPath(import.meta.url), String(port), directory],
};

const START_ATTEMPTS = 20;
const PAUSE_MS = 100;

/** Starts a server of a kind, `hapax` or `reference`, with its data in `directory`. */
export async function openServer(kind, directory) {
  const port = await freePort();
  const server = new KilledServer(COMMANDS[kind](port, directory), `http://127.0.0.1:${port}`);
  await server.start();
  return server;
}

/** A process that serves, with these arguments of Node and at this URL. */
export class KilledServer {
  url;
  kills = 0;
  #args;
  #options;
  #child;
  #isOver = false;
  #onExit = () => this.#child?.kill("SIGKILL");

  constructor(args, url, options = {}) {
    this.#args = args;
    this.url = url;
    this.#options = options;
    process.on("exit", this.#onExit);
  }

  /** The system may take a moment to give the port back. */
  async start() {
    let complaint = "";
    for (let attempt = 1; attempt <= START_ATTEMPTS && !this.#isOver; attempt += 1) {
      complaint = await this.#startOnce();
      if (complaint === "") return;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    if (!this.#isOver) throw new Error(`the server did not start\n${complaint}`);
  }

  /** `kill -9`, and the next life. */
  async killAndStart() {
    await this.kill();
    await this.start();
  }

  /** `kill -9`, until the next start. */
  async kill() {
    this.kills += 1;
    await this.#kill();
  }

  /** SIGSTOP or SIGCONT. */
  signal(name) {
    this.#child?.kill(name);
  }

  async close() {
    this.#isOver = true;
    process.off("exit", this.#onExit);
    await this.#kill();
  }

  async #startOnce() {
    const options = { ...this.#options, stdio: ["ignore", "pipe", "pipe"] };
    const child = spawn(process.execPath, this.#args, options);
    this.#child = child;
    let complaint = "";
    child.stderr.setEncoding("utf8").on("data", (text) => (complaint += text));
    const gone = once(child, "close").then(() => "gone");
    const isReady = (await Promise.race([saysListening(child.stdout), gone])) !== "gone";
    return isReady ? "" : complaint || "it said nothing";
  }

  async #kill() {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "close");
    child.kill("SIGKILL");
    await gone;
  }
}

/** Resolves at the line that says so; what comes before it (a recovery) and after it is read and dropped. */
function saysListening(output) {
  return new Promise((resolve) => {
    let text = "";
    output.setEncoding("utf8").on("data", (piece) => {
      text = text.slice(-100) + piece;
      if (text.includes("listening on")) resolve();
    });
  });
}

export async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

if (isMain(import.meta.url)) {
  const [port, dataDir] = process.argv.slice(2);
  const { DurableStreamTestServer } = await import("@durable-streams/server");
  const url = await new DurableStreamTestServer({ port: Number(port), dataDir }).start();
  console.log(`reference server listening on ${url}`);
}
