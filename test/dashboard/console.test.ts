// hapax/console in a real browser, over a ledger that has something to show. Pictures go to artefacts/dashboard.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { bundleDashboard, DASHBOARD_BYTES_MAX } from "../../scripts/dashboard.mjs";
import type { createConsole as CreateConsole, ConsoleVisitor } from "../../src/toolkit/console.ts";
import type { consoleListener as ConsoleListener } from "../../src/toolkit/console/node.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { createSagas } from "../../src/toolkit/saga.ts";
import { findChromium } from "../client/browser-kit.ts";
import { requirePart } from "../client/runtimes-kit.ts";
import { ABSENT, EVIL, order, populate, RUNNING, runSagas, SECRET } from "../console/stage.ts";
import { root } from "../kits/documents.ts";
import { barriers, leave, type Visit, visit, WAIT_MS } from "./stage.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const REASON = "no Chromium is installed, and it cannot be installed here: no browser was tested";
const ANN: ConsoleVisitor = { by: "ann", mayAct: true, maySeeValues: true };
const ledger = memoryLedger();
let browser: Browser | undefined;
let visitor: ConsoleVisitor | Response | undefined = ANN;
let server: Server;
let url: string;

/** The built package: the sources have no page. */
async function built<T>(...path: readonly string[]): Promise<T> {
  return (await import(pathToFileURL(join(root, "dist", "toolkit", ...path)).href)) as T;
}

async function open(port = 0): Promise<void> {
  const { createConsole } = await built<{ createConsole: typeof CreateConsole }>("console.js");
  const { consoleListener } = await built<{ consoleListener: typeof ConsoleListener }>(
    "console",
    "node.js",
  );
  const admin = createConsole(ledger, { authorize: () => visitor, title: `Shop ${EVIL}` });
  server = createServer(consoleListener(admin));
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}/admin/hapax/`;
}

async function shut(): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
}

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = new URL("../../scripts/prepare.mjs", import.meta.url).href;
  const { buildIfNeeded } = (await import(prepare)) as { buildIfNeeded: () => Promise<void> };
  await buildIfNeeded();
  const executablePath = await findChromium();
  if (executablePath === undefined) return;
  await populate(ledger);
  await open();
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
});

beforeEach((context) => {
  requirePart(context, browser, REASON);
  visitor = ANN;
});

afterAll(async () => {
  await browser?.close();
  if (browser !== undefined) await shut();
});

function look(options: Parameters<typeof visit>[2] = {}): Promise<Visit> {
  if (browser === undefined) throw new Error(REASON);
  return visit(browser, url, options);
}

const nameOf = (...parts: readonly string[]): string => encodeURIComponent(JSON.stringify(parts));

test("the console has at most 120 KB, gzipped, and no code that is made of text", async () => {
  const { gzippedBytes, script } = await bundleDashboard(undefined, "console/main.tsx");
  console.log(`the console: ${gzippedBytes} of ${DASHBOARD_BYTES_MAX} bytes, gzipped`);
  expect(gzippedBytes).toBeLessThanOrEqual(DASHBOARD_BYTES_MAX);
  expect(/\beval\(|new Function\(/.test(script)).toBe(false);
});

test("every page of the console paints, asks its app alone, and has no barrier", async () => {
  const seen = await look();
  const { page, urls } = seen;
  await page.locator('[data-tile="Stuck sagas"] .figure', { hasText: "2" }).waitFor();
  await page.locator('[data-tile="Dead events"] .figure', { hasText: "3" }).waitFor();
  await page.locator('[data-row="once"]').getByRole("link", { name: "2", exact: true }).waitFor();
  await seen.shoot("console-overview");
  expect(await barriers(seen)).toEqual([]);
  for (const [hash, text, picture] of [
    ["#/running", "left behind", "work"],
    ["#/running/failed%20once", "has failed", "failed"],
    ["#/entries/once", "order-17", "entries"],
    [`#/entry/${nameOf("once", "*", "order-17")}`, "Token", "entry"],
    ["#/sagas", "order 1", "sagas"],
    [`#/saga/${nameOf("order", "shop", "order 1")}`, "Stuck at ship: exhausted", "saga"],
    ["#/outbox", "the receiver of mail says", "outbox"],
  ] as const) {
    await seen.open(hash);
    await page.locator("main").getByText(text).first().waitFor();
    await seen.shoot(`console-${picture}`);
    expect([hash, await barriers(seen)]).toEqual([hash, []]);
  }
  for (const asked of urls) expect(asked.startsWith(url)).toBe(true);
  const paintMs = await page.evaluate(
    () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity,
  );
  console.log(`first paint of the console after ${paintMs.toFixed(0)} ms`);
  expect(paintMs).toBeLessThan(WAIT_MS);
  await leave(seen);
});

