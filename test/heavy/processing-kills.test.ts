// Consumers with transactions, behind a bad network, while the server process is killed. GUARANTEES.md G21, G22
import { expect, test } from "vitest";
import { connectServer } from "../../src/client/processing.ts";
import { openFaultProxy } from "../../src/testing/fault-proxy.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { inDirectory } from "../crash/processes.ts";
import { Site } from "../crash/site.ts";
import { badNetwork } from "../processing/stage.ts";
import { processingStorm } from "../processing/storm.ts";

const SEED = Number(process.env["HAPAX_SEED"] ?? Date.now() % 1_000_000_007);
const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
/** 5 in `npm test`, 60 in `npm run test:crash`. */
const KILLS = IS_LONG ? 60 : 5;

test(
  `G21 G22 ${String(KILLS)} kills of the server while members come and go: each record comes out once and in order`,
  { timeout: 120_000 + KILLS * 10_000 },
  () =>
    inDirectory(async (dir) => {
      const random = createSeededRandom(SEED);
      const site = new Site({ dir });
      let server = await site.start();
      const direct = await openFaultProxy(() => site.url(), { seed: SEED });
      const proxy = await openFaultProxy(() => site.url(), {
        ...badNetwork(SEED),
        silenceRequests: 0,
        silenceAnswers: 0,
      });
      const storm = processingStorm({
        url: proxy.url,
        direct: connectServer(direct.url, { retry: { pauseMs: 5, pauseMsMax: 50 } }),
        seed: SEED,
        partitions: 4,
        records: KILLS * 60,
        members: 3,
      });
      storm.catch(() => undefined); // Awaited below, after the kills.
      for (let count = 0; count < KILLS; count += 1) {
        await new Promise((resolve) => setTimeout(resolve, 100 + random.below(700)));
        await site.kill(server);
        server = await site.start();
      }
      const report = await storm;
      console.log(`kills: ${String(KILLS)} lives: ${String(report.lives)}`);
      const good = { missing: [], twice: [], disordered: [] };
      expect(report, `HAPAX_SEED=${String(SEED)}`).toMatchObject(good);
      await Promise.all([proxy.close(), direct.close()]);
      await site.kill(server);
    }),
);
