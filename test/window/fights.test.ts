// WD6 G60: processes that write the same ids to the same log at once, with clocks that are hours apart. HAPAX_LONG=1 stops and kills
// some of them meanwhile.
import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { objectLog, openWindow, type WindowObjects } from "../../src/toolkit/window.ts";
import { realServers } from "./s3-servers.ts";
import { fakeStores, fileStores, s3Stores, type StoreSpec, type TestStores } from "./stores.ts";

const isLong = process.env["HAPAX_LONG"] === "1";
const CONTENDERS = isLong ? 4 : 2;
const IDS = Array.from({ length: isLong ? 100 : 30 }, (_, at) => `id ${at}`);
const HOUR_MS = 3_600_000;
const DISTURBANCES = 12;
const program = fileURLToPath(new URL("contender.mjs", import.meta.url));

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
}, 180_000);

interface Line {
  readonly id?: string;
  readonly position?: unknown;
  readonly fences?: number;
}

/** A contender, from its start to its end. A process that was killed is started again. */
class Contender {
  readonly lines: Line[] = [];
  readonly #options: string;
  #child: ChildProcess | undefined;
  kills = 0;

  constructor(store: StoreSpec, number: number) {
    const clockMs = [0, HOUR_MS, -HOUR_MS][number % 3];
    this.#options = JSON.stringify({ store, ids: IDS, clockMs, contenders: CONTENDERS });
  }

  async run(): Promise<void> {
    for (;;) {
      const [code, signal, errors] = await this.#once();
      if (code === 0) return;
      if (signal !== "SIGKILL") throw new Error(`it ended with ${code} ${signal}: ${errors}`);
    }
  }

  #once(): Promise<[code: number | null, signal: string | null, errors: string]> {
    const child = spawn(process.execPath, [program, this.#options]);
    this.#child = child;
    let [text, errors] = ["", ""];
    child.stdout.on("data", (chunk) => (text += String(chunk)));
    child.stderr.on("data", (chunk) => (errors += String(chunk)));
    return new Promise((resolve) => {
      child.on("close", (code, signal) => {
        for (const line of text.split("\n")) if (line !== "") this.lines.push(JSON.parse(line));
        resolve([code, signal, errors]);
      });
    });
  }

  /** Stops it for a while, or kills it. */
  async disturb(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null) return;
    if (Math.random() < 0.5) {
      this.kills += 1;
      child.kill("SIGKILL");
      return;
    }
    child.kill("SIGSTOP");
    await pause(Math.random() * 1_000);
    child.kill("SIGCONT");
  }
}

async function placesIn(objects: WindowObjects): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const log = objectLog(objects);
  let newestMs = 0;
  for (const { segment } of (await log.extent()).segments)
    for await (const { start, atMs, entries } of log.read(segment, 0)) {
      // Log time never goes back, though the clocks differ.
      expect(atMs).toBeGreaterThanOrEqual(newestMs);
      newestMs = atMs;
      for (const [index, { id = "" }] of entries.entries()) {
        expect(found.has(id), `${id} is in the log twice`).toBe(false);
        found.set(id, JSON.stringify({ segment, entry: start + index }));
      }
    }
  return found;
}

const kinds: [name: string, open: () => Promise<TestStores>][] = [
  ["files", () => Promise.resolve(fileStores())],
  ["S3, a fake", fakeStores],
];
for (const { name, start } of isLong ? realServers().slice(0, 1) : []) {
  if (start === undefined) console.warn(`${name} is not installed: see test/window/s3-servers.ts`);
  else
    kinds.push([
      `S3, ${name}`,
      async () => {
        const server = await start();
        return s3Stores(name, server.options, () => server.close());
      },
    ]);
}

for (const [name, open] of kinds) {
  describe(name, () => {
    let stores: TestStores;
    beforeAll(async () => {
      stores = await open();
    }, 60_000);
    afterAll(() => stores.close());

    test(
      "WD6 G60 writers that fight for a log store each id once, and tell the same places",
      { timeout: 300_000 },
      async () => {
        const { spec, objects } = stores.next();
        const all = Array.from({ length: CONTENDERS }, (_, number) => new Contender(spec, number));
        let isOver = false;
        const runs = Promise.all(all.map((one) => one.run())).finally(() => (isOver = true));
        // A process that was killed begins again: there is an end of that, so that all of them can end.
        for (let count = 0; isLong && !isOver && count < DISTURBANCES; count += 1) {
          await Promise.race([pause(300 + Math.random() * 1_000), runs]);
          await all[Math.floor(Math.random() * all.length)]?.disturb();
        }
        await runs;
        const found = await placesIn(objects);
        expect([...found.keys()].toSorted()).toEqual(IDS.toSorted());
        for (const { lines } of all)
          for (const { id, position } of lines)
            if (id !== undefined) expect(JSON.stringify(position)).toBe(found.get(id));
        const sum = (numbers: readonly number[]): number =>
          numbers.reduce((total, number) => total + number, 0);
        const kills = sum(all.map((one) => one.kills));
        const fences = sum(all.flatMap(({ lines }) => lines.map((line) => line.fences ?? 0)));
        expect(fences + kills).toBeGreaterThanOrEqual(CONTENDERS - 1);
        console.log(
          `${name}: ${CONTENDERS} writers, ${IDS.length} ids, ${fences} fences, ${kills} kills`,
        );
        const last = await openWindow({
          log: objectLog(objects),
          snapshots: objects,
          durationMs: 24 * HOUR_MS,
        });
        expect(last.stats.keys).toBe(IDS.length);
      },
    );
  });
}
