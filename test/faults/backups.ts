/** Faults in backups, in restores, and in what clients notice of them. */

import type { Fault } from "./faults.ts";

const UNIT = "src/streams/stores/backup/backup.test.ts";
const WHOLE = "test/restores.test.ts";
const HOLDS = "src/streams/stores/journal/holds.ts";
const FOLDER = "src/streams/stores/backup/folder.ts";
const RESTORING = "src/streams/stores/backup/restoring.ts";

export const backupFaults: readonly Fault[] = [
  {
    name: "a backup of a wrong clock counts as the newest",
    guarantee: "G142",
    file: FOLDER,
    find: "const newer = other.document.lsn - one.document.lsn;",
    replace: "const newer = one.name > other.name ? -1 : 1;",
    caughtBy: {
      file: UNIT,
      test: "G142 the newest backup is the newest, also if the clock was ahead during an earlier one",
    },
  },
  {
    name: "segments of a backup are retired while it runs",
    guarantee: "G142",
    file: HOLDS,
    find: "if (segments.some((segment) => segment.number === number)) return true;",
    replace: "if (segments.some((segment) => segment.number === -number)) return true;",
    caughtBy: {
      file: UNIT,
      test: "G142 what a backup holds is neither retired nor removed, and comes back when it ends",
    },
  },
  {
    name: "a backup keeps its segments on a full disk",
    guarantee: "G142",
    file: "src/streams/stores/journal/journal-store.ts",
    find: "if (this.#holds.endAll()) this.#hasFreed = true;",
    replace: "",
    caughtBy: {
      file: UNIT,
      test: "G142 on a full disk room for writes comes first: the backup is over, and says so",
    },
  },
  {
    name: "a backup leaves out segments that a replay reads",
    guarantee: "G142",
    file: HOLDS,
    find: "return segments.filter(({ number }, at) => at >= first || this.#index.liveBytes(number) > 0);",
    replace: "return segments.filter((_, at) => at >= first);",
    caughtBy: {
      file: UNIT,
      test: "G142 a backup is the store at its instant, also if much is written, freed and compacted meanwhile",
    },
  },
  {
    name: "the document of a backup is written under its name at once",
    guarantee: "G142",
    file: FOLDER,
    find: "const unfinished = `${name}.tmp`;\n  if ((await disk.list()).includes(unfinished)) await disk.remove(unfinished);",
    replace: "const unfinished = name;",
    caughtBy: {
      file: UNIT,
      test: "G142 a kill and a power cut at any call of a backup leave every earlier one, and the next one goes on",
    },
  },
  {
    name: "a backup that goes on fetches a segment from its beginning",
    guarantee: "G142",
    file: FOLDER,
    find: "for (let at = check.end; at < bytes;) {",
    replace: "for (let at = SEGMENT_HEADER_BYTES; at < bytes;) {",
    caughtBy: {
      file: UNIT,
      test: "G142 the next backup fetches what is new, and older ones stay",
    },
  },
  {
    name: "frames of two histories are mixed in one backup",
    guarantee: "G142",
    file: FOLDER,
    find: "if (!head.equals(there.subarray(0, head.length))) throw otherHistory(name);",
    replace: "if (head.length > there.length) throw otherHistory(name);",
    caughtBy: {
      file: UNIT,
      test: "G142 a server that went back without a restore is not mixed with the backups of before",
    },
  },
  {
    name: "a restore takes files that are not those of the document",
    guarantee: "G143",
    file: RESTORING,
    find: "if (named.bytes !== bytes || named.sha256 !== sha256) {",
    replace: "if (named.bytes < 0 || sha256 === undefined) {",
    caughtBy: {
      file: UNIT,
      test: "G143 one stream has the same backup, and every cut and change of it is refused",
    },
  },
  {
    name: "a document is taken without its checksum",
    guarantee: "G143",
    file: "src/streams/stores/backup/document.ts",
    find: "if (whole === undefined || body === undefined || sha256Of(body) !== sha256) {",
    replace: "if (whole === undefined || body === undefined || sha256Of(body) === undefined) {",
    caughtBy: {
      file: UNIT,
      test: "G143 a backup with any byte changed, cut or missing is refused, and no server opens the directory",
    },
  },
  {
    name: "a directory can be opened before its restore is done",
    guarantee: "G143",
    file: RESTORING,
    find: "const found: BackupFile[] = [];\n  for await (const file of reader.files()) found.push(await putFile(disk, file, tell));",
    replace:
      "const found: BackupFile[] = [];\n  await disk.remove(UNFINISHED_COPY);\n  for await (const file of reader.files()) found.push(await putFile(disk, file, tell));",
    caughtBy: {
      file: UNIT,
      test: "G143 a kill and a power cut at any call of a restore leave nothing that a server opens, or all of it",
    },
  },
  {
    name: "a restored server is the same incarnation",
    guarantee: "G144",
    file: "src/streams/stores/backup/incarnations.ts",
    find: "const number = world.incarnation.number + 1;",
    replace: "const { number } = world.incarnation;",
    caughtBy: {
      file: WHOLE,
      test: "G144 a reader with a position, and one that follows, notice a server that went back",
    },
  },
  {
    name: "a snapshot forgets the incarnation",
    guarantee: "G144",
    file: "src/streams/stores/journal/snapshot-format.ts",
    find: "if (number === 1) return;",
    replace: "if (number > 0) return;",
    caughtBy: {
      file: UNIT,
      test: "G144 an incarnation outlives restarts, from the journal and from a snapshot",
    },
  },
  {
    name: "a member goes on at an older offset of a restored server",
    guarantee: "G144",
    file: "src/client/processing/restored.ts",
    find: "if (isOtherIncarnation(known, life)) throw",
    replace: "if (isOtherIncarnation(known, known)) throw",
    caughtBy: {
      file: WHOLE,
      test: "G144 a member whose leases a restored server has forgotten ends before it reads on",
    },
  },
  {
    name: "a sink takes its position of before a restore as good",
    guarantee: "G144",
    file: "src/client/processing/pipeline-sink.ts",
    find: "this.#requireIncarnation(position, batch);",
    replace: "",
    caughtBy: {
      file: WHOLE,
      test: "G144 a pipeline with its positions in a database stops at a restored server, until that is accepted",
    },
  },
  {
    name: "a relay does not say which server it means",
    guarantee: "G144",
    file: "src/toolkit/outbox/hapax-publisher.ts",
    find: "return { ...own, incarnation: target, signal };",
    replace: "return { ...own, incarnation: target === undefined ? target : undefined, signal };",
    caughtBy: {
      file: WHOLE,
      test: "G144 a relay stops at a restored server before it sends anything, and goes on when that is accepted",
    },
  },
  {
    name: "a server takes transactions that mean another incarnation",
    guarantee: "G144",
    file: "src/streams/server/incarnations.ts",
    find: "if (known !== own) throw restored(own, known);",
    replace: "if (own === undefined) throw restored(own, known);",
    caughtBy: {
      file: WHOLE,
      test: "G144 a transaction names the incarnation that it means, and another one refuses it whole",
    },
  },
];
