// Workers of jobs, in one process, with a real server behind a network that fails. PROTOCOL.md §20.5
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connectServer } from "../../src/client/processing.ts";
import type { JobOptions } from "../../src/client/processing/job-options.ts";
import type { JobWorker } from "../../src/client/processing/jobs.ts";
import { RecordFailure } from "../../src/client/processing/pipeline-attempts.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import {
  DEAD,
  fill,
  gate,
  INPUT,
  lagOf,
  lossy,
  type Numbered,
  numbers,
  OUTPUT,
  valuesOf,
} from "./pipeline-kit.ts";
import { openStage, type ProcessingStage, QUICK } from "./stage.ts";

let stage: ProcessingStage;
const open: JobWorker<Numbered>[] = [];

beforeEach(async () => {
  stage = await openStage();
  await stage.direct.stream(OUTPUT).create();
});
afterEach(async () => {
  for (const worker of open.splice(0)) await worker.close();
  await stage.close();
});

const FROM = { streams: [INPUT], leaseMs: 1000 };

function create(
  options: Partial<JobOptions<Numbered>> & Pick<JobOptions<Numbered>, "each">,
  hapax = stage.direct,
): JobWorker<Numbered> {
  const worker = hapax.jobs<Numbered>({
    from: FROM,
    group: "work",
    retry: { pauseMs: 5, pauseMsMax: 10 },
    ...options,
  });
  open.push(worker);
  return worker;
}

/** Ends when all that was written is done. */
async function untilIdle(): Promise<void> {
  while ((await lagOf(stage.direct, "work")) > 0) {
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
  }
}

const sorted = async (path: string): Promise<number[]> =>
  (await valuesOf(stage.direct, path)).map(({ n }) => n).toSorted((one, other) => one - other);

