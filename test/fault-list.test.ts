// A planted fault that proves nothing would be worse than none: each way in which an entry of the list can be wrong is shown
// to be found, in a small tree with one source, one test and one fault.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";
import { faultListProblems } from "../scripts/fault-list.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const SOUND = {
  name: "the sum is off by one",
  guarantee: "G1",
  file: "src/sum.ts",
  find: "return one + other;",
  replace: "return one + other + 1;",
  caughtBy: { file: "test/sum.test.ts", test: "sums > one and one is two" },
};

/** A tree whose only fault is the sound one with some members changed. */
function treeWith(changes: Partial<typeof SOUND>): string {
  const folder = mkdtempSync(join(tmpdir(), "hapax-fault-tree-"));
  folders.push(folder);
  const files = {
    "package.json": '{ "type": "module" }',
    "tsconfig.json":
      '{ "compilerOptions": { "target": "es2023", "module": "nodenext", "strict": true, "noEmit": true, "types": [] } }',
    "src/sum.ts":
      "export function sum(one: number, other: number): number {\n  return one + other;\n}\n",
    "test/sum.test.ts":
      'describe("sums", () => {\n  test("one and one is two", () => undefined);\n});\n',
    "test/faults/faults.ts": `export const faults = ${JSON.stringify([{ ...SOUND, ...changes }])};\n`,
  };
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"), "junction");
  return folder;
}

const cases: readonly (readonly [string, Partial<typeof SOUND>, RegExp | undefined])[] = [
  ["a sound fault has no problem", {}, undefined],
  ["a wrong type is what a fault may well be", { replace: 'return "2" as never;' }, undefined],
  ["a file that is not there", { file: "src/none.ts" }, /src\/none\.ts does not exist/],
  ["a text that does not occur", { find: "return one - other;" }, /occurs 0 times/],
  ["a text that occurs more than once", { find: "number" }, /occurs 3 times/],
  ["a change that changes nothing", { replace: SOUND.find }, /are the same/],
  [
    "a title that no test has",
    { caughtBy: { ...SOUND.caughtBy, test: "one and one is three" } },
    /no test has the title "one and one is three"/,
  ],
  ["a name that does not exist", { replace: "return one + another;" }, /TS2552.*another/],
  ["a property that does not exist", { replace: "return one.quux;" }, /TS2339.*quux/],
  ["a text that is no program", { replace: "return one +;" }, /TS1109/],
];

for (const [title, changes, problem] of cases) {
  test(`the list of faults: ${title}`, async () => {
    const problems = await faultListProblems(treeWith(changes));
    if (problem === undefined) expect(problems).toEqual([]);
    else expect(problems.join("\n")).toMatch(problem);
  });
}
