// PROTOCOL.md §12.13: what the dashboard shows of retention, jobs and clusters, and every page in both colours and on a narrow screen.
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { findChromium } from "../client/browser-kit.ts";
import { requirePart } from "../client/runtimes-kit.ts";
import { freshSchema, PEER_KEY, urlOf } from "../cluster/kit.ts";
import { startNode } from "../cluster/processes.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import {
  barriers,
  JSON_TYPE,
  leave,
  type RunningServer,
  send,
  startServer,
  visit,
  WAIT_MS,
} from "./stage.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const REASON = "no Chromium is installed, and it cannot be installed here: no browser was tested";
const at = (page: string, name: string): string => `#/${page}/${encodeURIComponent(name)}`;

let browser: Browser | undefined;
let server: RunningServer;

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = new URL("../../scripts/prepare.mjs", import.meta.url).href;
  const { buildIfNeeded } = (await import(prepare)) as { buildIfNeeded: () => Promise<void> };
  await buildIfNeeded();
  const executablePath = await findChromium();
  if (executablePath === undefined) return;
  server = await startServer();
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
});

beforeEach((context) => {
  requirePart(context, browser, REASON);
});

afterAll(async () => {
  await browser?.close();
  if (browser !== undefined) await server.close();
});

function look(url = `${server.url}/_hapax/ui/`, options: Parameters<typeof visit>[2] = {}) {
  if (browser === undefined) throw new Error(REASON);
  return visit(browser, url, options);
}

const headOf = async (path: string): Promise<Headers> =>
  (await send("HEAD", `${server.url}${path}`)).headers;

test("a stream is trimmed after a confirmation, refused while a group needs it, and keeps by a rule", async () => {
  const path = "/v1/stream/kept/log";
  await send("PUT", `${server.url}${path}`, JSON_TYPE);
  for (let n = 0; n < 3; n += 1) await send("POST", `${server.url}${path}`, JSON_TYPE, { n });
  await send("PUT", `${server.url}/_hapax/groups/slow`, JSON_TYPE, { streams: [path] });
  const seen = await look();
  const { page } = seen;
  await seen.open(at("stream", path));
  const card = page.getByRole("region", { name: "What it keeps" });
  await card.getByText("keeps everything").waitFor();
  await card.getByRole("button", { name: "Trim…" }).click();
  const second = "0000000000000000_0000000000000008";
  await page.getByLabel("Trim what is before").fill(second);
  const sure = page.getByRole("button", { name: "Trim", exact: true });
  expect(await sure.isDisabled()).toBe(true);
  await page.getByLabel("Type log to go on").fill("log");
  await sure.click();
  await page.locator("dialog").getByText("a group still needs the data").waitFor();
  expect((await headOf(path)).get("stream-earliest-offset")).toMatch(/_0+$/);
  await page.getByLabel("What groups, subscriptions and forks still need").selectOption("drop");
  await sure.click();
  await card.getByText("8 B", { exact: true }).waitFor();
  expect((await headOf(path)).get("stream-earliest-offset")).toBe(second);
  await card.getByRole("button", { name: "Set the rule…" }).click();
  await page.getByLabel("Seconds to keep").fill("86400");
  await page.getByLabel("Newest bytes to keep").fill("4096");
  await page.getByRole("button", { name: "Set the rule", exact: true }).click();
  await card.getByText("keeps what is younger than 1 d, and of it the newest 4.0 KiB").waitFor();
  expect((await headOf(path)).get("stream-retention")).toBe("seconds=86400, bytes=4096");
  await seen.shoot("retention");
  expect(await barriers(seen)).toEqual([]);
  await leave(seen);
});

test("a changelog says what it keeps", async () => {
  const path = "/v1/stream/kept/users";
  const rule = { "stream-compact-key": "user.id, tombstone=value, lag=90" };
  await send("PUT", `${server.url}${path}`, { ...JSON_TYPE, ...rule });
  const seen = await look();
  await seen.open(at("stream", path));
  const card = seen.page.getByRole("region", { name: "What it keeps" });
  await card
    .getByText(
      "keeps the newest record of each user.id; one without value deletes it; records stay for 90 s",
    )
    .waitFor();
  expect(await card.getByText("keeps everything").count()).toBe(0);
  await leave(seen);
});

test("the records of a trimmed stream are shown from where it begins", async () => {
  const path = "/v1/stream/trimmed";
  await send("PUT", `${server.url}${path}`, JSON_TYPE);
  for (let n = 1; n <= 2; n += 1) await send("POST", `${server.url}${path}`, JSON_TYPE, { n });
  const cut = `/_hapax/trim?stream=${path}&before=0000000000000000_0000000000000008`;
  expect((await send("POST", `${server.url}${cut}`)).status).toBe(204);
  const seen = await look();
  await seen.open(at("stream", path));
  await seen.page.locator(".records pre", { hasText: '"n": 2' }).waitFor();
  expect(await seen.page.locator(".records li").count()).toBe(1);
  await leave(seen);
});