describe("jobs", () => {
  test("G121 workers that come, crash and sleep behind a bad network: each job has its effects once", async () => {
    const bad = await openStage(lossy(3));
    try {
      await fill(bad.direct, INPUT, 120);
      await bad.direct.stream(OUTPUT).create();
      const random = createSeededRandom(3);
      let isOver = false;
      const live = async (): Promise<void> => {
        while (!isOver) {
          const crash = new AbortController();
          const hapax = connectServer(bad.proxy.url, { ...QUICK, signal: crash.signal });
          let left = 3 + random.below(20);
          const worker = hapax.jobs<Numbered>({
            from: FROM,
            group: "work",
            to: OUTPUT,
            concurrency: 4,
            closeMs: 500,
            retry: { attemptsMax: 1000, pauseMs: 1, pauseMsMax: 5 },
            each: async (record) => {
              left -= 1;
              if (left === 0 && random.below(2) === 0) crash.abort(new Error("crashed"));
              else if (left <= 0) void worker.close();
              if (random.below(8) === 0) throw new Error("again");
              // Longer than a lease, now and then.
              const ms = random.below(40) === 0 ? 1200 : random.below(10);
              await new Promise((resolve) => {
                setTimeout(resolve, ms);
              });
              return record;
            },
          });
          await worker.run().catch((error: unknown) => {
            if (!crash.signal.aborted) throw error;
          });
        }
      };
      const lives = [live(), live(), live()];
      const ended = Promise.all(lives);
      const idle = (async (): Promise<void> => {
        for (;;) {
          const out = await valuesOf(bad.direct, OUTPUT);
          if (out.length >= 120 && (await lagOf(bad.direct, "work")) === 0) break;
          await new Promise((resolve) => {
            setTimeout(resolve, 50);
          });
        }
      })();
      await Promise.race([idle, ended]);
      isOver = true;
      const out = (await valuesOf(bad.direct, OUTPUT)).map(({ n }) => n);
      expect(out.toSorted((one, other) => one - other)).toEqual(numbers(120));
    } finally {
      await bad.close();
    }
  }, 120_000);

  test("a worker that joins gets the next job at once, and a slow one keeps its own", async () => {
    await fill(stage.direct, INPUT, 4);
    const slow = gate();
    const begun: string[] = [];
    const first = create({
      to: OUTPUT,
      concurrency: 1,
      each: async (record) => {
        begun.push(`first ${record.n}`);
        await slow.opened;
        return record;
      },
    });
    const running = first.run();
    while (begun.length === 0) await new Promise(setImmediate);
    const second = create({ to: OUTPUT, concurrency: 1, each: (record) => record });
    const others = second.run();
    // Longer than two leases: the first worker is slow, and alive.
    await new Promise((resolve) => {
      setTimeout(resolve, 2200);
    });
    expect(await sorted(OUTPUT)).toEqual([1, 2, 3]);
    slow.open();
    await untilIdle();
    await Promise.all([first.close(), second.close(), running, others]);
    expect(begun).toEqual(["first 0"]);
    expect(await sorted(OUTPUT)).toEqual(numbers(4));
    expect(first.counters).toMatchObject({ done: 1, outputs: 1, lost: 0 });
  }, 20_000);

  test("G122 a thousand delayed records come in time and once", async () => {
    const [early, count] = [200, 1000];
    await fill(stage.direct, INPUT, early + count);
    let startMs = Date.now();
    // The first ones are due at once: they show how busy the machine is.
    const delayMs = ({ n }: Numbered): number => (n < early ? 0 : 500 + ((n * 7919) % 1000));
    const late: number[] = [];
    const each = (record: Numbered): Numbered => {
      if (record.n >= early) late.push(Date.now() - startMs - delayMs(record));
      return record;
    };
    const dueAt = (record: Numbered): number => (record.n < early ? 0 : startMs + delayMs(record));
    const workers = [0, 1].map(() => create({ to: OUTPUT, concurrency: 32, each, dueAt }));
    const running = workers.map((worker) => worker.run());
    const follower = stage.direct.stream(OUTPUT).follow();
    let seen = 0;
    let busyMs = 0;
    for await (const _ of follower) {
      seen += 1;
      if (seen === early) busyMs = Date.now() - startMs;
      if (seen === early + count) break;
    }
    startMs = 0;
    await Promise.all(workers.map((worker) => worker.close()));
    await Promise.all(running);
    expect(await sorted(OUTPUT)).toEqual(numbers(early + count));
    expect(late).toHaveLength(count);
    expect(Math.min(...late)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...late)).toBeLessThan(2000 + 20 * busyMs);
    for (const { counters } of workers) expect(counters).toMatchObject({ failures: 0, lost: 0 });
  }, 120_000);

  test("a job that fails comes again, counted, and is put aside in the same transaction", async () => {
    await fill(stage.direct, INPUT, 3);
    const attempts: number[] = [];
    const worker = create({
      deadLetter: DEAD,
      retry: { attemptsMax: 3, pauseMs: 1, pauseMsMax: 5 },
      each: ({ n }, { attempt, retryLater, postpone }) => {
        if (n === 0 && attempts.filter((one) => one === 1).length < 3) {
          attempts.push(attempt);
          postpone(1);
        } else if (n === 1) {
          attempts.push(10 + attempt);
          retryLater(1);
        } else if (n === 2) throw new Error(`attempt ${attempt}`);
      },
    });
    const running = worker.run();
    await untilIdle();
    await worker.close();
    await running;
    expect(attempts.filter((one) => one < 10)).toEqual([1, 1, 1]);
    expect(attempts.filter((one) => one > 10)).toEqual([11, 12, 13]);
    const letters = await stage.direct.deadLetters(DEAD).list();
    expect(
      letters.map(({ record, attempts: count, reason }) => [record, count, reason.message]),
    ).toEqual(
      expect.arrayContaining([
        [{ n: 1 }, 3, "Error: the job was put back in its last attempt"],
        [{ n: 2 }, 3, "Error: attempt 3"],
      ]),
    );
    expect(worker.counters).toMatchObject({ done: 1, deadLetters: 2, lost: 0 });
  });

  test("without a stream for dead letters the worker ends, and the job waits", async () => {
    await fill(stage.direct, INPUT, 1);
    const worker = create({
      retry: { attemptsMax: 1 },
      each: () => {
        throw new Error("never");
      },
    });
    await expect(worker.run()).rejects.toBeInstanceOf(RecordFailure);
    expect(await lagOf(stage.direct, "work")).toBeGreaterThan(0);
  });

  test("a close waits for what runs, for so long, and puts back the rest without an attempt", async () => {
    await fill(stage.direct, INPUT, 2);
    const begun = gate();
    const aborted: unknown[] = [];
    let count = 0;
    const worker = create({
      to: OUTPUT,
      closeMs: 200,
      concurrency: 2,
      each: async (record, { signal }) => {
        count += 1;
        if (count === 2) begun.open();
        if (record.n === 0) {
          await begun.opened;
          return record;
        }
        signal.addEventListener("abort", () => aborted.push(signal.reason));
        return new Promise<never>(() => undefined);
      },
    });
    const running = worker.run();
    await begun.opened;
    await worker.close();
    await running;
    expect(aborted).toHaveLength(1);
    const attempts: number[] = [];
    const next = create({
      to: OUTPUT,
      each: (record, { attempt }) => {
        attempts.push(attempt);
        return record;
      },
    });
    const going = next.run();
    await untilIdle();
    await next.close();
    await going;
    expect(attempts).toEqual([1]);
    expect(await sorted(OUTPUT)).toEqual([0, 1]);
  });

  test("what a stream cannot hold fails its job alone", async () => {
    await fill(stage.direct, INPUT, 3);
    const worker = create({
      to: OUTPUT,
      deadLetter: DEAD,
      retry: { attemptsMax: 1 },
      each: (record) => (record.n === 1 ? 7n : record),
    });
    const running = worker.run();
    await untilIdle();
    await worker.close();
    await running;
    expect(await sorted(OUTPUT)).toEqual([0, 2]);
    expect(await stage.direct.deadLetters(DEAD).list()).toHaveLength(1);
  });

  test("a worker does not read what it writes, and options that cannot work are refused", () => {
    const each = (): void => undefined;
    expect(() => create({ each, to: INPUT })).toThrow("would never end");
    expect(() => create({ each, from: { streams: [] } })).toThrow("from.streams is empty");
    expect(() => create({ each, concurrency: 0 })).toThrow("concurrency");
  });
});
