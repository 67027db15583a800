// A process is killed at any call of its life, and the power goes at any call of the start that follows.
import { expect, test } from "vitest";
import type { StreamName } from "../src/streams/core/types.ts";
import { WholeEngine } from "../src/streams/engine/whole-engine.ts";
import { openOnDisk } from "../src/streams/stores/file/file-store.ts";
import { appendCommand, createCommand } from "../src/testing/commands.ts";
import { createSeededRandom } from "../src/testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "./kits/simulated-disk.ts";
import { createVirtualClock } from "../src/testing/virtual-clock.ts";
import { History } from "./crash/history.ts";

// `npm run test:crash` sets it.
const SEEDS = process.env["HAPAX_LONG"] === undefined ? 1 : 12;
const LIMIT_MS = SEEDS * 120_000;
const NAME = "/records" as StreamName;

class World {
  readonly #clock = createVirtualClock(1_700_000_000_000);
  readonly #random = createSeededRandom(11);
  readonly #history = new History();
  #records = 0;

  /** Opens the directory, checks all that was answered, appends, and closes if `isClosed`. */
  async live(disk: SimulatedDisk, appends: number, isClosed: boolean): Promise<void> {
    const [clock, random] = [this.#clock, this.#random];
    const options = { segmentBytes: 16_384, snapshotBytes: 1 << 20, clock, random };
    const store = await openOnDisk(disk, options, async () => {});
    await this.#history.check(store);
    const watched = this.#history.watch(store);
    const engine = new WholeEngine({ store: watched, clock, jsonRecordsEnd: () => undefined });
    await engine.create(createCommand(NAME));
    for (let count = 0; count < appends; count += 1) {
      this.#records += 1;
      await engine.append(NAME, appendCommand(`${this.#records};`.padEnd(6000, ".")));
    }
    if (isClosed) await engine.close();
  }

  /** The same, on a disk that may stop in the middle of it. */
  async liveUntilStopped(disk: SimulatedDisk, appends: number, isClosed: boolean): Promise<void> {
    await Promise.race([this.live(disk, appends, isClosed), disk.stopped]);
  }
}

/** A directory that a process was killed in after two appends. */
async function startAgain(seed: number): Promise<{ world: World; disk: SimulatedDisk }> {
  const world = new World();
  const disk = createSimulatedDisk(seed);
  await world.live(disk, 2, false);
  return { world, disk: disk.kill() };
}

/** How many calls a life takes that nothing stops. */
async function countCalls(seed: number): Promise<{ whole: number; start: number }> {
  const { world, disk } = await startAgain(seed);
  await world.live(disk, 4, true);
  const next = disk.kill();
  await world.live(next, 0, false);
  return { whole: disk.log.length, start: next.log.length };
}

test(
  "RC3 G11 a kill at any call, then a power cut at any call of the next start, lose nothing",
  async () => {
    let cuts = 0;
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const { whole, start } = await countCalls(seed);
      expect(whole).toBeGreaterThan(40);
      expect(start).toBeGreaterThan(15);
      for (let killedAt = 1; killedAt <= whole; killedAt += 1) {
        for (let cutAt = 1; cutAt <= start; cutAt += 1) {
          // Of many seeds: what a power cut leaves of a file is the seed's choice.
          const { world, disk } = await startAgain(seed * 100_000 + killedAt * 1000 + cutAt);
          disk.stopAt(killedAt);
          await world.liveUntilStopped(disk, 4, true);
          const killed = disk.kill();
          killed.stopAt(cutAt);
          await world.liveUntilStopped(killed, 0, false);
          await world.live(killed.crash(), 1, true).catch((error: unknown) => {
            const where = `seed ${seed}, killed at call ${killedAt}, cut at call ${cutAt}`;
            throw new Error(where, { cause: error });
          });
          cuts += 1;
        }
      }
    }
    expect(cuts).toBeGreaterThan(600 * SEEDS);
  },
  LIMIT_MS,
);
