/** Where chaos takes place: servers on files in this process, or one that is killed again and again. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { openFaultProxy } from "../../src/testing/testing.ts";
import { Site } from "../crash/site.ts";
import {
  type ChaosPlace,
  type ChaosReport,
  keyedChaos,
  plainChaos,
  producerChaos,
} from "./chaos-kit.ts";

type Chaos = (place: ChaosPlace, seed: number) => Promise<ChaosReport>;

const LANES = 8;

export interface ChaosServers {
  /** A quarter of the seeds writes to a server that takes small bodies only. */
  placeOf(seed: number): ChaosPlace;
  stop(): Promise<void>;
}

export async function startChaosServers(): Promise<ChaosServers> {
  const endings: (() => Promise<unknown>)[] = [];
  const start = async (options: { readonly bodyBytesMax?: number }): Promise<string> => {
    const directory = await mkdtemp(join(tmpdir(), "hapax-chaos-"));
    endings.push(() => rm(directory, { recursive: true, force: true }));
    const store = await openFileStore(directory);
    const server = await startNodeServer({ port: 0, store, ...options });
    endings.push(() => server.stop());
    return server.url;
  };
  const [large, small] = [await start({}), await start({ bodyBytesMax: 600 })];
  return {
    placeOf: (seed) => {
      const url = seed % 4 === 0 ? small : large;
      return { server: () => url, direct: url };
    },
    async stop() {
      for (const end of endings.toReversed()) await end();
    },
  };
}

/** Runs so many seeds, some at a time. */
export async function runSeeds(
  chaos: Chaos,
  servers: ChaosServers,
  first: number,
  count: number,
): Promise<readonly ChaosReport[]> {
  const reports: ChaosReport[] = [];
  let next = first;
  const lane = async (): Promise<void> => {
    while (next < first + count) {
      const seed = next;
      next += 1;
      reports.push(await chaos(servers.placeOf(seed), seed));
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return reports;
}

/** The figures of all runs. */
export function figuresOf(reports: readonly ChaosReport[]): Readonly<Record<string, number>> {
  const figures: Record<string, number> = {};
  const add = (name: string, count: number): void => {
    figures[name] = (figures[name] ?? 0) + count;
  };
  for (const { stored, requests, unknown, notStored, isFlushed, counts } of reports) {
    add("seeds", 1);
    add(isFlushed ? "flushed" : "rejected", 1);
    for (const [name, count] of Object.entries({ stored, requests, unknown, notStored })) {
      add(name, count);
    }
    for (const [name, count] of Object.entries(counts)) add(name, count as number);
  }
  return figures;
}

/** The seeds whose client did not tell the truth, and what was wrong. */
export function wrongOf(reports: readonly ChaosReport[]): readonly string[] {
  const wrong = reports.filter(({ problems }) => problems.length > 0);
  return wrong.slice(0, 5).map(({ kind, seed, problems }) => {
    return `${kind} ${String(seed)}: ${problems.slice(0, 5).join("; ").slice(0, 1_000)}`;
  });
}

/** Writers of every kind go on, seed after seed, while `hapax serve` is killed and started again. */
export async function chaosUnderKills(
  dir: string,
  seed: number,
  kills: number,
): Promise<readonly ChaosReport[]> {
  const random = createSeededRandom(seed);
  const site = new Site({ dir });
  let server = await site.start();
  const direct = await openFaultProxy(() => site.url(), { seed });
  const place = { server: () => site.url(), direct: direct.url };
  const reports: ChaosReport[] = [];
  let isOver = false;
  const lane = async (chaos: Chaos, first: number): Promise<void> => {
    for (let next = first; !isOver; next += 1) reports.push(await chaos(place, next));
  };
  const lanes = [producerChaos, producerChaos, plainChaos, keyedChaos];
  const work = Promise.all(lanes.map((chaos, at) => lane(chaos, seed + at * 1_000_000)));
  work.catch(() => undefined); // Awaited below, after the kills.
  for (let count = 0; count < kills; count += 1) {
    const lifeMs = 20 + random.below(400);
    await new Promise((resolve) => setTimeout(resolve, lifeMs));
    await site.kill(server);
    server = await site.start();
  }
  isOver = true;
  await work;
  await direct.close();
  await site.kill(server);
  return reports;
}
