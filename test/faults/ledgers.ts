/** Faults of the ledgers: what would be claimed twice, seen too early, kept too short, or done by those who lost it. */

import type { Fault } from "./faults.ts";

const ALL = "test/ledgers.test.ts";
const SQLITE = "test/ledgers/sqlite.test.ts";
const POSTGRES = "test/ledgers/postgres.test.ts";
const TOKENS = "test/ledgers/tokens.test.ts";
const DONE = "test/ledgers/sqlite-done.test.ts";
const SQLITE_DONE = "src/toolkit/ledgers/sqlite-done.ts";
const SQLITE_ENTRIES = "src/toolkit/ledgers/sqlite-entries.ts";

export const ledgerFaults: readonly Fault[] = [
  {
    name: "an owner writes what is done already",
    guarantee: "G25",
    file: "src/toolkit/ledgers/entry-statements.ts",
    find: "CASE WHEN state = 'running' THEN CAST(${token} AS BIGINT) END",
    replace: "CAST(${token} AS BIGINT)",
    caughtBy: {
      file: ALL,
      test: "SQLite with journal_mode delete > LG2 an entry that is done, failed or released has no owner",
    },
  },
  {
    name: "a write does not look whether the entry has changed",
    guarantee: "G25",
    file: "src/toolkit/ledgers/entry-statements.ts",
    find: ": `token = ${token} AND revision = ${this.bind(expected.revision)}`;",
    replace: ": `token = ${token}`;",
    caughtBy: {
      file: ALL,
      test: "SQLite with journal_mode delete > LG2 what is not as expected is left as it is",
    },
  },
  {
    name: "a sweep deletes an entry whose work is running",
    guarantee: "G25",
    file: "src/toolkit/ledgers/entry-statements.ts",
    find: "const isFree = `state <> 'running' OR lease_until IS NULL",
    replace: "const isFree = `state <> 'none' OR lease_until IS NULL",
    caughtBy: {
      file: ALL,
      test: "SQLite with journal_mode wal > LG8 a sweep deletes what is past its retention, so many at once, and nothing else",
    },
  },
  {
    name: "a ledger in SQLite sees its own open transaction",
    guarantee: "G25",
    file: "src/toolkit/ledgers/sqlite-entries.ts",
    find: "joined === undefined ? session.read(work) : joined.read(work);",
    replace: "joined === undefined ? work() : joined.read(work);",
    caughtBy: {
      file: ALL,
      test: "SQLite with journal_mode delete > LG1 what a transaction wrote is seen outside only after its commit, even by its own ledger",
    },
  },
  {
    name: "tokens in SQLite go back with a transaction",
    guarantee: "G29",
    file: "src/toolkit/ledgers/sqlite-tokens.ts",
    find: "    raise(session, tokens.max);\n    return undefined;",
    replace: "    return undefined;",
    caughtBy: {
      file: SQLITE,
      test: "a transaction that fails leaves its tokens behind, and nothing else",
    },
  },
  {
    name: "a token in PostgreSQL that was drawn early is given late",
    guarantee: "G29",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: '!isDrawn || row["newest"] === "true"',
    replace: '!isDrawn || row["newest"] !== ""',
    caughtBy: {
      file: POSTGRES,
      test: "LG3 a token that was drawn early and put late is drawn again",
    },
  },
  {
    name: "connections to PostgreSQL keep tokens for themselves",
    guarantee: "G29",
    file: "src/toolkit/ledgers/postgres-schema.ts",
    find: "NO CYCLE CACHE 1`",
    replace: "NO CYCLE CACHE 20`",
    caughtBy: {
      file: TOKENS,
      test: "LG3 connections that take turns get greater ones each, also where the clock does not decide",
    },
  },
  {
    name: "tokens in PostgreSQL do not follow the clock",
    guarantee: "G29",
    file: "src/toolkit/ledgers/postgres-schema.ts",
    find: "IF drawn > clock - ${TOKEN_BEHIND_MAX} THEN RETURN drawn; END IF;",
    replace: "RETURN drawn;",
    caughtBy: {
      file: TOKENS,
      test: "LG3 a database whose sequence went back gives none again",
    },
  },
  {
    name: "a sequence in PostgreSQL that is behind the clock is taken as it is",
    guarantee: "G29",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: "CASE WHEN drawn > date_part(",
    replace: "CASE WHEN drawn > 0 * date_part(",
    caughtBy: {
      file: TOKENS,
      test: "LG3 a database whose sequence went back gives none again",
    },
  },
  {
    name: "a claim in SQLite is made beside what is done",
    guarantee: "G25",
    file: SQLITE_ENTRIES,
    find: "if (hasDone(session, place)) return false;",
    replace: 'if (hasDone(session, place) && place.kind === "") return false;',
    caughtBy: {
      file: DONE,
      test: "leaves no room for another entry, and none is made beside one that runs",
    },
  },
  {
    name: "what is done in SQLite is made beside another entry",
    guarantee: "G25",
    file: SQLITE_ENTRIES,
    find: "if (hasEntry(session, place)) return false;",
    replace: 'if (hasEntry(session, place) && place.kind === "") return false;',
    caughtBy: {
      file: DONE,
      test: "leaves no room for another entry, and none is made beside one that runs",
    },
  },
  {
    name: "the end of a lock in SQLite does not look at what its work has written",
    guarantee: "G25",
    file: SQLITE_ENTRIES,
    find: "if (!isUntouched || !isDoneAtOnce(write))",
    replace: "if (!isDoneAtOnce(write))",
    caughtBy: { file: DONE, test: "work that used its own key inside leaves neither" },
  },
  {
    name: "what is done in SQLite stays when it is written again",
    guarantee: "G25",
    file: SQLITE_DONE,
    find: "  removeDone(session, place, expected);\n",
    replace: "",
    caughtBy: { file: DONE, test: "moves when it is written again, once" },
  },
  {
    name: "a day in SQLite is swept before it is over",
    guarantee: "G25",
    file: SQLITE_DONE,
    find: "Number(day) * DAY_MS > systemClock.nowMs()",
    replace: "(Number(day) - 1) * DAY_MS > systemClock.nowMs()",
    caughtBy: {
      file: DONE,
      test: "LG8 goes by days, so many at once, and never before its retention is over",
    },
  },
  {
    name: "a day in SQLite is forgotten while it has entries",
    guarantee: "G25",
    file: SQLITE_DONE,
    find: "if (count < left) session.prepare(FORGET_DAY)",
    replace: "if (count <= left) session.prepare(FORGET_DAY)",
    caughtBy: {
      file: DONE,
      test: "LG8 goes by days, so many at once, and never before its retention is over",
    },
  },
  {
    name: "two at once set the sequence of tokens in PostgreSQL",
    guarantee: "G29",
    file: "src/toolkit/ledgers/postgres-schema.ts",
    find: "    PERFORM pg_advisory_xact_lock(71654370, tokens::oid::integer);\n    drawn := nextval(tokens);\n",
    replace: "    PERFORM pg_sleep(random() * 0.01);\n",
    caughtBy: {
      file: TOKENS,
      test: "LG3 one at a time sets the sequence to the clock",
    },
  },
  {
    name: "the lock of tokens in PostgreSQL lasts as long as the transaction",
    guarantee: "G29",
    file: "src/toolkit/ledgers/postgres-schema.ts",
    find: "    RAISE EXCEPTION USING ERRCODE = 'HPX01';",
    replace: "    RETURN drawn;",
    caughtBy: {
      file: TOKENS,
      test: "LG3 an open transaction that has set the sequence does not hold others up",
    },
  },
  {
    name: "tokens in SQLite do not follow the clock",
    guarantee: "G29",
    file: "src/toolkit/ledgers/sqlite-tokens.ts",
    find: "nextTokenAt(Math.max(last, tokens.max), now);",
    replace: "nextTokenAt(Math.max(last, tokens.max), 0 * now);",
    caughtBy: { file: TOKENS, test: "LG3 a restored database gives none again" },
  },
  {
    name: "a block of tokens in SQLite is kept though another has gone on",
    guarantee: "G29",
    file: "src/toolkit/ledgers/sqlite-tokens.ts",
    find: "return last === end && max + SPARE <= last;",
    replace: "return last >= end && end > 0 && max + SPARE <= last;",
    caughtBy: {
      file: TOKENS,
      test: "LG3 two who take turns give each token once, and stay at the clock",
    },
  },
  {
    name: "half of a block of tokens in SQLite is drawn one by one",
    guarantee: "G29",
    file: "src/toolkit/ledgers/sqlite-tokens.ts",
    find: "if (!reserves && last === tokens.end",
    replace: "if (last === tokens.end",
    caughtBy: { file: TOKENS, test: "LG3 a block that is nearly used up is replaced at once" },
  },
  {
    name: "what sleeps is in the order in which it was made",
    guarantee: "G29",
    file: "src/toolkit/ledgers/entry-statements.ts",
    find: 'due: "lease_until, token",',
    replace: 'due: "made_at, token",',
    caughtBy: {
      file: ALL,
      test: "SQLite with journal_mode delete > LG10 LG4 a scan by due time has the lease that ends first first, and leaves out what has none",
    },
  },
  {
    name: "leases in PostgreSQL begin with the transaction",
    guarantee: "G29",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: "after: (placeholder) => `clock_timestamp() +",
    replace: "after: (placeholder) => `now() +",
    caughtBy: {
      file: POSTGRES,
      test: "a lease that is taken late in a transaction begins late",
    },
  },
  {
    name: "what a transaction found in PostgreSQL is not locked",
    guarantee: "G25",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: 'lockRow: " FOR UPDATE",',
    replace: 'lockRow: "",',
    caughtBy: {
      file: ALL,
      test: "PostgreSQL > with pg > LG1 what was found in a transaction is not changed by others until its end",
    },
  },
  {
    name: "a failed transaction in PostgreSQL is reported as committed",
    guarantee: "G25",
    file: "src/toolkit/databases/postgres.ts",
    find: "`${last?.text(isKept) ?? CHECK_MARK}; COMMIT`",
    replace: "last === undefined ? 'COMMIT' : `${last.text(isKept)}; COMMIT`",
    caughtBy: {
      file: POSTGRES,
      test: "a transaction in which a statement failed is not told as committed",
    },
  },
];
