// Chaos by proxy, on fresh seeds, and with a server process that is killed in the middle. GUARANTEES.md G19
import { expect, test } from "vitest";
import { keyedChaos, plainChaos, producerChaos } from "../client/chaos-kit.ts";
import {
  chaosUnderKills,
  figuresOf,
  runSeeds,
  startChaosServers,
  wrongOf,
} from "../client/chaos-places.ts";
import { inDirectory } from "../crash/processes.ts";

const SEED = Number(process.env["HAPAX_SEED"] ?? Date.now() % 1_000_000_007);
const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
/** 5 in `npm test`, 120 in `npm run test:crash`. */
const KILLS = IS_LONG ? 120 : 5;

const SEEDS = [
  ["producer", producerChaos, IS_LONG ? 1_000 : 8],
  ["plain", plainChaos, IS_LONG ? 1_000 : 5],
  ["keyed", keyedChaos, IS_LONG ? 200 : 2],
] as const;

for (const [kind, chaos, count] of SEEDS) {
  test(
    `G19 ${String(count)} fresh seeds of 200 ${kind} appends through a proxy with all faults: each once, and the client is truthful`,
    { timeout: 60_000 + count * 1_500 },
    async () => {
      const servers = await startChaosServers();
      try {
        const reports = await runSeeds(chaos, servers, SEED, count);
        console.log(`${kind}: ${JSON.stringify(figuresOf(reports))}`);
        expect(wrongOf(reports), `HAPAX_SEED=${String(SEED)}`).toEqual([]);
      } finally {
        await servers.stop();
      }
    },
  );
}

test(
  `G19 ${String(KILLS)} kills of the server in the middle of the chaos: each append once, in order, and every flush is truthful`,
  { timeout: 60_000 + KILLS * 3_000 },
  () =>
    inDirectory(async (dir) => {
      const reports = await chaosUnderKills(dir, SEED, KILLS);
      console.log(`kills: ${JSON.stringify(figuresOf(reports))}`);
      expect(wrongOf(reports), `HAPAX_SEED=${String(SEED)}`).toEqual([]);
      const { flushed = 0 } = figuresOf(reports);
      expect(flushed).toBeGreaterThan(KILLS / 40);
    }),
);
