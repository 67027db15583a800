// G37 in a real browser: what a page of another origin can do to a server that was started without any option. The names of the
// pages resolve to this machine, as those of a page that rebinds its name do.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Browser, chromium } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { findChromium } from "./browser-kit.ts";
import { requirePart } from "./runtimes-kit.ts";

const REASON = "no Chromium is installed, and it cannot be installed here: no browser was tested";
let browser: Browser | undefined;
const endings: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  const executablePath = await findChromium();
  if (executablePath === undefined) return;
  const rules = "MAP evil.example 127.0.0.1, MAP app.example 127.0.0.1";
  const args = ["--no-sandbox", `--host-resolver-rules=${rules}`];
  browser = await chromium.launch({ executablePath, args });
}, 300_000);

beforeEach((context) => {
  requirePart(context, browser, REASON);
});

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

afterAll(() => browser?.close());

async function startServer(corsOrigins: "*" | readonly string[] = []): Promise<NodeServer> {
  const server = await startNodeServer({ store: "memory", port: 0, corsOrigins });
  endings.push(() => server.stop());
  const headers = { "content-type": "text/plain" };
  await fetch(`${server.url}/v1/stream/secret`, { method: "PUT", headers, body: "secret" });
  return server;
}

/** A page of this origin's name; the port is that of its own server of pages. */
async function openPage(name: string) {
  const pages = createServer((_request, response) => {
    response.setHeader("content-type", "text/html");
    response.end("<!doctype html><title>page</title>");
  });
  await new Promise<void>((resolve) => pages.listen(0, "127.0.0.1", resolve));
  endings.push(() => new Promise((resolve) => pages.close(resolve).closeAllConnections()));
  const { port } = pages.address() as AddressInfo;
  if (browser === undefined) throw new Error(REASON);
  const page = await (await browser.newContext()).newPage();
  endings.push(() => page.context().close());
  const origin = `http://${name}:${String(port)}`;
  await page.goto(`${origin}/`);
  return { page, origin };
}

/** Tries everything that a page can send; returns what it saw of the answers. */
const ATTACK = `async (url) => {
  const seen = {};
  const tries = {
    read: () => fetch(url + "/v1/stream/secret?offset=-1").then((answer) => answer.text()),
    list: () => fetch(url + "/_hapax/streams").then((answer) => answer.text()),
    blind: () => fetch(url + "/v1/stream/secret", { method: "POST", mode: "no-cors", body: "planted" }).then((answer) => answer.type),
    append: () => fetch(url + "/v1/stream/secret", { method: "POST", headers: { "Content-Type": "text/plain" }, body: "planted" }).then((answer) => answer.status),
    create: () => fetch(url + "/v1/stream/planted", { method: "PUT" }).then((answer) => answer.status),
    remove: () => fetch(url + "/v1/stream/secret", { method: "DELETE" }).then((answer) => answer.status),
    transact: () => fetch(url + "/_hapax/transactions", { method: "POST", headers: { "Content-Type": "application/json", "Idempotency-Key": "k" }, body: "{}" }).then((answer) => answer.status),
    follow: () => new Promise((resolve, reject) => {
      const source = new EventSource(url + "/v1/stream/secret?offset=-1&live=sse");
      source.onmessage = (event) => resolve(event.data);
      source.addEventListener("data", (event) => resolve(event.data));
      source.onerror = () => { source.close(); reject(new Error("refused")); };
    }),
    picture: () => new Promise((resolve, reject) => {
      const image = new Image();
      image.onload = () => resolve("shown");
      image.onerror = () => reject(new Error("refused"));
      image.src = url + "/v1/stream/secret?offset=-1";
    }),
  };
  for (const [name, attempt] of Object.entries(tries)) {
    seen[name] = await attempt().then((value) => String(value), () => "refused");
  }
  return seen;
}`;

const REFUSED = {
  read: "refused",
  list: "refused",
  blind: "refused",
  append: "refused",
  create: "refused",
  remove: "refused",
  transact: "refused",
  follow: "refused",
  picture: "refused",
};

async function isUntouched(server: NodeServer): Promise<void> {
  const kept = await fetch(`${server.url}/v1/stream/secret?offset=-1`);
  expect(await kept.text()).toBe("secret");
  const { streams } = (await (await fetch(`${server.url}/_hapax/streams`)).json()) as {
    streams: { path: string }[];
  };
  expect(streams.map(({ path }) => path)).toEqual(["/v1/stream/secret"]);
}

test("G37 a page of another origin reads, writes and deletes nothing", async () => {
  const server = await startServer();
  const { page } = await openPage("evil.example");
  expect(await page.evaluate(`(${ATTACK})(${JSON.stringify(server.url)})`)).toEqual(REFUSED);
  await isUntouched(server);
});

test("the same page would do all of it to a server that is open to every page", async () => {
  const server = await startServer("*");
  const { page } = await openPage("evil.example");
  expect(await page.evaluate(`(${ATTACK})(${JSON.stringify(server.url)})`)).toMatchObject({
    read: "secret",
    blind: "opaque",
    append: "204",
    create: "201",
    remove: "204",
  });
});

test("G37 a page that gives its own name the address of this machine gets nothing", async () => {
  const server = await startServer();
  if (browser === undefined) throw new Error(REASON);
  const page = await (await browser.newContext()).newPage();
  endings.push(() => page.context().close());
  const { port } = new URL(server.url);
  // The page is of the same origin as the server, as far as the browser knows.
  const answer = await page.goto(`http://evil.example:${port}/v1/stream/secret?offset=-1`);
  expect(answer?.status()).toBe(421);
  const url = `http://evil.example:${port}`;
  const statuses = await page.evaluate(
    `Promise.all(["GET", "POST", "PUT", "DELETE"].map(async (method) =>
      (await fetch(${JSON.stringify(url)} + "/v1/stream/secret", { method })).status).map((one) => one.catch(() => "refused")))`,
  );
  expect([421, "refused"]).toEqual(expect.arrayContaining([...new Set(statuses as unknown[])]));
  await isUntouched(server);
});

test("a page of an allowed origin appends, reads and follows", async () => {
  const { page, origin } = await openPage("app.example");
  const server = await startServer([origin]);
  const seen = await page.evaluate(`(async (url) => {
    const headers = { "Content-Type": "text/plain" };
    const post = await fetch(url + "/v1/stream/secret", { method: "POST", headers, body: " more" });
    const read = await fetch(url + "/v1/stream/secret?offset=-1");
    return [post.status, post.headers.get("stream-next-offset") !== null, await read.text()];
  })(${JSON.stringify(server.url)})`);
  expect(seen).toEqual([204, true, "secret more"]);
});