test("the console works by keys, in dark, on a narrow screen", async () => {
  const seen = await look({ width: 390, scheme: "dark" });
  const { page } = seen;
  await page.locator(".tile").first().waitFor();
  expect(await barriers(seen)).toEqual([]);
  await page.keyboard.press("4");
  await page.getByRole("heading", { name: "Sagas", level: 1 }).waitFor();
  await page.getByRole("link", { name: "order 1" }).press("Enter");
  await page.getByRole("heading", { name: "Time line" }).waitFor();
  const wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
  expect(await page.evaluate(wider)).toBe(0);
  await seen.shoot("console-saga-narrow-dark");
  expect(await barriers(seen)).toEqual([]);
  await page.keyboard.press("t");
  await expect
    .poll(() => page.evaluate("document.documentElement.dataset.theme"), { timeout: WAIT_MS })
    .toBe("light");
  await leave(seen);
});

test("G96 values are on the page only after they were asked for, by one who may see them", async () => {
  const seen = await look();
  const { page } = seen;
  const shown = async (): Promise<boolean> => (await page.content()).includes(SECRET);
  for (const [hash, button] of [
    [`#/entry/${nameOf("once", "*", "order-17")}`, "Show 25 B (may be personal data)"],
    [`#/saga/${nameOf("order", "shop", "order 1")}`, "Show (may be personal data)"],
    ["#/outbox", "Show (may be personal data)"],
  ] as const) {
    visitor = ANN;
    await seen.open(hash);
    await page.getByRole("button", { name: button }).waitFor();
    expect([hash, await shown()]).toEqual([hash, false]);
    await page.getByRole("button", { name: button }).click();
    await page.locator("pre", { hasText: SECRET }).first().waitFor();
    await seen.open("#/overview");
    await page.locator(".tile").first().waitFor();
  }
  visitor = { by: "bob" };
  await page.reload();
  await page.getByText("Looking only").waitFor();
  await seen.open(`#/saga/${nameOf("order", "shop", "order 1")}`);
  await page.getByText("your app does not let you see values").waitFor();
  expect(await page.getByRole("button", { name: /…$/ }).count()).toBe(0);
  await leave(seen);
});

test("G96 a stuck saga is retried and skipped on the page; one who may not is refused", async () => {
  const seen = await look();
  const { page } = seen;
  await seen.open(`#/saga/${nameOf("order", "shop", "order 1")}`);
  await page.getByRole("button", { name: "Retry…" }).click();
  await page.getByLabel("Why? It is kept in the time line").fill(`the road is open ${EVIL}`);
  // The rights are those of the moment, and not those with which the page was loaded.
  visitor = { by: "ann" };
  await page.getByRole("button", { name: "Retry", exact: true }).click();
  await page.getByRole("alert").getByText("Not allowed").waitFor();
  visitor = ANN;
  await page.getByRole("button", { name: "Retry", exact: true }).click();
  await page.locator(".timeline").getByText(": the road is open").waitFor();
  await runSagas(ledger);
  await page.getByRole("button", { name: "Skip…" }).click();
  await page.getByLabel("Result of the step, as JSON").fill('"by hand"');
  await page.getByRole("button", { name: "Skip", exact: true }).click();
  await page.locator(".timeline").getByText("skip").waitFor();
  await runSagas(ledger);
  await page.getByText("completed").first().waitFor();
  const view = await createSagas(ledger, [order]).find({
    saga: "order",
    scope: "shop",
    key: "order 1",
  });
  expect(view?.history.find(({ what }) => what === "skip")).toMatchObject({
    by: "ann",
    step: "ship",
  });
  await leave(seen);
});

