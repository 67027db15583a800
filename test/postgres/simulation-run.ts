/** One simulated history: owners that commit, and are taken over while they do, on a server that misbehaves. */

import { isHapaxError } from "../../src/base/errors.ts";
import type { PostgresStore, PostgresStoreOptions } from "../../src/streams/stores/postgres.ts";
import { ShardFollower } from "../../src/streams/stores/postgres/follower.ts";
import { openOnTables } from "../../src/streams/stores/postgres/postgres-store.ts";
import {
  appended,
  created,
  describeWorld,
  readAll,
  write,
} from "../../src/testing/store-case-kit.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/virtual-clock.ts";
import { type Harms, NO_HARM, SimulatedLog, SimulatedServer } from "./simulated-log.ts";

const CLUSTER = { storeId: "ab".repeat(16), secret: "s" };

export interface SimulationResult {
  readonly trace: string;
  readonly acked: number;
  readonly stored: number;
  readonly settled: number;
  readonly barriers: number;
  readonly failovers: number;
  readonly moved: number;
  /** Takeovers that went on with a warm copy. */
  readonly warm: number;
}

/** Lets time pass until the promise has settled. */
async function drive<T>(clock: VirtualClock, promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const watched = promise.finally(() => (isSettled = true));
  watched.catch(() => undefined);
  for (let turns = 0; !isSettled; turns += 1) {
    if (turns > 20_000) throw new Error("the simulation does not end");
    await turn();
    if (!isSettled) clock.advance(2);
  }
  return watched;
}

function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

function harmsOf(random: SeededRandom): Harms {
  const share = (max: number): number => (random.unit() < 0.5 ? 0 : random.unit() * max);
  return {
    lostRequest: share(0.15),
    lostAnswer: share(0.2),
    late: share(0.15),
    doubt: share(0.15),
    refused: share(0.1),
    failover: share(0.03),
  };
}

class Stage {
  readonly clock = createVirtualClock(1_000_000);
  readonly random: SeededRandom;
  readonly server: SimulatedServer;
  readonly acked: string[] = [];
  readonly ends: unknown[] = [];
  settled = 0;
  barriers = 0;
  warm = 0;
  #lives = 0;

  constructor(seed: number) {
    this.random = createSeededRandom(seed);
    this.server = new SimulatedServer(this.random, this.clock, harmsOf(this.random));
  }

  /** A warm copy for the next owner. */
  follow(): ShardFollower {
    return new ShardFollower(
      new SimulatedLog(this.server, () => this.clock.nowMs()),
      CLUSTER.storeId,
    );
  }

  /**
   * Opens the store. A takeover of its own that was late can move the shard away from it: the answer to the first one was lost, the
   * second was held up, a failover forgot the first, and the third was done before the second arrived. Then it starts again, as a
   * server does after `shard_moved`.
   */
  async open(
    parts: Partial<PostgresStoreOptions> = {},
    follower?: ShardFollower,
  ): Promise<PostgresStore> {
    try {
      return await this.#openOnce(parts, follower);
    } catch (error) {
      if (!isHapaxError(error, "shard_moved")) throw error;
      return this.#openOnce(parts);
    }
  }

  async #openOnce(
    parts: Partial<PostgresStoreOptions>,
    follower?: ShardFollower,
  ): Promise<PostgresStore> {
    const tables = new SimulatedLog(this.server, () => this.clock.nowMs());
    const { clock, random } = this;
    const sizes = { segmentBytes: 4096, snapshotChanges: 12, snapshotMs: 600_000, cacheBytes: 0 };
    const options = {
      ...sizes,
      clock,
      random,
      durability: "os",
      takeover: "now",
      ...parts,
    } as const;
    const end = (): Promise<void> => Promise.resolve();
    const store = await openOnTables(tables, CLUSTER, options, end, { follower });
    if (store.isWarm) this.warm += 1;
    return store;
  }

  /** Commits until it may not, or until it has done its share. */
  async work(store: PostgresStore, commits: number): Promise<void> {
    this.#lives += 1;
    const life = this.#lives;
    try {
      if (!store.world.byId.has(1 as never)) await write(store, created(1));
      for (let count = 0; count < commits; count += 1) {
        const text = `${life}.${count};`;
        await write(store, appended(1, text.padStart(40 + (count % 7) * 60, " ")));
        this.acked.push(text);
      }
    } catch (error) {
      this.ends.push(error);
    }
    const stats = store.stats();
    this.settled += stats.settled;
    this.barriers += stats.barriers;
  }
}

