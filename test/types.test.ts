// What users write compiles against the packed package, in the strictest mode and without a cast.
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { installPacked } from "./kits/packed.ts";

const root = join(import.meta.dirname, "..");
const programs = join(root, "test", "types");
// Below the repository: a project of its own, which finds the clients and frameworks that are installed there.
const projects = join(root, "coverage");
const PROGRAMS = ["exports", "query-builders", "users"];
let folder = "";

beforeAll(() => {
  mkdirSync(projects, { recursive: true });
  folder = mkdtempSync(join(projects, "types-"));
  installPacked(join(folder, "node_modules"));
  cpSync(programs, folder, { recursive: true });
  const generated = join(root, "test", "query-builders", "prisma", "generated");
  cpSync(generated, join(folder, "generated", "prisma"), { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  const compilerOptions = { skipLibCheck: true, declaration: true, outDir: "out", noEmit: false };
  const config = {
    extends: join(root, "tsconfig.json"),
    compilerOptions: { ...compilerOptions, rootDir: ".", emitDeclarationOnly: true },
    include: ["*.ts"],
    exclude: ["out"],
  };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
}, 60_000);

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const declaredBy = (name: string): string =>
  readFileSync(join(folder, "out", `${name}.d.ts`), "utf8");

test(
  "programs of users have the types of their own clients and frameworks, and so do their declarations",
  { timeout: 120_000 },
  () => {
    const tsc = join(root, "node_modules", ".bin", "tsc");
    const { stdout, status } = spawnSync(tsc, ["-p", folder, "--pretty", "false"], {
      encoding: "utf8",
    });
    expect([stdout, status]).toEqual(["", 0]);
    expect(declaredBy("exports")).toContain("isDuplicate: true");
    expect(declaredBy("query-builders")).toContain("Ledger<Transaction<Tables>>");
    // No declaration names a file of the package: only its entry points.
    for (const name of PROGRAMS) expect(declaredBy(name)).not.toContain("/dist/");
  },
);

test.each(PROGRAMS)("%s.ts needs no cast", (name) => {
  const text = readFileSync(join(programs, `${name}.ts`), "utf8");
  const code = text.replaceAll(/^import[^;]*;|\/\*[^]*?\*\/|\/\/.*/gm, "");
  const casts = code.match(/\bas (?!const\b)[A-Za-z]+|\bany\b/g) ?? [];
  expect(text).not.toContain("@ts-");
  expect(casts).toEqual([]);
});
