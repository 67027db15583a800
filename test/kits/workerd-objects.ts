/**
 * Durable Objects in a real workerd, on a directory of its own. A test reaches each object by its class and name, and can take it
 * away in every way that the platform has: evict, abort, abort all, SIGKILL and a start on the same directory.
 *
 * The module of the test exports its classes by name. If it also exports `entrypoint`, that serves requests which are not for the
 * kit: it is the Worker in front. Objects get the texts of the test in their environment.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";
import { workerdProgram } from "./fetch-hosts.ts";

/** What `startObjects` serves. */
export interface ObjectsOptions {
  /** The module with the classes. */
  readonly source: URL;
  /** The names of its classes. Each is a binding of the same name. */
  readonly classes: readonly string[];
  /** Texts for the environment. */
  readonly texts?: Readonly<Record<string, string>>;
  /** Compatibility flags beside those of the kit. */
  readonly flags?: readonly string[];
  readonly compatibilityDate?: string;
  /** The port of `127.0.0.1`, for objects that must know it. Default: any. */
  readonly port?: number;
}

/** One object. */
export interface TestObject {
  /** Calls the `fetch` of the object. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  /** As `fetch`, and throws unless the answer is 200. Returns its JSON. */
  json<T>(path: string, body?: unknown): Promise<T>;
  /** Waits until the object is idle, and removes it from memory. Its storage and, unless `webSockets` is `close`, its sockets stay. */
  evict(options?: { readonly webSockets?: "hibernate" | "close" }): Promise<void>;
  /** Ends the object at once, in the middle of its work: `ctx.abort()`. What is not durable is gone. */
  abort(): Promise<void>;
}

/** A workerd with objects. */
export interface ObjectsHost {
  /** The same after every restart. */
  readonly url: string;
  /** What workerd has said on its error output. */
  readonly said: () => string;
  object(className: string, name: string): TestObject;
  evictAll(): Promise<void>;
  abortAll(): Promise<void>;
  /** SIGKILL. Requests that have no answer yet fail. */
  kill(): Promise<void>;
  /** Starts again on the same directory. */
  start(): Promise<void>;
  /** `kill`, then `start`. */
  restart(): Promise<void>;
  /** Ends it, and removes its directory. */
  stop(): Promise<void>;
}

/** Why no objects can be tested on this machine; undefined: they can. */
export function whyNoWorkerd(): string | undefined {
  return workerdProgram() === undefined
    ? "no workerd of this platform is installed: not tested"
    : undefined;
}

/** Bundles the module and starts workerd with its classes. */
export async function startObjects(options: ObjectsOptions): Promise<ObjectsHost> {
  const workerd = workerdProgram();
  if (workerd === undefined) throw new Error(whyNoWorkerd());
  const directory = mkdtempSync(join(tmpdir(), "hapax-objects-"));
  mkdirSync(join(directory, "storage"));
  writeFileSync(join(directory, "worker.mjs"), await bundleWorker(options.source));
  writeFileSync(join(directory, "main.mjs"), mainOf(options));
  writeFileSync(join(directory, "config.capnp"), configOf(options));
  const host = new Host(workerd, directory, options.port);
  await host.start();
  return host;
}

/** Everything in one text but for what workerd has itself. */
export async function bundleWorker(source: URL): Promise<string> {
  const build = await rolldown({
    input: fileURLToPath(source),
    platform: "neutral",
    external: [/^node:/, /^cloudflare:/, /^workerd:/],
    logLevel: "silent",
  });
  try {
    const { output } = await build.generate({ format: "es", codeSplitting: false });
    return output[0].code;
  } finally {
    await build.close();
  }
}

class Host implements ObjectsHost {
  readonly #workerd: string;
  readonly #directory: string;
  #child: ChildProcess | undefined;
  #port: number;
  #said = "";

  constructor(workerd: string, directory: string, port = 0) {
    this.#workerd = workerd;
    this.#directory = directory;
    this.#port = port;
  }

  get url(): string {
    return `http://127.0.0.1:${String(this.#port)}`;
  }

  said = (): string => this.#said;

