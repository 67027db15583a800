// docs/guides/runtimes.md says what runs where. Its table has every entry point, each claim names tests that exist, and what it
// claims to load is loaded by the real runtime.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { ledgerConformance, openFaultProxy } from "../../src/testing/testing.ts";
import { bundle, requirePart } from "../client/runtimes-kit.ts";
import { bunProgram, denoProgram } from "../kits/fetch-hosts.ts";
import { filesBelow, read, root } from "../kits/documents.ts";

const GUIDE = "docs/guides/runtimes.md";
const COLUMNS = ["Node", "Bun", "Deno", "Workers", "browsers"] as const;
const CELLS = ["tested", "loads", "–"];
const LEDGER_PROGRAMS = ["test/ledgers/conform.ts", "test/ledgers/redis-bun.ts"];
const require = createRequire(import.meta.url);

interface Claim {
  readonly entry: string;
  readonly cells: Readonly<Record<string, string>>;
}

const rowsOf = (heading: string): readonly (readonly string[])[] => {
  const part = read(GUIDE)
    .split(/^## /m)
    .find((text) => text.startsWith(heading));
  if (part === undefined) throw new Error(`${GUIDE} has no part ${heading}`);
  return part
    .split("\n")
    .filter((line) => line.startsWith("| ") && !line.startsWith("| -"))
    .slice(1)
    .map((line) =>
      line
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim()),
    );
};

const claims: readonly Claim[] = rowsOf("What runs where").map(([entry = "", ...cells]) => ({
  entry: entry.replaceAll("`", ""),
  cells: Object.fromEntries(COLUMNS.map((column, at) => [column, cells[at] ?? ""])),
}));

/** Entry points of package.json, with the file of each. */
function entryFiles(): ReadonlyMap<string, string> {
  const { exports } = JSON.parse(read("package.json")) as {
    readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
  };
  const found = new Map<string, string>();
  for (const [name, target] of Object.entries(exports)) {
    if (typeof target === "string") continue;
    const [before = "", after] = target.default.split("*");
    if (after === undefined) found.set(`hapax${name.slice(1)}`, target.default);
    else
      for (const path of filesBelow("src/streams/stores", ".ts")) {
        const store = /^src\/streams\/stores\/([\w-]+)\.ts$/.exec(path)?.[1];
        if (store !== undefined) found.set(`hapax/stores/${store}`, before + store + after);
      }
  }
  return found;
}

const textsBelow = (path: string): readonly string[] =>
  (/\.(ts|mjs)$/.test(path) ? [path] : filesBelow(path, ".ts")).map(read);

/** What the table claims of a runtime. */
const claimed = (column: string): readonly string[] =>
  claims.filter(({ cells }) => cells[column] !== "–").map(({ entry }) => entry);

const urlOf = (entry: string): string =>
  pathToFileURL(join(root, entryFiles().get(entry) ?? "")).href;

/** The programs of the runtimes; the first arguments run a file. */
const programs: Readonly<Record<string, readonly string[] | undefined>> = {
  Node: [process.execPath],
  Bun: asCommand(bunProgram(), ["run"]),
  Deno: asCommand(denoProgram(), ["run", "--allow-all", "--no-remote"]),
};

function asCommand(program: string | undefined, args: readonly string[]): string[] | undefined {
  return program === undefined ? undefined : [program, ...args];
}

const cache = mkdtempSync(join(tmpdir(), "hapax-runtimes-"));
afterAll(() => rmSync(cache, { recursive: true, force: true }));

function run(command: readonly string[], ...args: readonly string[]): unknown {
  const [program = "", ...first] = command;
  const env = { ...process.env, DENO_DIR: cache, DENO_NO_UPDATE_CHECK: "1", NO_COLOR: "1" };
  const { stdout, stderr } = spawnSync(program, [...first, ...args], {
    cwd: root,
    env,
    encoding: "utf8",
  });
  if (!stdout.startsWith("{")) throw new Error(stderr);
  return JSON.parse(stdout);
}

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
}, 120_000);

