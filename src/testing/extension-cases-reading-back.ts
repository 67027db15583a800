/** Cases of what the stream shows of a producer, and of the answers to duplicates: PROTOCOL.md §18. */

import {
  at,
  byEpoch,
  byKey,
  bySession,
  type CaseSpec,
  CLOSES,
  EPOCH_MAX,
} from "./extension-case-kit.ts";

const OF_P = { "Producer-Id": "p" };
const NOTHING = {
  "Producer-Epoch": undefined,
  "Producer-Seq": undefined,
  "Producer-Next-Offset": undefined,
};
const known = (epoch: number | string, sequence: number, end: number): Record<string, string> => ({
  "Producer-Epoch": String(epoch),
  "Producer-Seq": String(sequence),
  "Producer-Next-Offset": at(end),
});

const heads: readonly CaseSpec[] = [
  {
    title: "§18 HEAD with Producer-Id tells epoch, last sequence and where that append ended",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byEpoch("p", 4, 0));
      await stream.append("de", byEpoch("p", 4, 1));
      (await stream.head(OF_P)).expect(200, { "Stream-Next-Offset": at(5), ...known(4, 1, 5) });
    },
  },
  {
    title: "§18 HEAD tells of a session by its epoch",
    needs: ["sessions"],
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      await stream.append("b", bySession("p", "n2", 0));
      (await stream.head(OF_P)).expect(200, { ...known(1, 0, 2), "Producer-Session": undefined });
    },
  },
  {
    title: "§18 the offset is that of the producer's append, not the tail",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byEpoch("p", 0, 0));
      await stream.append("defg");
      (await stream.head(OF_P)).expect(200, { "Stream-Next-Offset": at(7), ...known(0, 0, 3) });
    },
  },
  {
    title: "§18 HEAD adds nothing for a producer that the stream does not know",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("q", 0, 0));
      (await stream.append("x", byEpoch("p", 0, 3))).refused(409, "producer_gap");
      (await stream.head(OF_P)).expect(200, { "Stream-Next-Offset": at(1), ...NOTHING });
    },
  },
  {
    title: "§18 HEAD without Producer-Id tells of no producer",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 0, 0));
      (await stream.head()).expect(200, NOTHING);
    },
  },
  {
    title: "§18 HEAD with Producer-Id of a stream that is not there is 404",
    async run(site) {
      (await site.newStream().head(OF_P)).expect(404, NOTHING);
    },
  },
  {
    title: "§18 HEAD tells the largest epoch as it is",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", EPOCH_MAX, 0));
      (await stream.head(OF_P)).expect(200, known(EPOCH_MAX, 0, 1));
    },
  },
  {
    title: "§18 HEAD tells of a close without data, which ended where the data does",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byEpoch("p", 0, 0));
      await stream.close(byEpoch("p", 0, 1));
      (await stream.head(OF_P)).expect(200, { "Stream-Closed": "true", ...known(0, 1, 3) });
    },
  },
  {
    title: "§18 what was answered is read back by the very next HEAD",
    async run(site) {
      const stream = await site.stream();
      for (let sequence = 0; sequence < 20; sequence += 1) {
        await stream.append("a", byEpoch("p", 0, sequence));
        (await stream.head(OF_P)).expect(200, known(0, sequence, sequence + 1));
      }
    },
  },
  {
    title: "§18 a fork knows no producer of its source",
    async run(site) {
      const source = await site.stream();
      await source.append("a", byEpoch("p", 0, 0));
      (await (await site.fork(source)).head(OF_P)).expect(200, NOTHING);
    },
  },
  ...(
    [
      ["is empty", ""],
      ["has 257 bytes", "p".repeat(257)],
    ] as const
  ).map(
    ([what, id]) =>
      ({
        title: `§18 HEAD with a Producer-Id that ${what} is refused`,
        async run(site) {
          const stream = await site.stream();
          (await stream.head({ "Producer-Id": id })).expect(400);
        },
      }) satisfies CaseSpec,
  ),
];

const ENDS_KEPT = 32;

const duplicates: readonly CaseSpec[] = [
  ...(
    [
      ["an epoch", [], (sequence: number) => byEpoch("p", 3, sequence)],
      ["a session", ["sessions"], (sequence: number) => bySession("p", "n1", sequence)],
    ] as const
  ).map(
    ([what, needs, headersOf]) =>
      ({
        title: `§18 the answer to a duplicate of the last 32 appends of ${what} has the end of the original, an older one has the tail`,
        needs,
        async run(site) {
          const stream = await site.stream();
          const count = ENDS_KEPT + 8;
          for (let sequence = 0; sequence < count; sequence += 1) {
            await stream.append("ab", headersOf(sequence));
          }
          await stream.append("other");
          const tail = 2 * count + 5;
          for (let sequence = 0; sequence < count; sequence += 1) {
            const end = sequence < count - ENDS_KEPT ? tail : 2 * (sequence + 1);
            const again = await stream.append("ab", headersOf(sequence));
            again.expect(204, { "Stream-Next-Offset": at(end), "Producer-Seq": String(count - 1) });
          }
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§18 the answer to a duplicate key has the original's offset, however old",
    needs: ["keys"],
    async run(site) {
      const stream = await site.stream();
      for (let index = 0; index < ENDS_KEPT + 8; index += 1) {
        await stream.append("ab", byKey(`k${index}`));
      }
      for (let index = 0; index < ENDS_KEPT + 8; index += 1) {
        const again = await stream.append("ab", byKey(`k${index}`));
        again.expect(204, { "Stream-Next-Offset": at(2 * (index + 1)) });
      }
    },
  },
  {
    title: "§18 a new epoch has offsets of its own",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byEpoch("p", 0, 0));
      await stream.append("d", byEpoch("p", 0, 1));
      await stream.append("ef", byEpoch("p", 1, 0));
      const again = await stream.append("ef", byEpoch("p", 1, 0));
      again.expect(204, { "Stream-Next-Offset": at(6) });
      (await stream.head(OF_P)).expect(200, known(1, 0, 6));
    },
  },
  {
    title: "§18 on a closed stream the answer to a duplicate has the end of its original",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byEpoch("p", 0, 0));
      await stream.append("def", { ...byEpoch("p", 0, 1), ...CLOSES });
      const closed = { "Stream-Closed": "true" };
      const first = await stream.append("abc", byEpoch("p", 0, 0));
      first.expect(204, { "Stream-Next-Offset": at(3), ...closed });
      const last = await stream.append("def", { ...byEpoch("p", 0, 1), ...CLOSES });
      last.expect(204, { "Stream-Next-Offset": at(6), ...closed });
    },
  },
];

export const readingBackCases: readonly CaseSpec[] = [...heads, ...duplicates];
