import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { FAILPOINTS } from "./failpoints.ts";

test("the list has every failpoint of the toolkit, and no other", () => {
  const toolkit = join(import.meta.dirname, "..", "toolkit");
  const paths = readdirSync(toolkit, { recursive: true, encoding: "utf8" });
  const texts = paths
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
    .map((path) => readFileSync(join(toolkit, path), "utf8"));
  const reached = texts.flatMap((text) =>
    [...text.matchAll(/failpoint\("([a-z0-9.]+)"\)/g)].map(([, name]) => name),
  );
  // A claim takes the name of its primitive; a lease has another name for it, and a relay none.
  const claimed = ["once.claimed", "http.claimed"];
  expect(new Set([...reached, ...claimed])).toEqual(new Set<string>(FAILPOINTS));
});
