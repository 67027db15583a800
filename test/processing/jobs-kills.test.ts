// Workers of jobs in processes of their own, on a server that is killed too. The programs are those of dist/.
// HAPAX_LONG=1: a job of 20 seconds. GUARANTEES.md G120, G121
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import type { Connection } from "../../src/client/processing/connection.ts";
import { connectServer } from "../../src/client/processing.ts";
import { openFaultProxy } from "../../src/testing/fault-proxy.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { inDirectory, startServer } from "../crash/processes.ts";
import { INPUT, lagOf, numbers, OUTPUT, valuesOf } from "./pipeline-kit.ts";

const WORKER = fileURLToPath(new URL("job-worker.mjs", import.meta.url));
const isLong = process.env["HAPAX_LONG"] !== undefined;
const SLOW_MS = isLong ? 20_000 : 6_000;
const LEASE_MS = isLong ? 8_000 : 4_000;
const RECORDS = isLong ? 400 : 60;

interface SlowRecord {
  readonly n: number;
  readonly isSlow: boolean;
}

class WorkerProcess {
  readonly begun: { readonly begun: number; readonly attempt: number }[] = [];
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;

  constructor(url: string) {
    const options = { url, streams: [INPUT], to: OUTPUT, leaseMs: LEASE_MS, slowMs: SLOW_MS };
    this.#child = spawn(process.execPath, [WORKER, JSON.stringify(options)], {
      stdio: ["ignore", "pipe", "inherit", "ipc"],
    });
    const { stdout } = this.#child;
    if (stdout === null) throw new Error("the worker has no output");
    createInterface(stdout).on("line", (line) => {
      this.begun.push(JSON.parse(line) as WorkerProcess["begun"][number]);
    });
    this.ended = new Promise((resolve) => {
      this.#child.once("close", () => {
        resolve();
      });
    });
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    this.#child.kill(signal);
    await this.ended;
  }
}

/** Ends when all jobs are done. It gives up when nothing is done for a long time. */
async function untilDone(hapax: Connection): Promise<void> {
  let [lag, sinceMs] = [Infinity, performance.now()];
  for (;;) {
    const now = await lagOf(hapax, "work");
    if (now === 0) return;
    if (now !== lag) [lag, sinceMs] = [now, performance.now()];
    if (performance.now() - sinceMs > 60_000) throw new Error(`nothing is done: lag=${lag}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 100);
    });
  }
}

test("G120 G121 a slow job is done once under kills of workers and of the server, and joins", async () => {
  await inDirectory(async (dir) => {
    let server = await startServer({ dir });
    const proxy = await openFaultProxy(() => server.url, { seed: 1 });
    const hapax = connectServer(proxy.url);
    const random = createSeededRandom(7);
    const records = numbers(RECORDS).map((n): SlowRecord => ({ n, isSlow: n === 0 }));
    await hapax.transaction((tx) => {
      tx.create(INPUT);
      tx.create(OUTPUT);
      tx.append(INPUT, records[0]);
    });
    const all: WorkerProcess[] = [];
    const join = (): WorkerProcess => {
      const worker = new WorkerProcess(proxy.url);
      all.push(worker);
      return worker;
    };
    const slow = join();
    try {
      await expect.poll(() => slow.begun.length, { timeout: 30_000 }).toBe(1);
      const startMs = performance.now();
      const others = [join(), join()];
      let writtenTo = 1;
      // While the slow job runs the others are killed, and others join; the server is killed once.
      for (let round = 0; performance.now() - startMs < SLOW_MS + 2000; round += 1) {
        const next = Math.min(RECORDS, writtenTo + 5);
        await hapax.transaction((tx) => {
          for (const record of records.slice(writtenTo, next)) tx.append(INPUT, record);
        });
        writtenTo = next;
        await new Promise((resolve) => {
          setTimeout(resolve, 500 + random.below(300));
        });
        const one = random.below(others.length);
        await others[one]?.end(random.below(4) === 0 ? "SIGTERM" : "SIGKILL");
        others[one] = join();
        if (round === 2) {
          await server.kill();
          server = await startServer({ dir });
        }
      }
      await hapax.transaction((tx) => {
        for (const record of records.slice(writtenTo)) tx.append(INPUT, record);
      });
      await untilDone(hapax);
      const out = await valuesOf<SlowRecord>(hapax, OUTPUT);
      expect(out.map(({ n }) => n).toSorted((a, b) => a - b)).toEqual(numbers(RECORDS));
      // Its worker was never killed, so it was begun once, although that took longer than a lease.
      const begun = all.flatMap((worker) => worker.begun).filter((one) => one.begun === 0);
      expect(begun).toEqual([{ begun: 0, attempt: 1 }]);
    } finally {
      await Promise.all(all.map((worker) => worker.end("SIGKILL")));
      await proxy.close();
      await server.kill();
    }
  });
}, 240_000);

test("G120 G121 a slow job whose worker is killed comes again, counted, and is done once", async () => {
  await inDirectory(async (dir) => {
    const server = await startServer({ dir });
    const hapax = connectServer(server.url);
    await hapax.transaction((tx) => {
      tx.create(INPUT);
      tx.create(OUTPUT);
      tx.append(INPUT, { n: 0, isSlow: true });
    });
    const first = new WorkerProcess(server.url);
    const all = [first];
    try {
      await expect.poll(() => first.begun.length, { timeout: 30_000 }).toBe(1);
      const second = new WorkerProcess(server.url);
      all.push(second);
      await first.end("SIGKILL");
      await expect
        .poll(() => second.begun, { timeout: 30_000 })
        .toEqual([{ begun: 0, attempt: 2 }]);
      await untilDone(hapax);
      expect(await valuesOf(hapax, OUTPUT)).toEqual([{ n: 0, isSlow: true }]);
    } finally {
      await Promise.all(all.map((worker) => worker.end("SIGKILL")));
      await server.kill();
    }
  });
}, 240_000);
