/**
 * Checks the repository itself: that documents, labels, tests and sources speak of the same things.
 * What the compiler and the linter can say is not repeated here.
 *
 * Each check is a name and a function from a tree to its problems, so that test/tidy.test.ts can show
 * that each finds a planted one.
 */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { boundaryProblems } from "./boundaries.mjs";
import { isMain, root } from "./run.mjs";

const SOURCE_LINES_MAX = 500;
// Under 150; the promises of GUARANTEES.md are counted there. A label is for a rule that a document or an assertion cites.
const LABELS_MAX = 127;
const BUILD_OUTPUT = /(^|\/)(dist|node_modules|coverage)\/|\.tsbuildinfo$/;
// Written in parts, so that this file does not find itself.
const TASK_MARK = new RegExp(
  `(?<!\`)\\b(${["TO" + "DO", "FIX" + "ME"].join("|")})\\b(?!\\(?\\s?#\\d)`,
);
const MACHINE_PATH = new RegExp(
  `(?<![\\w.-])/(${["home", "Users", "root", "work"].join("|")})/\\w|\\b[A-Z]:\\\\Users\\\\`,
);
const REGISTRY_HOST =
  /\b(registry\.[a-z0-9-]+\.[a-z]+|npm\.pkg\.[a-z]+|[\w.-]*artifactory[\w-]*\.\w+)/;

