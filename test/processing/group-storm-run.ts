/**
 * Members of a group that join, leave, die and sleep beyond their lease while they copy records in transactions; then
 * what was copied, and how the streams are shared at the end. PROTOCOL.md §19, §20.
 */

import { type Connection, connectServer, type Consumer } from "../../src/client/processing.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";

export interface GroupStormOptions {
  readonly seed: number;
  readonly members: number;
  readonly streams: number;
  /** Records of each stream. */
  readonly records: number;
  /** Joins, leaves, deaths and sleeps. */
  readonly acts: number;
  readonly leaseMs: number;
  /** From one act to the next, in leases; a tenth unless told. */
  readonly leasesPerAct?: number;
  /** A fault of the members, to see that it is noticed: the offset is committed apart from the output. */
  readonly isCareless?: boolean;
}

export interface GroupStormReport {
  readonly copied: number;
  readonly missing: number;
  readonly twice: number;
  readonly outOfOrder: number;
  /** Leases of each live member at the end, fewest first. */
  readonly shares: readonly number[];
  /** From the last act until everything was copied, in leases. */
  readonly settleLeases: number;
  /** The longest time in which a stream with work got none done, in leases: over any number of deaths in a row. */
  readonly stallLeases: number;
  readonly acts: Readonly<Record<string, number>>;
}

interface Copy {
  readonly stream: number;
  readonly record: number;
}

const OUT = "/v1/stream/out";
const GROUP = "storm";
const input = (stream: number): string => `/v1/stream/in/${stream}`;

/** One worker with a network of its own, which can be cut for a while or until the end. */
class Worker {
  readonly connection: Connection;
  readonly consumer: Consumer<Copy>;
  readonly #stop = new AbortController();
  readonly run: Promise<void>;
  #gate: Promise<void> = Promise.resolve();
  isDead = false;

  constructor(url: string, options: GroupStormOptions, onCopy: (stream: number) => void) {
    this.connection = connectServer(url, {
      fetch: async (resource, init) => {
        await this.#gate;
        return fetch(resource, init);
      },
      retry: { pauseMs: 5, pauseMsMax: 50, totalMs: 60_000 },
    });
    const { leaseMs } = options;
    this.consumer = this.connection.consumer<Copy>({
      group: GROUP,
      pollMs: 50,
      liveMax: 4,
      heartbeatMs: leaseMs / 4,
    });
    this.run = this.consumer.run(
      async (batch) => {
        if (options.isCareless === true) {
          for (const record of batch.records) await this.connection.stream(OUT).append(record);
          await batch.commit();
        } else {
          await this.connection.transaction((tx) => {
            for (const record of batch.records) tx.append(OUT, record);
            tx.commit(batch);
          });
        }
        const [first] = batch.records;
        if (first !== undefined) onCopy(first.stream);
      },
      { signal: this.#stop.signal, concurrency: 4 },
    );
    this.run.catch(() => undefined);
  }

  /** In order: it finishes what it has, and leaves. */
  async leave(): Promise<void> {
    this.#stop.abort();
    await this.run;
  }

  /** Nothing that it sends arrives any more. */
  die(): void {
    this.isDead = true;
    this.#gate = new Promise(() => undefined);
  }

  sleep(ms: number): void {
    this.#gate = new Promise((resolve) => setTimeout(resolve, ms));
  }
}

export async function runGroupStorm(options: GroupStormOptions): Promise<GroupStormReport> {
  const server = await startNodeServer({ store: "memory", port: 0 });
  try {
    return await new Storm(server.url, options).run();
  } finally {
    await server.stop();
  }
}

class Storm {
  readonly #url: string;
  readonly #options: GroupStormOptions;
  readonly #random: SeededRandom;
  readonly #admin: Connection;
  readonly #acts = { join: 0, leave: 0, die: 0, sleep: 0 };
  /** When each stream that has work got some of it done. */
  readonly #movedMs = new Map<number, number>();
  #workers: Worker[] = [];
  #stallMs = 0;

  constructor(url: string, options: GroupStormOptions) {
    this.#url = url;
    this.#options = options;
    this.#random = createSeededRandom(options.seed);
    this.#admin = connectServer(url);
  }

