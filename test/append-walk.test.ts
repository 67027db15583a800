/** The walk of an append, as ARCHITECTURE.md tells it: one way in, one way out. Functions of the built server are followed. */

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

interface Walked {
  readonly crossings: number;
  readonly parts: readonly { readonly folder: string; readonly functions: readonly string[] }[];
  readonly visits: Readonly<Record<string, number>>;
}

/** What `node scripts/append-walk.mjs` prints, as data. */
function walkOfAppend(): Walked {
  const words = ["scripts/append-walk.mjs", "dist", "--json"];
  return JSON.parse(
    execFileSync(process.execPath, words, { cwd: root, encoding: "utf8" }),
  ) as Walked;
}

describe("an append through the fast lane", () => {
  let walked: Walked;
  beforeAll(() => {
    walked = walkOfAppend();
  }, 60_000);

  test("crosses folders 13 times at most: runtime, server, protocol, engine, core, store, and back", () => {
    const { crossings, parts } = walked;
    expect(crossings).toBeLessThanOrEqual(13);
    const folders = parts.map(({ folder }) => folder.replace("streams/", ""));
    const way = ["runtimes", "server", "protocol", "engine", "core", "stores"];
    expect([...new Set(folders)].toSorted()).toEqual(way.toSorted());
    expect(folders.slice(0, 4)).toEqual(way.slice(0, 4));
    expect(folders.slice(-4)).toEqual(["server", "protocol", "server", "runtimes"]);
  });

  test("returns to no file twice on its way in", () => {
    expect(Object.entries(walked.visits).filter(([, count]) => count > 2)).toEqual([]);
  });

  test("is in ARCHITECTURE.md: every file of it that is a station is named there, in its order", () => {
    const text = readFileSync(`${root}/ARCHITECTURE.md`, "utf8");
    const start = text.indexOf("## An append, from socket to answer");
    const chapter = text.slice(start, text.indexOf("\n## ", start + 1));
    const named = Object.keys(walked.visits).map((file) => chapter.indexOf(`\`${file}\``));
    expect(named).not.toContain(-1);
    expect(named).toEqual(named.toSorted((one, other) => one - other));
  });
});
