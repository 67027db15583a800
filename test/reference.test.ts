/** The pages of docs/reference are what the doc comments of the public names say now. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

interface Reference {
  readonly pages: ReadonlyMap<string, string>;
  readonly problems: readonly string[];
}

interface Entry {
  readonly module: string;
  readonly page: string;
  readonly types: string;
}

const root = fileURLToPath(new URL("..", import.meta.url));
const script = (name: string): string => pathToFileURL(join(root, "scripts", name)).href;

// Scripts without types; these are the parts of them that are used.
const { entriesOf, formattedPages, makeReference } = (await import(script("reference.mjs"))) as {
  entriesOf: (base?: string) => readonly Entry[];
  formattedPages: (reference: Reference) => Promise<ReadonlyMap<string, string>>;
  makeReference: (base?: string) => Reference;
};

const folder = mkdtempSync(join(tmpdir(), "hapax-reference-"));

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

beforeAll(async () => {
  const { buildIfNeeded } = (await import(script("prepare.mjs"))) as {
    buildIfNeeded: () => Promise<void>;
  };
  await buildIfNeeded();
}, 120_000);

test("the pages are those of the sources: if not, npm run reference writes them", async () => {
  const pages = await formattedPages(makeReference());
  const written = readdirSync(join(root, "docs", "reference"));
  expect(written.toSorted()).toEqual([...pages.keys()].toSorted());
  for (const [page, text] of pages) {
    const current = readFileSync(join(root, "docs", "reference", page), "utf8");
    expect(current, `docs/reference/${page} is stale: npm run reference`).toBe(text);
  }
});

test("RF1 every value that an entry point exports is on its page", async () => {
  const { pages } = makeReference();
  const entries = entriesOf();
  expect(entries.length).toBeGreaterThan(5);
  for (const { module, page, types } of entries) {
    const file = pathToFileURL(types.replace(/\.d\.ts$/, ".js")).href;
    const names = Object.keys((await import(/* @vite-ignore */ file)) as object);
    expect(names.length, module).toBeGreaterThan(0);
    for (const name of names) expect(pages.get(page), module).toContain(`\n## ${name}\n`);
  }
});

test("RF2 every public name has a sentence", () => {
  expect(makeReference().problems).toEqual([]);
});

/** A package of one module, as the compiler would have declared it. */
function packageOf(name: string, declarations: string): string {
  const base = join(folder, name);
  mkdirSync(join(base, "dist"), { recursive: true });
  const exports = { ".": { types: "./dist/index.d.ts" } };
  writeFileSync(join(base, "package.json"), JSON.stringify({ name: "sample", exports }));
  writeFileSync(join(base, "dist", "index.d.ts"), declarations);
  return base;
}

test("RF1 signatures, members, sentences and examples are taken from the declarations", () => {
  const base = packageOf(
    "whole",
    `/** A sample. */
export { aid } from "./aid.ts";
/**
 * Does it.
 *
 * \`\`\`ts
 * act({ at: "a;b" });
 * \`\`\`
 */
export declare function act(options: {
    readonly at: string;
}): void;
/** Holds \`{\` and "}". */
export interface Held<T extends { a: string } = { a: string }> extends Other<T> {
    /** The first; it is "}". */
    readonly one?: "}" | (() => void);
    two(list: readonly T[]): Promise<void>;
}
declare const hidden: number;
/** PORT. Either. */
export type Either = "a" | "b";
/**
 * What may
 * happen:
 *
 * | act | meaning |
 * | --- | ------- |
 * | one | first   |
 *
 * - a list;
 * - of two.
 */
export type Act = "one";
`,
  );
  writeFileSync(
    join(base, "dist", "aid.d.ts"),
    `/** Helps. */
export declare const aid: string;
/** Not passed on. */
export declare const own: string;
`,
  );
  const { pages, problems } = makeReference(base);
  expect(problems).toEqual([]);
  const page = pages.get("sample.md") ?? "";
  const lines = [
    "# sample\n\nA sample.\n",
    "- [`act`](#act): Does it.\n",
    'Does it.\n\n```ts\nimport { act } from "sample";\n\nact({ at: "a;b" });\n```\n',
    "## Held\n\n`interface Held<T extends { a: string } = { a: string }> extends Other<T>`\n",
    '- `readonly one?: "}" | (() => void)`: The first; it is "}".\n',
    "- `two(list: readonly T[]): Promise<void>`\n",
    '```text (a signature, not a program)\ntype Either = "a" | "b";\n```\n\nEither.\n',
    "What may happen:\n\n| act | meaning |\n| --- | ------- |\n| one | first   |\n\n- a list;\n- of two.\n",
    "## aid\n",
  ];
  for (const line of lines) expect(page).toContain(line);
  expect(page).not.toMatch(/hidden|Not passed on/);
});

test("RF2 a sentence that begins in the middle is a problem", () => {
  const base = packageOf(
    "middle",
    `/** A sample. */
/** An event. */
export interface Happened {
    /** Of the event. */
    readonly id: string;
    /** The time of the event. */
    readonly at: string;
}
`,
  );
  expect(makeReference(base).problems).toEqual([
    'sample: Happened: "Of the event." does not name what it is about',
  ]);
});

test("RF3 a type that a signature names is on the page, or a link to the page that has it", () => {
  const base = packageOf(
    "named",
    `/** A sample. */
import type { Found as Seen } from "./found.ts";
import type { Elsewhere } from "./other.ts";
/** Finds. */
export declare function find(where: Elsewhere): Seen | Local | Promise<Hidden>;
/** Declared here. */
interface Local {
    /** Its name. */
    readonly name: string;
}
interface Hidden {
    readonly a: string;
}
`,
  );
  writeFileSync(
    join(base, "dist", "found.d.ts"),
    "/** It was found. */\nexport interface Found {\n    /** Where. */\n    readonly at: number;\n}\n",
  );
  const other = '/** Another. */\nexport type { Elsewhere } from "./other.ts";\n';
  writeFileSync(join(base, "dist", "others.d.ts"), other);
  writeFileSync(
    join(base, "dist", "other.d.ts"),
    "/** A place. */\nexport type Elsewhere = string;\n",
  );
  const exports = {
    ".": { types: "./dist/index.d.ts" },
    "./others": { types: "./dist/others.d.ts" },
  };
  writeFileSync(join(base, "package.json"), JSON.stringify({ name: "sample", exports }));
  const { pages, problems } = makeReference(base);
  expect(problems).toEqual([]);
  const page = pages.get("sample.md") ?? "";
  const lines = [
    "- [`Elsewhere`](others.md#elsewhere) of `sample/others`\n",
    "- [`Found`](#found): It was found.\n",
    "- `readonly at: number`: Where.",
    "- [`Local`](#local): Declared here.\n",
    "- `readonly name: string`: Its name.",
  ];
  for (const line of lines) expect(page).toContain(line);
  // Without a sentence it is nothing to read.
  expect(page).not.toMatch(/Hidden`/);
});

test("RF2 a public name without a sentence is a problem", () => {
  const silent =
    '/** A sample. */\nimport {} from "node:fs";\nexport declare const silent: string;\n';
  expect(makeReference(packageOf("silent", silent)).problems).toEqual([
    "sample: silent has no sentence",
  ]);
});
