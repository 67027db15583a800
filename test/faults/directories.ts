/** Faults in what holds a directory together: its identity, its end, its lock. */

import type { Fault } from "./faults.ts";

const IDENTITY = "src/streams/stores/file/identity.test.ts";
const CONTAINERS = "test/containers.test.ts";

const STORE_FILE = "src/streams/stores/file/store-file.test.ts";
const STORE_WRITES =
  "ID2 after a kill in any write and a power cut in any write of the next life STORE is whole";

export const directoryFaults: readonly Fault[] = [
  {
    name: "STORE names frames that are only in the page cache",
    guarantee: "G11",
    file: "src/streams/stores/file/segments.ts",
    find: "await this.#activeFile.sync();",
    replace: "await this.#activeFile.size();",
    caughtBy: {
      file: "test/start-cuts.test.ts",
      test: "RC3 G11 a kill at any call, then a power cut at any call of the next start, lose nothing",
    },
  },
  {
    name: "a copy of STORE is overwritten while the other is only in the page cache",
    guarantee: "G11",
    file: "src/streams/stores/file/store-file.ts",
    find: "      await file.sync();\n      const later",
    replace: "      const later",
    caughtBy: { file: STORE_FILE, test: STORE_WRITES },
  },
  {
    name: "the only whole copy of STORE is overwritten first",
    guarantee: "G11",
    file: "src/streams/stores/file/store-file.ts",
    find: "await ownership.#write(mark, later?.at);",
    replace: "await ownership.#write(mark, later === undefined ? 0 : undefined);",
    caughtBy: { file: STORE_FILE, test: STORE_WRITES },
  },
  {
    name: "a missing end of the journal is taken for the end",
    guarantee: "G12",
    file: "src/streams/stores/file/recovery.ts",
    find: "if (mark !== undefined) requireEnd(mark, segments, replayed.nextLsn);",
    replace: "if (mark === undefined) requireEnd(mark as never, segments, replayed.nextLsn);",
    caughtBy: {
      file: IDENTITY,
      test: "ID2 a last segment that is gone is missed, after a clean stop and after a kill",
    },
  },
  {
    name: "a clean stop does not say where the journal ends",
    guarantee: "G12",
    file: "src/streams/stores/file/store-file.ts",
    find: "return this.#write({ ...this.#mark, ...last, isClosed: true });",
    replace: "return last.lsn < 0 ? this.#write(this.#mark) : Promise.resolve();",
    caughtBy: {
      file: IDENTITY,
      test: "ID2 so is a last segment that was cut short, or whose last frames are zeros",
    },
  },
  {
    name: "a segment of another store is served",
    guarantee: "G12",
    file: "src/streams/stores/file/recovery.ts",
    find: "if (storeId !== undefined && header.storeId !== storeId) {",
    replace: "if (storeId === header.salt.toString()) {",
    caughtBy: {
      file: IDENTITY,
      test: "ID1 a segment of another store is refused, with every number and LSN",
    },
  },
  {
    name: "a segment may follow any other",
    guarantee: "G12",
    file: "src/streams/stores/journal/chain.ts",
    find: "if (last?.lsn === lsn && last.crc !== crcBefore) {",
    replace: "if (last?.lsn === lsn && last.crc === -1) {",
    caughtBy: {
      file: IDENTITY,
      test: "ID1 two copies of one store that went different ways do not fit together",
    },
  },
  {
    name: "a process goes on writing although another has opened the directory",
    guarantee: "G32",
    file: "src/streams/stores/file/file-log.ts",
    find: "if (this.#ownership?.isCheckDue(steadyMs) === true)",
    replace: "if (this.#ownership?.isCheckDue(-Infinity) === true)",
    caughtBy: {
      file: IDENTITY,
      test: "ID3 a process whose directory another has opened writes no more, and says so",
    },
  },
  {
    name: "reads take the room that deletes need on a full disk",
    guarantee: "G33",
    file: "src/streams/engine/expiry.ts",
    find: "    if (room.hasRoomToSpare) commit.stage(commit.begin(), change);",
    replace:
      "    if (room.hasRoomToSpare || commit.landed >= 0) commit.stage(commit.begin(), change);",
    caughtBy: {
      file: "src/streams/stores/file/full-disk.test.ts",
      test: "G33 on a full disk reads and forgotten keys leave the room alone that deletes need",
    },
  },
  {
    name: "workers of subscriptions take the room that deletes need on a full disk",
    guarantee: "G33",
    file: "src/streams/engine/subscriptions.ts",
    find: "    if (changes.length > 0) this.#writer.room.admit(0);",
    replace: "",
    caughtBy: {
      file: "src/streams/stores/file/full-disk.test.ts",
      test: "G33 on a full disk subscriptions leave the room alone that deletes need, and lose no wake-up",
    },
  },
  {
    name: "a webhook's answer that cannot be written down is forgotten on a full disk",
    guarantee: "G33",
    file: "src/streams/engine/subscriptions/deliveries.ts",
    find: "    while (this.#mustWait && !signal.aborted) await this.#rest(signal);",
    replace: "    if (this.#mustWait) return;",
    caughtBy: {
      file: "src/streams/engine/subscriptions/full-disk.test.ts",
      test: "an answer waits for room, and the wake is not delivered again",
    },
  },
  {
    name: "what was deleted before a restart is not given back on a full disk",
    guarantee: "G33",
    file: "src/streams/stores/journal/journal-store.ts",
    find: "  #hasFreed = true;\n  /** Streams",
    replace: "  #hasFreed = false;\n  /** Streams",
    caughtBy: {
      file: "src/streams/stores/file/full-disk.test.ts",
      test: "G33 what was deleted before a restart makes room after it, without another request",
    },
  },
  {
    name: "what deletes free on a full disk waits for the next snapshot",
    guarantee: "G33",
    file: "src/streams/stores/journal/journal-store.ts",
    find: "else if (this.#hasFreed && this.#isTight) this.#tidySoon();",
    replace: "else if (this.#isClosing && this.#isTight) this.#tidySoon();",
    caughtBy: {
      file: "src/streams/stores/file/full-disk.test.ts",
      test: "G33 on a full disk deletes are taken and make room, and appends go on without a restart",
    },
  },
  {
    name: "room is promised while a commit waits for some",
    guarantee: "G33",
    file: "src/streams/stores/file/segments.ts",
    find: "if (left < FULL_FLOOR_BYTES || this.#isWaiting) return -2;",
    replace: "if (left < 0) return -2;",
    caughtBy: {
      file: "src/streams/stores/file/full-disk.test.ts",
      test: "while a commit waits for room none is promised, and not even a delete is taken",
    },
  },
  {
    name: "the lock ends at the network namespace",
    guarantee: "G32",
    file: "src/streams/stores/file/lock.ts",
    find: `if (locking.kind === "other") throw locked(directory, locking.holder);`,
    replace: `if (locking.kind === "other") return undefined;`,
    caughtBy: {
      file: CONTAINERS,
      test: "G32 a process in another network namespace keeps the directory until it is killed",
    },
  },
  {
    name: "a key's own time is judged by a journal that is ahead",
    guarantee: "G16",
    file: "src/streams/engine/journal-clock.ts",
    find: "return Math.min(this.nowMs(), Math.floor(this.#unboundMs));",
    replace: "return Math.max(this.nowMs(), Math.floor(this.#unboundMs));",
    caughtBy: {
      file: "test/crash/clock.test.ts",
      test: "one start with a clock two days ahead does not make fresh keys look old at later starts",
    },
  },
  {
    name: "a journal that is ahead ends streams before their time",
    guarantee: "G16",
    file: "src/streams/engine/expiry.ts",
    find: "return Math.max(time.unboundMs(), clock.nowMs()) as TimeMs;",
    replace: "return Math.max(time.nowMs(), clock.nowMs()) as TimeMs;",
    caughtBy: {
      file: "test/crash/clock.test.ts",
      test: "nor does it end streams early that name a time of the right clock",
    },
  },
];
