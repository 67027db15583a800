// Chaos by proxy, on seeds that stay. test/heavy/chaos.test.ts has many more, and kills the server.
import { afterAll, beforeAll, expect, test } from "vitest";
import { keyedChaos, plainChaos, producerChaos } from "./chaos-kit.ts";
import {
  type ChaosServers,
  figuresOf,
  runSeeds,
  startChaosServers,
  wrongOf,
} from "./chaos-places.ts";

/** Far above what it takes: a slow machine is no fault. */
const LIMIT = { timeout: 120_000 };

let servers: ChaosServers;

beforeAll(async () => {
  servers = await startChaosServers();
});

afterAll(() => servers.stop());

test(
  "G19 30 seeds of 200 appends through a proxy with all faults: each once, in order, and every flush is truthful",
  LIMIT,
  async () => {
    const reports = await runSeeds(producerChaos, servers, 1, 30);
    expect(wrongOf(reports)).toEqual([]);
    const {
      flushed = 0,
      rejected = 0,
      unknown = 0,
      notStored = 0,
      ...figures
    } = figuresOf(reports);
    // Chaos without harm shows nothing.
    expect(flushed).toBeGreaterThan(15);
    expect(Math.min(rejected, unknown, notStored)).toBeGreaterThan(0);
    for (const [name, count] of Object.entries(figures)) expect(count, name).toBeGreaterThan(2);
  },
);

test(
  "20 seeds of 200 plain appends through the same proxy: each tells the truth, and the order is that of the calls",
  LIMIT,
  async () => {
    const reports = await runSeeds(plainChaos, servers, 1, 20);
    expect(wrongOf(reports)).toEqual([]);
    const { flushed = 0, rejected = 0 } = figuresOf(reports);
    expect(Math.min(flushed, rejected)).toBeGreaterThan(0);
  },
);

test(
  "4 seeds of 200 keyed appends through the same proxy, some called twice: each key is stored once",
  LIMIT,
  async () => {
    const reports = await runSeeds(keyedChaos, servers, 1, 4);
    expect(wrongOf(reports)).toEqual([]);
    const { stored = 0, duplicatedRequests = 0 } = figuresOf(reports);
    expect(stored).toBe(800);
    expect(duplicatedRequests).toBeGreaterThan(50);
  },
);
