// tidy guards the repository, so each of its checks is shown to find a planted problem: a small sound
// tree has none, and every case below breaks it in one place. Its labels (ZZ1, G901) belong to no real
// file: tidy reads this file for titles too.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { checks, openTree, testTitles, tidy } from "../scripts/tidy.mjs";

const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const section = "PROTOCOL.md \u00a7";

const sound: Readonly<Record<string, string>> = {
  "package.json": JSON.stringify({
    version: "1.2.3",
    bin: { hapax: "./dist/bin.js" },
    exports: {
      ".": { types: "./dist/index.d.ts", default: "./dist/index.js" },
      "./stores/*": "./dist/streams/stores/*.js",
      "./testing": "./dist/testing/suite.js",
      "./package.json": "./package.json",
    },
  }),
  "src/index.ts": 'export * from "./streams/core/rule.ts";\n',
  "src/bin.ts": '#!/usr/bin/env node\nawait import("./base/error-table.ts");\n',
  "src/streams/stores/memory.ts": "export const memory = 1;\n",
  "src/base/error-table.ts":
    "export const ERRORS = {\n  gone: {\n    status: 410,\n  },\n} as const;\n",
  "src/streams/core/rule.ts": `/**\n * A rule.\n *\n *   ZZ1  it holds;\n * ZZ2  it lasts.\n *\n * ${section}1.1.\n */\nexport const rule = 1;\n`,
  "src/streams/core/rule.test.ts": 'test("ZZ1 G901 it holds", () => {});\n',
  "src/testing/suite.ts": 'export const cases = [{ name: "ZZ2 it lasts" }];\n',
  "test/protocol/one.test.ts": `describe("${section}1 and ${section}2.1", () => {});\n`,
  "PROTOCOL.md": "# Protocol\n\n## 1 One\n\n### 1.1 First\n\n## 2. Two\n\n### 2.1 Second\n",
  "GUARANTEES.md":
    "# Guarantees\n\n## G901\n\n**It holds: `x`.**\n\n- **Tests:**\n  - `ZZ1 G901 it holds`\n",
  "docs/errors.md": "| code | status |\n| --- | --- |\n| `gone` | 410 |\n",
  "docs/decisions/0001-one.md":
    "# One\n\n## Status\n\n## Context\n\n## Decision\n\n## Consequences\n",
  "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-01-01)\n",
};

