/** Faults of the store in PostgreSQL. */

import type { Fault } from "./faults.ts";

const TABLES = "src/streams/stores/postgres/postgres-tables.ts";
const FENCE = "src/streams/stores/postgres/fence.ts";
const OWNERSHIP = "src/streams/stores/postgres/ownership.ts";
const HOSTS = "src/streams/stores/postgres/hosts.ts";
const HOSTS_TEST = "src/streams/stores/postgres/hosts.test.ts";
const STORE_TEST = "test/postgres/store.test.ts";
const SIMULATION = "test/postgres/simulation.test.ts";
const HISTORIES =
  "S10 S11 S12 500 histories with lost answers, late statements, doubts, failovers, warm copies and two owners are exact";

const on = (test: string) => ({ file: STORE_TEST, test: `a store in PostgreSQL > ${test}` });

export const postgresFaults: readonly Fault[] = [
  {
    name: "postgres: a commit does not look at the epoch",
    guarantee: "G80",
    file: TABLES,
    find: "WHERE shard = $1 AND epoch = $2 FOR SHARE`;",
    replace: "WHERE shard = $1 AND $2::bigint >= 0 FOR SHARE`;",
    caughtBy: on("G80 no fenced write of an earlier epoch does anything, whichever kind it is"),
  },
  {
    name: "postgres: a segment is retired without the fence",
    guarantee: "G80",
    file: TABLES,
    find: "DELETE FROM ${schema}.hapax_segment USING own WHERE shard = $1 AND number = $3",
    replace: "DELETE FROM ${schema}.hapax_segment WHERE shard = $1 AND number = $3",
    caughtBy: on("G80 no fenced write of an earlier epoch does anything, whichever kind it is"),
  },
  {
    name: "postgres: a frame does not need the frame before it",
    guarantee: "G81",
    file: TABLES,
    find: "if (before === undefined) return ALWAYS;",
    replace: "if (before === undefined || before.lsn > 0) return ALWAYS;",
    caughtBy: on(
      "G81 a database that has lost the last frame, the epoch or a table is noticed by the next commit",
    ),
  },
  {
    name: "postgres: the settings at the moment of a commit do not count",
    guarantee: "G81",
    file: TABLES,
    find: "isSure: isSure && isKept };",
    replace: "isSure: isSure || isKept };",
    caughtBy: on(
      "G81 commits wait while the server promises too little, and go on when it promises enough",
    ),
  },
  {
    name: "postgres: a doubtful answer is taken for a proof",
    guarantee: "G81",
    file: FENCE,
    find: `if (isDone && isSure) return "done";`,
    replace: `if (isDone && (isSure || step === "write")) return "done";`,
    caughtBy: on(
      "G81 after a doubtful answer a commit waits for a write of its own that is answered without doubt",
    ),
  },
  {
    name: "postgres: what is visible is taken for a proof",
    guarantee: "G81",
    file: FENCE,
    find: `return sight.isThere ? "confirm" : "write";`,
    replace: `return sight.isThere ? ("done" as never) : "write";`,
    caughtBy: {
      file: "test/postgres/visible.test.ts",
      test: "G81 a frame that is visible is not acknowledged before a write of our own has confirmed it",
    },
  },
  {
    name: "postgres: a takeover that is not durable is good enough to read the log",
    guarantee: "G81",
    file: OWNERSHIP,
    find: "if (taken?.isDone === true && taken.isSure) {",
    replace: "if (taken?.isDone === true) {",
    caughtBy: { file: SIMULATION, test: HISTORIES },
  },
  {
    name: "postgres: a living owner is taken over",
    guarantee: "G80",
    file: OWNERSHIP,
    find: 'state.owner === undefined || isMine || options.takeover === "now";',
    replace: 'state.owner === undefined || isMine || options.takeover !== "wait";',
    caughtBy: on(
      "G80 a living owner is not taken over, a dead one is after its lease, and one that has closed at once",
    ),
  },
  {
    name: "postgres: a shard is taken by the wall clock",
    guarantee: "G80",
    file: OWNERSHIP,
    find: "    const nowMs = this.#clock.steadyMs();",
    replace: "    const nowMs = this.#clock.nowMs();",
    caughtBy: {
      file: "src/streams/stores/postgres/ownership.test.ts",
      test: "G80 a wall clock that is set takes a shard from its owner neither sooner nor later",
    },
  },
  {
    name: "postgres: the warning that a wait was given up is not heard",
    guarantee: "G81",
    file: "src/streams/stores/postgres/session.ts",
    find: `return code === WARNING || code === "57P01"`,
    replace: `return code === "57P01"`,
    caughtBy: on(
      "G81 the warning of a server that gives up the wait for its standby makes an answer doubtful",
    ),
  },
  {
    name: "postgres: a host that was replaced is taken for the primary again",
    guarantee: "G81",
    file: HOSTS,
    find: "if (this.#isEarlier(primary)) {",
    replace: 'if (this.#isEarlier({ ...primary, timeline: "" })) {',
    caughtBy: {
      file: HOSTS_TEST,
      test: "G81 a host that was replaced and does not know it is not taken for the primary again",
    },
  },
  {
    name: "postgres: a statement waits for a primary that was replaced",
    guarantee: "G81",
    file: HOSTS,
    find: "if (await this.#isReplaced(primary)) {",
    replace: 'if ((await this.#isReplaced(primary)) && primary.timeline === "") {',
    caughtBy: {
      file: HOSTS_TEST,
      test: "a primary that does not answer is left when another host has taken its place, and not before",
    },
  },
  {
    name: "postgres: a sweep drops the table of the next segment",
    guarantee: "G81",
    file: TABLES,
    find: "< (SELECT max(number) FROM ${this.#schema}.hapax_segment WHERE shard = $4)",
    replace: "< 1 + (SELECT max(number) + $4::bigint FROM ${this.#schema}.hapax_segment) + 1",
    caughtBy: on("G81 the table of a segment that is just being made is not swept away"),
  },
  {
    name: "postgres: a verification does not compare checksums",
    guarantee: "G100",
    file: "src/streams/stores/postgres/row-scan.ts",
    find: "isFrameValid(whole, 0, header, this.#salt);",
    replace: "(isFrameValid(whole, 0, header, this.#salt) || header.lsn > 0);",
    caughtBy: {
      file: "test/postgres/verification.test.ts",
      test: "hapax verify --store > damage says what it costs: data that cannot be read, or a start that is refused",
    },
  },
  {
    name: "postgres: a copy counts without a comparison",
    guarantee: "G101",
    file: "src/streams/stores/copy/copy.ts",
    find: "if (found.parts.get(part) !== digest)",
    replace: "if (found.parts.get(part) === undefined && digest !== undefined)",
    caughtBy: {
      file: "test/postgres/copy.test.ts",
      test: "hapax copy > G101 what differs in the target is found before the target counts",
    },
  },
  {
    name: "postgres: a server opens a directory with an unfinished copy",
    guarantee: "G101",
    file: "src/streams/stores/file/recovery.ts",
    find: "if (names.includes(UNFINISHED_COPY)) {",
    replace: "if (names.length === 0 && names.includes(UNFINISHED_COPY)) {",
    caughtBy: {
      file: "test/postgres/copy.test.ts",
      test: "hapax copy > G101 a directory with an unfinished copy is opened by no server and no tool",
    },
  },
  {
    name: "postgres: a frame whose answer was lost is sent to another place",
    guarantee: "G81",
    file: FENCE,
    find: `if (step === "write") return tables.write(epoch, write);`,
    replace: `if (step === "write") {
      const isAgain = write.kind === "frame" && this.#isWaiting;
      return tables.write(epoch, isAgain ? { ...write, position: write.position + 8 } : write);
    }`,
    caughtBy: { file: SIMULATION, test: HISTORIES },
  },
];
