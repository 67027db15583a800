// A pipeline with state and dead letters, while its server and its own process end and come back. PROTOCOL.md §19, §20
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { connectServer } from "../../src/client/processing.ts";
import { type Pipeline } from "../../src/client/processing/pipeline.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { openFaultProxy } from "../../src/testing/fault-proxy.ts";
import {
  DEAD,
  fill,
  gate,
  INPUT,
  lossy,
  type Numbered,
  numbers,
  OUTPUT,
  valuesOf,
} from "./pipeline-kit.ts";
import { QUICK } from "./stage.ts";

const RECORDS = 1200;
const directory = mkdtempSync(join(tmpdir(), "hapax-pipeline-"));
afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
});

/** One process. */
function processAt(url: string, onProgress: () => void): Pipeline<Numbered> {
  return connectServer(url, {
    ...QUICK,
    retry: { totalMs: 500, pauseMs: 2, pauseMsMax: 20 },
  }).pipeline<Numbered>({
    from: { pattern: `${INPUT}/*`, leaseMs: 1000 },
    group: "sums",
    to: OUTPUT,
    state: { changelog: "/v1/stream/sums-state" },
    deadLetter: DEAD,
    retry: { attemptsMax: 2, pauseMs: 1, pauseMsMax: 1 },
    each: ({ n }, { state, stream }) => {
      if (n % 100 === 42) throw new Error("forty-two");
      const count = (state.get<number>("count") ?? 0) + 1;
      state.set("count", count);
      return { n, count, stream };
    },
    onProgress,
  });
}

test(
  "a server on files that is restarted, and a pipeline that is, lose and repeat nothing",
  { timeout: 60_000 },
  async () => {
    const start = async (): Promise<NodeServer> =>
      startNodeServer({ port: 0, store: await openFileStore(directory, { durability: "os" }) });
    let server = await start();
    const proxy = await openFaultProxy(() => server.url, lossy(31));
    const direct = connectServer(server.url);
    const inputs = numbers(3).map((n) => `${INPUT}/${String(n)}`);
    for (const input of inputs) await fill(direct, input, 0);
    await direct.stream(OUTPUT).create();
    const feed = async (first: number): Promise<void> => {
      const hapax = connectServer(server.url);
      for (let at = first; at < first + RECORDS / 4; at += 20) {
        await hapax.transaction((tx) => {
          for (let n = at; n < at + 20; n += 1) tx.append(inputs[n % 3] ?? "", { n });
        });
      }
    };
    for (let round = 0; round < 4; round += 1) {
      // Each round: a new process that gets to something, then the end of the server in the middle of its work.
      const begun = gate();
      const pipeline = processAt(proxy.url, begun.open);
      const running = pipeline.run();
      await feed((round * RECORDS) / 4);
      await begun.opened;
      await server.stop();
      server = await start();
      await pipeline.close();
      await running;
    }
    // What is left.
    const hapax = connectServer(server.url);
    const last = processAt(server.url, () => undefined);
    const running = last.run();
    await expect
      .poll(
        async () => (await hapax.group("sums").describe()).cursors.every(({ lag }) => lag === 0),
        {
          timeout: 30_000,
        },
      )
      .toBe(true);
    await last.close();
    await running;
    const out = await valuesOf<{ n: number; count: number; stream: string }>(hapax, OUTPUT);
    const good = numbers(RECORDS).filter((n) => n % 100 !== 42);
    expect(out.map(({ n }) => n).toSorted((a, b) => a - b)).toEqual(good);
    for (const stream of inputs) {
      const counts = out.filter((one) => one.stream === stream).map(({ count }) => count);
      expect(counts).toEqual(numbers(counts.length).map((count) => count + 1));
    }
    const dead = await valuesOf<{ record: Numbered }>(hapax, DEAD);
    expect(dead.map(({ record }) => record.n).toSorted((a, b) => a - b)).toEqual(
      numbers(RECORDS).filter((n) => n % 100 === 42),
    );
    await proxy.close();
    await server.stop();
  },
);
