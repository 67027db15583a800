// What users write compiles against the packed tarball, in the strictest mode and without a cast.
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { root } from "./kits/documents.ts";
import { installPacked } from "./kits/packed.ts";

const project = mkdtempSync(join(tmpdir(), "hapax-types-"));
afterAll(() => {
  rmSync(project, { recursive: true, force: true });
});

/** What the program imports besides the package. */
const LIBRARIES = ["@types", "express", "libsql", "pg", "postgres"];

test(
  "programs of users have the types of their own clients and frameworks",
  { timeout: 120_000 },
  () => {
    const modules = join(project, "node_modules");
    mkdirSync(modules);
    installPacked(modules);
    for (const name of LIBRARIES)
      symlinkSync(join(root, "node_modules", name), join(modules, name));
    const folder = join(root, "test", "types");
    copyFileSync(join(folder, "users.ts"), join(project, "users.ts"));
    const config = { extends: join(folder, "tsconfig.json"), include: ["*.ts"] };
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify(config));
    writeFileSync(join(project, "package.json"), '{ "type": "module" }');
    const tsc = join(root, "node_modules", ".bin", "tsc");
    const { stdout, status } = spawnSync(tsc, ["-p", project, "--pretty", "false"], {
      encoding: "utf8",
    });
    expect([stdout, status]).toEqual(["", 0]);
  },
);

test("they do so without a cast", () => {
  const text = readFileSync(join(root, "test", "types", "users.ts"), "utf8");
  const code = text.replaceAll(/\/\*[^]*?\*\/|\/\/.*/g, "");
  const casts = code.match(/\bas (?!const\b)[A-Za-z]+|\bany\b/g) ?? [];
  expect(text).not.toContain("@ts-");
  expect(casts).toEqual([]);
});
