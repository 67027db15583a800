/** Faults of the ledger in a Durable Object, caught in a real workerd. */

import type { Fault } from "./faults.ts";

const DAYS = "src/toolkit/ledgers/durable-object-days.ts";
const ENTRIES = "src/toolkit/ledgers/durable-object-entries.ts";
const LEDGER = "src/toolkit/ledgers/durable-object-ledger.ts";
const SESSION = "src/toolkit/databases/durable-object.ts";
const TOKENS = "src/toolkit/ledgers/durable-object-tokens.ts";
const LOSSES = "test/objects/ledger-losses.test.ts";
const KEPT = "test/objects/ledger-days.test.ts";
const WAKE =
  "an object that is lost > G62 LG12 a wake frees what the life before had begun, but no lease and no work that must be asked for";
const BORDERS =
  "the days of an object > G65 what is in its retention is there at the end of a day, and what is past it is not found";
const INSIDE =
  "an object that is lost > G63 nothing of an open transaction counts after a SIGKILL, and its token is not given again";

export const objectLedgerFaults: readonly Fault[] = [
  {
    name: "transactions of an object have no line of turns",
    guarantee: "G64",
    file: "src/toolkit/databases/line.ts",
    find: "const turn = this.#last.then(() => {",
    replace: "const turn = (this.#turnMs > 30_000 ? this.#last : Promise.resolve()).then(() => {",
    caughtBy: {
      file: LOSSES,
      test: "transactions of an object > G64 one that a promise of another resumes is not a part of it, and stays when that is rolled back",
    },
  },
  {
    name: "a call goes on inside the transaction of another one",
    guarantee: "G64",
    file: LEDGER,
    find: "absorbsResumed: true,",
    replace: "absorbsResumed: false,",
    caughtBy: {
      file: LOSSES,
      test: "transactions of an object > G64 a call that learns of the work of another one does not go on inside its transaction",
    },
  },
  {
    name: "a relay goes on inside the transaction of an event",
    guarantee: "G64",
    file: LEDGER,
    find: "      session.onEnd(tell);",
    replace: "      tell();",
    caughtBy: {
      file: LOSSES,
      test: "transactions of an object > G64 a relay that an event wakes does not go on inside the transaction of the event",
    },
  },
  {
    name: "the storage of a transaction outlives it",
    guarantee: "G64",
    file: SESSION,
    find: "member: (value, lend) => lend(value),",
    replace: "member: (value) => value,",
    caughtBy: {
      file: LOSSES,
      test: "transactions of an object > G64 a transaction that has ended, is async in a synchronous call, or is no transaction of the ledger is refused",
    },
  },
  {
    name: "tokens of an object are reserved in its transactions",
    guarantee: "G63",
    file: TOKENS,
    find: "if (this.#end - this.#max < SPARE) this.#take",
    replace: "if (this.#end - this.#max < -SPARE) this.#take",
    caughtBy: { file: LOSSES, test: INSIDE },
  },
  {
    name: "tokens of an object do not follow the clock",
    guarantee: "G63",
    file: TOKENS,
    find: "nextTokenAt(Math.max(last, this.#end), nowMs);",
    replace: "nextTokenAt(Math.max(last, this.#end), 0 * nowMs);",
    caughtBy: { file: LOSSES, test: INSIDE },
  },
  {
    name: "a wake frees nothing",
    guarantee: "G62",
    file: ENTRIES,
    find: "AND state = 'running' AND kind <> 'lease'",
    replace: "AND state = 'failed' AND kind <> 'lease'",
    caughtBy: { file: LOSSES, test: WAKE },
  },
  {
    name: "a wake frees what this life has begun",
    guarantee: "G62",
    file: ENTRIES,
    find: "tokens.first ?? Number.MAX_SAFE_INTEGER",
    replace: "Math.max(tokens.first ?? 0, Number.MAX_SAFE_INTEGER)",
    caughtBy: { file: LOSSES, test: WAKE },
  },
  {
    name: "a wake frees leases",
    guarantee: "G62",
    file: ENTRIES,
    find: "AND kind <> 'lease' AND",
    replace: "AND kind <> 'leases' AND",
    caughtBy: { file: LOSSES, test: WAKE },
  },
  {
    name: "a wake frees work that must be asked for",
    guarantee: "G62",
    file: ENTRIES,
    find: "WHERE expires_at IS NOT NULL AND state",
    replace: "WHERE (expires_at IS NOT NULL OR true) AND state",
    caughtBy: { file: LOSSES, test: WAKE },
  },
  {
    name: "a table of days is dropped too early",
    guarantee: "G65",
    file: DAYS,
    find: "if (endMs + LATE_MS > nowMs) continue;",
    replace: "if (endMs - 24 * LATE_MS > nowMs) continue;",
    caughtBy: { file: KEPT, test: BORDERS },
  },
  {
    name: "a key is not looked up in the tables of later days",
    guarantee: "G65",
    file: DAYS,
    find: ".filter(({ endMs }) => endMs + LATE_MS > nowMs)",
    replace: ".filter(({ endMs }) => endMs + LATE_MS > nowMs && endMs - 24 * LATE_MS < nowMs)",
    caughtBy: { file: KEPT, test: BORDERS },
  },
  {
    name: "what is past its retention is found in its table",
    guarantee: "G65",
    file: ENTRIES,
    find: "WHERE expires_at > ${this.#now})`",
    replace: "WHERE expires_at > 0 * ${this.#now})`",
    caughtBy: { file: KEPT, test: BORDERS },
  },
  {
    name: "a table that was rolled back is taken for there",
    guarantee: "G65",
    file: DAYS,
    find: "this.#session.onUndo(this.forget);\n      tables.set(",
    replace: "tables.set(",
    caughtBy: {
      file: KEPT,
      test: "the days of an object > G65 a table of days that a rollback has taken back is made again",
    },
  },
  {
    name: "an entry of an object costs two rows",
    guarantee: "G65",
    file: "src/toolkit/ledgers/durable-object-schema.ts",
    find: "CREATE TABLE IF NOT EXISTS ${table} (${SQLITE_ENTRY_COLUMNS}) WITHOUT ROWID`",
    replace: "CREATE TABLE IF NOT EXISTS ${table} (${SQLITE_ENTRY_COLUMNS})`",
    caughtBy: {
      file: KEPT,
      test: "the days of an object > G65 one row is written for each work, message and event, none for a duplicate, and none to delete them",
    },
  },
  {
    name: "an object takes rows that the platform refuses",
    guarantee: "G65",
    file: ENTRIES,
    find: "if (bytes <= DATA_BYTES_MAX) return;",
    replace: "if (bytes <= 2 * DATA_BYTES_MAX) return;",
    caughtBy: {
      file: KEPT,
      test: "the days of an object > G65 data that is too large for a row of the platform is refused, also where it would fit",
    },
  },
  {
    name: "the headers of an event of an object are not counted",
    guarantee: "G65",
    file: "src/toolkit/ledgers/sqlite-outbox.ts",
    find: "requireSize?.(payload.length + utf8Of(kept).length);",
    replace: "requireSize?.(payload.length + 0 * utf8Of(kept).length);",
    caughtBy: {
      file: "test/objects/deliveries.test.ts",
      test: "G65 an event that is too large for a row with its headers is refused, and the work with it",
    },
  },
];
