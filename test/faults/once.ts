/** Faults of processOnce, the inbox, leases and versions: what would be done twice, lost, or done by those who may not. */

import type { Fault } from "./faults.ts";

const CLAIMING = "src/toolkit/once/claiming.ts";
const ATTEMPT = "src/toolkit/once/attempt.ts";
const ATTEMPT_END = "src/toolkit/once/attempt-end.ts";
const INBOX = "src/toolkit/once/inbox.ts";
const LEASE = "src/toolkit/once/lease.ts";
const LOST = "test/once/lost.test.ts";
const CLAIM_TEST = "src/toolkit/rules/claim.test.ts";
const OUTCOMES = "test/once/outcomes.test.ts";
const LOCKING = "test/once/locking.test.ts";
const HYBRID = "src/toolkit/rules/hybrid-clock.test.ts";

export const onceFaults: readonly Fault[] = [
  {
    name: "a claim that is held can be taken",
    guarantee: "G25",
    file: "src/toolkit/rules/claim.ts",
    find: `if (leaseLeftMs > 0) return { kind: "running", leaseLeftMs };`,
    replace: `if (leaseLeftMs > 1e9) return { kind: "running", leaseLeftMs };`,
    caughtBy: {
      file: CLAIM_TEST,
      test: "OC1 gives a held key to no other caller",
    },
  },
  {
    name: "work is recorded after its transaction",
    guarantee: "G25",
    file: ATTEMPT,
    find: `      await claim.complete(ledger.in(tx), "done", data);
      await failpoint("once.completed");
      ended = endedBy(claim, data);
    }, claim.signal);`,
    replace: `      ended = endedBy(claim, data);
    }, claim.signal);
    await claim.complete(ledger, "done", undefined);`,
    caughtBy: {
      file: LOST,
      test: "CK3 has no effect and leaves no record, whenever its work ends",
    },
  },
  {
    name: "the end of a lock counts though another has made the entry",
    guarantee: "G25",
    file: "src/toolkit/once/locking.ts",
    find: "!== undefined) return end;",
    replace: '!== undefined || place.key !== "") return end;',
    caughtBy: {
      file: LOCKING,
      test: "lets the first entry decide: the other work is undone, and gets its result",
    },
  },
  {
    name: "an end that fails behind the own entry of its claim is not thrown",
    guarantee: "G25",
    file: CLAIMING,
    find: "    const isMaking = !this.#isWritten;\n",
    replace: "    const isMaking = !this.#isWritten;\n    this.isLate = isMaking;\n",
    caughtBy: {
      file: "test/once/taken.test.ts",
      test: "an end that fails behind the own entry of its claim is thrown, and frees the key",
    },
  },
  {
    name: "work that reset its transaction counts as overtaken",
    guarantee: "G25",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: "      throw splitTransaction();",
    replace: "      return;",
    caughtBy: {
      file: "test/ledgers/postgres-lent.test.ts",
      test: "on PostgreSQL > with pg > work that resets the settings of its transaction runs once, and gets the error that says why",
    },
  },
  {
    name: "work that uses its own key is repeated",
    guarantee: "G25",
    file: ATTEMPT,
    find: "if ((await ledger.entries.find(job.place)) === undefined)",
    replace: "if ((await ledger.entries.find(job.place)) === undefined && job.waitMs < 0)",
    caughtBy: {
      file: "test/once/databases.test.ts",
      test: "on SQLite > work that uses its own key in its transaction is refused, and runs once",
    },
  },
  {
    name: "a call that others are always before begins again without end",
    guarantee: "G25",
    file: ATTEMPT,
    find: "taken < TAKEN_MAX;",
    replace: "taken < TAKEN_MAX * 1_000;",
    caughtBy: {
      file: "test/once/taken.test.ts",
      test: "a call that others are always before ends with in_progress, after a bounded number of attempts",
    },
  },
  {
    name: "a lock whose work awaits is not watched",
    guarantee: "G25",
    file: ATTEMPT,
    find: "    claim.start();\n    return encodedLater(result, onThrown);",
    replace: "    return encodedLater(result, onThrown);",
    caughtBy: {
      file: "test/once/bounds.test.ts",
      test: "CK5 is given up, and its key is free at once",
    },
  },
  {
    name: "the end of a lock in PostgreSQL counts though another has made the entry",
    guarantee: "G25",
    file: "src/toolkit/ledgers/entry-statements.ts",
    find: 'return insertStatement(dialect, place, write, "refused");',
    replace: 'return insertStatement(dialect, place, write, "skipped");',
    caughtBy: {
      file: LOCKING,
      test: "an entry that another has made meanwhile decides: the work is undone",
    },
  },
  {
    name: "the end of a lock in PostgreSQL does not look for the mark",
    guarantee: "G25",
    file: "src/toolkit/ledgers/postgres-locks.ts",
    find: "endingRevision: IF_MARKED,",
    replace: 'endingRevision: "1",',
    caughtBy: {
      file: LOCKING,
      test: "a connection that is used often keeps the statements of its locks prepared, and they do the same",
    },
  },
  {
    name: "a pool that forgets prepared statements is given them again",
    guarantee: "G25",
    file: "src/toolkit/databases/postgres-keeping.ts",
    find: "if (isForgotten) this.#isOff = true;",
    replace: "if (isForgotten) this.#isOff = false;",
    caughtBy: {
      file: LOCKING,
      test: "a pool that forgets prepared statements, as poolers do, refuses one transaction before its work, and no call: batches",
    },
  },
  {
    name: "a plan is kept though its table has grown",
    guarantee: "G25",
    file: "src/toolkit/databases/postgres-keeping.ts",
    find: "nowMs - known.sinceMs >= KEEP_MS",
    replace: "nowMs - known.sinceMs >= 1e9 * KEEP_MS",
    caughtBy: {
      file: "src/toolkit/databases/postgres-keeping.test.ts",
      test: "plans are made again after ten seconds, and only if the connection is still used often",
    },
  },
  {
    name: "a text that is sent with BEGIN has its backslashes as they are",
    guarantee: "G25",
    file: "src/toolkit/databases/quoting.ts",
    find: 'value.includes("\\\\") ?',
    replace: 'value.includes("\\\\\\\\\\\\") ?',
    caughtBy: {
      file: LOCKING,
      test: "names and results stay as they are, with any characters and any size",
    },
  },
  {
    name: "work that lasts is never written down",
    guarantee: "G25",
    file: CLAIMING,
    find: "this.#isWritten ? this.#terms.leaseMs / 3 : UNWRITTEN_MS;",
    replace: "this.#isWritten ? this.#terms.leaseMs / 3 : UNWRITTEN_MS * 1e6;",
    caughtBy: {
      file: LOCKING,
      test: "a claim that is a lock > CK7 is written down if its work is not over soon, and is renewed from then on",
    },
  },
  {
    name: "a lock that stands still keeps its key without end",
    guarantee: "G25",
    file: "src/toolkit/once/locking.ts",
    find: "if (leaseLeftMs > 0) return",
    replace: "if (leaseLeftMs > -1e12) return",
    caughtBy: {
      file: LOCKING,
      test: "CK7 a lock that is older than any that works is taken over, and a younger one is not",
    },
  },
  {
    name: "a lock that another has is taken for a free one",
    guarantee: "G25",
    file: "src/toolkit/ledgers/postgres-entries.ts",
    find: "`pg_try_advisory_xact_lock(${lockIdOf(prefix, names)})`",
    replace: "`${lockIdOf(prefix, names)} IS NOT NULL`",
    caughtBy: {
      file: "test/ledgers.test.ts",
      test: "PostgreSQL > with pg > LG11 of two open transactions one locks a place, and the other does not wait for it",
    },
  },
  {
    name: "a commit of a lock that was undone counts as unknown",
    guarantee: "G25",
    file: ATTEMPT_END,
    find: "entry === undefined && claim.isLock;",
    replace: "entry === undefined && claim.token < 0;",
    caughtBy: {
      file: LOCKING,
      test: "a claim that is a lock > a commit without an answer counts if it was stored, and only then",
    },
  },
  {
    name: "work in a transaction commits its claim first",
    guarantee: "G25",
    file: "src/toolkit/once/options.ts",
    find: "options.claimsFirst ?? isCounted;",
    replace: "options.claimsFirst ?? !isCounted;",
    caughtBy: {
      file: LOCKING,
      test: "one commit on SQLite > processOnce and the inbox are one transaction with the work",
    },
  },
  {
    name: "a hybrid clock forgets what it has seen",
    guarantee: "G58",
    file: "src/toolkit/rules/hybrid-clock.ts",
    find: "  return isLater ? seen : own;",
    replace: "  return isLater && seen.ms < 0 ? seen : own;",
    caughtBy: {
      file: HYBRID,
      test: "G58 HC1 with clocks an hour apart that jump, a write that had seen another is never lost to it",
    },
  },
  {
    name: "a hybrid clock follows its wall clock back",
    guarantee: "G58",
    file: "src/toolkit/rules/hybrid-clock.ts",
    find: "  if (nowMs > ms) return { ms: nowMs, counter: 0 };",
    replace: "  if (nowMs !== ms) return { ms: nowMs, counter: 0 };",
    caughtBy: {
      file: HYBRID,
      test: "G58 HC1 with clocks an hour apart that jump, a write that had seen another is never lost to it",
    },
  },
  {
    name: "a stamp of a broken clock hides what is written after it",
    guarantee: "G58",
    file: "src/toolkit/once/set-if-newer.ts",
    find: "  if (problem !== undefined) check.problem(problem);",
    replace: "  if (problem === stamp) check.problem(problem);",
    caughtBy: {
      file: "src/toolkit/once/set-if-newer.test.ts",
      test: "G58 a stamp of a broken clock is refused, and does not hide what is written after it",
    },
  },
  {
    name: "an older write replaces a newer one",
    guarantee: "G58",
    file: "src/toolkit/once/set-if-newer.ts",
    find: 'if (kind !== "applied") return { kind, stamp: present ?? stamp };',
    replace: 'if (kind === "duplicate") return { kind, stamp: present ?? stamp };',
    caughtBy: {
      file: "src/toolkit/once/set-if-newer.test.ts",
      test: "of many at once the newest stays, in every order",
    },
  },
  {
    name: "a lost claim is completed without a word",
    guarantee: "G25",
    file: CLAIMING,
    find: "    if (written !== undefined) return;\n",
    replace: "    if (written !== undefined || this.token > 0) return;\n",
    caughtBy: {
      file: "src/toolkit/once/claiming.test.ts",
      test: "CK3 cannot be completed after it was taken, and its transaction is undone",
    },
  },
  {
    name: "a commit without an answer is reported as failed",
    guarantee: "G25",
    file: ATTEMPT_END,
    find: `if (entry?.token === claim.token && entry.state === "done") return ended;`,
    replace: `if (entry?.token === -1 && entry.state === "done") return ended;`,
    caughtBy: { file: LOST, test: "counts if it was stored" },
  },
  {
    name: "work elsewhere that threw counts as not done",
    guarantee: "G25",
    file: ATTEMPT_END,
    find: `return job.work.effect === "probed" ? claim.abandon() : claim.release();`,
    replace: `return job.waitMs < 0 ? claim.abandon() : claim.release();`,
    caughtBy: {
      file: OUTCOMES,
      test: "is asked for before it is repeated, and its result is kept",
    },
  },
  {
    name: "an old message is taken for new",
    guarantee: "G27",
    file: "src/toolkit/rules/inbox-window.ts",
    find: `if (ageMs >= retainMs) return { kind: "expired", headroom: 0 };`,
    replace: `if (ageMs >= retainMs * 1e9) return { kind: "expired", headroom: 0 };`,
    caughtBy: {
      file: "src/toolkit/once/inbox.test.ts",
      test: "refuses a message that is older than it remembers, and notes nothing of it",
    },
  },
  {
    name: "a message that was noted is handled again",
    guarantee: "G27",
    file: INBOX,
    find: `if (!isNew) return { isDuplicate: true };`,
    replace: `if (!isNew && ledger.isJoined) return { isDuplicate: true };`,
    caughtBy: {
      file: "src/toolkit/once/inbox.test.ts",
      test: "handles a message once, and reports it when it comes again",
    },
  },
  {
    name: "the token of a lease is not compared",
    guarantee: "G29",
    file: LEASE,
    find: `if (entry?.token !== token || entry.state !== "running") {`,
    replace: `if (entry?.state !== "running") {`,
    caughtBy: {
      file: "src/toolkit/once/lease.test.ts",
      test: "can be proved by any process that its holder gives the token to",
    },
  },
  {
    name: "a guarded transaction does not look at its lease",
    guarantee: "G29",
    file: LEASE,
    find: "      await fenced(this.#ledger.in(tx), this, this.token, { meter: this.#claim.meter });\n",
    replace: "",
    caughtBy: {
      file: "src/toolkit/once/lease.test.ts",
      test: "commits nothing after it was taken or given back",
    },
  },
  {
    name: "a repeated write is answered with a conflict",
    guarantee: "G30",
    file: "src/toolkit/rules/version.ts",
    find: "const writer = ids[version - made];",
    replace: "const writer = ids[version - made + 1];",
    caughtBy: {
      file: "src/toolkit/rules/version.test.ts",
      test: "is answered correctly in all histories of five writes",
    },
  },
  {
    name: "work elsewhere begins on a claim that is over",
    guarantee: "G25",
    file: "src/toolkit/once/attempt.ts",
    find: "    claim.requireHeld();",
    replace: '    claim.meter.add("claims_total", 0);',
    caughtBy: {
      file: "test/once/late.test.ts",
      test: "CK2 work is not begun on an answer of reconcile that came after the lease",
    },
  },
  {
    name: "a takeover that does not compare forgets the content of its key",
    guarantee: "G25",
    file: "src/toolkit/once/claiming.ts",
    find: 'isNew || terms.fingerprint !== undefined ? { value: terms.fingerprint } : "same"',
    replace: "{ value: terms.fingerprint }",
    caughtBy: {
      file: "src/toolkit/once/claiming.test.ts",
      test: "OC4 keeps its fingerprint when a caller without a fingerprint takes it over",
    },
  },
  {
    name: "a call that waits for its own transaction never ends",
    guarantee: "G25",
    file: "src/toolkit/databases/line.ts",
    find: "          reject(error);",
    replace: "          if (begun < 0) reject(error);",
    caughtBy: {
      file: "test/once/turns.test.ts",
      test: "a call that waits for the end of its own transaction is refused, and all others go on",
    },
  },
  {
    name: "the first caller gets a zero that its record does not have",
    guarantee: "G25",
    file: "src/base/exact-json.ts",
    find: "  return value === 0 ? 0 : value;",
    replace: "  return value;",
    caughtBy: {
      file: "src/base/exact-json.test.ts",
      test: "G25 a copy that is made without reading the text is what the text reads back as, and is another object",
    },
  },
  {
    name: "the end of a lock in SQLite is made though its day is not there",
    guarantee: "G25",
    file: "src/toolkit/ledgers/sqlite-done.ts",
    find: "(SELECT day FROM hapax_days WHERE day = ?))`;",
    replace: "?)`;",
    caughtBy: {
      file: "test/ledgers/sqlite-done.test.ts",
      test: "what is done at once, and kept for long > is made on a day that another process has swept meanwhile",
    },
  },
  {
    name: "the end of a lock is written though SQLite has ended its transaction",
    guarantee: "G25",
    file: "src/toolkit/ledgers/sqlite-entries.ts",
    find: "  session.requireOpen();\n  const made",
    replace: "  const made",
    caughtBy: {
      file: "test/ledgers/sqlite-work.test.ts",
      test: "G25 work whose transaction SQLite has ended is not done, and writes nothing more: at once",
    },
  },
  {
    name: "work goes on after SQLite has ended its transaction",
    guarantee: "G25",
    file: "src/toolkit/databases/sqlite-lending.ts",
    find: "    this.#session.requireOpen();\n",
    replace: "",
    caughtBy: {
      file: "test/ledgers/sqlite-work.test.ts",
      test: "G25 work whose transaction SQLite has ended is not done, and writes nothing more: after others",
    },
  },
  {
    name: "a statement that is kept has the values of an earlier work",
    guarantee: "G25",
    file: "src/toolkit/databases/sqlite-lending.ts",
    find: "if (kept?.holder !== this || isAsBefore(kept, args)) return undefined;",
    replace: "if (kept?.holder !== this || args.length < 99) return undefined;",
    caughtBy: {
      file: "test/ledgers/sqlite-work.test.ts",
      test: "G25 a statement of one work has no values of another",
    },
  },
];
