/** The public names: few, and each with one meaning. Reads package.json and the built declarations. */

import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { beforeAll, expect, test } from "vitest";

interface Entry {
  readonly module: string;
  readonly types: string;
}

interface Declaration {
  readonly path: string;
  readonly name: string;
}

const root = fileURLToPath(new URL("..", import.meta.url));
const script = (name: string): string => pathToFileURL(join(root, "scripts", name)).href;

// Scripts without types; these are the parts of them that are used.
const { entriesOf } = (await import(script("reference.mjs"))) as {
  entriesOf: () => readonly Entry[];
};
const { exportsOf } = (await import(script("reference-declarations.mjs"))) as {
  exportsOf: (path: string) => readonly Declaration[];
};

beforeAll(async () => {
  const { buildIfNeeded } = (await import(script("prepare.mjs"))) as {
    buildIfNeeded: () => Promise<void>;
  };
  await buildIfNeeded();
}, 120_000);

/**
 * As many as a reader can know. Before you add one, look for one that can go. `ledgers/redis` is the 21st: a ledger is an entry
 * of its own, so that a program gets the code of its own database alone. It has three names. `hapax/window` is the 22nd: it needs
 * neither the server nor a ledger, so that no other entry point is its home. It has 15 names. `hapax/saga` is the 23rd: its
 * builder and its runner are not for programs that only claim keys, or handle messages. It has nine names. `hapax/fetch` is
 * the 24th: a runtime is an entry of its own, as `hapax/node` is. It has five names. `ledgers/durable-object` is a ledger, with four
 * names. `hapax/workers` is another runtime, with 18 names, eleven of which are parts that a Worker bundles only if it names them, and `hapax/stores/durable-object` another store, with three: no
 * other runtime can use them. `hapax/durable-object` is for objects alone, and no other program shall carry it; it has 18 names.
 * `gzipTransport`, `ownerTransport`, `typed` and `followAll` of `hapax/client` are functions of their own, so that a page without them does not carry them.
 * `hapax/stores/postgres` is another store, with four. `hapax` itself has `connect`, `processOnce` and `GLOBAL`, with which most
 * programs begin: they are those of `hapax/client` and `hapax/ledger`.
 * `hapax/console` is for programs with a page for operators, and carries that page: four names; `hapax/console/node` has one.
 */
const ENTRIES_MAX = 31;
const NAMES_MAX = 326;

test("there are few entry points, and few names in all of them together", () => {
  const entries = entriesOf();
  expect(entries.length).toBeLessThanOrEqual(ENTRIES_MAX);
  const names = entries.flatMap(({ module, types }) =>
    exportsOf(types).map(({ name }) => `${module} ${name}`),
  );
  expect(names.length).toBeGreaterThan(100);
  expect(names.length).toBeLessThanOrEqual(NAMES_MAX);
  expect(new Set(names).size).toBe(names.length);
});

/** The client's class is small, for browsers. The other one extends it with help texts, and `instanceof` takes both. */
const EXTENDED = new Set(["HapaxError"]);

test("a name that two entry points export is the same declaration", () => {
  const homes = new Map<string, Set<string>>();
  for (const { types } of entriesOf()) {
    for (const { path, name } of exportsOf(types)) {
      const known = homes.get(name) ?? new Set();
      homes.set(name, known.add(path));
    }
  }
  const several = [...homes].filter(([, paths]) => paths.size > 1);
  expect(several.map(([name]) => name).filter((name) => !EXTENDED.has(name))).toEqual([]);
  const errors = readFileSync(join(root, "dist", "base", "errors.d.ts"), "utf8");
  expect(errors).toContain('import { HapaxError as ClientError } from "./error-codes.ts"');
  expect(errors).toContain("class HapaxError extends ClientError");
});

test("an exported type or function of src has its name for itself", () => {
  const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
    // A program of its own, which no other file imports.
    .filter((path) => !path.startsWith("dashboard"))
    .map((path) => join(root, "src", path));
  const declared = /^export (?:abstract )?(?:async )?(?:class|interface|type|function\*?) (\w+)/gm;
  const homes = new Map<string, Set<string>>();
  for (const path of sources) {
    for (const [, name = ""] of readFileSync(path, "utf8").matchAll(declared)) {
      const known = homes.get(name) ?? new Set();
      homes.set(name, known.add(relative(root, path)));
    }
  }
  expect(homes.size).toBeGreaterThan(1_000);
  const several = [...homes].filter(([name, paths]) => paths.size > 1 && !EXTENDED.has(name));
  expect(several.map(([name, paths]) => [name, ...paths])).toEqual([]);
});
