/** The documentation site, as `npm run docs` makes it: its links, its search, and how it looks in a browser. */

import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, posix } from "node:path";
import { pathToFileURL } from "node:url";
import axe from "axe-core";
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { findChromium } from "./client/browser-kit.ts";
import { requirePart } from "./client/runtimes-kit.ts";
import { documents, root } from "./kits/documents.ts";

interface Found {
  readonly address: string;
}

const script = (name: string): string => pathToFileURL(join(root, "scripts", name)).href;
// Scripts without types; these are the parts of them that are used.
const { buildSite } = (await import(script("docs.mjs"))) as {
  buildSite: (folder: string, base?: string) => Promise<readonly string[]>;
};
const { openSearch } = (await import(script("docs-site/search.mjs"))) as {
  openSearch: (index: string) => (question: string) => readonly Found[];
};

const CLICKS_MAX = 2;
const scratch = mkdtempSync(join(tmpdir(), "hapax-site-"));
const site = join(scratch, "site");
/** The pictures of a run stay here, for people to look at. */
const pictures = join(root, "artefacts", "site");
let pages: readonly string[] = [];

beforeAll(async () => {
  pages = await buildSite(site);
}, 180_000);

afterAll(() => {
  rmSync(scratch, { recursive: true, force: true });
});

const texts = new Map<string, string>();
function htmlOf(address: string): string {
  const text = texts.get(address) ?? readFileSync(join(site, address), "utf8");
  texts.set(address, text);
  return text;
}

/** The links and files that a page names, without those to other hosts. */
function linksOf(address: string): readonly { readonly file: string; readonly hash: string }[] {
  return [...htmlOf(address).matchAll(/ (?:href|src)="([^"]*)"/g)]
    .map((match) => match[1] ?? "")
    .filter((link) => !/^(?:https?|data):/.test(link))
    .map((link) => {
      const [path = "", hash = ""] = link.split("#");
      const file =
        path === "" ? address : posix.normalize(posix.join(posix.dirname(address), path));
      return { file, hash };
    });
}

test("every document is a page, with the version in its header", () => {
  expect(pages.length).toBeGreaterThan(documents.length);
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    version: string;
  };
  const silent = pages.filter((page) => !htmlOf(page).includes(`>${version}</span>`));
  expect(silent).toEqual([]);
});

test("no link of the site is dead, and no page asks another host for anything", () => {
  const dead: string[] = [];
  let count = 0;
  for (const page of pages) {
    for (const { file, hash } of linksOf(page)) {
      count += 1;
      const isThere = statSync(join(site, file), { throwIfNoEntry: false })?.isFile() === true;
      const hasHash = hash === "" || (isThere && htmlOf(file).includes(` id="${hash}"`));
      if (!isThere || !hasHash) dead.push(`${page}: ${file}#${hash}`);
    }
    const foreign = htmlOf(page).match(/<(?:script|link|img|iframe)[^>]*(?:src|href)="https?:/g);
    if (foreign !== null) dead.push(`${page}: ${foreign.join()}`);
  }
  expect(dead).toEqual([]);
  expect(count).toBeGreaterThan(5_000);
  expect(readFileSync(join(site, "site.css"), "utf8")).not.toMatch(/url\(|@import/);
});

test("every page is reached from the first one in two clicks", () => {
  let reached = new Set(["index.html"]);
  for (let click = 0; click < CLICKS_MAX; click += 1) {
    const next = [...reached].flatMap((page) => linksOf(page).map(({ file }) => file));
    reached = new Set([...reached, ...next.filter((file) => file.endsWith(".html"))]);
  }
  expect(pages.filter((page) => !reached.has(page))).toEqual([]);
});

/** What people ask, and where the answer is. It must be among the first three results. */
const QUESTIONS = [
  [
    "how do I keep a payment from being charged twice",
    /^guides\/(idempotency-keys|process-once)|^index/,
  ],
  ["what happens when the server is killed with kill -9", /^faq|^index|^guides\/operations/],
  ["use my own drizzle transaction", /^guides\/query-builders/],
  ["webhook delivered twice", /^guides\/inbox|^recipes\/webhooks/],
  ["how to make a backup", /^guides\/operations|^faq/],
  ["difference to Kafka", /^comparison/],
  ["what does fenced mean", /^concepts|^glossary|^guides\/getting-started/],
  ["revoke an API key", /^guides\/api-keys/],
  ["how long is an idempotency key remembered", /^faq|^concepts/],
  ["undo steps when a later step fails", /^guides\/sagas/],
] as const;

describe("the search", () => {
  let find: (question: string) => readonly Found[] = () => [];

  beforeAll(() => {
    const text = readFileSync(join(site, "search-index.js"), "utf8");
    const index = /^globalThis\.hapaxSearchIndex=(.*);$/.exec(text)?.[1] ?? "";
    find = openSearch(JSON.parse(index) as string);
  });

  test.for(QUESTIONS)("finds: %s", ([question, answer]) => {
    const found = find(question).map(({ address }) => address);
    expect(
      found.slice(0, 3).filter((address) => answer.test(address)),
      found.join("\n"),
    ).not.toEqual([]);
  });
});

/** A tree of documents that is not ours. */
function treeOf(name: string, files: Readonly<Record<string, string>>): string {
  const base = join(scratch, name);
  const all = { "package.json": '{ "version": "1.2.3", "description": "A sample." }', ...files };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(base, path)), { recursive: true });
    writeFileSync(join(base, path), text);
  }
  return base;
}

