/** Conformance cases of looking for a time. */

import type { TimeMs } from "../streams/core/types.ts";
import type { Store } from "../streams/store.ts";
import {
  appended,
  type ConformanceCase,
  created,
  equalCanonical,
  forked,
  pattern,
  seek,
  trimmed,
  write,
} from "./store-case-kit.ts";

interface Stored {
  readonly offset: number;
  readonly atMs: number;
}

/**
 * Writes appends of many sizes to stream 1, some of one time, some with long pauses between them, some in one commit, and in between
 * others to stream 2. Returns where each is, and the tail.
 */
async function writeTimes(
  store: Store,
): Promise<{ readonly all: Stored[]; readonly tail: number }> {
  await write(store, created(1), created(2));
  const all: Stored[] = [];
  let tail = 0;
  let atMs = 1000;
  for (let step = 0; step < 60; step += 1) {
    if (step % 7 === 0) atMs += step % 2 === 0 ? 3 : 86_400_000;
    const changes = Array.from({ length: 1 + (step % 3) }, (_, part) => {
      const size = step === 30 ? 300_000 : 1 + ((step * 131 + part * 977) % 5000);
      all.push({ offset: tail, atMs });
      tail += size;
      return appended(1, pattern(size, step), { atMs: atMs as TimeMs });
    });
    const other = appended(2, pattern(100, step), { atMs: atMs as TimeMs });
    await write(store, ...changes, other);
  }
  return { all, tail };
}

/** Looks for each time that was stored, and those beside it, from several beginnings and up to several ends. */
async function checkTimes(
  store: Store,
  { all, tail }: { readonly all: readonly Stored[]; readonly tail: number },
  first: number,
  when: string,
): Promise<void> {
  const times = [0, ...new Set(all.flatMap(({ atMs }) => [atMs - 1, atMs, atMs + 1]))];
  const begins = [first, all.at(-1)?.offset ?? 0].filter((from) => from >= first);
  for (const atMs of times) {
    for (const from of begins) {
      for (const to of [tail, all.at(-3)?.offset ?? tail]) {
        const found = all.find((one) => one.offset >= from && one.offset < to && one.atMs >= atMs);
        const what = `at ${atMs} in [${from}, ${to}) ${when}`;
        equalCanonical(await seek(store, 1, from, to, atMs), found?.offset ?? to, what);
      }
    }
  }
}

export const seekStoreCases: readonly ConformanceCase[] = [
  {
    name: "S13 a seek returns the first append of a time or later, between any two ends",
    needs: "nothing",
    async run(open) {
      const store = await open.open();
      const stored = await writeTimes(store);
      await checkTimes(store, stored, 0, "as it was written");
      equalCanonical(await seek(store, 9, 0, 5, 1), 5, "a seek in a stream that is not there");
      const cut = stored.all[20]?.offset ?? 0;
      await write(store, trimmed(1, cut, 900_000_000));
      await checkTimes(store, stored, cut, "after a trim");
      await store.close();
    },
  },
  {
    name: "S13 a seek in a fork finds its own appends, and no earlier ones",
    needs: "nothing",
    async run(open) {
      const store = await open.open();
      const at = (atMs: number) => ({ atMs: atMs as TimeMs });
      await write(store, created(1), appended(1, "abc", at(10)), appended(1, "def", at(20)));
      await write(store, forked(3, 1, 3), appended(3, "ghi", at(30)));
      equalCanonical(await seek(store, 3, 3, 6, 10), 3, "its own first append");
      equalCanonical(await seek(store, 3, 3, 6, 31), 6, "nothing so late");
      equalCanonical(await seek(store, 1, 0, 3, 11), 3, "of the source, before the fork point");
      equalCanonical(
        await seek(store, 1, 0, 2, 11),
        2,
        "of the source, before a point in an append",
      );
      await store.close();
    },
  },
  {
    name: "S13 a seek returns the same after a kill, a reopen, and more appends",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      const stored = await writeTimes(before);
      await open.abandon(before);
      const store = await open.open();
      await checkTimes(store, stored, 0, "after a kill");
      const late = { atMs: 1_000_000_000 as TimeMs };
      await write(store, appended(1, "late", late));
      equalCanonical(
        await seek(store, 1, 0, stored.tail + 4, 999_999_999),
        stored.tail,
        "what came after it",
      );
      await store.close();
      const again = await open.open();
      await checkTimes(again, stored, 0, "after a reopen");
      await again.close();
    },
  },
];
