// The example Worker: its page in a real browser, in front of real objects.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { findChromium } from "../client/browser-kit.ts";
import { requirePart } from "../client/runtimes-kit.ts";
import { root } from "../kits/documents.ts";
import { type ObjectsHost, startObjects, whyNoWorkerd } from "../kits/workerd-objects.ts";

const TIME_MS = 120_000;
const PROMPT = "Why is the sky blue?";
const reason = whyNoWorkerd();
let folder = "";
let host: ObjectsHost | undefined;
let browser: Browser | undefined;

/** The example as the kit wants it: bindings have the names of their classes. */
const WORKER = `import worker, { Account, Chat, Streams } from "../../examples/worker/dist/worker.mjs";
const named = (env) => ({ ...env, STREAMS: env.Streams, CHATS: env.Chat, ACCOUNTS: env.Account });
const withNames = (Base) => class extends Base {
  constructor(ctx, env) { super(ctx, named(env)); }
};
const objects = [Account, Chat, Streams].map(withNames);
export { objects };
export const entrypoint = { fetch: (request, env) => worker.fetch(request, named(env)) };
`;
const CLASSES = ["Account", "Chat", "Streams"];

beforeAll(async () => {
  if (reason !== undefined) return;
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
  const args = [join(root, "examples", "worker.mjs"), "--build"];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  mkdirSync(join(root, "coverage"), { recursive: true });
  folder = mkdtempSync(join(root, "coverage", "example-"));
  const classes = CLASSES.map((name, at) => `export const ${name}$ = objects[${at}];`);
  const text = `${WORKER}${classes.join("\n")}\nexport { Account$ as Account, Chat$ as Chat, Streams$ as Streams };\n`;
  writeFileSync(join(folder, "worker.mjs"), text);
  host = await startObjects({
    source: pathToFileURL(join(folder, "worker.mjs")),
    classes: CLASSES,
  });
  const program = await findChromium();
  if (program !== undefined) {
    browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
  }
}, 300_000);

beforeEach((context) => {
  requirePart(context, host, reason ?? "workerd has not started");
});

afterAll(async () => {
  await browser?.close();
  await host?.stop();
  if (folder !== "") rmSync(folder, { recursive: true, force: true });
});

/** All that a chat answers to the prompt. */
async function wholeAnswer(): Promise<string> {
  const url = new URL("../../examples/worker/model.mjs", import.meta.url).href;
  const { answerTo } = (await import(url)) as { answerTo: (prompt: string) => readonly string[] };
  return answerTo(PROMPT).join("");
}

test(
  "a page shows every word of the answer once, over a reload, evictions and a SIGKILL in the middle",
  { timeout: TIME_MS },
  async (context) => {
    const chrome = requirePart(context, browser, "no Chromium is installed: not tested");
    const running = requirePart(context, host, "workerd has not started");
    const whole = await wholeAnswer();
    const page = await (await chrome.newContext()).newPage();
    const seen = (): Promise<string> => page.locator("#answer").innerText();
    const untilLonger = async (than: number): Promise<string> => {
      for (;;) {
        const text = (await page.locator("#answer").textContent()) ?? "";
        expect(whole.startsWith(text), text).toBe(true);
        if (text.length > than) return text;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    await page.goto(running.url);
    await page.fill("input", PROMPT);
    await page.click("button");
    const first = await untilLonger(0);
    await page.reload();
    const second = await untilLonger(first.length);
    await running.object("Streams", "chat").evict();
    const third = await untilLonger(second.length);
    expect(third.length).toBeLessThan(whole.length);
    await running.restart();
    await page.locator("#state", { hasText: "done" }).waitFor({ timeout: 60_000 });
    expect(await page.locator("#answer").textContent()).toBe(whole);
    await page.reload();
    await page.locator("#state", { hasText: "done" }).waitFor({ timeout: 60_000 });
    expect(await page.locator("#answer").textContent()).toBe(whole);
    expect(await seen()).toContain("That is all.");
    await page.close();
  },
);

test(
  "a transfer is booked once on both accounts, also if it is sent again after a SIGKILL",
  { timeout: TIME_MS },
  async () => {
    if (host === undefined) throw new Error("workerd has not started");
    const { url } = host;
    const post = async (path: string, body: unknown): Promise<unknown> =>
      (await fetch(url + path, { method: "POST", body: JSON.stringify(body) })).json();
    const balance = async (account: string): Promise<unknown> =>
      (await fetch(`${url}/balance?account=${account}`)).json();
    await post("/deposit", { id: "d", account: "ann", cents: 500 });
    const transfer = { id: "t", from: "ann", to: "bob", cents: 200 };
    expect(await post("/transfer", transfer)).toMatchObject({
      result: { isBooked: true, balance: 300 },
    });
    await host.restart();
    expect(await post("/transfer", transfer)).toMatchObject({ isDuplicate: true });
    while ((await balance("bob")) !== 200) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await balance("ann")).toBe(300);
    const tooMuch = await post("/transfer", { ...transfer, id: "t2", cents: 1_000 });
    expect(tooMuch).toMatchObject({ result: { isBooked: false } });
  },
);
