// What users install: the packed tarball.
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";

// Code and declarations, of which the dashboard has 75 KB (preact, uPlot and the client in one script, decision 0070), and 260 KB of
// documents: the README of a package shall have no dead link.
const TARBALL_BYTES_MAX = 1_600_000;
const root = fileURLToPath(new URL("..", import.meta.url));

interface Packed {
  readonly size: number;
  readonly files: readonly { readonly path: string }[];
}

let packed: Packed = { size: Number.POSITIVE_INFINITY, files: [] };

beforeAll(() => {
  const packing = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const output = execFileSync("npm", packing, { cwd: root, encoding: "utf8" });
  [packed] = JSON.parse(output) as [Packed];
});

test("the tarball is small, and has the built package and its documents alone", () => {
  console.log(
    `the tarball: ${packed.size} of ${TARBALL_BYTES_MAX} bytes, ${packed.files.length} files`,
  );
  expect(packed.size).toBeLessThanOrEqual(TARBALL_BYTES_MAX);
  const guides = /^docs\/(?:(?:guides|recipes)\/)?[\w-]+\.md$|^docs\/pictures\/[\w-]+\.png$/;
  const beside = packed.files
    .map(({ path }) => path)
    .filter((path) => !path.startsWith("dist/") && !guides.test(path));
  const documents = ["CHANGELOG.md", "GUARANTEES.md", "PROTOCOL.md", "README.md", "SECURITY.md"];
  expect(beside.toSorted()).toEqual([...documents, "LICENSE", "package.json"].toSorted());
  const kits = packed.files.filter(({ path }) => path.includes(".test.") || path.includes("kits/"));
  expect(kits).toEqual([]);
});

test("what a fresh clone packs is built", { timeout: 300_000 }, () => {
  const clone = mkdtempSync(join(tmpdir(), "hapax-clone-"));
  try {
    const files = readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isFile());
    // With their times: the dependencies must not look older than the file that names them.
    for (const path of ["src", "scripts", ...files.map(({ name }) => name)])
      cpSync(join(root, path), join(clone, path), { recursive: true, preserveTimestamps: true });
    symlinkSync(join(root, "node_modules"), join(clone, "node_modules"));
    const packing = ["pack", "--silent", "--pack-destination", clone];
    execFileSync("npm", packing, { cwd: clone, stdio: "pipe" });
    const { version } = manifestOf(".");
    const list = execFileSync("tar", ["-tzf", join(clone, `hapax-${version}.tgz`)], {
      encoding: "utf8",
    });
    for (const path of ["dist/bin.js", "dist/index.js", "dist/index.d.ts"])
      expect(list.split("\n")).toContain(`package/${path}`);
  } finally {
    rmSync(clone, { recursive: true, force: true });
  }
});

test.for(["README.md", "CHANGELOG.md"])("every link of %s works in the tarball", (path) => {
  const text = readFileSync(join(root, path), "utf8");
  const links = [...text.matchAll(/\]\(([^)\s#]+)(?:#[^)]*)?\)/g)].map((match) => match[1] ?? "");
  const inside = links.filter((link) => !/^https?:/.test(link));
  expect(inside.length).toBeGreaterThan(0);
  const files = new Set(packed.files.map((file) => file.path));
  expect(inside.filter((link) => !files.has(link))).toEqual([]);
});

// A repository and a home page are added with the first release: a URL that leads nowhere is worse than none.
test("the metadata of the package is complete, and names no place that does not exist", () => {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Record<
    string,
    unknown
  >;
  const needed = ["name", "version", "description", "keywords", "license", "bin", "files", "type"];
  expect(
    [...needed, "main", "types", "exports", "engines"].filter((key) => !manifest[key]),
  ).toEqual([]);
  expect(JSON.stringify(manifest)).not.toMatch(/https?:|github/);
});

interface Manifest {
  readonly version: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const manifestOf = (folder: string): Manifest =>
  JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8")) as Manifest;

// Decision 0041: verifying tokens is the one thing that a library does better, and one that has no dependency of its own.
test("users install one library with the package: an exact version of jose, which needs no other", () => {
  const { dependencies = {} } = manifestOf(".");
  expect(Object.keys(dependencies)).toEqual(["jose"]);
  expect(dependencies["jose"]).toMatch(/^\d+\.\d+\.\d+$/);
  expect(manifestOf("node_modules/jose").dependencies).toBeUndefined();
});
