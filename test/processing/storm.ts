/**
 * Members that come, work, and go, in order or not, while records flow from partitions to partitions. Each life is a
 * consumer whose outputs and offsets are one transaction. What comes out is compared with what went in.
 */

import { isHapaxError } from "../../src/base/errors.ts";
import { connectServer } from "../../src/client/processing.ts";
import type { Connection } from "../../src/client/processing/connection.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { QUICK } from "./stage.ts";

export interface StormOptions {
  /** What the members call: a proxy. */
  readonly url: string;
  /** Past it. */
  readonly direct: Connection;
  readonly seed: number;
  readonly partitions: number;
  readonly records: number;
  /** Lives at once. */
  readonly members: number;
}

export interface StormReport {
  readonly missing: readonly number[];
  readonly twice: readonly number[];
  /** Partitions whose output is not in the order of their input. */
  readonly disordered: readonly string[];
  readonly lives: number;
  readonly crashes: number;
}

/** Records that are written before those before them have come out. */
const AHEAD = 16;
const IN = "/v1/stream/storm-in";
const OUT = "/v1/stream/storm-out";

export async function processingStorm(options: StormOptions): Promise<StormReport> {
  const { direct, partitions, records, members } = options;
  const random = createSeededRandom(options.seed);
  const input = direct.partitioned(IN, partitions);
  const output = direct.partitioned(OUT, partitions);
  await Promise.all([input.create(), output.create()]);
  await direct.group("storm").create({ pattern: `${IN}/*`, leaseMs: 1000 });
  const over = new AbortController();
  const counts = { lives: 0, crashes: 0 };
  const slots = Array.from({ length: members }, async () => {
    while (!over.signal.aborted) await live(options, random, over.signal, counts);
  });
  const progress = new Progress(options, output.streams);
  const producer = input.producer({ batchRecordsMax: 5 });
  for (let id = 0; id < records; id += 1) {
    producer.append(`key-${String(id % 40)}`, id);
    if (id % 4 !== 3) continue;
    // Not all at once: those who work have something to do for as long as the storm lasts.
    await producer.flush();
    await progress.until(id - AHEAD);
  }
  await producer.close();
  await progress.until(records);
  await progress.end();
  over.abort();
  await Promise.all(slots);
  return { ...(await compare(direct, input.streams, output.streams, records)), ...counts };
}

/** One life of a member: it ends after some batches, in order or by a crash. */
async function live(
  { url }: StormOptions,
  random: SeededRandom,
  over: AbortSignal,
  counts: { lives: number; crashes: number },
): Promise<void> {
  counts.lives += 1;
  const crash = new AbortController();
  const stop = new AbortController();
  const end = (): void => {
    stop.abort();
  };
  over.addEventListener("abort", end, { once: true });
  if (over.aborted) end();
  const hapax = connectServer(url, { ...QUICK, signal: crash.signal });
  const consumer = hapax.consumer<number>({ group: "storm", pollMs: 20, heartbeatMs: 100 });
  let left = 1 + random.below(6);
  const crashes = random.below(2) === 0;
  try {
    await consumer.run(
      async (batch) => {
        left -= 1;
        // In the middle of a transaction, with its request on the way.
        if (left === 0 && crashes) queueMicrotask(() => crash.abort(new Error("crashed")));
        await hapax.transaction((tx) => {
          for (const id of batch.records) tx.append(batch.stream.replace(IN, OUT), id);
          tx.commit(batch);
        });
        if (left <= 0) end();
      },
      { signal: stop.signal, concurrency: 3 },
    );
  } catch (error) {
    if (!crash.signal.aborted && !isHapaxError(error)) throw error;
    // A server that is away for longer than the retries ends a life too.
    counts.crashes += 1;
  } finally {
    over.removeEventListener("abort", end);
  }
}

/** How many records have come out so far, as a reader of the outputs sees it. */
class Progress {
  readonly #done = new AbortController();
  readonly #followers: readonly Promise<void>[];
  #count = 0;
  #look: () => void = () => undefined;

  constructor({ direct }: StormOptions, streams: readonly string[]) {
    this.#followers = streams.map((path) => this.#follow(direct, path));
  }

  until(count: number): Promise<void> {
    return new Promise((resolve) => {
      this.#look = () => {
        if (this.#count >= count) resolve();
      };
      this.#look();
    });
  }

  async end(): Promise<void> {
    this.#done.abort();
    await Promise.all(this.#followers);
  }

  async #follow(direct: Connection, path: string): Promise<void> {
    const { signal } = this.#done;
    try {
      for await (const _ of direct.stream(path).follow({ signal, patienceMs: Infinity })) {
        this.#count += 1;
        this.#look();
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}

async function compare(
  direct: Connection,
  inputs: readonly string[],
  outputs: readonly string[],
  records: number,
): Promise<Pick<StormReport, "missing" | "twice" | "disordered">> {
  const times = new Map<number, number>();
  const disordered: string[] = [];
  for (const [index, path] of outputs.entries()) {
    const out = await direct.stream(path).read<number>().values();
    const into = await direct
      .stream(inputs[index] ?? "")
      .read<number>()
      .values();
    if (out.join() !== into.join()) disordered.push(path);
    for (const id of out) times.set(id, (times.get(id) ?? 0) + 1);
  }
  const ids = Array.from({ length: records }, (_, id) => id);
  return {
    missing: ids.filter((id) => !times.has(id)),
    twice: ids.filter((id) => (times.get(id) ?? 0) > 1),
    disordered,
  };
}