test("a group of jobs shows what is at work, what waits and how often it was tried, and no worker is a trouble", async () => {
  const { url } = server;
  const path = "/v1/stream/mails";
  await send("PUT", `${url}${path}`, JSON_TYPE);
  await send("POST", `${url}${path}`, JSON_TYPE, [1, 2, 3, 4]);
  const post = async (verb: string, body: object) =>
    (
      await send("POST", `${url}/_hapax/groups/mailers/${verb}`, JSON_TYPE, body)
    ).json() as Promise<{
      readonly member: string;
      readonly token: number;
      readonly jobs: readonly { readonly stream: string; readonly offset: string }[];
    }>;
  await send("PUT", `${url}/_hapax/groups/mailers`, JSON_TYPE, { streams: [path], jobs: true });
  const seen = await look();
  const { page } = seen;
  await seen.open(at("groups", "mailers"));
  const row = page.locator(`[data-row="${path}"]`);
  await row.getByText("stuck: no worker").waitFor();
  const { member } = await post("join", { name: "w" });
  const { token, jobs } = await post("take", { member, max: 3 });
  const [first, second] = jobs;
  await post("settle", {
    member,
    done: [{ ...first, token }],
    later: [{ ...second, token, delayMs: 600_000 }],
  });
  await row.getByText("up to 1").waitFor();
  expect(await row.locator("td").allTextContents()).toEqual([
    path,
    "2",
    "6 B",
    "1",
    "1",
    "up to 1",
    "at work",
    "Reset…",
  ]);
  await seen.shoot("jobs");
  expect(await barriers(seen)).toEqual([]);
  await leave(seen);
});

test("more groups than a page shows are reached by the next page, and the way back", async () => {
  const path = "/v1/stream/many-groups";
  await send("PUT", `${server.url}${path}`, JSON_TYPE);
  // The names of the other tests come after these.
  const names = Array.from({ length: 101 }, (_, n) => `a-${String(n).padStart(3, "0")}`);
  await Promise.all(
    names.map((name) =>
      send("PUT", `${server.url}/_hapax/groups/${name}`, JSON_TYPE, { streams: [path] }),
    ),
  );
  const seen = await look();
  const { page } = seen;
  const row = (name: string) => page.locator(`[data-row="${name}"]`);
  await seen.open("#/groups");
  await row("a-099").waitFor();
  expect(await row("a-100").count()).toBe(0);
  await page.getByRole("button", { name: "Next page" }).click();
  await row("a-100").waitFor();
  expect(await row("a-099").count()).toBe(0);
  await page.getByRole("button", { name: "Page before" }).click();
  await row("a-099").waitFor();
  await leave(seen);
});

test("the page of dead letters says when it does not show all of them", async () => {
  const path = "/v1/stream/many-dead";
  await send("PUT", `${server.url}${path}`, JSON_TYPE);
  const letters = Array.from({ length: 1001 }, (_, n) => ({
    id: `many//v1/stream/many/x/${String(n)}`,
    stream: "/v1/stream/many",
    offset: "0000000000000000_0000000000000000",
    record: n,
    reason: { fingerprint: "aa", message: "no answer" },
    attempts: 3,
    at: "2026-11-18T12:00:00.000Z",
  }));
  await send("POST", `${server.url}${path}`, JSON_TYPE, letters);
  const seen = await look();
  const { page } = seen;
  await seen.open("#/dead-letters");
  await page.getByRole("link", { name: path }).click();
  await page.getByText("These are the first 1,000.").waitFor();
  await leave(seen);
});

test("every page is accessible in the dark and in the light, and does not scroll sideways on a narrow screen", async () => {
  const pages = ["overview", "streams", "groups", "subscriptions", "look-up", "dead-letters"];
  const places = [
    ...pages.map((page) => `#/${page}`),
    "#/tokens",
    at("stream", "/v1/stream/kept/log"),
    at("groups", "slow"),
    at("groups", "mailers"),
  ];
  const wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
  for (const options of [{ scheme: "dark" }, { scheme: "light", width: 390 }] as const) {
    const seen = await look(undefined, options);
    for (const place of places) {
      await seen.open(place);
      await seen.page.locator("main .card, main .tiles, main .empty").first().waitFor();
      expect(await barriers(seen), `${place} ${options.scheme}`).toEqual([]);
      expect(await seen.page.evaluate(wider), place).toBe(0);
      const name = decodeURIComponent(place).replaceAll(/[^a-z]+/g, "-");
      await seen.shoot(`all${name}-${options.scheme}`);
    }
    await leave(seen);
  }
});

test("in a cluster the nodes and the owners of all shards are shown, also after a node was killed", async (context) => {
  const reason = whyNoPostgres();
  requirePart(context, reason === undefined ? true : undefined, reason ?? "");
  const database = await startPostgres();
  const schema = freshSchema();
  const start = (node: string) =>
    startNode({
      database: urlOf(database),
      node,
      databaseOptions: { durability: "os", schema },
      leaseMs: 2000,
      peerKey: PEER_KEY,
    });
  const nodes = [await start("n1"), await start("n2")];
  try {
    const [one, two] = nodes;
    await send("PUT", `${one?.url}/v1/stream/acme/orders`, JSON_TYPE, "[1,2]");
    const seen = await look(`${one?.url}/_hapax/ui/`);
    const { page } = seen;
    await page.getByText("These are the figures of the node n1").waitFor();
    await page.locator('[data-tile="Streams"] .figure').waitFor();
    await page.keyboard.press("8");
    await page.getByRole("heading", { name: "Nodes", level: 1 }).waitFor();
    const row = (name: string) => page.locator(`[data-row="${name}"]`);
    await row("n2").getByText("alive").waitFor();
    await expect.poll(() => page.locator("[data-shard]").count(), { timeout: WAIT_MS }).toBe(16);
    await page.locator("[data-shard]", { hasText: "n2" }).first().waitFor();
    await page.getByText("all have an owner").waitFor();
    await seen.shoot("nodes");
    expect(await barriers(seen)).toEqual([]);
    two?.child.kill("SIGKILL");
    await row("n2").getByText("no sign of life").waitFor();
    await expect
      .poll(() => page.locator("[data-shard]", { hasText: "n1" }).count(), { timeout: WAIT_MS })
      .toBe(16);
    await page.getByText("all have an owner").waitFor();
    await seen.shoot("nodes-one-dead");
    await leave(seen);
  } finally {
    for (const { child, ended } of nodes) {
      child.kill("SIGKILL");
      await ended;
    }
    await database.stop();
  }
});
