/** Faults of connections that are lent: what would be lost, done twice, or written into another transaction. */

import type { Fault } from "./faults.ts";

const LENDING = "src/toolkit/databases/lending.ts";
const SQLITE = "src/toolkit/databases/sqlite.ts";
const SQLITE_LENDING = "src/toolkit/databases/sqlite-lending.ts";
const WIRE = "src/toolkit/databases/postgres-wire.ts";
const WIRE_TEST = "src/toolkit/databases/postgres-wire.test.ts";
const BOUNDS = "test/once/bounds.test.ts";
const LENT = "test/ledgers/postgres-lent.test.ts";
const OWN = "test/ledgers/sqlite-own.test.ts";
const DONE = "test/ledgers/sqlite-done.test.ts";
const LOCKING = "test/once/locking.test.ts";
const FORGETFUL =
  "a pool that forgets prepared statements, as poolers do, refuses one transaction before its work, and no call";

export const connectionFaults: readonly Fault[] = [
  {
    name: "others write into a transaction unnoticed",
    guarantee: "G25",
    file: SQLITE_LENDING,
    find: "else this.isShared = true;",
    replace: "else this.#seen = total;",
    caughtBy: {
      file: OWN,
      test: "with which others write is not used again, and what succeeded is kept",
    },
  },
  {
    name: "the end of work does not look for what others have written",
    guarantee: "G25",
    file: "src/toolkit/ledgers/sqlite-done.ts",
    find: "day = ? AND total_changes() = ?",
    replace: "day = ? AND total_changes() >= ?",
    caughtBy: { file: DONE, test: "by others is found at its end" },
  },
  {
    name: "a statement that changes nothing answers for an earlier one",
    guarantee: "G25",
    file: SQLITE_LENDING,
    find: "!changesMore && kept.of(target) !== undefined;",
    replace: "!changesMore && kept !== undefined;",
    caughtBy: { file: DONE, test: "is not guessed from a statement that changes nothing" },
  },
  {
    name: "the writes of triggers are taken for those of others",
    guarantee: "G25",
    file: SQLITE_LENDING,
    find: "WHERE type = 'trigger' OR",
    replace: "WHERE type = 'none' OR",
    caughtBy: { file: DONE, test: "is the work's own, with triggers" },
  },
  {
    name: "a kept statement answers as an earlier work has set it",
    guarantee: "G25",
    file: SQLITE_LENDING,
    find: '    if (name !== "run") this.changed(target);\n',
    replace: "",
    caughtBy: { file: DONE, test: "are not kept once a work has set how they answer" },
  },
  {
    name: "a kept statement is lent twice at once",
    guarantee: "G25",
    file: SQLITE_LENDING,
    find: "return kept === undefined || kept.holder !== undefined ? undefined",
    replace: "return kept === undefined ? undefined",
    caughtBy: { file: DONE, test: "are kept, and each is lent to one work at a time" },
  },
  {
    name: "a client whose query was replaced gets batches",
    guarantee: "G25",
    file: WIRE,
    find: '  if (Object.hasOwn(client, "query")) return false;\n',
    replace: "",
    caughtBy: { file: LOCKING, test: `${FORGETFUL}: texts` },
  },
  {
    name: "a batch is written over one that the socket has not sent yet",
    guarantee: "G25",
    file: WIRE,
    find: "if (this.#bytes === free) free = free.subarray(this.#end);",
    replace: "if (this.#bytes !== free) free = free.subarray(this.#end);",
    caughtBy: {
      file: WIRE_TEST,
      test: "what was sent is not written to by later batches, also if the socket sends it later",
    },
  },
  {
    name: "a short text in a batch loses what is not ASCII",
    guarantee: "G25",
    file: WIRE,
    find: "if (code > 127) return false;",
    replace: "if (code > 1e9) return false;",
    caughtBy: {
      file: WIRE_TEST,
      test: "a batch has all its values as they were given, of every kind and size",
    },
  },
  {
    name: "a connection has two owners",
    guarantee: "G25",
    file: SQLITE,
    find: "  owned.add(connection);",
    replace: "  owned.delete(connection);",
    caughtBy: {
      file: OWN,
      test: "has one owner: a second ledger is refused until the first has closed it",
    },
  },
  {
    name: "the client waits for a writer inside a call",
    guarantee: "G25",
    file: SQLITE,
    find: "PRAGMA busy_timeout = 0",
    replace: "PRAGMA busy_timeout = 50",
    caughtBy: {
      file: OWN,
      test: "never stops the process to wait, and a database that stays busy is given up in time",
    },
  },
  {
    name: "a transaction outlives its work",
    guarantee: "G25",
    file: LENDING,
    find: "    this.#isOver = true;",
    replace: "    this.#isOver = false;",
    caughtBy: {
      file: OWN,
      test: "refuses every write after the end, and so does all that it handed out",
    },
  },
  {
    name: "the work ends the transaction that it was given",
    guarantee: "G25",
    file: LENDING,
    find: "if (!CONTROL.test(statement) && !(mayEnd && END.test(statement))) continue;",
    replace: "if (!CONTROL.test(statement) || !(mayEnd && END.test(statement))) continue;",
    caughtBy: {
      file: OWN,
      test: "work that ends the transaction itself fails, and leaves nothing",
    },
  },
  {
    name: "claims run out in a line",
    guarantee: "G25",
    file: "src/toolkit/once/claiming.ts",
    find: `terms.effect === "transaction") this.#pauses = 1;`,
    replace: `terms.effect === "transaction") this.#pauses = 0;`,
    caughtBy: { file: OWN, test: "CK4 loses no claim, however long it is" },
  },
  {
    name: "a split transaction is reported as done",
    guarantee: "G25",
    file: "src/toolkit/databases/postgres-lending.ts",
    find: "CASE WHEN ${HAS_MARK} THEN '1'",
    replace: "CASE WHEN ${HAS_MARK} OR true THEN '1'",
    caughtBy: {
      file: LENT,
      test: "on PostgreSQL > with pg > a transaction that its work has ended rejects with invalid_request",
    },
  },
  {
    name: "a file with a COMMIT is sent in the transaction of the work",
    guarantee: "G25",
    file: "src/toolkit/databases/postgres-lending.ts",
    find: '      if (name === "file")\n',
    replace: '      if (name === "file" && args.length === 0)\n',
    caughtBy: {
      file: LENT,
      test: "on PostgreSQL > a file of postgres is refused: the client would read a COMMIT in it unseen",
    },
  },
  {
    name: "the end of a claim is written into another transaction",
    guarantee: "G25",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: 'guard: isMarked ? ` AND ${HAS_MARK}` : "",',
    replace: 'guard: isMarked ? ` AND (${HAS_MARK} OR true)` : "",',
    caughtBy: {
      file: LENT,
      test: "on PostgreSQL > with pg > a COMMIT behind the ledger's back is found out, and the work does not count as done",
    },
  },
  {
    name: "a lost lease keeps its connection",
    guarantee: "G25",
    file: LENDING,
    find: "const stopListening = onStop(over, end);",
    replace: "const stopListening = onStop(new AbortController(), end);",
    caughtBy: {
      file: LENT,
      test: "on PostgreSQL > with pg > a lost lease ends the transaction at once, even if its work hangs",
    },
  },
  {
    name: "work that never ends keeps its key",
    guarantee: "G25",
    file: "src/toolkit/once/claiming.ts",
    find: "if (this.#endMs === Infinity) return;",
    replace: "if (this.#endMs > 0) return;",
    caughtBy: { file: BOUNDS, test: "CK5 is given up, and its key is free at once" },
  },
  {
    name: "a lock that lasts is not watched",
    guarantee: "G25",
    file: "src/toolkit/once/claiming.ts",
    find: "if (!this.#isWritten) this.#watchAll();",
    replace: "if (this.#isWritten) this.#watchAll();",
    caughtBy: {
      file: "test/once/locking.test.ts",
      test: "CK7 that stands still is taken over, and its end is refused",
    },
  },
  {
    name: "a clock that is set back keeps a dead lease",
    guarantee: "G25",
    file: "src/toolkit/once/claiming.ts",
    find: "leaseLeftMs <= leaseMs + CLOCK_MS)",
    replace: "leaseLeftMs <= leaseMs + 1e12 * CLOCK_MS)",
    caughtBy: {
      file: BOUNDS,
      test: "CK6 frees the key of a dead process when its lease is over, on SQLite",
    },
  },
  {
    name: "a failure in COMMIT is not remembered",
    guarantee: "G25",
    file: "src/toolkit/once/attempt-end.ts",
    find: "if (isRefusal(error)) return",
    replace: "if (isRefusal(undefined ?? {})) return",
    caughtBy: {
      file: BOUNDS,
      test: "on PostgreSQL > a failure that COMMIT tells is remembered, as one that the work throws",
    },
  },
  {
    name: "migrate creates what is there",
    guarantee: "G25",
    file: "src/toolkit/ledgers/postgres.ts",
    find: `if (typeof found?.["name"] !== "string") await`,
    replace: `if (typeof found?.["name"] !== "number") await`,
    caughtBy: {
      file: BOUNDS,
      test: "on PostgreSQL > LG7 a role that may not create finds nothing to do",
    },
  },
  {
    name: "a locked entry is waited for without bound",
    guarantee: "G25",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: `joined === undefined ? set("lock_timeout", LOCK_MS) : "";`,
    replace: `joined === undefined ? set("lock_timeout", 0 * LOCK_MS) : "";`,
    caughtBy: {
      file: LENT,
      test: "on PostgreSQL > with pg > a holder that is cut off before its COMMIT delays other calls for a bounded time",
    },
  },
  {
    name: "what a statement hands out outlives the transaction",
    guarantee: "G25",
    file: SQLITE_LENDING,
    find: `new Set(["iterate", Symbol.iterator])`,
    replace: "new Set([Symbol.iterator])",
    caughtBy: {
      file: OWN,
      test: "rows that are written one by one are the work's own, and end with it",
    },
  },
  {
    name: "a phase that never ends keeps its transaction",
    guarantee: "G26",
    file: "src/toolkit/idempotency/phases.ts",
    find: "      }, signal);",
    replace: "      });",
    caughtBy: {
      file: "test/idempotency/databases.test.ts",
      test: "CK5 a phase that never ends is rolled back in time, and does not block the database",
    },
  },
  {
    name: "a request without a key keeps its transaction",
    guarantee: "G26",
    file: "src/toolkit/idempotency/engine.ts",
    find: "      signal: overtime.signal,",
    replace: "      signal: new AbortController().signal,",
    caughtBy: {
      file: "test/idempotency/databases.test.ts",
      test: "CK5 a request without a key is rolled back in time too, and does not block the database",
    },
  },
];
