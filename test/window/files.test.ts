// Objects in files: what is confirmed is on the disk, and so is its name. GUARANTEES.md G60
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fileObjects } from "../../src/toolkit/window.ts";
import { ONE_THREAD, straceMissing } from "../crash/strace.ts";
import { BUNDLERS } from "../kits/bundles.ts";

const TRACER = "strace";
const root = mkdtempSync(join(tmpdir(), "hapax-window-files-"));
const built = new URL("../../dist/toolkit/window.js", import.meta.url).href;

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
}, 180_000);

afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

/** The system calls of a program that creates objects, in their order: `fsync <path>`, `link <path>`. */
function callsOf(folder: string, names: readonly string[]): string[] {
  const log = join(root, "calls.log");
  const program = `
    import { fileObjects } from ${JSON.stringify(built)};
    const objects = fileObjects(${JSON.stringify(folder)});
    for (const name of ${JSON.stringify(names)}) await objects.create(name, new Uint8Array([1]));
  `;
  const trace = ["-f", "-y", "-qq", "-o", log, "-e", "trace=fsync,fdatasync,link,linkat"];
  const command = [...trace, process.execPath, "--input-type=module", "-e", program];
  execFileSync(TRACER, command, { env: { ...process.env, ...ONE_THREAD } });
  return readFileSync(log, "utf8")
    .split("\n")
    .flatMap((line) => {
      const synced = /\b(?:fsync|fdatasync)\(\d+<([^>]*)>/.exec(line);
      if (synced !== null) return [`fsync ${synced[1]}`];
      const linked = /\blink(?:at)?\(.*"([^"]*)"(?:, 0)?\)/.exec(line);
      return linked === null ? [] : [`link ${linked[1]}`];
    })
    .map((call) => call.replace(`${folder}/`, "").replace(/\.new-\w+/, ".new"))
    .map((call) => call.replace(` ${folder}`, " the folder").replace(` ${root}`, " its parent"));
}

test("G60 a file is synced before it gets its name, and its folder after; new folders are synced above", (context) => {
  const missing = straceMissing();
  if (missing !== undefined) {
    console.warn(missing);
    context.skip(missing);
  }
  const folder = join(root, "synced");
  const first = callsOf(folder, ["log/1", "log/2"]);
  expect(first.slice(-6)).toEqual([
    "fsync .new",
    "link log/1",
    "fsync log",
    "fsync .new",
    "link log/2",
    "fsync log",
  ]);
  expect(first.slice(0, -6)).toEqual(
    expect.arrayContaining(["fsync the folder", "fsync its parent"]),
  );
  // Another process may have died before it synced: also a name that is taken is made durable.
  const second = callsOf(folder, ["log/1"]);
  expect(second.slice(-2)).toEqual(["link log/1", "fsync log"]);
  expect(second).toEqual(expect.arrayContaining(["fsync the folder", "fsync its parent"]));
});

test("an object is created once, and files without a name are never listed", async () => {
  const folder = join(root, "plain");
  const objects = fileObjects(folder);
  expect(await objects.get("a/1")).toBeUndefined();
  expect(await objects.list("a/")).toEqual([]);
  const outcomes = await Promise.all(
    Array.from({ length: 8 }, (_, at) => objects.create("a/1", new Uint8Array([at]))),
  );
  expect(outcomes.filter((outcome) => outcome === "stored")).toHaveLength(1);
  expect((await objects.get("a/1"))?.[0]).toBe(outcomes.indexOf("stored"));
  await objects.create("ab", new Uint8Array());
  expect((await objects.list("a")).toSorted()).toEqual(["a/1", "ab"]);
  expect(await objects.list("a/")).toEqual(["a/1"]);
  await objects.remove("a/1");
  await objects.remove("a/1");
  expect(await objects.list("a/")).toEqual([]);
  expect(readdirSync(folder).filter((name) => name.startsWith("."))).toEqual([]);
  await expect(objects.create("../a", new Uint8Array())).rejects.toMatchObject({
    code: "invalid_request",
  });
});

test("the window is loaded by no other entry point, and loads no module of Node by itself", async () => {
  const ledger = await BUNDLERS.esbuild('export * from "./src/toolkit/ledger.ts";', "node");
  expect(ledger).not.toContain("HAPAXWIN");
  expect(ledger).not.toContain("AWS4-HMAC-SHA256");
  const own = await BUNDLERS.esbuild('export * from "./src/toolkit/window.ts";', "browser");
  expect(own).toContain("AWS4-HMAC-SHA256");
  expect(own).not.toMatch(/^import\b|[;}]import\s*[{*"a-z]/);
});
