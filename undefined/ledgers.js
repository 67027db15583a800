/** Faults of the ledgers: what would be claimed twice, seen too early, kept too short, or done by those who lost it. */
const ALL = "test/ledgers.test.ts";
const SQLITE = "test/ledgers/sqlite.test.ts";
const POSTGRES = "test/ledgers/postgres.test.ts";
export const ledgerFaults = [
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
    find: "joined === undefined ? session.read(work) : joined(work);",
    replace: "joined === undefined ? work() : joined(work);",
    caughtBy: {
      file: ALL,
      test: "SQLite with journal_mode delete > LG1 what a transaction wrote is seen outside only after its commit, even by its own ledger",
    },
  },
  {
    name: "tokens in SQLite go back with a transaction",
    guarantee: "G29",
    file: "src/toolkit/ledgers/sqlite-entries.ts",
    find: "        raise(session, given.max);\n        return failure;",
    replace: "        return failure;",
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
      file: ALL,
      test: "PostgreSQL > with pg > LG3 every token is greater than all before it, from any ledger and after any deletion",
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
    find: "`${CHECK_MARK}; COMMIT`",
    replace: "`COMMIT`",
    caughtBy: {
      file: POSTGRES,
      test: "a transaction in which a statement failed is not told as committed",
    },
  },
];
