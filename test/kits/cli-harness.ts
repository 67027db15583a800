/** Runs command lines in the test's own process: its own output, time that moves by waiting, signals. */

import {
  createServer,
  type IncomingHttpHeaders,
  type Server,
  type ServerResponse,
} from "node:http";

import type { Context, StopSignal } from "../../src/cli/context.ts";
import { CommandFailure, EXIT } from "../../src/cli/failure.ts";
import { runCommandLine } from "../../src/cli/run.ts";
import { readSecretFile } from "../../src/streams/runtimes/node-secret-file.ts";
import { changeKeyFile, readKeyFile } from "../../src/streams/runtimes/node-key-file.ts";

export interface World {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: readonly string[] | AsyncIterable<Uint8Array>;
  readonly files?: Readonly<Record<string, string>>;
  readonly isTerminal?: boolean;
  /** What the command gets for a random id; two runs against one server must differ in it. */
  readonly id?: string;
  readonly answer?: string;
  readonly startServer?: Context["startServer"];
  /** In the place of the real one: to lose answers, or to do something between two requests. */
  readonly fetch?: typeof globalThis.fetch;
  /** Called with every question, before it is answered. */
  readonly onQuestion?: (question: string) => void;
  /** Called with everything on stdout so far, after each write. */
  readonly onOutput?: (text: string) => void;
  /** Called with what is written to stdout that is no text. */
  readonly onBytes?: (bytes: Uint8Array) => void;
  /** Given the function that sends a signal to the command. */
  readonly onReady?: (send: (signal: StopSignal) => void) => void;
  /** Given the function that sends SIGHUP to the command. */
  readonly onReloadReady?: (send: () => void) => void;
  /** Called with each text on stderr. */
  readonly onError?: (text: string) => void;
}

export interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** Delays that the command waited, in ms. */
  readonly waits: readonly number[];
  readonly exits: readonly number[];
}

const encoder = new TextEncoder();

export async function* chunks(texts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield await Promise.resolve(encoder.encode(text));
}

async function* openFile(
  path: string,
  files: Readonly<Record<string, string>>,
): AsyncGenerator<Uint8Array> {
  const text = files[path];
  if (text === undefined) {
    const message = `cannot read ${JSON.stringify(path)} (ENOENT)`;
    throw new CommandFailure(EXIT.usage, message, [], { code: "ENOENT" });
  }
  yield await Promise.resolve(encoder.encode(text));
}

export async function hapax(words: readonly string[], world: World = {}): Promise<Result> {
  const out: Uint8Array[] = [];
  const errors: string[] = [];
  const waits: number[] = [];
  const exits: number[] = [];
  const listeners = new Set<(signal: StopSignal) => void>();
  const reloaders = new Set<() => void>();
  const isTerminal = world.isTerminal ?? false;
  const input = world.stdin ?? [];
  let nowMs = 1_000_000;
  const text = (): string => Buffer.concat(out).toString("utf8");
  const context: Context = {
    stdin: { isTerminal, bytes: Symbol.asyncIterator in input ? input : chunks(input) },
    stdout: {
      isTerminal,
      write: async (chunk) => {
        out.push(typeof chunk === "string" ? encoder.encode(chunk) : Uint8Array.from(chunk));
        if (typeof chunk !== "string") world.onBytes?.(Uint8Array.from(chunk));
        world.onOutput?.(text());
        await Promise.resolve();
      },
    },
    stderr: {
      isTerminal,
      write: async (chunk) => {
        const text = typeof chunk === "string" ? chunk : Buffer.from(chunk).toString("utf8");
        errors.push(text);
        world.onError?.(text);
        await Promise.resolve();
      },
    },
    env: world.env ?? {},
    fetch: world.fetch ?? globalThis.fetch,
    random: { unit: () => 0.5, id: () => world.id ?? "0123456789abcdef" },
    nowMs: () => nowMs,
    wait: async (delayMs, signal) => {
      waits.push(delayMs);
      nowMs += delayMs;
      // A turn of the event loop, so that input which is there wins over a pause.
      await new Promise((resolve) => setImmediate(resolve));
      signal?.throwIfAborted();
    },
    openFile: (path) => openFile(path, world.files ?? {}),
    readSecretFile,
    keyFiles: { read: readKeyFile, change: changeKeyFile },
    ask: (question) => {
      world.onQuestion?.(question);
      return Promise.resolve(world.answer ?? "");
    },
    onSignal: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    onReload: (listener) => {
      reloaders.add(listener);
      return () => reloaders.delete(listener);
    },
    exitNow: (code) => exits.push(code),
    version: () => Promise.resolve("1.2.3"),
    startServer: world.startServer ?? (() => Promise.reject(new Error("no server in this test"))),
  };
  world.onReady?.((signal) => {
    for (const listener of listeners) listener(signal);
  });
  world.onReloadReady?.(() => {
    for (const listener of reloaders) listener();
  });
  const code = await runCommandLine(words, context);
  return { code, stdout: text(), stderr: errors.join(""), waits, exits };
}

export interface Received {
  readonly method: string;
  readonly url: URL;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface TestServer {
  readonly url: string;
  readonly received: Received[];
}

const opened: Server[] = [];

/** A real HTTP server whose answers the test decides, one call for each request. */
export async function startServer(
  answer: (request: Received, response: ServerResponse) => void,
): Promise<TestServer> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const parts: Uint8Array[] = [];
    request.on("data", (part: Uint8Array) => parts.push(part));
    request.on("end", () => {
      const one: Received = {
        method: request.method ?? "",
        url: new URL(request.url ?? "/", "http://test"),
        headers: request.headers,
        body: Buffer.concat(parts).toString("utf8"),
      };
      received.push(one);
      answer(one, response);
    });
  });
  opened.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  return { url: `http://127.0.0.1:${String(port)}`, received };
}

export async function stopServers(): Promise<void> {
  for (const server of opened.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** One JSON stream with the protocol's producer rule; `lose` says which answers never arrive. */
export interface StreamServer extends TestServer {
  readonly stored: string[];
  readonly isClosed: () => boolean;
}

export async function startStreamServer(
  lose: (request: Received, nth: number, response: ServerResponse) => boolean = () => false,
  contentType = "application/json",
): Promise<StreamServer> {
  const stored: string[] = [];
  const lastSequence = new Map<string, number>();
  let posts = 0;
  let isClosed = false;
  const server = await startServer((request, response) => {
    if (request.method !== "POST") {
      response.writeHead(200, { "content-type": contentType, "stream-next-offset": "0_0" }).end();
      return;
    }
    posts += 1;
    const producer = String(request.headers["producer-id"]);
    const sequence = Number(request.headers["producer-seq"]);
    const isNew = sequence === (lastSequence.get(producer) ?? -1) + 1;
    if (isNew) {
      lastSequence.set(producer, sequence);
      if (request.body !== "") stored.push(request.body);
      isClosed ||= request.headers["stream-closed"] === "true";
    }
    if (lose(request, posts, response)) return;
    const status = isNew && request.body !== "" ? 200 : 204;
    response.writeHead(status, { "stream-next-offset": `0_${String(stored.length)}` }).end();
  });
  return { ...server, stored, isClosed: () => isClosed };
}
