/** Faults in the file store: what every peer gets wrong. */

import type { Fault } from "./faults.ts";

const RECOVERY = "src/streams/stores/file/recovery.test.ts";
const SEGMENTS = "src/streams/stores/file/segments.test.ts";
const SNAPSHOT = "src/streams/stores/file/snapshot.test.ts";
const FILE_STORE = "src/streams/stores/file.test.ts";
const TRIM = "src/streams/stores/file/trim.test.ts";
const REPLAY_BOUND = "src/streams/stores/journal/replay-bound.test.ts";

export const journalFaults: readonly Fault[] = [
  {
    name: "the sync is skipped",
    guarantee: "G1",
    file: "src/streams/stores/file/node-disk.ts",
    find: "durable: isDurable ? O_RDWR | (O_DSYNC ?? 0) : O_RDWR,",
    replace: "durable: O_RDWR,",
    caughtBy: {
      file: "src/streams/stores/file/node-disk.test.ts",
      test: "a durable file is opened so that a write returns when it is on the disk",
    },
  },
  {
    name: "the journal is written through the page cache",
    guarantee: "G1",
    file: "src/streams/stores/file/segments.ts",
    find: `const file = await this.#disk.open(spare.name, "durable");`,
    replace: `const file = await this.#disk.open(spare.name, "write");`,
    caughtBy: {
      file: "test/power-cut.test.ts",
      test: "RC3 what was acknowledged survives power cuts and kills: seeds 0 to 49",
    },
  },
  {
    name: "the sync comes after the answer",
    guarantee: "G1",
    file: "src/streams/stores/file/segments.ts",
    find: "await file.write(frame.buffers, position);",
    replace: "void file.write(frame.buffers, position).catch(() => undefined);",
    caughtBy: {
      file: "test/power-cut.test.ts",
      test: "RC3 what was acknowledged survives power cuts and kills: seeds 0 to 49",
    },
  },
  {
    name: "no directory sync for a new segment",
    guarantee: "G1",
    file: "src/streams/stores/file/segments.ts",
    find: `await this.#disk.rename(spare.name, name);
    await this.#disk.syncDirectory();`,
    replace: "await this.#disk.rename(spare.name, name);",
    caughtBy: {
      file: SEGMENTS,
      test: "a segment gets its name after its header is durable, and its first frame after its name is",
    },
  },
  {
    name: "a segment is used again before its old name is gone for good",
    guarantee: "G1",
    file: "src/streams/stores/file/segments.ts",
    find: `    await this.#disk.syncDirectory();
    this.#spares.push({ name, bytes: segment.bytes });`,
    replace: `    this.#spares.push({ name, bytes: segment.bytes });
    await this.#disk.syncDirectory();`,
    caughtBy: {
      file: SEGMENTS,
      test: "a segment that is used again is never found under its old name, wherever the power goes",
    },
  },
  {
    name: "recovery trusts names that a killed process left",
    guarantee: "G1",
    file: "src/streams/stores/file/segments.ts",
    find: `    await this.#disk.syncDirectory();
    const last = this.list().at(-1);`,
    replace: "    const last = this.list().at(-1);",
    caughtBy: {
      file: RECOVERY,
      test: "RC3 names that a killed process left are made durable before anything is built on them",
    },
  },
  {
    name: "recovery trusts the page cache",
    guarantee: "G4",
    file: "src/streams/stores/file/segments.ts",
    find: "await this.#activeFile.sync();",
    replace: "await this.#activeFile.size();",
    caughtBy: {
      file: RECOVERY,
      test: "RC3 what a killed process left in the page cache is made durable before it is shown",
    },
  },
  {
    name: "the checksum of a frame is not checked",
    guarantee: "G8",
    file: "src/streams/stores/journal/format.ts",
    find: "return end <= bytes.length && crc32(bytes.subarray(at + 8, end), salt) === header.crc;",
    replace: "return end <= bytes.length && salt >= 0;",
    caughtBy: {
      file: "src/streams/stores/journal/format.test.ts",
      test: "a frame with any bit wrong, or any byte missing, is not valid",
    },
  },
  {
    name: "the LSN of a frame is not checked",
    guarantee: "G8",
    file: "src/streams/stores/journal/scan.ts",
    find: "while (header !== undefined && header.lsn === nextLsn) {",
    replace: "while (header !== undefined) {",
    caughtBy: {
      file: "src/streams/stores/journal/scan.test.ts",
      test: "RC2 a frame whose number is not the next one is not passed over",
    },
  },
  {
    name: "every use of a segment has the same salt",
    guarantee: "G8",
    file: "src/streams/stores/journal/format.ts",
    find: "return end <= bytes.length && crc32(bytes.subarray(at + 8, end), salt) === header.crc;",
    replace: `const both = [salt, 77].map((start) => crc32(bytes.subarray(at + 8, end), start));
  return end <= bytes.length && both.includes(header.crc);`,
    caughtBy: {
      file: "src/streams/stores/journal/scan.test.ts",
      test: "a frame of an earlier use is neither a frame nor a proof of damage",
    },
  },
  {
    name: "a snapshot is renamed before it is synced",
    guarantee: "G1",
    file: "src/streams/stores/file/snapshot-file.ts",
    find: `    await write(sink);
    await file.sync();`,
    replace: "    await write(sink);",
    caughtBy: {
      file: SNAPSHOT,
      test: "a snapshot gets its name only when it is synced and what it contains is durable",
    },
  },
  {
    name: "a snapshot contains what is not durable yet",
    guarantee: "G4",
    file: "src/streams/stores/journal/snapshot.ts",
    find: "  await settle();\n",
    replace: "",
    caughtBy: {
      file: SNAPSHOT,
      test: "a snapshot gets its name only when it is synced and what it contains is durable",
    },
  },
  {
    name: "a damaged snapshot is used",
    guarantee: "G8",
    file: "src/streams/stores/journal/snapshot-format.ts",
    find: `if (crc32(payload) !== bytes.readUInt32LE(at + 4)) throw damaged("a block has another checksum");`,
    replace: "if (crc32(payload) === -1) throw damaged(MAGIC);",
    caughtBy: {
      file: "test/bit-flips.test.ts",
      test: "a wrong bit in the snapshot sends recovery to the journal, with the same result",
    },
  },
  {
    name: "damage in the middle is cut off like a torn end",
    guarantee: "G1",
    file: "src/streams/stores/file/recovery.ts",
    find: "findFrameBehind(file, salt, end, nextLsn)",
    replace: "findFrameBehind(file, salt, bytes, nextLsn + 0 * end)",
    caughtBy: {
      file: RECOVERY,
      test: "RC2 RC4 damage in the middle is refused with file, offset and LSN, and nothing is touched",
    },
  },
  {
    name: "producer state is not in the frame",
    guarantee: "G2",
    file: "src/streams/stores/journal/records.ts",
    find: "const { producer, streamSeq, key } = record;",
    replace:
      'const { streamSeq, key } = record;\n    const producer = undefined as StreamAppended["producer"];',
    caughtBy: {
      file: "src/streams/stores/journal/records.test.ts",
      test: "an append comes back with its producer, its key, its close and its place, in one record",
    },
  },
  {
    name: "the ordinal of a key is lost in its record",
    guarantee: "G2",
    file: "src/streams/stores/journal/key-format.ts",
    find: "  return { mark, ordinal, evictTo };",
    replace: "  return { mark, ordinal: ordinal - evictTo, evictTo: 0 };",
    caughtBy: {
      file: "src/streams/stores/journal/records.test.ts",
      test: "an append comes back with its producer, its key, its close and its place, in one record",
    },
  },
  {
    name: "keys are not in the snapshot",
    guarantee: "G2",
    file: "src/streams/stores/journal/snapshot.ts",
    find: "        if (keys !== undefined) await this.#allKeys(state, keys);",
    replace: "        if (keys !== undefined && keys.next < 0) await this.#allKeys(state, keys);",
    caughtBy: {
      file: SNAPSHOT,
      test: "a snapshot has every session, every reset, every end and every key",
    },
  },
  {
    name: "a window without keys counts from 0 again",
    guarantee: "G2",
    file: "src/streams/stores/journal/snapshot.ts",
    find: "const inline = hasManyKeys ? undefined : window;",
    replace: "const inline = hasManyKeys || window?.next === window?.first ? undefined : window;",
    caughtBy: {
      file: SNAPSHOT,
      test: "a snapshot has every session, every reset, every end and every key",
    },
  },
  {
    name: "session nonces are not in the snapshot",
    guarantee: "G7",
    file: "src/streams/stores/journal/producer-format.ts",
    find: "  const { lastSequence, session, replaced, resets } = state;",
    replace:
      '  const { lastSequence, resets } = state;\n  const [session, replaced] = [undefined, undefined] as [ProducerState["session"], ProducerState["replaced"]];',
    caughtBy: {
      file: SNAPSHOT,
      test: "any producer comes back: session, replaced sessions, resets, and the ends that are known",
    },
  },
  {
    name: "a key that was evicted meanwhile is met again in the next block",
    guarantee: "G2",
    file: "src/streams/core/restore.ts",
    find: `    window.evictTo(first);
    for (const { mark, end, atMs } of keys) window.add(mark, end, atMs);`,
    replace: `    for (const { mark, end, atMs } of keys) window.add(mark, end, atMs);
    window.evictTo(first);`,
    caughtBy: {
      file: "src/streams/core/restore.test.ts",
      test: "a key that was evicted between two blocks may be in the later one again",
    },
  },
  {
    name: "a segment that other software has written is taken for damage",
    guarantee: "G12",
    file: "src/streams/stores/journal/format.ts",
    find: "if (version !== undefined && version !== FORMAT_VERSION) throw unknownFormat(name, version);",
    replace:
      "if (version !== undefined && version < FORMAT_VERSION) throw unknownFormat(name, version);",
    caughtBy: {
      file: "test/golden.test.ts",
      test: "a directory of another format is refused by server and tools, and stays as it is",
    },
  },
  {
    name: "data is handed out without its checksum",
    guarantee: "G8",
    file: "src/streams/stores/journal/records.ts",
    find: `if (crc32(data) !== crc) throw damaged("the data of a record does not match its checksum");`,
    replace: `if (crc32(data) === -crc - 1) throw damaged("never");`,
    caughtBy: {
      file: "test/bit-flips.test.ts",
      test: "behind a snapshot, no bit of the journal can be wrong with other data as the result",
    },
  },
  {
    name: "segments that the older snapshot needs are given up",
    guarantee: "G1",
    file: "src/streams/stores/journal/journal-store.ts",
    find: "olderSnapshot: () => this.#snapshots[1],",
    replace: "olderSnapshot: () => this.#snapshots[0],",
    caughtBy: {
      file: "src/streams/stores/file/compaction.test.ts",
      test: "a segment is given up only when neither of the two snapshots needs it",
    },
  },
  {
    name: "a change that an image has is applied again",
    guarantee: "G2",
    file: "src/streams/core/restore.ts",
    find: "(this.#versions.get(change.stream) ?? this.#imagesVersion)",
    replace: "(this.#versions.get(change.stream) ?? 0)",
    caughtBy: {
      file: "src/streams/core/restore.test.ts",
      test: "of several lives of one path within a snapshot, only the last one comes back",
    },
  },
  {
    name: "a page goes on where the stream lay before it was moved",
    guarantee: "G10",
    file: "src/streams/stores/journal/reading.ts",
    find: "if (end <= position) continue;",
    replace: "if (end <= from) continue;",
    caughtBy: {
      file: "src/streams/stores/file/compaction.test.ts",
      test: "a reader sees every append once while its stream is moved",
    },
  },
  {
    name: "writes go on after a failed one",
    guarantee: "G9",
    file: "src/streams/stores/journal/journal-store.ts",
    find: "if (!this.#isClosed) this.#fail(error);",
    replace: "if (this.#isClosed) this.#fail(error);",
    caughtBy: {
      file: FILE_STORE,
      test: "after a failed write no other is tried, and what was durable can be read",
    },
  },
  {
    name: "a short write is taken for success",
    guarantee: "G1",
    file: "src/streams/stores/file/node-disk.ts",
    find: "left = skip(left, count);",
    replace: "left = skip(left, count).slice(0, 0);",
    caughtBy: {
      file: "src/streams/stores/file/node-disk.test.ts",
      test: "a write that the kernel takes in parts arrives whole, from one buffer and from many",
    },
  },
  {
    name: "a write of the main thread that the kernel cuts is taken for success",
    guarantee: "G1",
    file: "src/streams/stores/file/node-disk.ts",
    find: "const left = count === 0 ? buffers : skip(buffers, count);",
    replace: "const left = count === 0 ? buffers : [];",
    caughtBy: {
      file: "src/streams/stores/file/node-disk.test.ts",
      test: "a short durable write is done by the main thread, and is whole if the kernel takes it in parts",
    },
  },
  {
    name: "a slow disk holds the main thread at each write",
    guarantee: "G34",
    file: "src/streams/stores/file/node-disk.ts",
    find: "if (tookMs > SHORT_MS_MAX) {",
    replace: "if (tookMs > SHORT_MS_MAX * 1e9) {",
    caughtBy: {
      file: "src/streams/stores/file/node-disk.test.ts",
      test: "while a disk is slow, the pool writes, and the main thread tries again only after many writes",
    },
  },
  {
    name: "the cache of tails hands out the bytes of another append",
    guarantee: "G8",
    file: "src/streams/stores/journal/tail-cache.ts",
    find: "written.byteOffset + at",
    replace: "written.byteOffset + (placed[0]?.at ?? 0)",
    caughtBy: {
      file: "src/streams/stores/journal/tail-cache.test.ts",
      test: "appends that share a frame each come back as they are",
    },
  },
  {
    name: "the checksum of a frame leaves out what stands between two large appends",
    guarantee: "G12",
    file: "src/streams/stores/journal/frame.ts",
    find: "      from = piece.at;\n    }\n    return crc32",
    replace: "      from = written.length;\n    }\n    return crc32",
    caughtBy: {
      file: "src/streams/stores/journal/frame.test.ts",
      test: "small and large data share one frame with one checksum over all buffers",
    },
  },
  {
    name: "no commit waits for a snapshot",
    guarantee: "G11",
    file: "src/streams/stores/journal/replay-bound.ts",
    find: "return this.#isWorking && this.isFull && this.#ordinal >= this.#needed;",
    replace: "return this.#isWorking && this.isFull && this.#ordinal < this.#needed;",
    caughtBy: {
      file: REPLAY_BOUND,
      test: "while a snapshot is written, commits wait before two spans would be replayed",
    },
  },
  {
    name: "a snapshot waits for commits that wait for it",
    guarantee: "G11",
    file: "src/streams/stores/journal/replay-bound.ts",
    find: "return this.#isWorking && this.isFull && this.#ordinal >= this.#needed;",
    replace: "return this.#isWorking && this.isFull;",
    caughtBy: {
      file: REPLAY_BOUND,
      test: "what the snapshot waits for is let through, in the order of the calls",
    },
  },
  {
    name: "a failed snapshot keeps commits waiting",
    guarantee: "G11",
    file: "src/streams/stores/journal/journal-store.ts",
    find: "if (this.#background === undefined) this.#bound.workEnds();",
    replace: "if (this.#background === undefined && !this.#bound.isFull) this.#bound.workEnds();",
    caughtBy: {
      file: REPLAY_BOUND,
      test: "a snapshot that fails lets the commits go on, and a later one succeeds",
    },
  },
  {
    name: "closing waits for room on a full disk",
    guarantee: "G9",
    file: "src/streams/stores/journal/journal-store.ts",
    find: "    this.#log.space.stopWaiting();\n",
    replace: "",
    caughtBy: {
      file: FILE_STORE,
      test: "S7 closing ends a commit that waits for room: it is refused, and nothing of it is kept",
    },
  },
  {
    name: "the memory of a page is used again before the page has left",
    guarantee: "G8",
    file: "src/streams/runtimes/node-exchange.ts",
    find: `if (answer.onSent !== undefined) response.once("finish", answer.onSent);`,
    replace: "answer.onSent?.();",
    caughtBy: {
      file: "test/slow-readers.test.ts",
      test: "pages that wait for a slow reader are not written over by those of a quick one",
    },
  },
  {
    name: "changes of groups are not replayed",
    guarantee: "G11",
    file: "src/streams/core/restore.ts",
    find: "return ordinal >= this.#partsVersion;",
    replace: 'return ordinal >= this.#partsVersion && !("group" in change);',
    caughtBy: {
      file: FILE_STORE,
      test: "file: S1 groups survive a kill at any commit and a reopen",
    },
  },
  {
    name: "groups are not in the snapshot",
    guarantee: "G22",
    file: "src/streams/stores/journal/snapshot.ts",
    find: "const groups = world.rules.groups.image(world.groups);",
    replace: "const groups = { ...world.rules.groups.image(world.groups), groups: [] };",
    caughtBy: {
      file: "src/streams/stores/journal/group-format.test.ts",
      test: "groups come back from a snapshot alone, at every moment of their life",
    },
  },
  {
    name: "a trim forgets the extent that reaches over its offset",
    guarantee: "G1",
    file: "src/streams/stores/journal/extents.ts",
    find: "const gone = this.find(to);",
    replace: "const gone = Math.min(this.#count, this.find(to) + 1);",
    caughtBy: {
      file: TRIM,
      test: "S9 the room of what was trimmed is given back, and what is left is moved out of the way",
    },
  },
  {
    name: "what was trimmed while it was moved stops the journal",
    guarantee: "G9",
    file: "src/streams/stores/journal/placement.ts",
    find: "const kept = group.filter((run) => run.end > extents.first);",
    replace: "const kept = group;",
    caughtBy: {
      file: TRIM,
      test: "S9 a trim while what it forgets is moved leaves the rest, also after a loss of power",
    },
  },
  {
    name: "a page goes on behind what was trimmed",
    guarantee: "G10",
    file: "src/streams/stores/journal/reading.ts",
    find: "if (extents.first > position) break;",
    replace: "if (extents.first > to) break;",
    caughtBy: {
      file: TRIM,
      test: "S9 the room of what was trimmed is given back, and what is left is moved out of the way",
    },
  },
  {
    name: "a snapshot goes on with the wrong extents after a trim",
    guarantee: "G11",
    file: "src/streams/stores/journal/snapshot.ts",
    find: "from = encodeExtents(block, extents, extents.find(from), PART_MAX);",
    replace:
      "from = encodeExtents(block, extents, Math.max(INLINE_MAX, extents.find(from)), PART_MAX);",
    caughtBy: {
      file: TRIM,
      test: "S9 a trim while a snapshot is written: replay makes the same index, with the trim in any of its blocks",
    },
  },
];