  async run(): Promise<GroupStormReport> {
    const { streams, records, acts, members, leaseMs, leasesPerAct = 0.1 } = this.#options;
    await this.#admin.stream(OUT).create();
    for (let stream = 0; stream < streams; stream += 1)
      await this.#admin.stream(input(stream)).create();
    await this.#admin.group(GROUP).create({ pattern: "/v1/stream/in/*", leaseMs });
    for (let index = 0; index < members; index += 1) this.#join();
    const perAct = Math.ceil(records / (acts + 1));
    for (let record = 0, act = 0; record < records || act < acts; act += 1) {
      for (let end = Math.min(records, record + perAct); record < end; record += 1) {
        await this.#write(record);
      }
      if (act < acts) await this.#act();
      await new Promise((resolve) => setTimeout(resolve, leaseMs * leasesPerAct));
    }
    const lastMs = performance.now();
    while (this.#workers.length < members) this.#join();
    await this.#until(async () => (await this.#lag()) === 0);
    const settleLeases = (performance.now() - lastMs) / leaseMs;
    const shares = await this.#settle();
    await Promise.all(this.#workers.map((worker) => worker.leave()));
    return {
      ...(await this.#examine()),
      shares,
      settleLeases,
      stallLeases: this.#stallMs / leaseMs,
      acts: this.#acts,
    };
  }

  async #write(record: number): Promise<void> {
    const { streams } = this.#options;
    await this.#admin.transaction((tx) => {
      for (let stream = 0; stream < streams; stream += 1)
        tx.append(input(stream), { stream, record });
    });
    for (let stream = 0; stream < streams; stream += 1) {
      if (!this.#movedMs.has(stream)) this.#movedMs.set(stream, performance.now());
    }
  }

  #join(): void {
    const onCopy = (stream: number): void => {
      const since = this.#movedMs.get(stream);
      if (since !== undefined) this.#stallMs = Math.max(this.#stallMs, performance.now() - since);
      this.#movedMs.delete(stream);
    };
    this.#workers.push(new Worker(this.#url, this.#options, onCopy));
  }

  async #act(): Promise<void> {
    const { members, leaseMs } = this.#options;
    const worker = this.#workers[this.#random.below(this.#workers.length)];
    const act = this.#random.below(4);
    if (act === 0 || worker === undefined || this.#workers.length < members / 2) {
      this.#acts.join += 1;
      this.#join();
      return;
    }
    if (act === 1) {
      this.#acts.sleep += 1;
      worker.sleep(leaseMs * 1.5);
      return;
    }
    this.#workers = this.#workers.filter((other) => other !== worker);
    if (act === 2) {
      this.#acts.leave += 1;
      await worker.leave();
    } else {
      this.#acts.die += 1;
      worker.die();
    }
  }

  async #lag(): Promise<number> {
    const { cursors } = await this.#admin.group(GROUP).describe();
    return cursors.reduce((sum, { lag }) => sum + lag, 0);
  }

  /** The shares, once every live member has what is its own. */
  async #settle(): Promise<readonly number[]> {
    const { streams } = this.#options;
    let shares: readonly number[] = [];
    await this.#until(async () => {
      const { members } = await this.#admin.group(GROUP).describe();
      shares = members.map(({ leases }) => leases).toSorted((one, other) => one - other);
      const held = shares.reduce((sum, leases) => sum + leases, 0);
      const isFair = (shares.at(-1) ?? 0) - (shares[0] ?? 0) <= 1;
      return members.length === this.#workers.length && held === streams && isFair;
    });
    return shares;
  }

  async #until(isSo: () => Promise<boolean>): Promise<void> {
    const endMs = performance.now() + Math.max(30_000, this.#options.leaseMs * 20);
    while (!(await isSo())) {
      if (performance.now() > endMs) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async #examine(): Promise<Pick<GroupStormReport, "copied" | "missing" | "twice" | "outOfOrder">> {
    const { streams, records } = this.#options;
    const all = await this.#admin.stream(OUT).read<Copy>().values();
    const next = Array.from({ length: streams }, () => new Set<number>());
    let twice = 0;
    let outOfOrder = 0;
    for (const { stream, record } of all) {
      const seen = next[stream];
      if (seen === undefined) continue;
      if (seen.has(record)) twice += 1;
      else if (record !== seen.size) outOfOrder += 1;
      seen.add(record);
    }
    const found = next.reduce((sum, seen) => sum + seen.size, 0);
    return { copied: all.length, missing: streams * records - found, twice, outOfOrder };
  }
}
