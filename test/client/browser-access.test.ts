// G40 in a real browser: a page of an allowed origin appends with a token, follows by a signed URL, which EventSource can send, and
// comes back after its connection was cut. PROTOCOL.md §21.7.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Browser, chromium } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { anyOf, type Authorize, signedUrlAuthorize, signUrl } from "../../src/streams/server.ts";
import { findChromium } from "./browser-kit.ts";
import { requirePart } from "./runtimes-kit.ts";

const REASON = "no Chromium is installed, and it cannot be installed here: no browser was tested";
const NAME = "app.example";
const KEY = { id: "k1", secret: Buffer.alloc(32, 7).toString("base64url") };
const PATH = "/v1/stream/news";
let browser: Browser | undefined;
const endings: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  const executablePath = await findChromium();
  if (executablePath === undefined) return;
  const args = ["--no-sandbox", `--host-resolver-rules=MAP ${NAME} 127.0.0.1`];
  browser = await chromium.launch({ executablePath, args });
}, 300_000);

beforeEach((context) => {
  requirePart(context, browser, REASON);
});

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

afterAll(() => browser?.close());

async function openPage() {
  const pages = createServer((_request, response) => {
    response.setHeader("content-type", "text/html");
    response.end("<!doctype html><title>page</title>");
  });
  await new Promise<void>((resolve) => pages.listen(0, "127.0.0.1", resolve));
  endings.push(() => new Promise((resolve) => pages.close(resolve).closeAllConnections()));
  const origin = `http://${NAME}:${String((pages.address() as AddressInfo).port)}`;
  if (browser === undefined) throw new Error(REASON);
  const page = await (await browser.newContext()).newPage();
  endings.push(() => page.context().close());
  await page.goto(`${origin}/`);
  return { page, origin };
}

const byToken: Authorize = ({ header }) => {
  const token = header("authorization");
  if (token === undefined) return { refused: "missing" };
  if (token !== "Bearer of-the-page") return { refused: "invalid" };
  return { name: "page", grants: [{ actions: ["create", "append"], streams: [PATH] }] };
};

/** Appends records with a token, and collects what comes by the signed URL until there are `count`. */
const FOLLOW = `async ({ url, signed, other, count }) => {
  const headers = { "Content-Type": "application/json", Authorization: "Bearer of-the-page" };
  const append = (value) => fetch(url, { method: "POST", headers, body: JSON.stringify(value) });
  const seen = { statuses: [], records: [], opened: 0, other: undefined };
  seen.statuses.push((await fetch(url, { method: "PUT", headers: headers })).status);
  seen.statuses.push((await fetch(url)).status);
  seen.statuses.push((await fetch(url, { headers: { Authorization: "Bearer wrong" } })).status);
  seen.statuses.push((await fetch(signed, { method: "POST", headers: { "Content-Type": "application/json" }, body: "1" })).status);
  seen.other = await new Promise((resolve) => {
    const source = new EventSource(other);
    source.onopen = () => resolve("opened");
    source.onerror = () => { source.close(); resolve("refused"); };
  });
  const source = new EventSource(signed);
  source.onopen = () => { seen.opened += 1; };
  const done = new Promise((resolve) => {
    source.addEventListener("data", (event) => {
      seen.records.push(...JSON.parse(event.data));
      if (seen.records.length >= count) { source.close(); resolve(); }
    });
  });
  for (let at = 0; at < count; at += 1) {
    seen.statuses.push((await append(at)).status);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  await done;
  return seen;
}`;

test("G40 a page appends with a token, follows by a signed URL, and comes back by itself", async () => {
  const { page, origin } = await openPage();
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    corsOrigins: [origin],
    // The connection of a reader is ended after a second, and the browser comes back with Last-Event-ID.
    sseSecondsMax: 1,
    authorize: anyOf(byToken, signedUrlAuthorize({ keys: [KEY] })),
  });
  endings.push(() => server.stop());
  const url = server.url + PATH;
  const grant = { key: KEY, action: "read", expiresAtMs: Date.now() + 60_000 } as const;
  const signed = await signUrl(`${url}?offset=-1&live=sse`, grant);
  const other = (await signUrl(`${server.url}/v1/stream/other?offset=-1&live=sse`, grant)).replace(
    "/other",
    "/news",
  );
  const count = 12;
  const task = JSON.stringify({ url, signed, other, count });
  const seen = (await page.evaluate(`(${FOLLOW})(${task})`)) as {
    statuses: number[];
    records: number[];
    opened: number;
    other: string;
  };
  // Created; without a credential; with a wrong one; the URL for reading does not append; then the appends.
  expect(seen.statuses.slice(0, 4)).toEqual([201, 401, 401, 401]);
  expect(seen.statuses.slice(4)).toEqual(Array.from({ length: count }, () => 204));
  expect(seen.other).toBe("refused");
  expect(seen.records).toEqual(Array.from({ length: count }, (_, at) => at));
  expect(seen.opened).toBeGreaterThan(1);
}, 60_000);
