/** Faults of reads from the end and by time: records that are left out, cut or repeated, and times that are forgotten. */

import type { Fault } from "./faults.ts";

const BACK = "src/streams/engine/reading-back.ts";
const ALL = {
  file: "src/streams/engine/reading-back.test.ts",
  test: "the last records > are the same as those that a reader of everything would keep, for all counts, ends and page sizes",
};
const MOVED = {
  file: "src/streams/stores/file/compaction.test.ts",
  test: "S13 a seek finds each time after the data was moved, now and after a restart",
};
const FILE = {
  file: "src/streams/stores/file.test.ts",
  test: "file: S13 a seek returns the first append of a time or later, between any two ends",
};

const TRIMMED = {
  file: "src/streams/server/reads.test.ts",
  test: "G110 a read without an offset begins at the earliest one, also if that moves meanwhile",
};

export const seekingFaults: readonly Fault[] = [
  {
    name: "the last records: a trim at the same moment makes the answer empty",
    guarantee: "G150",
    file: "src/streams/engine/reader.ts",
    find: "if (now > earliest && (page.appends.length === 0 || page.start < now)) {",
    replace: "if (now > earliest && page.start < now) {",
    caughtBy: TRIMMED,
  },
  {
    name: "a read from the beginning is refused if the beginning moves meanwhile",
    guarantee: "G110",
    file: "src/streams/server/reads.ts",
    find: "return tries > 1 && mayBeginLater(request)",
    replace: "return tries > TRIES_MAX && mayBeginLater(request)",
    caughtBy: TRIMMED,
  },
  {
    name: "the last records: one is left out between two parts",
    guarantee: "G150",
    file: BACK,
    find: "      end = Math.min(part[0]?.start ?? earliest, begin) as Offset;",
    replace: "      end = (Math.min(part[0]?.start ?? earliest, begin) - 1) as Offset;",
    caughtBy: ALL,
  },
  {
    name: "the last records: one is cut at the offset before which it lies",
    guarantee: "G150",
    file: BACK,
    find: "      if (next === -1 || next > limit) break;",
    replace: "      if (next === -1 || end > limit) break;",
    caughtBy: ALL,
  },
  {
    name: "the last records: a page has no bound",
    guarantee: "G150",
    file: BACK,
    find: "      if (this.#records > 0 && this.#bytes + end - at > bytesMax) {",
    replace: "      if (this.#records < 0 && this.#bytes + end - at > bytesMax) {",
    caughtBy: ALL,
  },
  {
    name: "the last records: the whole stream is read",
    guarantee: "G150",
    file: BACK,
    find: "const FIRST_BYTES = 16 * 1024;",
    replace: "const FIRST_BYTES = 1024 * 1024;",
    caughtBy: {
      file: "src/streams/engine/reading-back.test.ts",
      test: "the last records > G150 cost what a page costs, however long the stream is",
    },
  },
  {
    name: "the last records: an append with millions of records is one turn",
    guarantee: "G150",
    file: BACK,
    find: "      if (!slices.take()) await slices.turn();",
    replace: "      if (!slices.take() && end < 0) await slices.turn();",
    caughtBy: {
      file: "src/streams/engine/reading-back.test.ts",
      test: "the last records > G150 of an append with millions of records hold no other work up, and take no room for each",
    },
  },
  {
    name: "the last records: a client begins each page at the tail",
    guarantee: "G150",
    file: "src/client/last.ts",
    find: "    before = offset;",
    replace: "    before = undefined;",
    caughtBy: {
      file: "test/client/seeking.test.ts",
      test: "stream.last > G150 returns any number of records, page by page and in order, over a bad network",
    },
  },
  {
    name: "a time: compaction forgets it",
    guarantee: "G150",
    file: "src/streams/stores/journal/records.ts",
    find: "    writer.varint(start);\n    writer.varint(record.atMs);\n  } else {",
    replace: "    writer.varint(start);\n    writer.varint(0);\n  } else {",
    caughtBy: MOVED,
  },
  {
    name: "a time: what is of the same time is left out",
    guarantee: "G150",
    file: "src/streams/stores/journal/seeking.ts",
    find: "    if ((await timeOf(segments, stream, extent)) < atMs) older = extent.start;",
    replace: "    if ((await timeOf(segments, stream, extent)) <= atMs) older = extent.start;",
    caughtBy: FILE,
  },
  {
    name: "a time: an append before the beginning of the search is found",
    guarantee: "G150",
    file: "src/streams/stores/journal/seeking.ts",
    find: "      if (offset >= from && record.atMs >= atMs) return offset;",
    replace: "      if (record.atMs >= atMs) return offset;",
    caughtBy: FILE,
  },
];
