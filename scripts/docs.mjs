/**
 * `npm run docs`: makes the documentation site from the documents, into `site/` or the folder that is given. The site is a folder of
 * files: it works from a disk, and from any path of a web server. A link that leads nowhere is an error.
 */

import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, posix, resolve } from "node:path";
import { layout } from "./docs-site/layout.mjs";
import {
  createMarkdown,
  parsePage,
  relativeTo,
  renderCode,
  rewriteLinks,
  sectionsOf,
} from "./docs-site/markdown.mjs";
import { collectPages, targetOf } from "./docs-site/pages.mjs";
import { makeIndex } from "./docs-site/search.mjs";
import { Failure, install, main } from "./prepare.mjs";
import { isMain, root } from "./run.mjs";

/** Files that pages link to or show, and that are copied as they are. */
const COPIED = /^docs\/(pictures\/[\w.-]+\.(png|svg|webp)|openapi\.json)$/;
const SHOWN = /^(examples|deploy)\//;

const problems = [];

/** Makes a function from a link of a page to an address that is relative to the page. */
function linksOf({ page, headings }, { parsed, base, extra }) {
  return (link) => {
    const [path, hash] = link.split("#");
    const target = path === "" ? page.path : targetOf(page.path, decodeURI(path));
    const other = path === "" ? { page, headings } : parsed.get(target);
    const wrong = (why) => {
      problems.push(`${page.path}: ${link}: ${why}`);
      return "#";
    };
    if (other !== undefined) {
      const isThere = hash === undefined || other.headings.some(({ id }) => id === hash);
      if (!isThere) return wrong(`${target} has no heading #${hash}`);
      const file = path === "" ? "" : relativeTo(page.address, other.page.address);
      return hash === undefined ? file : `${file}#${hash}`;
    }
    const isFile = statSync(join(base, target), { throwIfNoEntry: false })?.isFile() === true;
    if (!isFile) return wrong("there is no such file");
    if (COPIED.test(target)) extra.copied.add(target);
    else if (SHOWN.test(target)) extra.shown.add(target);
    else return wrong("is no page of the site");
    const address = COPIED.test(target) ? target.slice("docs/".length) : `${target}.html`;
    return relativeTo(page.address, address);
  };
}

/** A program or a configuration as a page of its own. */
function fileAsPage(base, path) {
  const text = readFileSync(join(base, path), "utf8");
  const title = posix.basename(path);
  const page = { path, group: "Files", title, address: `${path}.html`, text };
  const html = `<h1 id="file">${title}</h1>\n${renderCode(posix.extname(path).slice(1), text)}`;
  return { page, html, headings: [] };
}

async function scriptOf() {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    entryPoints: [join(root, "scripts", "docs-site", "browser.mjs")],
    bundle: true,
    minify: true,
    format: "iife",
    write: false,
  });
  return outputFiles[0].text;
}

/** Writes the site of the tree `base` into `folder`, and returns its pages. Throws if a link leads nowhere. */
export async function buildSite(folder, base = root) {
  problems.length = 0;
  checkFolder(folder);
  const { version, description } = JSON.parse(readFileSync(join(base, "package.json"), "utf8"));
  const { groups, beside } = collectPages(base);
  const markdown = createMarkdown();
  const pages = [...groups.flatMap((group) => group.pages), ...beside];
  const parsed = new Map(
    pages.map((page) => [page.path, { page, ...parsePage(markdown, page.text) }]),
  );
  const extra = { copied: new Set(), shown: new Set() };
  const sections = [];
  const files = new Map();
  const write = ({ page, html, headings }) =>
    files.set(page.address, layout({ page, html, headings, groups, version, description }));
  for (const entry of parsed.values()) {
    const { page, tokens, env, headings } = entry;
    sections.push(
      ...sectionsOf(entry).map(({ heading, id, text }) => ({
        heading,
        text,
        page: page.title,
        group: page.group,
        address: id === "" ? page.address : `${page.address}#${id}`,
      })),
    );
    rewriteLinks(entry, linksOf(entry, { parsed, base, extra }));
    write({ page, html: markdown.renderer.render(tokens, markdown.options, env), headings });
  }
  for (const path of extra.shown) write(fileAsPage(base, path));
  if (problems.length > 0) throw new Failure(`links that lead nowhere:\n${problems.join("\n")}`);
  files.set("site.css", readFileSync(join(root, "scripts", "docs-site", "site.css"), "utf8"));
  files.set("site.js", await scriptOf());
  files.set(
    "search-index.js",
    `globalThis.hapaxSearchIndex=${JSON.stringify(makeIndex(sections))};`,
  );
  writeAll(folder, files);
  for (const path of extra.copied) {
    const target = join(folder, path.slice("docs/".length));
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(join(base, path), target);
  }
  return [...files.keys()].filter((address) => address.endsWith(".html"));
}

/** A folder with other files than those of an earlier build is left alone. */
function checkFolder(folder) {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  if (names.length > 0 && !names.includes("search-index.js")) {
    throw new Failure(`${folder} has other files; name an empty folder`);
  }
}

function writeAll(folder, files) {
  rmSync(folder, { recursive: true, force: true });
  for (const [address, text] of files) {
    const path = join(folder, address);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await install();
    const folder = resolve(process.argv[2] ?? join(root, "site"));
    const pages = await buildSite(folder);
    console.log(`${pages.length} pages in ${folder}: open ${join(folder, "index.html")}`);
  });
}
