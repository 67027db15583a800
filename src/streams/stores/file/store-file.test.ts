// STORE through kills and power cuts: one of its copies is always whole, and its values never go back.
import { expect, test } from "vitest";
import { createSeededRandom } from "../../../testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import { Ownership, readStoreMark, type StoreMark } from "./store-file.ts";

const ID = "00112233445566778899aabbccddeeff";
/** For each pair of writes. It must be large: a kill rarely leaves a whole copy only in the page cache. */
const SEEDS = 600;

const markOf = async (disk: SimulatedDisk): Promise<StoreMark | undefined> =>
  readStoreMark(disk, await disk.list());

async function take(disk: SimulatedDisk, seed: number): Promise<Ownership> {
  const found = await markOf(disk);
  const known = { id: ID, segment: found?.segment ?? 0, lsn: found?.lsn ?? 0, crc: 0 };
  return Ownership.take(disk, found, createSeededRandom(seed), known, 0);
}

/** Opens the directory and begins a segment, unless the disk stops before. */
async function live(disk: SimulatedDisk, seed: number): Promise<void> {
  const work = async (): Promise<void> => {
    const ownership = await take(disk, seed);
    const mark = await markOf(disk);
    await ownership.rolled((mark?.segment ?? 0) + 1, { lsn: (mark?.lsn ?? 0) + 9, crc: 0 });
  };
  await Promise.race([work(), disk.stopped]);
}

/** Returns the calls of a life that write to STORE. */
async function writesOf(disk: SimulatedDisk): Promise<number[]> {
  await live(disk, 1);
  return disk.log.flatMap(({ kind }, at) => (kind === "write" ? [at + 1] : []));
}

test("ID2 after a kill in any write and a power cut in any write of the next life STORE is whole", async () => {
  const first = createSimulatedDisk(1);
  await live(first, 1);
  const writes = await writesOf(first.kill());
  expect(writes).toHaveLength(4);
  for (const killedAt of writes) {
    for (const cutAt of writes) {
      for (let seed = 0; seed < SEEDS; seed += 1) {
        const where = `killed at ${killedAt}, cut at ${cutAt}, seed ${seed}`;
        const fresh = createSimulatedDisk(seed);
        await live(fresh, seed);
        const disk = fresh.kill();
        disk.stopAt(killedAt);
        await live(disk, seed + 1);
        const killed = disk.kill();
        killed.stopAt(cutAt);
        await live(killed, seed + 2);
        const found = await markOf(killed.crash()).catch((error: unknown) => {
          throw new Error(where, { cause: error });
        });
        expect(found?.segment, where).toBeGreaterThanOrEqual(1);
      }
    }
  }
});
