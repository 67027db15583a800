/** The pages of the recipes in a real browser, against a server that is stopped and started again under them. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { connect } from "../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../src/streams/runtimes/node.ts";
import { openFileStore } from "../src/streams/stores/file.ts";
import { findChromium } from "./client/browser-kit.ts";
import { requirePart } from "./client/runtimes-kit.ts";
import { documents, root } from "./kits/documents.ts";

const REASON =
  "no Chromium is installed, and it cannot be installed here: no page of a recipe was run";
let browser: Browser | undefined;
const endings: (() => unknown)[] = [];

beforeAll(async () => {
  const executablePath = await findChromium();
  if (executablePath === undefined) return;
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
}, 600_000);

beforeEach((context) => {
  requirePart(context, browser, REASON);
});

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

afterAll(() => browser?.close());

/** A block of a recipe, as it is printed. */
function blockOf(path: string, language: string): string {
  const page = documents.find((document) => document.path === `docs/recipes/${path}`);
  const block = page?.blocks.find((one) => one.language === language);
  if (block === undefined) throw new Error(`${path} has no block of ${language}`);
  return block.body;
}

/** A server of streams whose data survives a restart on the same port. */
async function openStreams() {
  const directory = mkdtempSync(join(tmpdir(), "hapax-recipes-"));
  endings.push(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const start = async (port: number): Promise<NodeServer> =>
    startNodeServer({ store: await openFileStore(directory), port, corsOrigins: "*" });
  let server = await start(0);
  endings.push(() => server.stop());
  const { url } = server;
  const restart = async (): Promise<void> => {
    await server.stop();
    server = await start(Number(new URL(url).port));
  };
  return { url, restart };
}

/** Serves a page from an origin of its own, and opens it. `onPost` is called with each request to its API. */
async function openPage(
  html: string,
  script = "",
  onPost: () => unknown = () => undefined,
): Promise<Page> {
  const pages: Server = createServer((request, response) => {
    if (request.method === "POST") onPost();
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(isScript ? script : html);
  });
  await new Promise<void>((resolve) => pages.listen(0, "127.0.0.1", resolve));
  endings.push(() => new Promise((resolve) => pages.close(resolve).closeAllConnections()));
  if (browser === undefined) throw new Error(REASON);
  const page = await browser.newPage();
  endings.push(() => page.close());
  const { port } = pages.address() as AddressInfo;
  await page.goto(`http://127.0.0.1:${String(port)}/`);
  return page;
}

const textOf = (page: Page, selector: string) => page.locator(selector).allInnerTexts();

test("the page with EventSource goes on after a restart: no order is missing, and none is there twice", async () => {
  const streams = await openStreams();
  const orders = connect(`${streams.url}/v1/stream/orders`);
  await orders.create();
  for (const id of [1, 2]) await orders.append({ id });
  const html = blockOf("event-source.md", "html").replaceAll("http://127.0.0.1:4437", streams.url);
  const page = await openPage(html);
  await expect.poll(() => textOf(page, "li")).toEqual(["order 1", "order 2"]);
  await streams.restart();
  await orders.append({ id: 3 });
  const three = ["order 1", "order 2", "order 3"];
  await expect.poll(() => textOf(page, "li")).toEqual(three);
  await orders.close({ id: 4 });
  await expect.poll(() => textOf(page, "li")).toEqual([...three, "order 4"]);
});

test("the page of the chat shows one answer, and asks again when the generator has died", async () => {
  const streams = await openStreams();
  const chat = connect(`${streams.url}/v1/stream/chats/42`);
  await chat.create({ contentType: "application/json" });
  let asked = 0;
  const dead = chat.producer({ id: "generator" });
  await dead.send({ type: "start" });
  await dead.send({ type: "token", token: "Half an" }); // And no more.
  const html = blockOf("resumable-chat.md", "html")
    .replaceAll("http://127.0.0.1:4437", streams.url)
    .replace("20_000", "500");
  const page = await openPage(html, "", () => (asked += 1));
  await expect.poll(() => textOf(page, "#answer")).toEqual(["Half an"]);
  await expect.poll(() => asked).toBeGreaterThan(1);
  const second = chat.producer({ id: "generator" });
  await second.send({ type: "start" });
  await second.send({ type: "token", token: "A whole " });
  await streams.restart();
  await expect(dead.send({ type: "token", token: " answer" })).rejects.toThrow();
  await second.send({ type: "token", token: "answer." });
  await second.send({ type: "end" });
  await second.close();
  await expect.poll(() => textOf(page, "#answer")).toEqual(["A whole answer."]);
});

/** The hook as it is printed, in a component, in strict mode. */
const COMPONENT = `
import { createElement, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { useStream } from "./use-stream.ts";
function Orders({ url }) {
  const { records, isUpToDate, isClosed, error } = useStream(url);
  const state = error !== undefined ? "error" : isClosed ? "closed" : isUpToDate ? "live" : "reading";
  return createElement("p", null, records.map(({ id }) => id).join() + " " + state);
}
function App() {
  const [name, setName] = useState("one");
  globalThis.show = setName;
  return name === "" ? null : createElement(Orders, { url: STREAMS + name });
}
createRoot(document.querySelector("#root")).render(createElement(StrictMode, null, createElement(App)));
`;

async function bundleOfHook(): Promise<string> {
  const hook = blockOf("react.md", "ts");
  const { outputFiles } = await build({
    stdin: { contents: COMPONENT, resolveDir: root, loader: "js" },
    bundle: true,
    write: false,
    format: "iife",
    define: { "process.env.NODE_ENV": '"development"' },
    alias: { "hapax/client": join(root, "src", "client", "client.ts") },
    plugins: [
      {
        name: "recipe",
        setup(builder) {
          builder.onResolve({ filter: /use-stream/ }, () => ({
            path: "hook",
            namespace: "recipe",
          }));
          builder.onLoad({ filter: /.*/, namespace: "recipe" }, () => ({
            contents: hook,
            loader: "ts",
            resolveDir: root,
          }));
        },
      },
    ],
  });
  return outputFiles[0]?.text ?? "";
}

test("useStream shows each record once: in strict mode, over a restart, and with another URL", async () => {
  const streams = await openStreams();
  const [one, two] = ["one", "two"].map((name) => connect(`${streams.url}/v1/stream/${name}`));
  if (one === undefined || two === undefined) throw new Error("there are two");
  await Promise.all([one.create(), two.create()]);
  for (const id of [1, 2]) await one.append({ id });
  await two.close({ id: 9 });
  const html = '<!doctype html><div id="root"></div><script src="/page.js"></script>';
  const script = `const STREAMS = "${streams.url}/v1/stream/";${await bundleOfHook()}`;
  const page = await openPage(html, script);
  await expect.poll(() => textOf(page, "p")).toEqual(["1,2 live"]);
  await streams.restart();
  await one.append({ id: 3 });
  await expect.poll(() => textOf(page, "p")).toEqual(["1,2,3 live"]);
  await page.evaluate('globalThis.show("two")');
  await expect.poll(() => textOf(page, "p")).toEqual(["9 closed"]);
  await page.evaluate('globalThis.show("none")'); // There is no such stream.
  await expect.poll(() => textOf(page, "p")).toEqual(["error"]);
});
