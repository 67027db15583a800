// Retry storms: requests and answers are lost, doubled and overtaken. What was sent is stored once, in the order of
// its producer, and the answer to every retry has the end of its original. PROTOCOL.md §14, §15, §16, §17, §18
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startNodeServer } from "../src/streams/runtimes/node.ts";
import { openFileStore } from "../src/streams/stores/file.ts";
import { runStorm, type StormKind, type StormReport } from "./storms/engine-storm.ts";
import { type HttpStormReport, runHttpContention, runHttpStorm } from "./storms/http-storm.ts";

const isLong = process.env["HAPAX_LONG"] !== undefined;
const SEEDS = isLong ? 1000 : 100;
const CRASH_SEEDS = isLong ? 1000 : 20;
const HTTP_SEEDS = isLong ? 1000 : 10;
const KINDS: readonly StormKind[] = [
  "session",
  "patient session",
  "key",
  "if-match session",
  "contention",
];

type Sum = Omit<{ -readonly [K in keyof StormReport]: StormReport[K] }, "problems">;

async function runSeeds(kind: StormKind, seeds: number, hasCrashes: boolean): Promise<Sum> {
  const sum: Sum = {
    attempts: 0,
    lost: 0,
    repeated: 0,
    held: 0,
    conflicts: 0,
    crashes: 0,
    restarts: 0,
  };
  for (let seed = 0; seed < seeds; seed += 1) {
    const { problems, ...counts } = await runStorm(seed, kind, hasCrashes);
    expect(problems, `${kind}, seed ${seed}`).toEqual([]);
    for (const name of Object.keys(sum) as (keyof Sum)[]) sum[name] += counts[name];
  }
  return sum;
}

for (const kind of KINDS) {
  test(
    `a storm of retries leaves what was sent, once and in order: ${kind}`,
    { timeout: 120_000 },
    async () => {
      const sum = await runSeeds(kind, SEEDS, false);
      // It was a storm, not a breeze.
      expect(sum.lost).toBeGreaterThan(sum.attempts / 10);
      expect(sum.repeated).toBeGreaterThan(SEEDS);
      if (kind === "patient session") expect(sum.held).toBeGreaterThan(SEEDS);
      if (kind === "contention") expect(sum.conflicts).toBeGreaterThan(SEEDS);
    },
  );
}

for (const kind of KINDS) {
  test(
    `the same while the power goes again and again: ${kind}`,
    { timeout: isLong ? 600_000 : 120_000 },
    async () => {
      const sum = await runSeeds(kind, CRASH_SEEDS, true);
      expect(sum.crashes).toBeGreaterThan(CRASH_SEEDS / 2);
      if (kind !== "key") expect(sum.restarts).toBeGreaterThan(CRASH_SEEDS / 4);
    },
  );
}

test("the same seed gives the same storm", async () => {
  for (const kind of KINDS) {
    const [one, again, other] = [
      await runStorm(3, kind, true),
      await runStorm(3, kind, true),
      await runStorm(4, kind, true),
    ];
    expect(again).toEqual(one);
    expect(other).not.toEqual(one);
  }
});

/** A server on files whose snapshots and new segments fall into the storm. */
async function onServer(run: (url: string) => Promise<void>): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "hapax-storm-"));
  try {
    const sizes = { segmentBytes: 64 * 1024, snapshotBytes: 32 * 1024 };
    const store = await openFileStore(dir, { durability: "os", ...sizes });
    const server = await startNodeServer({ port: 0, store });
    try {
      await run(server.url);
    } finally {
      await server.stop();
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

for (const kind of KINDS) {
  test(
    `over HTTP, with three answers of ten lost: ${kind}`,
    { timeout: isLong ? 1_800_000 : 120_000 },
    () =>
      onServer(async (url) => {
        const sum = { sent: 0, droppedAnswers: 0, gaps: 0, conflicts: 0, repeated: 0 };
        for (let seed = 0; seed < HTTP_SEEDS; seed += 1) {
          const report: HttpStormReport =
            kind === "contention"
              ? await runHttpContention(url, seed)
              : await runHttpStorm(url, seed, kind);
          expect(report.problems, `${kind}, seed ${seed}`).toEqual([]);
          for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += report[name];
        }
        expect(sum.droppedAnswers).toBeGreaterThan(HTTP_SEEDS * 4);
        expect(sum.repeated).toBeGreaterThan(HTTP_SEEDS);
        if (kind === "session") expect(sum.gaps).toBeGreaterThan(HTTP_SEEDS);
        if (kind === "contention") expect(sum.conflicts).toBeGreaterThan(HTTP_SEEDS);
      }),
  );
}
