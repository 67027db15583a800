/** Members come and go while records flow: each record comes out once, in order. GUARANTEES.md G21, G22 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { badNetwork, openStage } from "./stage.ts";
import { processingStorm } from "./storm.ts";

const GOOD = { missing: [], twice: [], disordered: [] };
// A read on a connection that fell silent is given up after 90 s, which no test waits for.
const HEARD = { silenceRequests: 0, silenceAnswers: 0 };
const SIZE = { partitions: 4, records: 200, members: 3 };

test("G21 G22 members come, go and crash behind a bad network: each record once and in order", async () => {
  const { proxy, direct, close } = await openStage({ ...badNetwork(11), ...HEARD });
  try {
    const report = await processingStorm({ url: proxy.url, direct, seed: 11, ...SIZE });
    expect(report).toMatchObject(GOOD);
    expect(report.lives).toBeGreaterThan(SIZE.members);
    expect(report.crashes).toBeGreaterThan(0);
  } finally {
    await close();
  }
});

test("G21 G22 the same on files", async () => {
  const directory = mkdtempSync(join(tmpdir(), "hapax-storm-"));
  const { proxy, direct, close } = await openStage(
    { ...badNetwork(5), ...HEARD },
    await openFileStore(directory),
  );
  try {
    expect(await processingStorm({ url: proxy.url, direct, seed: 5, ...SIZE })).toMatchObject(GOOD);
  } finally {
    await close();
    rmSync(directory, { recursive: true });
  }
});
