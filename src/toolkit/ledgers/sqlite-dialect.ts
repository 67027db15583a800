/** How a ledger says things to SQLite. */

import type { Dialect } from "./entry-statements.ts";
import { SQLITE_NOW } from "./sqlite-schema.ts";

/** `now`: the clock, in milliseconds since 1970. A writer has the whole database: rows are not locked. */
export function sqliteDialect(entries: string, now = SQLITE_NOW): Dialect {
  return {
    entries,
    placeholder: () => "?",
    after: (placeholder) => `(${now} + ${placeholder})`,
    now,
    soughtNow: now,
    momentText: "CAST(made_at AS TEXT)",
    momentOf: (placeholder) => `CAST(${placeholder} AS INTEGER)`,
    between: (from, to) => `(${to} - ${from})`,
    // libsql ends the process over a list of rows with bytes that are empty.
    data: "NULLIF(data, x'') AS bytes, data = x'' AS isempty",
    // Tokens are drawn before they are written.
    nextToken: "NULL",
    tryLock: () => "true",
    ofLock: "",
    ofDrawn: "",
    // To answer rows takes as long as to write them.
    ofGiven: "",
    lockRow: "",
    lockFree: "",
    guard: "",
    writing: "",
    ending: "",
    endingIf: "",
    endingRevision: "1",
    textsOf: (placeholder) => `json_each(${placeholder})`,
    isChosen: (from) => `(kind, scope, key) IN (SELECT kind, scope, key ${from})`,
  };
}