test.for([
  ["a file that is not there", "[a](missing.md)", "there is no such file"],
  ["a heading that is not there", "[a](docs/other.md#no-such)", "has no heading #no-such"],
  ["a file that is no page", "[a](package.json)", "is no page of the site"],
])("a link to %s ends the build", async ([, link = "", reason]) => {
  const base = treeOf(`dead ${reason}`, { "README.md": link, "docs/other.md": "# Other" });
  await expect(buildSite(join(scratch, "none"), base)).rejects.toThrow(reason);
  expect(() => readdirSync(join(scratch, "none"))).toThrow("ENOENT");
});

test("a text of a document cannot bring elements into its page", async () => {
  const readme =
    '# A `<b>` title\n\n<script>alert(1)</script>\n\n```ts\nconst a = "<img src=x>";\n```\n';
  const base = treeOf("hostile", { "README.md": readme, "docs/other.md": "# Other" });
  await buildSite(join(scratch, "hostile site"), base);
  const html = readFileSync(join(scratch, "hostile site", "index.html"), "utf8");
  expect(html).not.toMatch(/<script>|<img|<b>/);
  expect(html).toContain("&lt;script&gt;");
});

test("a folder that holds other files is left alone", async () => {
  const folder = treeOf("other files", {});
  await expect(buildSite(folder)).rejects.toThrow("has other files");
});

describe("in a browser", () => {
  let browser: Browser | undefined;
  const REASON = "no Chromium is installed, and it cannot be installed here: no page was looked at";

  beforeAll(async () => {
    const program = await findChromium();
    if (program === undefined) return;
    browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
    mkdirSync(pictures, { recursive: true });
  }, 600_000);

  beforeEach((context) => {
    requirePart(context, browser, REASON);
  });

  afterAll(async () => {
    await browser?.close();
  });

  const VIEWS = [
    { name: "home", page: "index.html", width: 1400, colorScheme: "light" },
    { name: "concepts-dark", page: "concepts.html", width: 1400, colorScheme: "dark" },
    { name: "comparison", page: "comparison.html", width: 1000, colorScheme: "light" },
    { name: "reference-narrow", page: "reference/ledger.html", width: 375, colorScheme: "light" },
  ] as const;

  test.for(VIEWS)(
    "$name fits its screen, has no barrier, and its script has no error",
    async (view) => {
      if (browser === undefined) throw new Error(REASON);
      const page = await browser.newPage({
        viewport: { width: view.width, height: 900 },
        colorScheme: view.colorScheme,
      });
      const errors: string[] = [];
      page.on("pageerror", (error) => errors.push(error.message));
      page.on("request", (request) => {
        if (!/^(file|data):/.test(request.url())) errors.push(request.url());
      });
      await page.goto(pathToFileURL(join(site, view.page)).href);
      await page.screenshot({ path: join(pictures, `${view.name}.png`) });
      const wide = await page.evaluate("document.documentElement.scrollWidth");
      expect(wide).toBeLessThanOrEqual(view.width);
      // Texts of pictures are inside of their pictures.
      const cut =
        await page.evaluate(`[...document.querySelectorAll(".diagram svg")].filter((svg) => {
      const outer = svg.getBoundingClientRect();
      return [...svg.querySelectorAll("text")].some((text) => {
        const inner = text.getBoundingClientRect();
        return inner.left < outer.left - 1 || inner.right > outer.right + 1;
      });
    }).length`);
      expect(cut).toBe(0);
      await page.evaluate(axe.source);
      const { violations } = (await page.evaluate(
        "axe.run(document, { resultTypes: ['violations'] })",
      )) as { violations: readonly { id: string; nodes: readonly { html: string }[] }[] };
      expect(violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html ?? ""}`)).toEqual([]);
      expect(errors).toEqual([]);
      await page.close();
    },
  );

  test("a page begins at its beginning, and its link in the long navigation is in sight", async () => {
    if (browser === undefined) throw new Error(REASON);
    const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    await page.goto(pathToFileURL(join(site, "reference", "workers.html")).href);
    expect(await page.evaluate("scrollY")).toBe(0);
    const box = await page.locator("#navigation [aria-current]").boundingBox();
    expect(box?.y).toBeGreaterThan(0);
    expect(box?.y).toBeLessThan(900);
    await page.close();
  });

  test("the search is used with the keyboard alone", async () => {
    if (browser === undefined) throw new Error(REASON);
    const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    await page.goto(pathToFileURL(join(site, "guides", "outbox.html")).href);
    await page.keyboard.press("/");
    await page.keyboard.type("difference to kafka");
    // The whole question has been answered, and not its first letters.
    await page.waitForSelector('#results li:first-child a[href*="comparison"]');
    await page.screenshot({ path: join(pictures, "search.png") });
    await page.keyboard.press("Enter");
    await page.waitForURL(/comparison\.html/);
    expect(await page.locator("h1").textContent()).toContain("Compared");
    await page.close();
  });
});
