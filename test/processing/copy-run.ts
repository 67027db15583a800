/**
 * Kafka's own yardstick: records are copied through a pipeline while its members and the server are killed, members
 * are stopped beyond their lease, and answers are lost. What comes out is what went in, each once and in order, for a
 * reader at the end and for one beside it. PROTOCOL.md §19, §20.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { type Connection, connectServer } from "../../src/client/processing.ts";
import { type FaultProxy, openFaultProxy } from "../../src/testing/fault-proxy.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { type ServerProcess, startServer } from "../crash/processes.ts";
import { startPostgres, type TestPostgres } from "../databases/postgres.ts";

export const STRATEGIES = ["transaction", "sqlite", "postgres", "identity"] as const;
export type CopyStrategy = (typeof STRATEGIES)[number];
export const TROUBLES = ["kill server", "kill client", "pause client", "lose answers"] as const;
export type Trouble = (typeof TROUBLES)[number];

export interface CopyOptions {
  readonly seed: number;
  readonly strategy: CopyStrategy;
  readonly troubles: readonly Trouble[];
  readonly records: number;
  readonly streams: number;
  readonly members: number;
  readonly leaseMs: number;
  /** Troubles of each kind, spread over the run. Lost answers are a share of all. */
  readonly times: number;
  /** To see that it is noticed: output and offset apart. */
  readonly isCareless?: boolean;
}

export interface CopyReport {
  readonly copied: number;
  readonly missing: number;
  readonly twice: number;
  readonly outOfOrder: number;
  /** How often the reader beside it saw something that is not a beginning of each stream. */
  readonly beside: number;
  readonly troubles: Readonly<Record<Trouble, number>>;
  readonly tookMs: number;
}

interface Copy {
  readonly stream: number;
  readonly record: number;
}

const OUT = "/v1/stream/out";
const COPIER = fileURLToPath(new URL("copier.mjs", import.meta.url));

export async function runCopy(options: CopyOptions): Promise<CopyReport> {
  const run = new CopyRun(options);
  try {
    await run.open();
    return await run.run();
  } finally {
    await run.close();
  }
}

class CopyRun {
  readonly #options: CopyOptions;
  readonly #random: SeededRandom;
  readonly #folder = mkdtempSync(join(tmpdir(), "hapax-copy-"));
  readonly #counts = { "kill server": 0, "kill client": 0, "pause client": 0, "lose answers": 0 };
  #seen: Copy[] = [];
  #besides = 0;
  readonly #over = new AbortController();
  #server: Promise<ServerProcess>;
  #postgres: TestPostgres | undefined;
  #proxy: FaultProxy | undefined;
  #direct: Connection | undefined;
  #members: ChildProcess[] = [];

  constructor(options: CopyOptions) {
    this.#options = options;
    this.#random = createSeededRandom(options.seed);
    this.#server = startServer({ dir: join(this.#folder, "data") });
  }

  get #hapax(): Connection {
    if (this.#direct === undefined) throw new Error("it is not open");
    return this.#direct;
  }

