/** Conformance cases that every store passes, also one that keeps nothing after `close`. */

import { joinBytes, utf8Of } from "../base/bytes.ts";
import type { StreamName } from "../streams/core/types.ts";
import type { Store } from "../streams/store.ts";
import {
  appended,
  type ConformanceCase,
  created,
  ended,
  equalCanonical,
  equalBytes,
  forked,
  type OpenStore,
  pattern,
  read,
  readAll,
  rejects,
  seek,
  write,
} from "./store-case-kit.ts";

/** Opens a store for a case, and closes it also after an error. */
async function withStore(open: OpenStore, run: (store: Store) => Promise<void>): Promise<void> {
  const store = await open.open();
  try {
    await run(store);
  } finally {
    await store.close();
  }
}

const PIECES = ["a", "bcd", "ef", "ghijk", "l"] as const;
const WHOLE = PIECES.join("");

async function writePieces(store: Store, id: number): Promise<void> {
  await write(store, created(id));
  for (const piece of PIECES) await write(store, appended(id, piece));
}

/** Returns the appends that hold bytes of [from, to), the last one cut at `to`. A page is a part of these. */
function piecesBetween(from: number, to: number): { start: number; texts: string[] } {
  const texts: string[] = [];
  let first = from;
  let start = 0;
  for (const piece of PIECES) {
    const end = start + piece.length;
    if (end > from && start < to && from < to) {
      if (texts.length === 0) first = start;
      texts.push(piece.slice(0, to - start));
    }
    start = end;
  }
  return { start: first, texts };
}

async function checkPage(store: Store, from: number, to: number, bytesMax: number): Promise<void> {
  const what = `read from ${from} to ${to} with at most ${bytesMax} bytes`;
  const expected = piecesBetween(from, to);
  const page = await read(store, 1, from, to, bytesMax);
  const texts = page.appends.map((append) => new TextDecoder().decode(append));
  equalCanonical(texts, expected.texts.slice(0, texts.length), what);
  if (expected.texts.length === 0) return;
  equalCanonical(page.start, expected.start, `${what}: start`);
  equalCanonical(texts.length > 0, true, `${what}: at least one append`);
  equalCanonical(
    texts.length === 1 || texts.join("").length <= bytesMax,
    true,
    `${what}: within the limit`,
  );
}

const commits: readonly ConformanceCase[] = [
  {
    name: "S1 what a commit holds can be read as soon as it resolves",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), appended(1, "one"));
        equalBytes(
          joinBytes(await readAll(store, 1, 0, 3)),
          utf8Of("one"),
          "after the first commit",
        );
        await write(store, appended(1, "two"));
        equalBytes(joinBytes(await readAll(store, 1, 0, 6)), utf8Of("onetwo"), "after the second");
      }),
  },
  {
    name: "S1 a commit brings the changes of many streams together",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        const ids = Array.from({ length: 300 }, (_, index) => index + 1);
        await write(store, ...ids.flatMap((id) => [created(id), appended(id, `of ${id};`)]));
        await write(store, ...ids.map((id) => appended(id, `more of ${id}`)));
        for (const id of ids) {
          const text = `of ${id};more of ${id}`;
          equalBytes(
            joinBytes(await readAll(store, id, 0, text.length)),
            utf8Of(text),
            `stream ${id}`,
          );
        }
      }),
  },
  {
    name: "S1 large appends arrive byte for byte",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        const sizes = [1, 65_535, 65_536, 65_537, 3_000_000];
        const parts = sizes.map((size, index) => pattern(size, index));
        await write(store, created(1), ...parts.map((part) => appended(1, part)));
        const whole = joinBytes(parts);
        equalBytes(joinBytes(await readAll(store, 1, 0, whole.length)), whole, "the whole stream");
      }),
  },
  {
    name: "S2 commits take effect in the order of the calls",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), created(2));
        const texts = Array.from({ length: 100 }, (_, index) => `${index};`);
        for (const [index, text] of texts.entries()) {
          await write(store, appended(1 + (index % 2), text));
        }
        for (const id of [1, 2]) {
          const text = texts.filter((_, index) => index % 2 === id - 1).join("");
          equalBytes(
            joinBytes(await readAll(store, id, 0, text.length)),
            utf8Of(text),
            `stream ${id}`,
          );
        }
      }),
  },
  {
    name: "S2 an empty commit and one without data change nothing that is stored",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), appended(1, "kept"));
        await store.commit([]);
        await write(store, ended("touched", 1), appended(1, "", { closes: true }));
        const page = await read(store, 1, 0, 5);
        equalCanonical(page.appends.length, 1, "appends");
        equalBytes(joinBytes(page.appends), utf8Of("kept"), "the data");
      }),
  },
  {
    name: "S3 after a failed commit no other is taken, and reads go on",
    needs: "a failing commit",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), appended(1, "durable"));
        open.failNextCommit?.(store);
        await rejects(store.commit([appended(1, "lost")]), undefined, "the failing commit");
        await rejects(store.commit([appended(1, "later")]), undefined, "a commit after it");
        await rejects(store.commit([]), undefined, "an empty commit after it");
        equalBytes(joinBytes(await readAll(store, 1, 0, 7)), utf8Of("durable"), "the durable data");
      }),
  },
];

