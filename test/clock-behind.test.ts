// `hapax serve` over data that is ahead of the clock of the machine says so: after a restore, or a start with a wrong clock.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { serve } from "../src/streams/runtimes/node-serve.ts";
import { openFileStore } from "../src/streams/stores/file.ts";
import { created, write } from "../src/testing/store-case-kit.ts";

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "hapax-clock-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true });
});

async function warningsOf(aheadMs: number): Promise<readonly string[]> {
  const store = await openFileStore(dir, { durability: "os" });
  const { world } = store;
  await write(store, {
    ...created(world.nextId),
    atMs: (Date.now() + aheadMs) as typeof world.timeMs,
  });
  await store.close();
  const warnings: string[] = [];
  const server = await serve({
    dir,
    host: "127.0.0.1",
    port: 0,
    durability: "os",
    log: (entry) => {
      if (entry.level === "warn") warnings.push(JSON.stringify(entry));
    },
  });
  await server.stop();
  return warnings.filter((text) => text.includes("clock"));
}

test("a server warns at its start if its data is ahead of the clock", async () => {
  expect(await warningsOf(0)).toEqual([]);
  const [warning, ...more] = await warningsOf(48 * 3_600_000);
  expect(warning).toContain("48.0 hours ahead of the clock of this machine");
  expect(more).toEqual([]);
});
