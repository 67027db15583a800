/** The server on `fetch`, in Node, in Bun, in Deno and in workerd, each behind a real socket. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createFetchServer, fetchCourier } from "../../src/streams/runtimes/fetch.ts";
import { test } from "vitest";
import { bundle, programOf, requirePart } from "../client/runtimes-kit.ts";
import { listenWith } from "./fetch-listener.ts";

/** Cases of the extensions. One that vanishes must be seen. */
export const EXTENSION_CASES = 500;

export interface FetchHost {
  readonly url: string;
  stop(): Promise<void>;
}

const require = createRequire(import.meta.url);
const BUN = fileURLToPath(new URL("../protocol/fixtures/fetch-bun.ts", import.meta.url));
const DENO = new URL("../protocol/fixtures/fetch-deno.ts", import.meta.url);
const WORKER = new URL("../protocol/fixtures/fetch-worker.ts", import.meta.url);

/** Undefined: it is not installed for this machine. */
export function bunProgram(): string | undefined {
  return programOf(require.resolve("bun/package.json"), "bin/bun.exe", "bin/bun");
}

/** Undefined: it is not installed for this machine. */
export function denoProgram(): string | undefined {
  return programOf(require.resolve("deno/package.json"), "deno", "deno");
}

/** Undefined: it is not installed for this machine. */
export function workerdProgram(): string | undefined {
  return programOf(require.resolve("workerd/package.json"), "bin/workerd", "bin/workerd");
}

/** Says that a platform is missing, or fails where it could be had. */
export function skipWithout(name: string): void {
  const reason = `no ${name} of this platform is installed: not tested`;
  test(`the published suite on ${name}`, (context) => {
    requirePart(context, undefined, reason);
  });
}

/** Whether a suite is left to `npm run test:crash`: workerd has it in every run, on the same code. */
export function skipShort(name: string): boolean {
  if (process.env["HAPAX_LONG"] !== undefined) return false;
  test(`the published suite on fetch in ${name}`, (context) => {
    context.skip("it runs in npm run test:crash; in npm test workerd has it");
  });
  return true;
}

export async function startOnNode(longPollMs: number): Promise<FetchHost> {
  let answer: ReturnType<typeof createFetchServer>["fetch"] | undefined;
  const listener = await listenWith((request, from) => {
    if (answer === undefined) throw new Error("a request came before the server");
    return answer(request, from);
  });
  const server = createFetchServer({
    store: "memory",
    address: "127.0.0.1",
    publicUrl: listener.url,
    courier: fetchCourier(),
    longPollMs,
  });
  answer = server.fetch;
  return {
    url: listener.url,
    async stop() {
      await server.stop();
      await listener.stop();
    },
  };
}

export async function startOnBun(bun: string, longPollMs: number): Promise<FetchHost> {
  const child = spawn(bun, ["run", BUN, String(longPollMs)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [said] = (await once(child.stdout, "data")) as [Buffer];
  return { url: said.toString().trim(), stop: () => killed(child) };
}

export async function startOnDeno(deno: string, longPollMs: number): Promise<FetchHost> {
  const directory = mkdtempSync(join(tmpdir(), "hapax-deno-"));
  const program = join(directory, "server.mjs");
  writeFileSync(program, await bundle(DENO, { format: "es" }));
  const args = ["run", "--no-config", "--no-remote", "--allow-net", program, String(longPollMs)];
  const child = spawn(deno, args, {
    cwd: directory,
    env: { ...process.env, DENO_DIR: join(directory, "cache"), DENO_NO_UPDATE_CHECK: "1" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [said] = (await once(child.stdout, "data")) as [Buffer];
  return {
    url: said.toString().trim(),
    async stop() {
      await killed(child);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

export async function startOnWorkerd(workerd: string, longPollMs: number): Promise<FetchHost> {
  const directory = mkdtempSync(join(tmpdir(), "hapax-workerd-"));
  const port = await freePort();
  const url = `http://127.0.0.1:${String(port)}`;
  writeFileSync(join(directory, "worker.js"), await bundle(WORKER, { format: "es" }));
  writeFileSync(join(directory, "worker.capnp"), configOf(port, url, longPollMs));
  const args = ["serve", "--control-fd=3", "worker.capnp"];
  const child = spawn(workerd, args, {
    cwd: directory,
    stdio: ["ignore", "inherit", "inherit", "pipe"],
  });
  const control = child.stdio[3];
  if (control === null || control === undefined) throw new Error("workerd has no control pipe");
  await once(control, "data"); // It listens.
  return {
    url,
    async stop() {
      await killed(child);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function killed(child: ChildProcess): Promise<void> {
  child.kill("SIGKILL");
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

/** Webhooks name the port, so it must be known before. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

function configOf(port: number, url: string, longPollMs: number): string {
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (
      name = "server",
      worker = (
        modules = [(name = "worker.js", esModule = embed "worker.js")],
        compatibilityDate = "2026-01-01",
        compatibilityFlags = ["enable_request_signal", "request_signal_passthrough"],
        globalOutbound = "machine",
        durableObjectNamespaces = [(className = "Streams", uniqueKey = "streams")],
        durableObjectStorage = (inMemory = void),
        bindings = [
          (name = "STREAMS", durableObjectNamespace = "Streams"),
          (name = "PUBLIC_URL", text = "${url}"),
          (name = "LONG_POLL_MS", text = "${String(longPollMs)}"),
        ],
      ),
    ),
    (name = "machine", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${String(port)}", http = (), service = (name = "server", entrypoint = "entrypoint"))],
);
`;
}
