/** Conformance cases of stores that keep what they were told over a close, or a kill, and a reopen. */

import type { Change } from "../core/change.ts";
import type { StreamName, TimeMs } from "../core/types.ts";
import type { Store } from "../store.ts";
import { producerClaim } from "./commands.ts";
import {
  appended,
  bytesOf,
  type ConformanceCase,
  created,
  describeWorld,
  ended,
  equal,
  equalBytes,
  forked,
  joined,
  pattern,
  read,
  readAll,
  write,
} from "./store-case-kit.ts";

/** Something of everything that a world remembers of streams. */
const HISTORY: readonly (readonly Change[])[] = [
  [created(1, { contentType: "application/json", expiry: { kind: "ttl", seconds: 60 } })],
  [appended(1, "1,"), appended(1, "2,", { producer: producerClaim("p", 3, 0), streamSeq: "b" })],
  [created(2, { expiry: { kind: "at", timeMs: 99 } }), appended(2, "closed", { closes: true })],
  [forked(3, 1, 2), appended(3, "3,"), forked(4, 1, 4), forked(5, 4, 4)],
  [appended(1, "4,", { producer: producerClaim("p", 3, 1), atMs: 40 as TimeMs })],
  [ended("deleted", 1, 50), ended("removed", 3, 51)],
  [created(6, { name: "/case/gone" as StreamName }, 52), appended(6, "gone")],
  [ended("removed", 6, 60), ended("touched", 2, 61)],
  [{ kind: "signing_key_added", atMs: 70 as TimeMs, key: '{"kty":"OKP"}' }],
  [created(7, { name: "/case/gone" as StreamName }, 71), appended(7, "back", { closes: true })],
];

async function writeHistory(store: Store): Promise<void> {
  for (const changes of HISTORY) await write(store, ...changes);
}

/** The data of HISTORY, from every stream that has any. */
async function checkHistory(store: Store, when: string): Promise<void> {
  const expected: readonly [id: number, from: number, text: string][] = [
    [1, 0, "1,2,4,"],
    [2, 0, "closed"],
    [7, 0, "back"],
  ];
  for (const [id, from, text] of expected) {
    const found = joined(await readAll(store, id, from, from + text.length));
    equalBytes(found, bytesOf(text), `stream ${id} ${when}`);
  }
  for (const id of [3, 6]) {
    const { appends } = await read(store, id, 0, 100);
    equal(appends.length, 0, `appends of the removed stream ${id} ${when}`);
  }
}

export const durableStoreCases: readonly ConformanceCase[] = [
  {
    name: "S1 a store that was closed and opened again has the same world and the same data",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      await writeHistory(before);
      const world = describeWorld(before.world);
      await before.close();
      const after = await open.open();
      equal(describeWorld(after.world), world, "the world after a reopen");
      await checkHistory(after, "after a reopen");
      await after.close();
    },
  },
  {
    name: "S1 what a resolved commit holds survives a kill at any commit",
    needs: "durability",
    async run(open) {
      let store = await open.open();
      for (const [index, changes] of HISTORY.entries()) {
        await write(store, ...changes);
        const world = describeWorld(store.world);
        await open.abandon(store);
        store = await open.open();
        equal(describeWorld(store.world), world, `the world after a kill at commit ${index + 1}`);
      }
      await checkHistory(store, "after the last kill");
      await store.close();
    },
  },
  {
    name: "S2 writing goes on where it stopped after a reopen",
    needs: "durability",
    async run(open) {
      const texts = Array.from({ length: 20 }, (_, index) => `part ${index};`);
      for (const [index, text] of texts.entries()) {
        const store = await open.open();
        if (index === 0) await write(store, created(1));
        await write(store, appended(1, text));
        const whole = texts.slice(0, index + 1).join("");
        equal(store.world.streams.get("/case/1" as StreamName)?.tail, whole.length, "the tail");
        equalBytes(joined(await readAll(store, 1, 0, whole.length)), bytesOf(whole), "the data");
        await store.close();
      }
    },
  },
  {
    name: "S4 appends keep their borders over a reopen",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      await write(before, created(1), appended(1, "abc"), appended(1, "de"));
      await write(before, appended(1, "fghi"), forked(2, 1, 4), appended(2, "XYZ"));
      await before.close();
      const after = await open.open();
      const { start, appends } = await read(after, 1, 4, 8);
      const texts = appends.map((append) => new TextDecoder().decode(append));
      equal([start, texts], [3, ["de", "fgh"]], "a read from inside an append");
      equalBytes(joined(await readAll(after, 2, 4, 7)), bytesOf("XYZ"), "the fork's own part");
      await after.close();
    },
  },
  {
    name: "S1 large appends and many streams survive a reopen",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      const ids = Array.from({ length: 500 }, (_, index) => index + 2);
      const parts = [70_000, 1_500_000, 3].map((size, seed) => pattern(size, seed));
      await write(before, created(1), ...parts.map((part) => appended(1, part)));
      await write(before, ...ids.flatMap((id) => [created(id), appended(id, `data of ${id}`)]));
      await before.close();
      const after = await open.open();
      const whole = joined(parts);
      equalBytes(joined(await readAll(after, 1, 0, whole.length)), whole, "the large stream");
      for (const id of ids) {
        const text = `data of ${id}`;
        equalBytes(joined(await readAll(after, id, 0, text.length)), bytesOf(text), `stream ${id}`);
      }
      await after.close();
    },
  },
  {
    name: "S6 removed data stays gone after a reopen, and its id is not used again",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      await write(before, created(1), created(2), appended(2, "secret"));
      await write(before, ended("removed", 2));
      await before.close();
      const after = await open.open();
      equal((await read(after, 2, 0, 6)).appends.length, 0, "appends of the removed stream");
      equal(after.world.nextId, 3, "the id of the next stream");
      equal(after.world.timeMs, 3, "journal time");
      await after.close();
    },
  },
];