const reads: readonly ConformanceCase[] = [
  {
    name: "S4 a read answers whole appends from the one that holds its start, cut at its end",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await writePieces(store, 1);
        for (let to = 1; to <= WHOLE.length; to += 1) {
          for (let from = 0; from < to; from += 1) await checkPage(store, from, to, 1_000);
        }
      }),
  },
  {
    name: "S4 data after the end of a read is not answered, though it is stored",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), appended(1, "seen"), appended(1, "unseen"));
        const page = await read(store, 1, 0, 4);
        equalBytes(joinBytes(page.appends), utf8Of("seen"), "up to the end");
        equalCanonical((await read(store, 1, 4, 4)).appends.length, 0, "appends at the end");
      }),
  },
  {
    name: "S4 a fork holds its own bytes from the fork point on, and its source the ones before",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), appended(1, "abc"), appended(1, "def"));
        await write(store, forked(2, 1, 4), appended(2, "XY"), appended(1, "ghi"));
        equalBytes(
          joinBytes(await readAll(store, 1, 0, 4)),
          utf8Of("abcd"),
          "source up to the fork",
        );
        equalBytes(joinBytes(await readAll(store, 2, 4, 6)), utf8Of("XY"), "the fork's own part");
        equalBytes(joinBytes(await readAll(store, 1, 0, 9)), utf8Of("abcdefghi"), "the source");
      }),
  },
  {
    name: "S5 a read stops after its limit but answers at least one append",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await writePieces(store, 1);
        for (const bytesMax of [0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13]) {
          for (let from = 0; from < WHOLE.length; from += 1) {
            await checkPage(store, from, WHOLE.length, bytesMax);
            await checkPage(store, from, Math.min(from + 3, WHOLE.length), bytesMax);
          }
        }
      }),
  },
];

const endings: readonly ConformanceCase[] = [
  {
    name: "S6 the data of a removed stream is gone",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), appended(1, "secret"), created(2), appended(2, "other"));
        await write(store, ended("removed", 1));
        equalCanonical(
          (await read(store, 1, 0, 6)).appends.length,
          0,
          "appends of the removed stream",
        );
        equalBytes(joinBytes(await readAll(store, 2, 0, 5)), utf8Of("other"), "its neighbour");
      }),
  },
  {
    name: "S6 a later stream at the same path shows nothing of the removed one",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        const name = "/case/again" as StreamName;
        await write(store, created(1, { name }), appended(1, "old old old"));
        await write(store, ended("removed", 1), created(2, { name }), appended(2, "new"));
        equalBytes(
          joinBytes((await read(store, 2, 0, 11)).appends),
          utf8Of("new"),
          "the new stream",
        );
        equalCanonical((await read(store, 1, 0, 11)).appends.length, 0, "appends of the old one");
      }),
  },
  {
    name: "S6 a deleted stream that forks need keeps its data until it is removed",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        await write(store, created(1), appended(1, "needed"), forked(2, 1, 6));
        await write(store, ended("deleted", 1));
        equalBytes(joinBytes(await readAll(store, 1, 0, 6)), utf8Of("needed"), "softly deleted");
        await write(store, ended("removed", 2), ended("removed", 1));
        equalCanonical(
          (await read(store, 1, 0, 6)).appends.length,
          0,
          "appends after the last fork",
        );
      }),
  },
  {
    name: "S7 a closed store rejects every call with store_closed",
    needs: "nothing",
    async run(open) {
      const store = await open.open();
      await write(store, created(1), appended(1, "data"));
      await store.close();
      await rejects(read(store, 1, 0, 4), "store_closed", "a read after close");
      await rejects(seek(store, 1, 0, 4, 1), "store_closed", "a seek after close");
      await rejects(store.commit([appended(1, "late")]), "store_closed", "a commit after close");
      await rejects(store.commit([]), "store_closed", "an empty commit after close");
    },
  },
  {
    name: "S8 a caller may reuse its buffers once the commit has resolved",
    needs: "nothing",
    run: (open) =>
      withStore(open, async (store) => {
        const buffer = utf8Of("..payload..");
        await write(store, created(1), appended(1, buffer.subarray(2, 9)));
        buffer.fill(0);
        equalBytes(joinBytes(await readAll(store, 1, 0, 7)), utf8Of("payload"), "after the reuse");
      }),
  },
];

export const storeCases: readonly ConformanceCase[] = [...commits, ...reads, ...endings];
