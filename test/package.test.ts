// What users install: the packed tarball.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

/** Of these the dashboard has 75 KB: preact, uPlot and the client, compiled into one script (decision 0070). */
const TARBALL_BYTES_MAX = 1_030_000;
const root = fileURLToPath(new URL("..", import.meta.url));

interface Packed {
  readonly size: number;
  readonly files: readonly { readonly path: string }[];
}

test("the tarball is small, and has the built package and its documents alone", () => {
  const output = execFileSync("npm", ["pack", "--dry-run", "--json"], {
    cwd: root,
    encoding: "utf8",
  });
  const [packed] = JSON.parse(output) as [Packed];
  console.log(
    `the tarball: ${packed.size} of ${TARBALL_BYTES_MAX} bytes, ${packed.files.length} files`,
  );
  expect(packed.size).toBeLessThanOrEqual(TARBALL_BYTES_MAX);
  const beside = packed.files.map(({ path }) => path).filter((path) => !path.startsWith("dist/"));
  const documents = ["CHANGELOG.md", "LICENSE", "README.md"];
  expect(beside.toSorted()).toEqual([...documents, "package.json"].toSorted());
  const kits = packed.files.filter(({ path }) => path.includes(".test.") || path.includes("kits/"));
  expect(kits).toEqual([]);
});

const manifestOf = (folder: string): { readonly dependencies?: Readonly<Record<string, string>> } =>
  JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8")) as {
    readonly dependencies?: Readonly<Record<string, string>>;
  };

// Decision 0041: verifying tokens is the one thing that a library does better, and one that has no dependency of its own.
test("users install one library with the package: an exact version of jose, which needs no other", () => {
  const { dependencies = {} } = manifestOf(".");
  expect(Object.keys(dependencies)).toEqual(["jose"]);
  expect(dependencies["jose"]).toMatch(/^\d+\.\d+\.\d+$/);
  expect(manifestOf("node_modules/jose").dependencies).toBeUndefined();
});
