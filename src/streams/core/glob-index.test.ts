/** The index finds the same patterns as a look at every pattern, and looks at few. */

import fc from "fast-check";
import { expect, test } from "vitest";
import { Glob } from "../../base/glob.ts";
import { GlobIndex } from "./glob-index.ts";

const segment = fc.constantFrom("a", "b", "*", "**", "%2A");
const pattern = fc
  .array(segment, { minLength: 1, maxLength: 4 })
  .map((parts) => `/${parts.join("/")}`);
const name = fc
  .array(fc.constantFrom("a", "b", "*", "", "ab"), { minLength: 1, maxLength: 5 })
  .map((parts) => `/${parts.join("/")}`);

test("finds the patterns that a scan of all of them finds, also after deletions", () => {
  fc.assert(
    fc.property(
      fc.array(pattern, { maxLength: 20 }),
      fc.array(fc.nat(19)),
      name,
      (patterns, gone, at) => {
        const index = new GlobIndex<number>();
        for (const [id, text] of patterns.entries()) index.set(id, new Glob(text));
        for (const id of gone) index.delete(id);
        const scanned = [...index].flatMap(([id, glob]) => (glob.matches(at) ? [id] : []));
        expect([...index.matching(at)].toSorted((one, other) => one - other)).toEqual(scanned);
      },
    ),
  );
});

test("a name is compared with the patterns of its own folders, and not with 10,000 others", () => {
  const index = new GlobIndex<string>();
  let compared = 0;
  class Counted extends Glob {
    override matches(at: string): boolean {
      compared += 1;
      return super.matches(at);
    }
  }
  for (let id = 0; id < 10_000; id += 1) index.set(`${id}`, new Counted(`/folder/${id}/**`));
  index.set("all", new Counted("/**"));
  expect([...index.matching("/folder/77/x/y")]).toEqual(["all", "77"]);
  expect(compared).toBe(2);
});