describe("the table of the guide", () => {
  test("has every entry point of the package, and no other", () => {
    expect(claims.map(({ entry }) => entry).toSorted()).toEqual(
      [...entryFiles().keys()].toSorted(),
    );
    for (const { cells } of claims)
      for (const cell of Object.values(cells)) expect(CELLS).toContain(cell);
  });

  const named = rowsOf("The tests").map(([runtime = "", paths = ""]) => ({
    runtime,
    paths: Array.from(paths.matchAll(/`([^`]+)`/g), (match) => match[1] ?? ""),
  }));

  test("each runtime names tests that exist and name it", () => {
    expect(named.map(({ runtime }) => runtime)).toEqual([...COLUMNS]);
    for (const { runtime, paths } of named) {
      expect(paths.length).toBeGreaterThan(0);
      for (const path of paths) {
        expect(existsSync(join(root, path)), path).toBe(true);
        const words = { Workers: /workerd|Worker/, browsers: /chromium|browser/i }[runtime];
        const text = textsBelow(path).join("\n");
        expect(text).toMatch(runtime === "Node" ? /test|run/ : (words ?? new RegExp(runtime)));
      }
    }
  });

  // The programs that the other runtimes run are fixtures beside those tests.
  test.for(COLUMNS)("what is tested in %s is imported by its tests", (runtime) => {
    const paths = named.find((one) => one.runtime === runtime)?.paths ?? [];
    const beside = runtime === "Node" ? [] : ["test/client/fixtures", "test/protocol/fixtures"];
    const programs = runtime === "Bun" || runtime === "Deno" ? LEDGER_PROGRAMS : [];
    const text = [...paths, ...beside, ...programs].flatMap(textsBelow).join("\n");
    for (const { entry, cells } of claims.filter((claim) => claim.cells[runtime] === "tested")) {
      const source = entryFiles().get(entry)?.replace("./dist/", "").replace(/\.js$/, ".ts") ?? "";
      const names = [source, source.split("/").at(-1) ?? "", `"${entry}"`];
      expect(
        names.some((name) => text.includes(name)),
        `${entry} in ${runtime}`,
      ).toBe(true);
      expect(cells[runtime]).toBe("tested");
    }
  });

  test("the versions of Node are those that the scripts test, and that package.json allows", async () => {
    const { NODE_LINES } = (await import(
      new URL("../../scripts/node-lines.mjs", import.meta.url).href
    )) as { readonly NODE_LINES: readonly string[] };
    const { engines } = JSON.parse(read("package.json")) as {
      readonly engines: { readonly node: string };
    };
    const rows = rowsOf("Node").map((row) => row.slice(0, 2));
    const lines = NODE_LINES.map((version) => [version.split(".", 1)[0], version]);
    expect(rows).toEqual([...lines, ["20", engines.node.replace(">=", "from ")]]);
  });

  test("the versions of Bun, Deno and workerd are the installed ones", () => {
    for (const name of ["bun", "deno", "workerd"]) {
      const { version } = require(`${name}/package.json`) as { readonly version: string };
      expect(read(GUIDE)).toContain(`${name} ${version}`);
    }
  });
});

describe("what the table claims loads", () => {
  test.for(["Node", "Bun", "Deno"])("in %s", { timeout: 120_000 }, (runtime, context) => {
    const reason = `no ${runtime} of this platform is installed: not tested`;
    const command = requirePart(context, programs[runtime], reason);
    const entries = claimed(runtime);
    const loader = fileURLToPath(new URL("./load-entries.mjs", import.meta.url));
    const result = run(command, loader, ...entries.map(urlOf));
    expect(result).toEqual({ loaded: entries.length, wrong: [] });
  });

  // What a browser loads imports nothing of Node; what Workers load may, with `nodejs_compat`.
  test.for(claimed("browsers"))("in a page: %s", async (entry) => {
    const file = new URL(urlOf(entry));
    expect((await bundle(file, { format: "es" })).length).toBeGreaterThan(0);
  });
});

describe("Deno", () => {
  test("the client: an append whose answer is lost is stored once and read once", async (context) => {
    const reason = "no Deno of this platform is installed: not tested";
    const [deno = "", ...first] = requirePart(context, programs["Deno"], reason);
    const server = await startNodeServer({ store: "memory", port: 0 });
    const proxy = await openFaultProxy(server.url, { seed: 1, dropAnswers: 1 });
    try {
      const path = "/v1/stream/s";
      // The file for Bun has nothing of Bun.
      const program = fileURLToPath(new URL("../client/fixtures/bun.ts", import.meta.url));
      const args = [...first, program, server.url + path, proxy.url + path];
      const child = spawn(deno, args, { cwd: root, env: { ...process.env, DENO_DIR: cache } });
      let [output, errors] = ["", ""];
      child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
      child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
      const code = await new Promise((resolve) => child.once("close", resolve));
      expect(code, errors).toBe(0);
      expect(JSON.parse(output)).toEqual({
        repetitions: [true, false],
        read: [{ id: 1 }, { id: 2 }],
        followed: [{ id: 1 }, { id: 2 }, { id: 3 }],
      });
      expect(proxy.droppedAnswers).toBeGreaterThan(0);
    } finally {
      await proxy.close();
      await server.stop();
    }
  });

  test("LG1 to LG9 hold over node:sqlite", { timeout: 120_000 }, (context) => {
    const reason = "no Deno of this platform is installed: not tested";
    const deno = requirePart(context, programs["Deno"], reason);
    const script = fileURLToPath(new URL("../ledgers/conform.ts", import.meta.url));
    const result = run(deno, script, "node:sqlite", join(cache, "ledger.db"));
    expect(result).toEqual({ held: ledgerConformance.length - 2, skipped: 2, wrong: [] });
  });
});
