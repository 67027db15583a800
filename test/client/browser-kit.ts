/**
 * A real browser without a window, and a page in it from an origin of its own that holds the client.
 *
 * Chromium comes from the system. On a Debian where we may, it is installed first.
 */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";
import { type Installation, installation } from "../kits/debian-programs.ts";
import type { scenarios } from "./fixtures/page.ts";
import { bundle, runs } from "./runtimes-kit.ts";

const PAGE = new URL("./fixtures/page.ts", import.meta.url);
const PROGRAMS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const IN_APPLICATIONS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome";

/** Path of a Chromium of this machine; `undefined` if there is none and none can be installed. */
export async function findChromium(): Promise<string | undefined> {
  const there = installedChromium();
  const missing = there === undefined ? installation("chromium") : undefined;
  if (missing === undefined) return there;
  await run(missing);
  return installedChromium();
}

function installedChromium(): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  const paths = PROGRAMS.flatMap((name) => folders.map((folder) => join(folder, name)));
  // Some systems have a program of this name that only says how to install it.
  return [...paths, IN_APPLICATIONS].find((path) => existsSync(path) && runs(path));
}

/** Runs a command to its end and ignores its exit code: the caller checks what it has done. */
function run({ command, args, env }: Installation): Promise<void> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env, stdio: "ignore" });
    child.once("error", () => {
      resolve();
    });
    child.once("close", () => {
      resolve();
    });
  });
}

/** What the page offers, by name. */
export type Scenarios = typeof scenarios;

/** A page that is open, and what went wrong in it. */
export interface ClientPage {
  readonly page: Page;
  /** Unhandled exceptions and rejections, and errors that the page has printed. */
  readonly errors: string[];
  /** Calls a function of the page and resolves with what it answers. */
  readonly call: <Name extends keyof Scenarios>(
    name: Name,
    ...args: Parameters<Scenarios[Name]>
  ) => Promise<Awaited<ReturnType<Scenarios[Name]>>>;
}

/** A browser and a server of pages. */
export interface Stage {
  openPage(): Promise<ClientPage>;
  close(): Promise<void>;
}

export async function openBrowser(program: string): Promise<Stage> {
  const script = await bundle(PAGE, { format: "iife", name: "page" });
  const pages = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(isScript ? script : '<!doctype html><script src="/page.js"></script>');
  });
  await new Promise<void>((resolve) => pages.listen(0, "127.0.0.1", resolve));
  const { port } = pages.address() as AddressInfo;
  const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
  return {
    openPage: () => openPage(browser, `http://127.0.0.1:${String(port)}/`),
    async close() {
      await browser.close();
      await new Promise((resolve) => {
        pages.close(resolve);
        pages.closeAllConnections();
      });
    },
  };
}

/**
 * What the browser itself prints of requests: those without an answer, which are made here on purpose, and the
 * question of what the server is, which all refuse.
 */
const EXPECTED = /^Failed to load resource: (net::ERR_|.* status of 400 )/;

async function openPage(browser: Browser, url: string): Promise<ClientPage> {
  const page = await (await browser.newContext()).newPage();
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !EXPECTED.test(message.text())) errors.push(message.text());
  });
  await page.goto(url);
  return {
    page,
    errors,
    call: async (name, ...args) => {
      const answer: unknown = await page.evaluate(
        `page.scenarios.${name}(...${JSON.stringify(args)})`,
      );
      // It is what this function of the page has answered.
      return answer as never;
    },
  };
}