/** The sound tree with some files changed or, with `undefined`, left out. */
function plant(changes: Readonly<Record<string, string | undefined>>): string {
  const folder = mkdtempSync(join(tmpdir(), "hapax-tidy-"));
  folders.push(folder);
  for (const [path, text] of Object.entries({ ...sound, ...changes })) {
    if (text === undefined) continue;
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  return folder;
}

interface Planted {
  readonly check: string;
  readonly problem: string;
  readonly changes: Readonly<Record<string, string | undefined>>;
}

const mark = "TO" + "DO";
const anyone = "who" + "ever";

const headers = 'export const STREAM_LIFE = "Stream-Life";\n';

const planted: readonly Planted[] = [
  {
    check: "header names",
    problem: 'src/streams/stores/memory.ts:2: "stream-life" is a header: import its name',
    changes: {
      "src/protocol/header-names.ts": headers,
      "src/streams/stores/memory.ts": '/* "Stream-Life" */\nexport const memory = "stream-life";\n',
    },
  },
  {
    check: "header names",
    problem: 'src/client/head.ts:2: "stream-live" is no header of the protocol',
    changes: {
      "src/protocol/header-names.ts": headers,
      "src/client/head.ts":
        'export const one = "stream-life";\nexport const two = "stream-live";\n',
    },
  },
  {
    check: "invariant labels",
    problem: "src/streams/core/rule.ts: no test title carries ZZ2",
    changes: { "src/testing/suite.ts": "export const ZZ2 = 'ZZ2 is no title';\n" },
  },
  {
    check: "invariant labels",
    problem: "src/streams/stores/memory.ts: ZZ1 is taken by src/streams/core/rule.ts",
    changes: { "src/streams/stores/memory.ts": "/**\n *   ZZ1  another rule.\n */\n" },
  },
  {
    check: "invariant labels",
    problem: "131 labels; at most 127: state the rule without one",
    changes: {
      "src/streams/stores/memory.ts": `/**\n${Array.from({ length: 129 }, (_, at) => ` *   ZY${at}  a rule;\n`).join("")} */\n`,
      "src/testing/suite.ts": `export const cases = [{ name: "ZZ2 it lasts" }, { name: "${Array.from({ length: 129 }, (_, at) => `ZY${at}`).join(" ")} hold" }];\n`,
    },
  },
  {
    check: "protocol sections",
    problem: "src/streams/core/rule.ts:7: PROTOCOL.md has no \u00a71.1",
    changes: { "PROTOCOL.md": "## 1 One\n## 2 Two\n### 2.1 Second\n" },
  },
  {
    check: "protocol sections",
    problem: "PROTOCOL.md \u00a72 is cited by no test",
    changes: { "test/protocol/one.test.ts": `describe("${section}1", () => {});\n` },
  },
  {
    check: "protocol sections",
    problem: "src/streams/stores/memory.ts:2: cite it as PROTOCOL.md \u00a71.2",
    changes: { "src/streams/stores/memory.ts": "\n// PROTOCOL.md sec" + "tions 1 and 2.\n" },
  },
  {
    check: "protocol sections",
    problem: "PROTOCOL.md is missing",
    changes: { "PROTOCOL.md": undefined },
  },
  {
    check: "guarantees",
    problem: "GUARANTEES.md: no test title carries G902",
    changes: { "GUARANTEES.md": "## G902\n\n- **Tests:**\n  - `ZZ1 G901 it holds`\n" },
  },
  {
    check: "guarantees",
    problem: 'GUARANTEES.md: G901: no test "ZZ1 it is renamed"',
    changes: { "GUARANTEES.md": "## G901\n\n- **Tests:**\n  - `ZZ1 it is renamed`\n" },
  },
  {
    check: "guarantees",
    problem: 'GUARANTEES.md: G901: no test "ZZ1 it has no row"',
    changes: {
      "GUARANTEES.md":
        "## G901\n\n- **Tests:**\n  - `ZZ1 it has another name`\n  - `ZZ1 it has no row`\n",
      "test/any.test.ts": 'test.each(["ZZ1 it has another name"])("%s", () => {});\n',
    },
  },
  {
    check: "guarantees",
    problem: "GUARANTEES.md: G901 quotes no test",
    changes: { "GUARANTEES.md": "## G901\n\n- **Holds for:** `x`\n- **Tests:** believe us\n" },
  },
  {
    check: "guarantees",
    problem: "GUARANTEES.md is missing",
    changes: { "GUARANTEES.md": undefined },
  },
  {
    check: "error codes",
    problem: "docs/errors.md: gone has no row",
    changes: { "docs/errors.md": "| code | status |\n| --- | --- |\n" },
  },
  {
    check: "error codes",
    problem: "docs/errors.md: lost is not a code",
    changes: { "docs/errors.md": "| `gone` | 410 |\n| `lost` | 404 |\n" },
  },
  {
    check: "error codes",
    problem: "docs/errors.md is missing",
    changes: { "docs/errors.md": undefined },
  },
  {
    check: "open tasks",
    problem: `src/streams/stores/memory.ts:2: no issue number: ${mark}`,
    changes: { "src/streams/stores/memory.ts": `// ${mark} #12 is fine.\n// ${mark} is not.\n` },
  },
  {
    check: "plain words",
    problem: `src/streams/stores/memory.ts:1: "${anyone}": name the one who acts`,
    changes: { "src/streams/stores/memory.ts": `// Gives it to ${anyone} asks.\n` },
  },
  {
    check: "plain words",
    problem: `docs/guide.md:2: "${"is"} told": name the one who acts`,
    changes: { "docs/guide.md": "# Guide\nThe reader is\ntold it.\n" },
  },
  {
    check: "plain words",
    problem: `src/streams/stores/memory.ts:2: "${"Comes"} to": name the one who acts`,
    changes: { "src/streams/stores/memory.ts": "/**\n * Comes\n * to an end.\n */\n" },
  },
  {
    check: "labels in the reference",
    problem: "docs/reference/rule.md:2: ZZ1 is a label: say the rule",
    changes: { "docs/reference/rule.md": "# UTF8\nIt holds ZZ1.\n" },
  },
  {
    check: "file lengths",
    problem: "src/streams/stores/memory.ts has 501 lines; at most 500",
    changes: { "src/streams/stores/memory.ts": "// A line.\n".repeat(501) },
  },
  {
    check: "export targets",
    problem: "package.json: ./dist/bin.js has no source src/bin.ts",
    changes: { "src/bin.ts": undefined, "src/index.ts": 'import "./base/error-table.ts";\n' },
  },
  {
    check: "export targets",
    problem: "package.json: ./dist/streams/stores/*.js has no source src/streams/stores/*.ts",
    changes: { "src/streams/stores/memory.ts": undefined },
  },
  {
    check: "reachable sources",
    problem: "src/streams/core/orphan.ts is reached from no export and no bin",
    changes: { "src/streams/core/orphan.ts": "export const orphan = 1;\n" },
  },
  {
    check: "machine paths",
    problem: "docs/errors.md:2: machine path: /ho" + "me/s",
    changes: { "docs/errors.md": "| `gone` | 410 |\nSee /ho" + "me/someone/notes.\n" },
  },
  {
    check: "registry hosts",
    problem: "docs/errors.md:2: registry host: regis" + "try.example.com",
    changes: { "docs/errors.md": "| `gone` | 410 |\nhttps://regis" + "try.example.com/hapax\n" },
  },
  {
    check: "floor plan",
    problem: "src/streams/stores/memory.ts (a store) imports src/streams/engine/engine.ts",
    changes: {
      "src/streams/engine/engine.ts": "export const engine = 1;\n",
      "src/streams/stores/memory.ts": 'import { engine } from "../engine/engine.ts";\n',
    },
  },
  {
    check: "floor plan",
    problem: "src/streams/core/rule.ts (the rules of streams, pure) imports node:fs",
    changes: {
      "src/streams/core/rule.ts": `${sound["src/streams/core/rule.ts"]}\nimport {\n  open,\n} from "node:fs";\n`,
    },
  },
  {
    check: "floor plan",
    problem: "src/bin.ts imports src/testing/suite.ts, which is not for it",
    changes: {
      "src/bin.ts": 'await import("./testing/suite.ts");\nimport "./base/error-table.ts";\n',
    },
  },
  {
    check: "floor plan",
    problem: "src/base/more.ts (what all stand on) imports jose",
    changes: {
      "src/base/more.ts": 'export const load = () => import("jose");\n',
      "src/bin.ts": 'import "./base/error-table.ts";\nimport "./base/more.ts";\n',
    },
  },
  {
    check: "floor plan",
    problem: "src/loose.ts has no place in the floor plan",
    changes: {
      "src/loose.ts": "",
      "src/bin.ts": 'import "./base/error-table.ts";\nimport "./loose.ts";\n',
    },
  },
  {
    check: "decisions",
    problem: "docs/decisions/0001-one.md has no heading Consequences",
    changes: { "docs/decisions/0001-one.md": "## Status\n## Context\n## Decision\n" },
  },
  {
    check: "decisions",
    problem: "docs/decisions has no page",
    changes: { "docs/decisions/0001-one.md": undefined },
  },
  {
    check: "changelog",
    problem: "CHANGELOG.md has no entry for 1.2.3",
    changes: { "CHANGELOG.md": "## 1.2.30\n\n## 1.2.2\n" },
  },
  {
    check: "changelog",
    problem: "CHANGELOG.md is missing",
    changes: { "CHANGELOG.md": undefined },
  },
];

test("a sound tree has no problems", () => {
  expect(tidy(plant({}))).toEqual([]);
});

for (const { check, problem, changes } of planted) {
  test(`the check of ${check} finds: ${problem}`, () => {
    const found = tidy(plant(changes)).filter((line) => line.startsWith(`${check}: `));
    expect(found).toEqual([`${check}: ${problem}`]);
  });
}

test("the check of build output finds tracked output and leaves untracked output alone", () => {
  const folder = plant({ "dist/bin.js": "", "cache.tsbuildinfo": "", ".gitignore": "dist/\n" });
  const git = (...args: string[]): void => {
    execFileSync("git", ["-C", folder, ...args]);
  };
  git("init", "--quiet");
  expect(tidy(folder)).toEqual([]);
  git("add", "--force", "dist/bin.js", "cache.tsbuildinfo");
  expect(tidy(folder)).toEqual([
    "build output: cache.tsbuildinfo is tracked",
    "build output: dist/bin.js is tracked",
  ]);
});

test("every check is shown to find a planted problem", () => {
  const shown = new Set([...planted.map(({ check }) => check), "build output"]);
  expect(checks.map(({ name }) => name).toSorted()).toEqual([...shown].toSorted());
});

test("titles are read from tests, suites, tables of tests and conformance cases", () => {
  const tree = openTree(
    plant({
      "test/titles.test.ts": [
        'test("one", () => {});',
        "it.only(\n  'two',\n  () => {});",
        'test.each([f(1)])("three %s", () => {});',
        "describe(`four ${x}`, () => {});",
        'const text = "none";',
      ].join("\n"),
    }),
  );
  const titles = testTitles(tree);
  expect(titles).toEqual(expect.arrayContaining(["one", "two", "three %s", "four ${x}"]));
  expect(titles).not.toContain("none");
});
