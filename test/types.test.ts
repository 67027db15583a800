// What users write compiles against the built package, in the strictest mode and without a cast.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "..");

test(
  "programs of users have the types of their own clients and frameworks",
  { timeout: 120_000 },
  () => {
    const tsc = join(root, "node_modules", ".bin", "tsc");
    const folder = join(root, "test", "types");
    const { stdout, status } = spawnSync(tsc, ["-p", folder, "--pretty", "false"], {
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