/** Runs one history. Throws if anything acknowledged is lost, twice or out of order. */
export async function simulate(seed: number): Promise<SimulationResult> {
  const stage = new Stage(seed);
  const { clock, random, server } = stage;
  const lives = 2 + Math.floor(random.unit() * 3);
  const working: Promise<void>[] = [];
  let follower: ShardFollower | undefined;
  for (let life = 0; life < lives; life += 1) {
    // The owner before goes on meanwhile: it is alive, and does not know.
    // A copy may also follow one owner after the other, and have read what the second one has never seen.
    const isUsed = random.unit() < 0.5;
    const store = await drive(clock, stage.open({}, isUsed ? follower : undefined));
    if (isUsed) follower = undefined;
    working.push(stage.work(store, 5 + Math.floor(random.unit() * 30)));
    if (random.unit() < 0.8) follower ??= stage.follow();
    for (let turns = Math.floor(random.unit() * 60); turns > 0; turns -= 1) {
      if (random.unit() < 0.2) follower?.look().catch(() => undefined);
      await turn();
      clock.advance(2);
    }
  }
  await drive(clock, Promise.all(working));
  requireEnds(stage, seed);
  server.harms = NO_HARM;
  server.executeLate();
  const last = await drive(clock, stage.open({}, follower));
  const world = describeWorld(last.world);
  const tail = last.world.byId.get(1 as never)?.tail ?? 0;
  const pieces = await drive(clock, readAll(last, 1, 0, tail));
  const stored = pieces.map((piece) => new TextDecoder().decode(piece).trim());
  await drive(clock, last.close());
  // Reopened once more it is the same: the snapshots say what the frames say.
  const again = await drive(clock, stage.open());
  if (describeWorld(again.world) !== world) throw new Error(`seed ${seed}: another world`);
  await drive(clock, again.close());
  requireExact(stage.acked, stored, seed);
  return {
    trace: server.trace.join() + stored.join(),
    acked: stage.acked.length,
    stored: stored.length,
    settled: stage.settled,
    barriers: stage.barriers,
    failovers: server.failovers,
    moved: stage.ends.length,
    warm: stage.warm,
  };
}

function requireEnds({ ends }: Stage, seed: number): void {
  for (const end of ends) {
    if (!isHapaxError(end, "shard_moved"))
      throw new Error(`seed ${seed}: ${String(end)}`, { cause: end });
  }
}

function requireExact(acked: readonly string[], stored: readonly string[], seed: number): void {
  if (new Set(stored).size !== stored.length) throw new Error(`seed ${seed}: stored twice`);
  const places = new Map(stored.map((text, at) => [text, at]));
  const last = new Map<string, number>();
  for (const text of acked) {
    const at = places.get(text);
    if (at === undefined) throw new Error(`seed ${seed}: acknowledged and lost: ${text}`);
    const [life = ""] = text.split(".");
    if (at <= (last.get(life) ?? -1)) throw new Error(`seed ${seed}: out of order: ${text}`);
    last.set(life, at);
  }
}

/** A database that loses what it has acknowledged. Returns how the owner ended, and what it had acknowledged after that. */
export async function simulateGoingBack(
  seed: number,
): Promise<{ readonly end: unknown; readonly after: number }> {
  const stage = new Stage(seed);
  const { clock, random, server } = stage;
  server.harms = NO_HARM;
  // No snapshots: then the last operations are commits.
  const store = await drive(
    clock,
    stage.open({ snapshotChanges: 1_000_000, segmentBytes: 1 << 20 }),
  );
  await drive(clock, stage.work(store, 3 + Math.floor(random.unit() * 10)));
  server.harms = { ...harmsOf(random), failover: 0, late: 0 };
  server.goBack(1 + Math.floor(random.unit() * 5));
  const before = stage.acked.length;
  await drive(clock, stage.work(store, 5));
  return { end: stage.ends.at(-1), after: stage.acked.length - before };
}
