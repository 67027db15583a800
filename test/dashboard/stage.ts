/** A built server as a process of its own, a load on it, and pages of a real browser that look at it. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, request as forward } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { expect } from "vitest";
import { root } from "../kits/documents.ts";

const BIN = join(root, "dist", "bin.js");
const ARTEFACTS = join(root, "artefacts", "dashboard");
/** Far above what anything takes: a busy machine is no fault. */
export const WAIT_MS = 120_000;

export const JSON_TYPE = { "content-type": "application/json" };

export interface RunningServer {
  readonly url: string;
  readonly directory: string;
  /** Ends the process as a crash does. */
  kill(): Promise<void>;
  /** Starts it again at the same port, with the same data. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export async function startServer(
  env: Readonly<Record<string, string>> = {},
): Promise<RunningServer> {
  const directory = mkdtempSync(join(tmpdir(), "hapax-dashboard-"));
  let [child, url] = await launch(directory, "0", env);
  const kill = async (): Promise<void> => {
    const ended = once(child, "close");
    child.kill("SIGKILL");
    await ended;
  };
  return {
    url,
    directory,
    kill,
    async restart() {
      [child, url] = await launch(directory, new URL(url).port, env);
    },
    async close() {
      if (child.exitCode === null && child.signalCode === null) await kill();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function launch(
  directory: string,
  port: string,
  env: Readonly<Record<string, string>>,
): Promise<[ChildProcess, string]> {
  const child = spawn(process.execPath, [BIN, "serve", "--port", port, "--dir", directory], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "ignore"],
  });
  let text = "";
  const url = await new Promise<string>((resolve, reject) => {
    child.once("close", () => {
      reject(new Error(`the server ended: ${text}`));
    });
    child.stdout.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
      const [, found] = /listening on (\S+) /.exec(text) ?? [];
      if (found !== undefined) resolve(found);
    });
  });
  return [child, url];
}

/** Runs `hapax` to its end and returns what it printed. */
export async function hapax(words: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, [BIN, ...words], { stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  await once(child, "close");
  return text.trim();
}

export async function send(
  method: string,
  url: string,
  headers: Record<string, string> = {},
  body?: unknown,
): Promise<Response> {
  const text = typeof body === "string" || body === undefined ? body : JSON.stringify(body);
  return fetch(url, { method, headers, ...(text === undefined ? {} : { body: text }) });
}

/** Appends, retries and gaps, until it is stopped. Outages of the server are no failures. */
export function startLoad(url: string): () => Promise<void> {
  let isOver = false;
  const append = async (seq: number, headers: Record<string, string> = {}): Promise<void> => {
    const named = { "producer-id": "shop", "producer-epoch": "0", "producer-seq": String(seq) };
    const all = { ...JSON_TYPE, ...named, ...headers };
    await send("POST", `${url}/v1/stream/load`, all, { order: seq, cents: 4200 });
  };
  const run = async (): Promise<void> => {
    for (let seq = 0; !isOver;) {
      try {
        await append(seq);
        if (seq % 3 === 0) await append(seq);
        if (seq % 5 === 0) await append(seq + 7);
        seq += 1;
      } catch {
        // It is stopped at this moment.
      }
      await new Promise((resolve) => setTimeout(resolve, 40));
    }
  };
  const running = run();
  return async () => {
    isOver = true;
    await running;
  };
}

/** A proxy that hands on what comes below `/hapax`, without that beginning, as it came. */
export async function startProxy(target: string): Promise<{ port: number; close: () => void }> {
  const { hostname, port } = new URL(target);
  const server = createServer((incoming, outgoing) => {
    const { method, headers, url = "" } = incoming;
    if (!url.startsWith("/hapax/")) {
      outgoing.writeHead(404).end();
      return;
    }
    const path = url.slice("/hapax".length);
    const sent = forward({ hostname, port, path, method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    sent.on("error", () => outgoing.destroy());
    incoming.pipe(sent);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

export interface Visit {
  readonly page: Page;
  /** What must not happen: errors of the page, and violations of its policy. */
  readonly troubles: readonly string[];
  readonly urls: readonly string[];
  open(hash: string): Promise<void>;
  shoot(name: string): Promise<void>;
}

/** What the browser prints of answers that the page expects: refusals, and a server that is away. */
const EXPECTED = /^Failed to load resource/;

export async function visit(
  browser: Browser,
  url: string,
  options: { readonly width?: number; readonly scheme?: "light" | "dark" } = {},
): Promise<Visit> {
  const { width = 1280, scheme = "light" } = options;
  const context = await browser.newContext({
    viewport: { width, height: 860 },
    colorScheme: scheme,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  const [troubles, urls]: [string[], string[]] = [[], []];
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("request", (one) => urls.push(one.url()));
  page.on("console", (message) => {
    if (message.type() === "error" && !EXPECTED.test(message.text())) troubles.push(message.text());
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  await page.goto(url);
  await page.locator("main").waitFor();
  mkdirSync(ARTEFACTS, { recursive: true });
  return {
    page,
    troubles,
    urls,
    open: async (hash) => {
      await page.evaluate((to) => {
        location.hash = to;
      }, hash);
    },
    shoot: async (name) => {
      await page.screenshot({
        path: join(ARTEFACTS, `${name}.png`),
        fullPage: true,
        timeout: WAIT_MS,
      });
    },
  };
}

/** What axe finds on the page, from minor to critical. */
export async function barriers({ page }: Visit): Promise<readonly string[]> {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate(
    "axe.run(document, { resultTypes: ['violations'] })",
  )) as {
    violations: readonly { id: string; nodes: readonly { html: string }[] }[];
  };
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}

export async function leave({ page, troubles }: Visit): Promise<void> {
  expect(troubles).toEqual([]);
  await page.context().close();
}
