// G60: the eight cases of the window in a process that is killed at every step, over files and over S3.
// HAPAX_LONG=1 kills at every step of every case, else at a few of each.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/testing/failpoints.ts";
import type { LogPosition } from "../../src/toolkit/rules/window.ts";
import * as api from "../../src/toolkit/window.ts";
import { cases, createWorld, verify, type WindowCase } from "../window/cases.mjs";
import { fakeStores, fileStores, type StoreSpec, type TestStores } from "../window/stores.ts";

const isLong = process.env["HAPAX_LONG"] === "1";
const STEPS_SHORT = 3;
const AT_ONCE = 4;
const program = fileURLToPath(new URL("../window/writer.mjs", import.meta.url));

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
}, 180_000);

/** Runs a case in a process that is killed when it reaches the step. Returns what it had acknowledged, line by line. */
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
    const { id, position } = JSON.parse(line) as { id: string; position: LogPosition };
    world.ids.add(id);
    world.acks.set(id, position);
  }
  // Ids of case 5 and 8 that may have left the window are not written again.
  for (const id of ["f1", "f2", "f3", "old"]) world.ids.delete(id);
  await verify(world).catch((error: unknown) => {
    throw new Error(`killed at step ${killAt}`, { cause: error });
  });
}

for (const [name, open] of [
  ["files", () => Promise.resolve(fileStores())],
  ["S3", fakeStores],
] as const) {
  describe(`G60 killed at ${isLong ? "every step" : "some steps"}, over ${name}`, () => {
    let stores: TestStores;
    beforeAll(async () => {
      stores = await open();
    });
    afterAll(() => stores.close());
    for (const one of cases) {
      test(one.name, { timeout: 600_000 }, async () => {
        const steps = await stepsOf(one, stores);
        expect(steps).toBeGreaterThan(10);
        const all = Array.from({ length: steps }, (_, at) => at + 1);
        // Others each time a case differs, spread over it.
        const some = all.filter((step) => isLong || step % Math.ceil(steps / STEPS_SHORT) === 1);
        for (let at = 0; at < some.length; at += AT_ONCE) {
          await Promise.all(some.slice(at, at + AT_ONCE).map((step) => kill(one, stores, step)));
        }
        console.log(`${one.name}: killed at ${some.length} of ${steps} steps, over ${name}`);
      });
    }
  });
}