  async start(): Promise<void> {
    const args = ["serve", "config.capnp", "--experimental", "--control-fd=3"];
    args.push(`--directory-path=do-disk=${join(this.#directory, "storage")}`);
    args.push(`--socket-addr=http=127.0.0.1:${String(this.#port)}`);
    const child = spawn(this.#workerd, args, {
      cwd: this.#directory,
      stdio: ["ignore", "pipe", "pipe", "pipe"],
    });
    this.#child = child;
    for (const output of [child.stdout, child.stderr])
      output?.on("data", (chunk: Buffer) => (this.#said += chunk.toString()));
    const control = child.stdio[3];
    if (control === null || control === undefined) throw new Error("workerd has no control pipe");
    const listening = once(control, "data") as Promise<[Buffer]>;
    const ended = once(child, "exit").then(() => {
      throw new Error(`workerd has ended: ${this.#said}`);
    });
    const [line] = await Promise.race([listening, ended]);
    ended.catch(() => undefined); // From here on its end is the test's.
    this.#port = (JSON.parse(line.toString().split("\n")[0] ?? "") as { port: number }).port;
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const isOver = child.exitCode !== null || child.signalCode !== null;
    const exit = isOver ? undefined : once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  evictAll(): Promise<void> {
    return this.#act("evictAll");
  }

  abortAll(): Promise<void> {
    return this.#act("abortAll");
  }

  object(className: string, name: string): TestObject {
    const query = `class=${className}&name=${encodeURIComponent(name)}`;
    const call = (path: string, init?: RequestInit): Promise<Response> =>
      fetch(`${this.url}/_kit/object?${query}&path=${encodeURIComponent(path)}`, init);
    return {
      fetch: call,
      async json<T>(path: string, body?: unknown): Promise<T> {
        const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
        const answer = await call(path, init);
        const text = await answer.text();
        if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${text}`);
        return JSON.parse(text) as T;
      },
      evict: ({ webSockets = "hibernate" } = {}) =>
        this.#act(`evict&${query}&webSockets=${webSockets}`),
      abort: () => this.#act(`abort&${query}`),
    };
  }

  async #act(what: string): Promise<void> {
    const answer = await fetch(`${this.url}/_kit/act?what=${what}`, { method: "POST" });
    if (answer.status !== 200) throw new Error(`${what}: ${await answer.text()}`);
    await answer.body?.cancel();
  }
}

/** The module that workerd starts with: it takes the calls of the kit, and hands the rest to the test's own entrypoint. */
function mainOf({ classes }: ObjectsOptions): string {
  return `import unsafe from "workerd:unsafe";
import * as worker from "worker.mjs";

const aborting = (Base) =>
  class extends Base {
    #ctx;
    constructor(ctx, env) {
      super(ctx, env);
      this.#ctx = ctx;
    }
    async fetch(request) {
      if (request.headers.has("kit-abort")) this.#ctx.abort("the kit aborts the object");
      return super.fetch(request);
    }
  };
${classes.map((name) => `export const ${name} = aborting(worker.${name});`).join("\n")}

function stubOf(url, env) {
  const namespace = env[url.searchParams.get("class")];
  return namespace.get(namespace.idFromName(url.searchParams.get("name")));
}

async function act(url, env) {
  const what = url.searchParams.get("what");
  if (what === "evictAll") await unsafe.evictAllDurableObjects();
  if (what === "abortAll") await unsafe.abortAllDurableObjects();
  if (what === "evict") {
    const evicted = unsafe.evict(stubOf(url, env), { webSockets: url.searchParams.get("webSockets") });
    // After ten idle seconds, as on a busy machine, the platform has done it already.
    await evicted.catch((error) => { if (!String(error).includes("not currently running")) throw error; });
  }
  if (what === "abort") {
    const call = stubOf(url, env).fetch("http://object/", { headers: { "kit-abort": "1" } });
    await call.then(
      () => { throw new Error("the object was not aborted"); },
      (error) => { if (!String(error).includes("the kit aborts")) throw error; },
    );
  }
  return new Response("done");
}

export default {
  async fetch(request, env, ctx) {
    const url = new URL(request.url);
    try {
      if (url.pathname === "/_kit/act") return await act(url, env);
      if (url.pathname === "/_kit/object") {
        const path = new URL(url.searchParams.get("path"), "http://object");
        return await stubOf(url, env).fetch(new Request(path, request));
      }
    } catch (error) {
      return new Response(String(error?.stack ?? error), { status: 599 });
    }
    return worker.entrypoint.fetch(request, env, ctx);
  },
};
`;
}

function configOf({ classes, texts = {}, flags = [], compatibilityDate }: ObjectsOptions): string {
  const bindings = [
    ...classes.map((name) => `(name = "${name}", durableObjectNamespace = "${name}")`),
    ...Object.entries(texts).map(([name, text]) => `(name = "${name}", text = ${quoted(text)})`),
  ];
  const namespaces = classes.map(
    (name) => `(className = "${name}", uniqueKey = "hapax-${name}", enableSql = true)`,
  );
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "do-disk", disk = (writable = true)),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [
    (name = "main.mjs", esModule = embed "main.mjs"),
    (name = "worker.mjs", esModule = embed "worker.mjs"),
  ],
  compatibilityDate = "${compatibilityDate ?? "2026-10-01"}",
  compatibilityFlags = [${["unsafe_module", "experimental", ...flags].map(quoted).join(", ")}],
  bindings = [${bindings.join(", ")}],
  durableObjectNamespaces = [${namespaces.join(", ")}],
  durableObjectStorage = (localDisk = "do-disk"),
);
`;
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

/** An object that waits for the test. The call lets it go on; `fetch` of the object returns the answer. */
export interface Stop {
  (answer?: string): void;
  /** What the object has said behind the `?` of the address. */
  readonly said: string;
}

/** A place where objects tell the test that they are somewhere, and wait there until it lets them go on. */
export interface Stops {
  /** For the object: it fetches this address and its words, and waits for the answer. */
  readonly url: string;
  /** Resolves when an object has come with these words. */
  reached(words: string): Promise<Stop>;
  /** How often objects came with these words. */
  count(words: string): number;
  stop(): Promise<void>;
}

/** Opens a place to stop at. Objects need not wait where the words begin with `tell`. */
export async function startStops(): Promise<Stops> {
  const waiting = new Map<string, (stop: Stop) => void>();
  const early = new Map<string, Stop[]>();
  const counts = new Map<string, number>();
  const server = createServer((request, response) => {
    const { pathname, search } = new URL(request.url ?? "/", "http://test");
    const words = decodeURIComponent(pathname.slice(1));
    counts.set(words, (counts.get(words) ?? 0) + 1);
    if (words.startsWith("tell")) {
      response.end("told");
      return;
    }
    const go = (answer = "go on"): void => void response.end(answer);
    const stop: Stop = Object.assign(go, { said: decodeURIComponent(search.slice(1)) });
    const tell = waiting.get(words);
    waiting.delete(words);
    if (tell !== undefined) tell(stop);
    else early.set(words, [...(early.get(words) ?? []), stop]);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${String(port)}/`,
    reached: (words) =>
      new Promise((resolve) => {
        const stop = early.get(words)?.shift();
        if (stop === undefined) waiting.set(words, resolve);
        else resolve(stop);
      }),
    count: (words) => counts.get(words) ?? 0,
    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
