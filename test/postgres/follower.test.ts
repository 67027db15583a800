// A warm copy of a shard: it makes a takeover faster, and never wrong. Over simulated tables, so that the database can lose something.
import { expect, test } from "vitest";
import { ShardFollower } from "../../src/streams/stores/postgres/follower.ts";
import { openOnTables, type ShardStore } from "../../src/streams/stores/postgres/postgres-store.ts";
import {
  appended,
  created,
  describeWorld,
  readAll,
  write,
} from "../../src/testing/store-case-kit.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { NO_HARM, SimulatedLog, SimulatedServer } from "./simulated-log.ts";

const CLUSTER = { storeId: "cd".repeat(16), secret: "s" };
const none = (): undefined => undefined;

function stage() {
  const clock = createVirtualClock(1_000_000);
  const random = createSeededRandom(7);
  const server = new SimulatedServer(random, clock, NO_HARM);
  const tables = (): SimulatedLog => new SimulatedLog(server, () => clock.nowMs());
  const drive = async <T>(promise: Promise<T>): Promise<T> => {
    let isSettled = false;
    const watched = promise.finally(() => (isSettled = true));
    watched.catch(none);
    while (!isSettled) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(5);
    }
    return watched;
  };
  const open = (follower?: ShardFollower, snapshotChanges = 1_000_000): Promise<ShardStore> => {
    const sizes = { segmentBytes: 8192, snapshotChanges, cacheBytes: 0 };
    const options = { ...sizes, clock, random, durability: "os", takeover: "now" } as const;
    return drive(openOnTables(tables(), CLUSTER, options, () => Promise.resolve(), { follower }));
  };
  const append = async (store: ShardStore, ...texts: readonly string[]): Promise<void> => {
    for (const text of texts) await drive(write(store, appended(1, text)));
  };
  const textOf = async (store: ShardStore): Promise<string> => {
    const tail = store.world.byId.get(1 as never)?.tail ?? 0;
    const pieces = await drive(readAll(store, 1, 0, tail));
    return pieces.map((piece) => new TextDecoder().decode(piece)).join("");
  };
  const follow = (): ShardFollower => new ShardFollower(tables(), CLUSTER.storeId);
  return { server, drive, open, append, textOf, follow };
}

test("FL1 the next owner goes on with a copy, and has what came after its last look", async () => {
  const { drive, open, append, textOf, follow } = stage();
  const first = await open();
  await drive(write(first, created(1)));
  await append(first, "a", "b");
  const follower = follow();
  await drive(follower.look());
  const after = follower.nextLsn;
  await append(first, "c");
  await drive(follower.look());
  expect(follower.nextLsn).toBe((after ?? 0) + 1);
  await append(first, "d", "e");
  const next = await open(follower);
  expect([next.isWarm, await textOf(next)]).toEqual([true, "abcde"]);
  await append(next, "f");
  const cold = await open();
  expect([cold.isWarm, await textOf(cold)]).toEqual([false, "abcdef"]);
  expect(describeWorld(cold.world)).toBe(describeWorld(next.world));
});

test("FL1 a copy of what the database has lost since is not used", async () => {
  const { server, drive, open, append, textOf, follow } = stage();
  const first = await open();
  await drive(write(first, created(1)));
  await append(first, "a", "lost");
  const [ended, replaced, going] = [follow(), follow(), follow()];
  for (const follower of [ended, replaced, going]) await drive(follower.look());
  server.goBack(1);
  const second = await open(ended);
  expect([second.isWarm, await textOf(second)]).toEqual([false, "a"]);
  // A frame of the same number, at the same place.
  await append(second, "kept", "!");
  await expect(drive(going.look())).rejects.toMatchObject({ code: "data_damaged" });
  await drive(going.look());
  const third = await open(replaced);
  expect([third.isWarm, await textOf(third)]).toEqual([false, "akept!"]);
  const fourth = await open(going);
  expect([fourth.isWarm, await textOf(fourth)]).toEqual([true, "akept!"]);
});

test("FL2 a copy that was not looked after for so long that its frames are gone is not used", async () => {
  const { drive, open, append, textOf, follow } = stage();
  const first = await open(undefined, 5);
  await drive(write(first, created(1)));
  await append(first, "a");
  const [late, kept] = [follow(), follow()];
  for (const follower of [late, kept]) await drive(follower.look());
  const rest = Array.from({ length: 200 }, (_, at) => `${at} `.padStart(200, "."));
  for (const text of rest) {
    await append(first, text);
    await drive(kept.look());
  }
  await drive(first.maintain());
  await drive(first.maintain());
  expect(first.stats().segments).toBeLessThan(30);
  const second = await open(late, 5);
  const whole = `a${rest.join("")}`;
  expect(await textOf(second)).toBe(whole);
  // The snapshots that were written meanwhile count: the next one is not due at once.
  const third = await open(kept, 1_000_000);
  expect([third.isWarm, third.recovery.changes < 20]).toEqual([true, true]);
  expect(await textOf(third)).toBe(whole);
});