// Words that make a riddle of a sentence: name the one who acts instead, `a reader`, `no caller`, `the server answers`.
// In parts, for the same reason.
const RIDDLES = [
  ["no" + "body", "some" + "body", "who" + "ever", "what" + "ever"],
  ["is", "are"].map((verb) => `${verb} told`),
  ["hear", "hears"].map((verb) => `${verb} of`),
  ["come", "comes", "came"].map((verb) => `${verb} to`),
  ["under" + " way", "for" + " ever"],
].flat();
// Two words may stand on two lines of a comment.
const RIDDLE = new RegExp(
  `\\b(${RIDDLES.join("|").replaceAll(" ", String.raw`\s+(?:(?:\*|//)\s+)?`)})\\b`,
  "gi",
);
// There were 580. It can only fall.
const RIDDLES_MAX = 0;

/** A tree of files: the tracked ones and those that are about to be, read when asked for. */
export function openTree(base) {
  const git = (...args) =>
    execFileSync("git", ["-C", base, "ls-files", "-z", ...args], { encoding: "utf8" })
      .split("\0")
      .filter((path) => path !== "" && existsSync(join(base, path)))
      .toSorted((one, other) => (one < other ? -1 : 1));
  const isRepository = existsSync(join(base, ".git"));
  const paths = isRepository ? git("--cached", "--others", "--exclude-standard") : walk(base);
  const texts = new Map();
  return {
    paths,
    tracked: isRepository ? git("--cached") : paths,
    has: (path) => paths.includes(path),
    read(path) {
      if (!texts.has(path)) {
        texts.set(path, existsSync(join(base, path)) ? readFileSync(join(base, path), "utf8") : "");
      }
      return texts.get(path);
    },
  };
}

function walk(base) {
  return readdirSync(base, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(base.length + 1))
    .map((path) => path.replaceAll("\\", "/"))
    .filter((path) => !BUILD_OUTPUT.test(path) && !path.startsWith(".git/"));
}

const isTest = (path) => path.endsWith(".test.ts");
const isSource = (path) => /^src\/.*\.tsx?$/.test(path) && !isTest(path);
const isTesting = (path) => /^(src\/testing\/|test\/).*\.ts$/.test(path) || isTest(path);

/** Titles of tests, suites and conformance cases, as far as they are written as literals. */
export function testTitles(tree) {
  const titles = [];
  const literal = String.raw`(["'\x60])((?:\\.|(?!\1)[^\\])*)\1`;
  const forms = [
    new RegExp(String.raw`(?:\b(?:test|it|describe)(?:\.\w+)*|\))\(\s*${literal}\s*,`, "g"),
    new RegExp(String.raw`\b(?:name|title):\s*${literal}`, "g"),
    new RegExp(String.raw`()[[(]\s*"((?:[A-Z]{1,3}\d+ )[^"\n]*)"\s*,`, "g"),
  ];
  for (const path of tree.paths.filter(isTesting)) {
    const text = tree.read(path);
    for (const form of forms) {
      for (const match of text.matchAll(form)) titles.push(match[2].replace(/\\(.)/g, "$1"));
    }
  }
  return titles;
}

const hasLabel = (titles, label) =>
  titles.some((title) => new RegExp(`\\b${label}\\b`).test(title));

/** So many letters beside its placeholders make a title known. `%s` or `P5 %s` would be any title. */
const TITLE_LETTERS_MIN = 8;

/**
 * Whether a quoted title is one of the titles, whose placeholders stand for any text. If a title has little else, what its
 * placeholders stand for has to be spelled out in a test, as the rows of a table are.
 */
export function isTitle(tree, titles, quoted) {
  const isSpelled = (text) =>
    tree.paths.some(
      (path) =>
        isTesting(path) &&
        !path.startsWith("test/faults/") &&
        tree.read(path).includes(`"${text}"`),
    );
  return titles.some((title) => {
    if (title === quoted) return true;
    const parts = title.split(/\$\{[^}]*\}|%[sdifjo]|\$[a-z][\w.]*/);
    if (parts.length === 1) return false;
    const escaped = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const match = new RegExp(`^${escaped.join("(.*)")}$`).exec(quoted);
    if (match === null) return false;
    const letters = parts.join("").replace(/[^a-z]/gi, "").length;
    return letters >= TITLE_LETTERS_MIN || match.slice(1).every(isSpelled);
  });
}

function lineOf(text, index) {
  return text.slice(0, index).split("\n").length;
}

/** The first block comment, if nothing but a shebang and line comments stand before it. */
function header(text) {
  return /^(?:#!.*\n|\s*\/\/.*\n|\s+)*\/\*([\s\S]*?)\*\//.exec(text)?.[1] ?? "";
}

function invariantLabels(tree) {
  const titles = testTitles(tree);
  const problems = [];
  const owners = new Map();
  for (const path of tree.paths.filter(isSource)) {
    for (const [, label] of header(tree.read(path)).matchAll(
      /^\s*\*\s+([A-Z]{1,3}\d+[a-z]?)\s{2,}\S/gm,
    )) {
      if (!hasLabel(titles, label)) problems.push(`${path}: no test title carries ${label}`);
      const owner = owners.get(label);
      if (owner !== undefined) problems.push(`${path}: ${label} is taken by ${owner}`);
      owners.set(label, path);
    }
  }
  if (owners.size > LABELS_MAX) {
    problems.push(`${owners.size} labels; at most ${LABELS_MAX}: state the rule without one`);
  }
  return problems;
}

/** Sections cited as `PROTOCOL.md §5.2`, also in lists: `PROTOCOL.md §5.2, §6`. */
function citations(text) {
  const flat = text.replace(/\n\s*(?:\*|\/\/)\s?/g, (gap) => " ".repeat(gap.length));
  const found = [];
  for (const match of flat.matchAll(
    /PROTOCOL\.md\s+(§\d+(?:\.\d+)*(?:(?:,| and| to|–|-)\s*§\d+(?:\.\d+)*)*)/g,
  )) {
    for (const [section] of match[1].matchAll(/\d+(?:\.\d+)*/g)) {
      found.push({ section, line: lineOf(text, match.index) });
    }
  }
  return found;
}

function protocolSections(tree) {
  if (!tree.has("PROTOCOL.md")) return ["PROTOCOL.md is missing"];
  const headings = [...tree.read("PROTOCOL.md").matchAll(/^(#{2,})\s+(\d+(?:\.\d+)*)\.?\s/gm)];
  const sections = new Set(headings.map((match) => match[2]));
  const problems = sections.size === 0 ? ["PROTOCOL.md has no numbered section"] : [];
  const tested = new Set();
  for (const path of tree.paths.filter((name) => /^(src|test)\/.*\.ts$/.test(name))) {
    for (const { section, line } of citations(tree.read(path))) {
      if (!sections.has(section)) problems.push(`${path}:${line}: PROTOCOL.md has no §${section}`);
      if (isTesting(path)) tested.add(section.split(".")[0]);
    }
    const spelled = /PROTOCOL\.md,? (?:sections?|chapters?) \d/.exec(tree.read(path));
    if (spelled !== null) {
      problems.push(
        `${path}:${lineOf(tree.read(path), spelled.index)}: cite it as PROTOCOL.md §1.2`,
      );
    }
  }
  for (const [, level, section] of headings) {
    if (level.length === 2 && !tested.has(section)) {
      problems.push(`PROTOCOL.md §${section} is cited by no test`);
    }
  }
  return problems;
}

/** Sections `## G1`: the list behind `**Tests:**` quotes the tests that hold the promise. */
function guarantees(tree) {
  if (!tree.has("GUARANTEES.md")) return ["GUARANTEES.md is missing"];
  const titles = testTitles(tree);
  const sections = tree
    .read("GUARANTEES.md")
    .split(/^## /m)
    .filter((text) => /^G\d/.test(text));
  const problems = sections.length === 0 ? ["GUARANTEES.md has no section ## G1"] : [];
  for (const section of sections) {
    const label = /^G\d+/.exec(section)[0];
    if (!hasLabel(titles, label)) problems.push(`GUARANTEES.md: no test title carries ${label}`);
    const [, tests = ""] = section.split("**Tests:**");
    const quotes = [...tests.matchAll(/^\s*- `([^`]+)`$/gm)].map((match) => match[1]);
    if (quotes.length === 0) problems.push(`GUARANTEES.md: ${label} quotes no test`);
    for (const quoted of quotes) {
      if (!isTitle(tree, titles, quoted))
        problems.push(`GUARANTEES.md: ${label}: no test "${quoted}"`);
    }
  }
  return problems;
}

function errorCodes(tree) {
  // The table is in two files: the codes of stores have their own.
  const files = ["src/base/error-table.ts", "src/base/error-table-stores.ts"];
  const tables = files
    .filter((file) => tree.has(file))
    .map((file) => {
      return /export const \w*ERRORS = \{([\s\S]*?)\n\}/.exec(tree.read(file))?.[1] ?? "";
    });
  const codes = tables.flatMap((table) =>
    [...table.matchAll(/^ {2}(\w+): \{/gm)].map((match) => match[1]),
  );
  if (codes.length === 0) return ["src/base/error-table.ts: no table ERRORS was found"];
  if (!tree.has("docs/errors.md")) return ["docs/errors.md is missing"];
  const rows = [...tree.read("docs/errors.md").matchAll(/^\|\s*`([a-z_]+)`\s*\|/gm)];
  const documented = rows.map((match) => match[1]);
  return [
    ...codes.filter((code) => !documented.includes(code)).map((code) => `${code} has no row`),
    ...documented.filter((code) => !codes.includes(code)).map((code) => `${code} is not a code`),
    ...documented
      .filter((code, at) => documented.indexOf(code) < at)
      .map((code) => `${code} twice`),
  ].map((problem) => `docs/errors.md: ${problem}`);
}

/** Lines of tracked text that match, named without quoting the whole line. */
function linesMatching(tree, pattern, what) {
  const problems = [];
  for (const path of tree.paths) {
    if (path === "package-lock.json" || path === "LICENSE") continue;
    for (const [index, line] of tree.read(path).split("\n").entries()) {
      const match = pattern.exec(line);
      if (match !== null) problems.push(`${path}:${index + 1}: ${what}: ${match[0].trim()}`);
    }
  }
  return problems;
}

/** Not in files that a version of the past has written, nor in what the changelog says of the past. */
const KEEPS_RIDDLES = /(^|\/)golden\/|^(CHANGELOG\.md|package-lock\.json|LICENSE)$/;

function plainWords(tree) {
  const problems = [];
  for (const path of tree.paths.filter((name) => !KEEPS_RIDDLES.test(name))) {
    const text = tree.read(path);
    for (const match of text.matchAll(RIDDLE)) {
      const words = match[0].replace(/\s+(?:(?:\*|\/\/)\s+)?/g, " ");
      problems.push(`${path}:${lineOf(text, match.index)}: "${words}": name the one who acts`);
    }
  }
  return problems.length > RIDDLES_MAX ? problems : [];
}

function fileLengths(tree) {
  return tree.paths
    .filter((path) => isSource(path))
    .map((path) => ({ path, lines: tree.read(path).trimEnd().split("\n").length }))
    .filter(({ lines }) => lines > SOURCE_LINES_MAX)
    .map(({ path, lines }) => `${path} has ${lines} lines; at most ${SOURCE_LINES_MAX}`);
}

function buildOutput(tree) {
  return tree.tracked.filter((path) => BUILD_OUTPUT.test(path)).map((path) => `${path} is tracked`);
}

/** Every module that package.json points to inside dist, as its source; `*` stays in the pattern. The build makes the JSON. */
function entryPoints(tree) {
  const manifest = JSON.parse(tree.read("package.json") || "{}");
  const targets = [];
  const collect = (value) => {
    if (typeof value === "string") targets.push(value);
    else if (typeof value === "object" && value !== null) Object.values(value).forEach(collect);
  };
  collect(manifest.exports);
  collect(manifest.bin);
  return [...new Set(targets)]
    .filter((target) => target.startsWith("./dist/") && !target.endsWith(".json"))
    .map((target) => ({
      target,
      source: target.replace("./dist/", "src/").replace(/(\.d\.ts|\.js)$/, ".ts"),
    }));
}

function sourcesOf(tree, pattern) {
  const [before, after] = pattern.split("*");
  if (after === undefined) return tree.has(pattern) ? [pattern] : [];
  return tree.paths.filter(
    (path) =>
      isSource(path) &&
      path.startsWith(before) &&
      path.endsWith(after) &&
      !path.slice(before.length).includes("/"),
  );
}

function exportTargets(tree) {
  const entries = entryPoints(tree);
  if (entries.length === 0) return ["package.json exports nothing"];
  return entries
    .filter(({ source }) => sourcesOf(tree, source).length === 0)
    .map(({ target, source }) => `package.json: ${target} has no source ${source}`);
}

function reachableSources(tree) {
  const queue = entryPoints(tree).flatMap(({ source }) => sourcesOf(tree, source));
  // The build compiles it into a module of the server.
  queue.push(
    ...["src/dashboard/main.tsx", "src/dashboard/console/main.tsx"].filter((path) =>
      tree.has(path),
    ),
  );
  const reached = new Set(queue);
  for (const path of queue) {
    const specifiers = tree
      .read(path)
      .matchAll(/(?:\bfrom|\bimport|\bimport\(|\bnew URL\()\s*["'](\.[^"']+)["']/g);
    for (const [, specifier] of specifiers) {
      const target = posix.normalize(posix.join(dirname(path), specifier)).replace(/\.js$/, ".ts");
      if (reached.has(target) || !tree.has(target)) continue;
      reached.add(target);
      queue.push(target);
    }
  }
  return tree.paths
    .filter((path) => isSource(path) && !path.endsWith(".d.ts") && !reached.has(path))
    .map((path) => `${path} is reached from no export and no bin`);
}

function decisions(tree) {
  const pages = tree.paths.filter((path) => /^docs\/decisions\/(?!README)[^/]+\.md$/.test(path));
  if (pages.length === 0) return ["docs/decisions has no page"];
  return pages.flatMap((path) =>
    ["Status", "Context", "Decision", "Consequences"]
      .filter(
        (word) => !new RegExp(`^(#+\\s+${word}\\b|\\**${word}\\**:)`, "m").test(tree.read(path)),
      )
      .map((word) => `${path} has no heading ${word}`),
  );
}

function changelog(tree) {
  if (!tree.has("CHANGELOG.md")) return ["CHANGELOG.md is missing"];
  const { version } = JSON.parse(tree.read("package.json") || "{}");
  const headings = tree.read("CHANGELOG.md").match(/^##\s.*$/gm) ?? [];
  const isNamed = headings.some((line) => line.replace(/[[\]]/g, "").split(/\s+v?/)[1] === version);
  return isNamed ? [] : [`CHANGELOG.md has no entry for ${version}`];
}

const HEADER_HOMES = ["src/protocol/header-names.ts", "src/protocol/headers.ts"];
/**
 * The test kits spell headers as the wire does: else a wrong name would be wrong on both sides, and no test would find it. The
 * rules of streams import no protocol. In the client's bundle a name that is shared costs more than one that is written
 * out; there only unknown names are found.
 */
const SPELLS_HEADERS = /^src\/(testing|streams\/core)\//;
const IN_BUNDLE = /^src\/client\/[^/]+$/;

/** Names of the protocol's headers that are written as text outside of their home, or that are no names at all. */
function headerNames(tree) {
  const home = tree.read(HEADER_HOMES[0]);
  const known = new Set([...home.matchAll(/= "([^"]+)";/g)].map(([, name]) => name.toLowerCase()));
  const problems = [];
  const sources = tree.paths.filter(
    (path) => isSource(path) && !HEADER_HOMES.includes(path) && !SPELLS_HEADERS.test(path),
  );
  for (const path of sources) {
    // Comments may name them; their lines stay, so that the numbers are right.
    const text = tree.read(path);
    const code = text
      .replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ""))
      .replace(/^\s*\/\/.*$/gm, "");
    for (const match of code.matchAll(/"((?:stream|producer|idempotency)(?:-[a-z]+)+)"/gi)) {
      const isKnown = known.has(match[1].toLowerCase());
      if (isKnown && IN_BUNDLE.test(path)) continue;
      if (!isKnown && !IN_BUNDLE.test(path)) continue;
      const why = isKnown ? "is a header: import its name" : "is no header of the protocol";
      problems.push(`${path}:${lineOf(code, match.index)}: ${match[0]} ${why}`);
    }
  }
  return problems;
}

/** The reference is for readers who do not know the labels. Words such as UTF8, SHA256 and RFC numbers are no labels. */
function labelsInReference(tree) {
  const labels = new Set(
    tree.paths
      .filter(isSource)
      .flatMap((path) =>
        [...header(tree.read(path)).matchAll(/^\s*\*\s+([A-Z]{1,3}\d+[a-z]?)\s{2,}\S/gm)].map(
          ([, label]) => label,
        ),
      ),
  );
  return tree.paths
    .filter((path) => path.startsWith("docs/reference/"))
    .flatMap((path) =>
      [...tree.read(path).matchAll(/\b[A-Z]{1,3}\d+[a-z]?\b/g)]
        .filter(([label]) => labels.has(label))
        .map(({ 0: label, index }) => {
          const line = lineOf(tree.read(path), index);
          return `${path}:${line}: ${label} is a label: say the rule`;
        }),
    );
}

export const checks = [
  { name: "invariant labels", find: invariantLabels },
  { name: "protocol sections", find: protocolSections },
  { name: "guarantees", find: guarantees },
  { name: "error codes", find: errorCodes },
  { name: "open tasks", find: (tree) => linesMatching(tree, TASK_MARK, "no issue number") },
  { name: "plain words", find: plainWords },
  { name: "labels in the reference", find: labelsInReference },
  { name: "file lengths", find: fileLengths },
  { name: "build output", find: buildOutput },
  { name: "export targets", find: exportTargets },
  { name: "reachable sources", find: reachableSources },
  { name: "machine paths", find: (tree) => linesMatching(tree, MACHINE_PATH, "machine path") },
  { name: "registry hosts", find: (tree) => linesMatching(tree, REGISTRY_HOST, "registry host") },
  { name: "floor plan", find: boundaryProblems },
  { name: "header names", find: headerNames },
  { name: "decisions", find: decisions },
  { name: "changelog", find: changelog },
];

/** The problems of all checks, each with the name of its check in front. */
export function tidy(base) {
  const tree = openTree(base);
  return checks.flatMap(({ name, find }) => find(tree).map((problem) => `${name}: ${problem}`));
}

if (isMain(import.meta.url)) {
  const problems = tidy(root);
  for (const problem of problems) console.log(problem);
  if (problems.length > 0) process.exitCode = 1;
  else console.log(`tidy: ${checks.length} checks passed`);
}
