/** Faults of the dedup window of logs: what would be stored twice, forgotten, or written by those who may not. */

import type { Fault } from "./faults.ts";

const RULES = "src/toolkit/rules/window.ts";
const RULES_TEST = "src/toolkit/rules/window.test.ts";
const SNAPSHOT_TEST = "src/toolkit/rules/window-snapshot.test.ts";
const WRITING = "test/window/writing.test.ts";
const MODEL = "test/window/model.test.ts";
const RESTORES = "test/window/restores.test.ts";
const S3 = "test/window/s3.test.ts";
const RECOVERY = "src/toolkit/window/recovery.ts";
const LOG = "src/toolkit/window/object-log.ts";
const BATCHES = "src/toolkit/window/batches.ts";
const NAMES = "src/toolkit/files/durable-names.ts";
const NAMES_TEST = "src/toolkit/files/durable-names.test.ts";
const WINDOW = "src/toolkit/window/open-window.ts";

export const windowFaults: readonly Fault[] = [
  {
    name: "a second call does not join the write of its id",
    guarantee: "G60",
    file: RULES,
    find: "if (pending !== undefined)",
    replace: `if (pending?.id === "")`,
    caughtBy: {
      file: RULES_TEST,
      test: "WD1 while it is written, a second call joins the first, and other content is refused",
    },
  },
  {
    name: "an id that is stored stands for any content",
    guarantee: "G60",
    file: RULES,
    find: `if (!state.keys.isSameBody(ordinal, mark)) return { kind: "mismatch" };`,
    replace: `if (state.size < 0) return { kind: "mismatch" };`,
    caughtBy: {
      file: WRITING,
      test: "WD1 the same id with other bytes is refused while it is written, after it, and by the next writer",
    },
  },
  {
    name: "a write waits between its decision and its beginning",
    guarantee: "G60",
    file: WINDOW,
    find: `if (decided === "unproven") this.#unproven += 1;`,
    replace: `if (decided === "unproven") this.#unproven += 1;\n      await Promise.resolve();`,
    caughtBy: {
      file: WRITING,
      test: "WD1 G60 calls under one id that waited for room together are one entry",
    },
  },
  {
    name: "bytes are sent as the caller has changed them",
    guarantee: "G60",
    file: WINDOW,
    find: "const own = bytes.slice();",
    replace: "const own = bytes;",
    caughtBy: {
      file: WRITING,
      test: "WD1 G60 a caller may give up, change its bytes and come again: the first write stands",
    },
  },
  {
    name: "what came until the fence is not read",
    guarantee: "G60",
    file: WINDOW,
    find: "  await reader.catchUp(signal);\n  signal?.throwIfAborted();\n  requireLease(lease?.signal);\n  return new Window",
    replace: "  requireLease(lease?.signal);\n  return new Window",
    caughtBy: {
      file: WRITING,
      test: "WD2 G60 what the writer before has stored until it was fenced is in the window",
    },
  },
  {
    name: "a snapshot counts though the log lost its entries",
    guarantee: "G60",
    file: "src/toolkit/window/recovery.ts",
    find: "if (this.#unproven.has(segment) && watermark.entry >= 0)",
    replace: "if (this.#unproven.has(segment) && watermark.entry < -1)",
    caughtBy: {
      file: MODEL,
      test: "WD4 G60 a log that ends before its snapshot is refused: it has lost entries",
    },
  },
  {
    name: "a window remembers more ids than it may",
    guarantee: "G60",
    file: RULES,
    find: "keys.next - keysMax)",
    replace: "keys.next - 2 * keysMax)",
    caughtBy: {
      file: RULES_TEST,
      test: "WD3 ids leave by log time and by count, oldest first, and never before",
    },
  },
  {
    name: "unconfirmed writes have no limit",
    guarantee: "G60",
    file: WINDOW,
    find: "if (this.#pending >= pendingMax) return true;",
    replace: "if (this.#pending >= pendingMax * 1000) return true;",
    caughtBy: {
      file: WRITING,
      test: "WD3 unconfirmed writes have a limit: further ones wait, or are refused",
    },
  },
  {
    name: "a flipped snapshot is used",
    guarantee: "G60",
    file: "src/toolkit/rules/window-snapshot.ts",
    find: "if (crc32Of(payload) !== crc) return undefined;",
    replace: "if (crc32Of(payload) < 0 && crc < 0) return undefined;",
    caughtBy: { file: SNAPSHOT_TEST, test: "WD4 with any bit flipped is not used" },
  },
  {
    name: "only the newest snapshot is kept",
    guarantee: "G60",
    file: "src/toolkit/window/snapshots.ts",
    find: "const KEPT = 2;",
    replace: "const KEPT = 1;",
    caughtBy: {
      file: MODEL,
      test: "WD4 two snapshots are kept, and the older one makes the same window",
    },
  },
  {
    name: "a retry of a forgotten id counts as new",
    guarantee: "G60",
    file: RULES,
    find: "if (sentAtMs <= forgottenToMs + skewMs)",
    replace: "if (sentAtMs < 0 - skewMs)",
    caughtBy: {
      file: RULES_TEST,
      test: "WD5 an id that says its time never counts as new if it may have been stored and forgotten",
    },
  },
  {
    name: "the writer before is not fenced",
    guarantee: "G60",
    file: LOG,
    find: "const sealed = last < 0 ? undefined",
    replace: "const sealed = last < 1e9 ? undefined",
    caughtBy: {
      file: WRITING,
      test: "WD6 G60 a writer that was paused and continues stores nothing, and its snapshots change nothing",
    },
  },
  {
    name: "a store that ignores conditions is used",
    guarantee: "G60",
    file: LOG,
    find: `if (outcomes[1] === "occupied") return;`,
    replace: `if (outcomes.length === 2) return;`,
    caughtBy: {
      file: WRITING,
      test: "WD6 G60 a store that ignores conditions is refused before anything is written to the log",
    },
  },
  {
    name: "the condition is not sent",
    guarantee: "G60",
    file: "src/toolkit/window/s3-objects.ts",
    find: `"if-none-match": "*",`,
    replace: `"x-amz-meta-condition": "*",`,
    caughtBy: {
      file: WRITING,
      test: "G60 requests and answers are lost, the store is busy, lists are late: each id is stored once",
    },
  },
  {
    name: "a write whose answer was lost takes its own place for another's",
    guarantee: "G60",
    file: LOG,
    find: `if ((await objects.create(name, bytes)) === "stored") return true;`,
    replace: `if ((await objects.create(name, bytes)) === "stored" || name === "") return true;\n  if (name !== "") return false;`,
    caughtBy: {
      file: WRITING,
      test: "G60 requests and answers are lost, the store is busy, lists are late: each id is stored once",
    },
  },
  {
    name: "a batch of unknown outcome is sent again without a look",
    guarantee: "G60",
    file: BATCHES,
    find: "if (this.#sent?.isSent === true) await this.#lookFor(this.#sent, log);",
    replace: "if (this.#sent?.isSent === undefined) await log.settle();",
    caughtBy: {
      file: WRITING,
      test: "WD7 an unknown outcome is looked up before anything is sent again: answer lost",
    },
  },
  {
    name: "the tail is read while a request is still on its way",
    guarantee: "G60",
    file: BATCHES,
    find: "    await log.settle();\n    await this.#reader.catchUp();",
    replace: "    await this.#reader.catchUp();\n    await log.settle();",
    caughtBy: {
      file: WRITING,
      test: "WD7 an unknown outcome is looked up before anything is sent again: late",
    },
  },
  {
    name: "a snapshot counts though the log has lost its segment",
    guarantee: "G60",
    file: RECOVERY,
    find: "if (segment >= first && (there === undefined ||",
    replace: "if (segment < 0 && (there === undefined ||",
    caughtBy: {
      file: RESTORES,
      test: "WD4 G60 a log that was restored from any older copy never counts lost entries as stored",
    },
  },
  {
    name: "a snapshot of another log counts",
    guarantee: "G60",
    file: RECOVERY,
    find: `if (writer !== "" && newest.writer !== writer)`,
    replace: `if (writer === "none" && newest.writer !== writer)`,
    caughtBy: {
      file: RESTORES,
      test: "WD4 G60 snapshots of another log are refused, and those of a log that was restored and went on",
    },
  },
  {
    name: "two logs share their snapshots",
    guarantee: "G60",
    file: "src/toolkit/window/snapshots.ts",
    find: "!isSameBytes(await objects.get(own), bytes)",
    replace: "!isSameBytes(bytes, bytes)",
    caughtBy: {
      file: RESTORES,
      test: "WD4 two logs that share a place for snapshots do not get each other's",
    },
  },
  {
    name: "an opening that was given up fences the writer",
    guarantee: "G60",
    file: WINDOW,
    find: "  // A caller that gave up must not fence the writer that works.\n  signal?.throwIfAborted();",
    replace: "  // A caller that gave up must not fence the writer that works.",
    caughtBy: {
      file: WRITING,
      test: "WD6 an opening that was given up does not fence the writer that works",
    },
  },
  {
    name: "a write that fails leaves its file on the disk",
    guarantee: "G60",
    file: NAMES,
    find: "    await fs.rm(written, { force: true }).catch(() => undefined);\n",
    replace: "",
    caughtBy: {
      file: NAMES_TEST,
      test: "a write that fails leaves no file behind > in writeFile",
    },
  },
  {
    name: "the files of writers that still work are removed",
    guarantee: "G60",
    file: NAMES,
    find: "stat.mtimeMs > OLD_MS",
    replace: "stat.mtimeMs > 0",
    caughtBy: {
      file: NAMES_TEST,
      test: "the first write removes what dead processes have left behind for an hour, and nothing younger > in a folder of objects",
    },
  },
  {
    name: "a caller that may not see the log takes it for empty",
    guarantee: "G60",
    file: "src/toolkit/window/s3-objects.ts",
    find: `["NoSuchKey", ""].includes(codeOf(answer))`,
    replace: `codeOf(answer) !== ""`,
    caughtBy: { file: S3, test: "a bucket that is not there is an error, and no empty log" },
  },
  {
    name: "a secret is in an error",
    guarantee: "G60",
    file: "src/toolkit/window/s3-objects.ts",
    find: "`${name} of the credentials is empty",
    replace: "`${name}=${value} of the credentials is empty",
    caughtBy: { file: S3, test: "credentials that cannot be sent are refused, and not shown" },
  },
];
