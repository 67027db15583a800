// What users install: the packed tarball.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const TARBALL_BYTES_MAX = 900_000;
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
  const documents = ["CHANGELOG.md", "GUARANTEES.md", "LICENSE", "PROTOCOL.md", "README.md"];
  expect(beside.toSorted()).toEqual([...documents, "package.json"].toSorted());
  const kits = packed.files.filter(({ path }) => path.includes(".test.") || path.includes("kits/"));
  expect(kits).toEqual([]);
});
