// The client in Bun and in workerd: an append whose answer is lost is stored once, and read once.
import { type ChildProcess, spawn } from "node:child_process";
import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { type FaultProxy, openFaultProxy } from "../../src/testing/testing.ts";
import type { SmokeResult, SmokeWays } from "./fixtures/smoke.ts";
import { bundle, programOf, requirePart } from "./runtimes-kit.ts";

const require = createRequire(import.meta.url);
const BUN = new URL("./fixtures/bun.ts", import.meta.url);
const WORKER = new URL("./fixtures/worker.ts", import.meta.url);
const WORKER_CONFIG = new URL("./fixtures/worker.capnp", import.meta.url);
const PATH = "/v1/stream/s";
const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

/** A server, the way to it, and the way to it that loses every answer. */
async function openWays(): Promise<SmokeWays & { readonly proxy: FaultProxy }> {
  const server = await startNodeServer({ store: "memory", port: 0 });
  endings.push(() => server.stop());
  const proxy = await openFaultProxy(server.url, { seed: 1, dropAnswers: 1 });
  endings.push(() => proxy.close());
  return { url: server.url + PATH, losing: proxy.url + PATH, proxy };
}

/** A process that is killed at the end of the test; what it says on standard error is kept. */
function start(
  program: string,
  args: readonly string[],
  cwd?: string,
): [ChildProcess, () => string] {
  const stdio = ["ignore", "pipe", "pipe", "pipe"] as const;
  const child = spawn(program, args, { stdio: [...stdio], ...(cwd === undefined ? {} : { cwd }) });
  const closed = new Promise((resolve) => child.once("close", resolve));
  endings.push(() => {
    child.kill("SIGKILL");
    return closed;
  });
  let errors = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => (errors += text));
  return [child, () => errors];
}

function expectOnce(result: SmokeResult, proxy: FaultProxy, stored: unknown): void {
  expect(result).toEqual({
    repetitions: [true, false],
    read: [{ id: 1 }, { id: 2 }],
    followed: [{ id: 1 }, { id: 2 }, { id: 3 }],
  });
  expect(proxy.droppedAnswers).toBeGreaterThan(0);
  expect(stored).toEqual([{ id: 1 }, { id: 2 }, { id: 3 }]);
}

async function storedAt(url: string): Promise<unknown> {
  return (await fetch(`${url}?offset=-1`)).json();
}

test("in Bun an append whose answer is lost is stored once and read once", async (context) => {
  const program = programOf(require.resolve("bun/package.json"), "bin/bun.exe", "bin/bun");
  const bun = requirePart(context, program, "no bun of this platform is installed: not tested");
  const { url, losing, proxy } = await openWays();
  const [child, errors] = start(bun, ["run", fileURLToPath(BUN), url, losing]);
  let output = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => (output += text));
  const code = await new Promise((resolve) => child.once("close", resolve));
  expect([code, errors()]).toEqual([0, ""]);
  expectOnce(JSON.parse(output) as SmokeResult, proxy, await storedAt(url));
});

/** Until workerd says on which port it listens. */
async function portOf(child: ChildProcess, errors: () => string): Promise<number> {
  let said = "";
  for await (const text of (child.stdio[3] as Readable).setEncoding("utf8")) {
    said += String(text);
    const match = /"event":"listen".*"port":(\d+)/.exec(said);
    if (match !== null) return Number(match[1]);
  }
  throw new Error(`workerd has ended: ${errors()}`);
}

test("in workerd, without Node's modules, an append whose answer is lost is stored once and read once", async (context) => {
  const manifest = require.resolve("workerd/package.json");
  const program = programOf(manifest, "bin/workerd", "bin/workerd");
  const reason = "no workerd of this platform is installed: not tested";
  const workerd = requirePart(context, program, reason);
  const directory = await mkdtemp(join(tmpdir(), "hapax-workerd-"));
  endings.push(() => rm(directory, { recursive: true, force: true }));
  await writeFile(join(directory, "worker.js"), await bundle(WORKER, { format: "es" }));
  await copyFile(WORKER_CONFIG, join(directory, "worker.capnp"));
  const args = ["serve", "--control-fd=3", "worker.capnp"];
  const [child, errors] = start(workerd, args, directory);
  const port = await portOf(child, errors);
  const { url, losing, proxy } = await openWays();
  const query = new URLSearchParams({ url, losing });
  const answer = await fetch(`http://127.0.0.1:${String(port)}/?${query.toString()}`);
  const text = await answer.text();
  expect(answer.status, text).toBe(200);
  expectOnce(JSON.parse(text) as SmokeResult, proxy, await storedAt(url));
  expect(errors()).toBe("");
});
