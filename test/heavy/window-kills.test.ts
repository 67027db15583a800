// G60: the eight cases of the window in a process that is killed at every step, over files and over S3.
// HAPAX_LONG=1 kills at every step of every case over every store, else at one of each, over one of them.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/testing/failpoints.ts";
import type { LogPosition } from "../../src/toolkit/rules/window.ts";
import * as api from "../../src/toolkit/window.ts";
import { cases, createWorld, verify, type WindowCase } from "../window/cases.mjs";
import { realServers } from "../window/s3-servers.ts";
import {
  fakeStores,
  fileStores,
  s3Stores,
  type StoreSpec,
  type TestStores,
} from "../window/stores.ts";

const isLong = process.env["HAPAX_LONG"] === "1";
const AT_ONCE = 4;
const program = fileURLToPath(new URL("../window/writer.mjs", import.meta.url));

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
}, 180_000);

/** Runs a case in a process that is killed when it reaches the step. Returns what it had begun and acknowledged, line by line. */
function runKilled(name: string, store: StoreSpec, killAt: number): Promise<readonly string[]> {
  const options = JSON.stringify({ name, store, killAt });
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [program, options], { timeout: 120_000 }, (error, out, errors) => {
      if (error !== null && error.signal === "SIGKILL" && error.killed === false)
        resolve(out.split("\n").filter((line) => line !== ""));
      else reject(new Error(`step ${killAt} was not reached: ${errors}`, { cause: error }));
    });
  });
}

/** How many steps a case has: it is run once to its end. */
async function stepsOf(one: WindowCase, stores: TestStores): Promise<number> {
  let steps = 0;
  setFailpoint(() => void (steps += 1));
  await one.run(createWorld(api, stores.next().objects)).finally(() => setFailpoint(undefined));
  return steps;
}

async function kill(one: WindowCase, stores: TestStores, killAt: number): Promise<void> {
  const { spec, objects } = stores.next();
  const lines = await runKilled(one.name, spec, killAt);
  const world = createWorld(api, objects);
  // The process wrote with its own time; what follows is later.
  world.nowMs += 200_000;
  for (const line of lines) {
    const { id, position } = JSON.parse(line) as { id: string; position?: LogPosition };
    // Also what had only begun is written again: it must be there once, wherever the kill was.
    world.ids.add(id);
    if (position !== undefined) world.acks.set(id, position);
  }
  // Ids of case 5 and 8 that may have left the window are not written again.
  for (const id of ["f1", "f2", "f3", "old"]) world.ids.delete(id);
  await verify(world).catch((error: unknown) => {
    throw new Error(`killed at step ${killAt}`, { cause: error });
  });
}

/** The adapters. In the long form versitygw takes part too, if this machine has it. */
const adapters: [name: string, open: () => Promise<TestStores>][] = [
  ["files", () => Promise.resolve(fileStores())],
  ["S3, a fake", fakeStores],
];
for (const { name, start } of isLong ? realServers().slice(0, 1) : []) {
  if (start === undefined) console.warn(`${name} is not installed: see test/window/s3-servers.ts`);
  else
    adapters.push([
      `S3, ${name}`,
      async () => {
        const server = await start();
        return s3Stores(name, server.options, () => server.close());
      },
    ]);
}

for (const [number, [name, open]] of adapters.entries()) {
  describe(`G60 killed at ${isLong ? "every step" : "some step"}, over ${name}`, () => {
    let stores: TestStores;
    beforeAll(async () => {
      stores = await open();
    });
    afterAll(() => stores.close());
    const own = cases.filter((_, at) => isLong || at % adapters.length === number);
    for (const one of own) {
      test(one.name, { timeout: 600_000 }, async () => {
        const steps = await stepsOf(one, stores);
        expect(steps).toBeGreaterThan(15);
        const all = Array.from({ length: steps }, (_, at) => at + 1);
        const some = isLong ? all : [1 + Math.floor(Math.random() * steps)];
        for (let at = 0; at < some.length; at += AT_ONCE) {
          const kills = some.slice(at, at + AT_ONCE).map((step) => kill(one, stores, step));
          // All of them end before the next test counts its steps.
          await Promise.allSettled(kills);
          await Promise.all(kills);
        }
        console.log(
          `${one.name}: killed at ${isLong ? "all" : `step ${some[0]}`} of ${steps} steps, over ${name}`,
        );
      });
    }
  });
}