test("dead events are narrowed by a key, replayed and discarded", async () => {
  const seen = await look();
  const { page } = seen;
  await seen.open("#/outbox");
  await page.getByLabel("Key of the events").fill("bob");
  await page.getByRole("button", { name: "Filter" }).click();
  await expect.poll(() => page.locator("[data-letter]").count(), { timeout: WAIT_MS }).toBe(1);
  await page.getByRole("button", { name: "Discard…" }).click();
  const sure = page.getByRole("button", { name: "Discard", exact: true });
  expect(await sure.isDisabled()).toBe(true);
  await page.getByLabel("Type discard to go on").fill("discard");
  await sure.click();
  await page.getByText("There is none.").waitFor();
  await page.getByLabel("Key of the events").fill("");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.getByRole("button", { name: "Replay…" }).click();
  await page.getByText("Replay these 2 events?").waitFor();
  await page.getByRole("button", { name: "Replay", exact: true }).click();
  await page.getByText("There is none.").waitFor();
  await page.getByLabel("Which").selectOption("waiting");
  await expect.poll(() => page.locator("[data-letter]").count(), { timeout: WAIT_MS }).toBe(2);
  await leave(seen);
});

test("G96 keys, scopes, results and texts of errors are text, and nothing in them runs", async () => {
  const seen = await look();
  const { page } = seen;
  for (const [hash, text] of [
    ["#/overview", `Shop ${EVIL}`],
    ["#/entries/once", EVIL],
    [`#/entry/${nameOf("once", EVIL, EVIL)}`, EVIL],
    [`#/entry/${nameOf("once", "shop", "has failed")}`, "has failed"],
    ["#/sagas", EVIL],
    [`#/saga/${nameOf("order", EVIL, EVIL)}`, EVIL],
    [`#/saga/${nameOf(EVIL, EVIL, EVIL)}`, EVIL],
    ["#/outbox", EVIL],
    [`#/outbox/${encodeURIComponent(EVIL)}`, "Relays"],
    [`#/${EVIL}`, "By primitive"],
  ] as const) {
    await seen.open(hash);
    await page.locator("body").getByText(text).first().waitFor();
    const hidden = page.getByRole("button", { name: /personal data\)$/ });
    if ((await hidden.count()) > 0) {
      await hidden.first().click();
      await page.locator("pre").first().waitFor();
    }
    expect([hash, await page.evaluate("window.hacked")]).toEqual([hash, undefined]);
    expect(await page.locator("#app img, #app script").count()).toBe(0);
  }
  await seen.shoot("console-evil");
  // What is of this origin is no script, also if a mistake puts it into the page.
  const blocked = await page.evaluate(
    () =>
      new Promise((resolve) => {
        const script = document.createElement("script");
        script.onerror = () => resolve(true);
        script.onload = () => resolve(false);
        try {
          script.src = "app.js";
          document.body.append(script);
        } catch {
          resolve(true);
        }
      }),
  );
  expect(blocked).toBe(true);
  await page.context().close();
  expect(
    seen.troubles.filter((trouble) => !/policy:|Content Security|TrustedScript/i.test(trouble)),
  ).toEqual([]);
});

test("the console goes on after its app was started again, and says when a session is over", async () => {
  const seen = await look();
  const { page } = seen;
  await page.locator(".tile").first().waitFor();
  const { port } = server.address() as AddressInfo;
  await shut();
  await page.getByRole("alert").getByText("No answer").waitFor();
  await open(port);
  await page.getByRole("alert").waitFor({ state: "detached" });
  visitor = undefined;
  await page.getByRole("alert").getByText("Not allowed").waitFor();
  visitor = new Response("<form>Log in</form>", { headers: { "content-type": "text/html" } });
  await page.getByText("your session is over").waitFor();
  await leave(seen);
});

test("a list of thousands is read page by page", async () => {
  const kind = "inbox";
  for (let at = 0; at < 120; at += 1)
    await ledger.entries.put({ kind, scope: "s", key: `message ${String(at)}` }, ABSENT, RUNNING);
  const seen = await look();
  const { page } = seen;
  await seen.open("#/entries/inbox");
  const rows = (count: number) =>
    expect.poll(() => page.locator("tbody tr").count(), { timeout: WAIT_MS }).toBe(count);
  await rows(50);
  await page.getByRole("button", { name: "More" }).click();
  await rows(100);
  await page.getByRole("button", { name: "More" }).click();
  await rows(120);
  expect(await page.getByRole("button", { name: "More" }).count()).toBe(0);
  await page.getByLabel("Scope", { exact: true }).fill("s");
  await page.getByLabel("Key", { exact: true }).fill("message 77");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("heading", { name: "message 77" }).waitFor();
  await leave(seen);
});