  get #database(): string {
    return this.#postgres === undefined ? join(this.#folder, "copies.db") : this.#postgres.host;
  }

  async open(): Promise<void> {
    const { strategy, streams, records, troubles, seed } = this.#options;
    const isLossy = troubles.includes("lose answers");
    const address = async (): Promise<string> => (await this.#server).url;
    this.#proxy = await openFaultProxy(address, { seed, dropAnswers: isLossy ? 0.3 : 0 });
    // The test itself has a network without losses, at the same address over all kills.
    this.#direct = connectServer("http://copy", {
      fetch: async (input, init) => {
        const { url } = new Request(input);
        return fetch(url.replace("http://copy", await address()), init);
      },
      retry: { pauseMs: 10, pauseMsMax: 200, totalMs: 60_000 },
    });
    if (strategy === "postgres") {
      this.#postgres = await startPostgres();
      await this.#postgres.pool.query("CREATE TABLE copies (id SERIAL, stream INT, record INT)");
    }
    if (strategy === "sqlite") {
      const connection = new Database(this.#database);
      connection.exec("PRAGMA journal_mode = WAL");
      connection.exec("CREATE TABLE copies (id INTEGER PRIMARY KEY, stream INT, record INT)");
      connection.close();
    }
    if (strategy === "transaction" || this.#options.isCareless === true) {
      await this.#hapax.stream(OUT).create();
    }
    for (let stream = 0; stream < streams; stream += 1) {
      await this.#fill(stream, records / streams);
    }
  }

  async #fill(stream: number, records: number): Promise<void> {
    const handle = this.#hapax.stream(`/v1/stream/in/${stream}`);
    await handle.create();
    const producer = handle.producer({ batchRecordsMax: 50 });
    for (let record = 0; record < records; record += 1) {
      await producer.ready;
      producer.append({ stream, record });
    }
    await producer.close();
  }

  async run(): Promise<CopyReport> {
    const startMs = performance.now();
    for (let index = 0; index < this.#options.members; index += 1) this.#start();
    const watching = this.#watch();
    await this.#trouble();
    await this.#until(async () => (await this.#lag()) === 0);
    const tookMs = performance.now() - startMs;
    for (const member of this.#members) member.kill("SIGKILL");
    const found = await this.#read();
    await this.#until(async () => this.#seen.length >= found.length);
    this.#over.abort();
    await watching;
    this.#look(this.#seen);
    if (this.#proxy !== undefined) this.#counts["lose answers"] = this.#proxy.droppedAnswers;
    return {
      ...this.#examine(found),
      beside: this.#besides,
      troubles: this.#counts,
      tookMs,
    };
  }

  async close(): Promise<void> {
    this.#over.abort();
    for (const member of this.#members) member.kill("SIGKILL");
    await this.#proxy?.close();
    await (await this.#server).kill();
    await this.#postgres?.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #start(): void {
    const { strategy, leaseMs, isCareless = false } = this.#options;
    const url = this.#proxy?.url;
    const options = { url, strategy, database: this.#database, leaseMs, isCareless };
    const child = spawn(process.execPath, [COPIER, JSON.stringify(options)], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    this.#members.push(child);
  }

  /** Each trouble its times, evenly over the copying. */
  async #trouble(): Promise<void> {
    const { troubles, times } = this.#options;
    const acts = troubles.filter((trouble) => trouble !== "lose answers");
    for (let time = 0; time < times; time += 1) {
      for (const [index, act] of acts.entries()) {
        const share = (time * acts.length + index + 1) / (times * acts.length + 1);
        await this.#until(async () => (await this.#progress()) >= share);
        await this.#act(act);
        this.#counts[act] += 1;
      }
    }
  }

  async #act(act: Trouble): Promise<void> {
    if (act === "kill server") {
      this.#server = this.#server.then(async (server) => {
        await server.kill();
        return startServer({ dir: join(this.#folder, "data") });
      });
      await this.#server;
      return;
    }
    const index = this.#random.below(this.#members.length);
    const member = this.#members[index];
    if (member === undefined) return;
    if (act === "kill client") {
      member.kill("SIGKILL");
      this.#members = this.#members.filter((other) => other !== member);
      this.#start();
      return;
    }
    member.kill("SIGSTOP");
    setTimeout(() => member.kill("SIGCONT"), this.#options.leaseMs * 1.5).unref();
  }

  /** From 0 to 1. */
  async #progress(): Promise<number> {
    return 1 - (await this.#lag()) / Math.max(1, this.#total);
  }

  #total = 0;

  async #lag(): Promise<number> {
    const group = await this.#hapax
      .group("copy")
      .describe()
      .catch(() => undefined);
    if (group === undefined) return 1;
    let lag = 0;
    for (const cursor of group.cursors) lag += cursor.lag;
    this.#total = Math.max(this.#total, lag);
    return group.cursors.length === 0 ? 1 : lag;
  }

  async #until(isSo: () => Promise<boolean>): Promise<void> {
    const endMs = performance.now() + 120_000;
    while (!(await isSo())) {
      if (performance.now() > endMs) throw new Error("the copying does not get on");
      const failed = this.#members.find(({ exitCode }) => exitCode !== null && exitCode !== 0);
      if (failed !== undefined) throw new Error(`a member ended with ${failed.exitCode}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** The reader beside it: it follows the output, or asks the table for what is new. */
  async #watch(): Promise<void> {
    const { signal } = this.#over;
    if (this.#options.strategy === "sqlite" || this.#options.strategy === "postgres") {
      while (!signal.aborted) {
        const all = await this.#read();
        this.#look(all);
        this.#seen = [...all];
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      return;
    }
    await this.#until(async () => {
      const list = await this.#hapax
        .stream(OUT)
        .head()
        .catch(() => undefined);
      return list !== undefined || signal.aborted;
    });
    try {
      for await (const { value } of this.#hapax.stream(OUT).follow<Copy>({ from: "-1", signal })) {
        this.#seen.push(value);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** At any time, the copies are a beginning of each stream. */
  #look(copies: readonly Copy[]): void {
    const { twice, outOfOrder } = this.#examine(copies);
    if (twice + outOfOrder > 0) this.#besides += 1;
  }

  async #read(): Promise<readonly Copy[]> {
    if (this.#postgres !== undefined) {
      const { rows } = await this.#postgres.pool.query<Copy>(
        "SELECT stream, record FROM copies ORDER BY id",
      );
      return rows;
    }
    if (this.#options.strategy !== "sqlite") return this.#hapax.stream(OUT).read<Copy>().values();
    const connection = new Database(this.#database, { timeout: 5000 });
    const rows = connection.prepare("SELECT stream, record FROM copies ORDER BY id").all();
    connection.close();
    return rows as readonly Copy[];
  }

  #examine(
    found: readonly Copy[],
  ): Pick<CopyReport, "copied" | "missing" | "twice" | "outOfOrder"> {
    const { streams, records } = this.#options;
    const seen = Array.from({ length: streams }, () => new Set<number>());
    let twice = 0;
    let outOfOrder = 0;
    for (const { stream, record } of found) {
      const copies = seen[stream];
      if (copies === undefined) continue;
      if (copies.has(record)) twice += 1;
      else if (record !== copies.size) outOfOrder += 1;
      copies.add(record);
    }
    const distinct = seen.reduce((sum, copies) => sum + copies.size, 0);
    return { copied: found.length, missing: records - distinct, twice, outOfOrder };
  }
}
