/**
 * The statements of a ledger in SQL, and what their rows mean. Each is one statement that checks and writes at once
 * (LG2); the dialects differ in their clock, their tokens and their locks.
 *
 * Texts are few and always the same, so that clients can keep them prepared: what varies is bound.
 */

import { quotedText } from "../databases/quoting.ts";
import type { EntryState } from "../rules/claim.ts";
import type { Entry, EntryFilter, EntryWrite, Expected, Place, PlacedEntry } from "./ledger.ts";

/** What all clients take. */
export type SqlValue = string | number | null | Uint8Array;

export interface Statement {
  readonly text: string;
  readonly values: readonly SqlValue[];
}

/** A hundred years: who says "never" with a number gets as much as every database can add to its clock. */
export const DELAY_MS_MAX = 100 * 366 * 86_400_000;

/** In this order entries are made. */
const COLUMNS =
  "kind, scope, key, token, revision, state, attempts, lease_until, lease_ms, expires_at, made_at, fingerprint, data";

/** Where the databases differ. Times are theirs (LG4). */
export interface Dialect {
  /** The table of entries. */
  readonly entries: string;
  /** Of the value at this place, from 1. */
  readonly placeholder: (place: number) => string;
  /** The moment so many milliseconds from now; of NULL it is NULL. */
  readonly after: (placeholder: string) => string;
  readonly now: string;
  /** As `now`, in a form that an index can be searched for. */
  readonly soughtNow: string;
  /** `made_at` as text that has all of it, and such a text as a moment. */
  readonly momentText: string;
  readonly momentOf: (placeholder: string) => string;
  /** Milliseconds from one moment to another. */
  readonly between: (from: string, to: string) => string;
  /** `data` as columns: `bytes`, and `isempty` where a client cannot tell empty bytes from none. */
  readonly data: string;
  /** A token that was never given. Where the ledger draws it before it writes, there is none. */
  readonly nextToken: string;
  /** Locks a place until the end of the transaction; true if no other has it. */
  readonly tryLock: (kind: string, scope: string, key: string) => string;
  /** What `lockStatement` looks at first, as cases of its `drawn`. */
  readonly ofLock: string;
  /** Columns that a write with a new token answers beside token and revision, each after a comma. */
  readonly ofDrawn: string;
  /** What the statement answers that makes an entry with a given token; empty where the client counts what was written. */
  readonly ofGiven: string;
  /** Clauses that lock: a row in a transaction, and only those rows that no other transaction works on. */
  readonly lockRow: string;
  readonly lockFree: string;
  /** A condition of every change of what exists; empty: none. */
  readonly guard: string;
  /** Rows of one, of which a statement that writes is made: they set how long it waits, and how long others wait for it. */
  readonly writing: string;
  /** As `writing`, for the statement that ends a claim. */
  readonly ending: string;
  /** The condition for the entry that ends a lock; empty: none. It does what `ending` and `guard` do. */
  readonly endingIf: string;
  /** The revision of that entry, which is 1. It may fail in its place: a value costs less than a condition. */
  readonly endingRevision: string;
  /** The texts of a JSON array as rows of one column `value`. */
  readonly textsOf: (placeholder: string) => string;
  /** The condition for exactly those rows that a `FROM … WHERE …` has chosen. */
  readonly isChosen: (from: string) => string;
}

export type StatementRow = Readonly<Record<string, unknown>>;

/** One statement in the making: values are bound in the order in which the text names them. */
export class StatementDraft {
  readonly values: SqlValue[] = [];
  readonly #dialect: Dialect;

  constructor(dialect: Dialect) {
    this.#dialect = dialect;
  }

  bind(value: SqlValue | undefined): string {
    this.values.push(value ?? null);
    return this.#dialect.placeholder(this.values.length);
  }

  after(delayMs: number | undefined): string {
    return this.#dialect.after(this.bind(delayOf(delayMs)));
  }

  isAt({ kind, scope, key }: Place): string {
    return `kind = ${this.bind(kind)} AND scope = ${this.bind(scope)} AND key = ${this.bind(key)}`;
  }

  /**
   * LG2. The state of an owner is no condition of its own: that would invite the index of what is open, which has every
   * claim that was ever made until the database has cleaned it.
   */
  isAsExpected(expected: Exclude<Expected, { readonly kind: "absent" }>): string {
    const token = this.bind(expected.token);
    return expected.kind === "owned"
      ? `token = CASE WHEN state = 'running' THEN CAST(${token} AS BIGINT) END`
      : `token = ${token} AND revision = ${this.bind(expected.revision)}`;
  }

  end(text: string): Statement {
    return { text, values: this.values };
  }
}

const texts = new WeakMap<Dialect, Map<string, string>>();

/** Returns the text of the statement with this name, which `make` makes once: a long text takes as long as to run it. */
function textFor(dialect: Dialect, name: string, make: () => string): string {
  let known = texts.get(dialect);
  if (known === undefined) texts.set(dialect, (known = new Map<string, string>()));
  let text = known.get(name);
  if (text === undefined) known.set(name, (text = make()));
  return text;
}

/** LG1: `isLocked` in a transaction. */
export function findStatement(dialect: Dialect, place: Place, isLocked: boolean): Statement {
  const text = textFor(dialect, isLocked ? "find locked" : "find", () => {
    const where = new StatementDraft(dialect).isAt(place);
    const lock = isLocked ? dialect.lockRow : "";
    return `SELECT ${columnsOf(dialect)} FROM ${dialect.entries} WHERE ${where}${lock}`;
  });
  return { text, values: [place.kind, place.scope, place.key] };
}

/**
 * LG11: locks a place without an entry, and draws a token for it. Answers one row, whose `drawn` is 0 if there is an entry, null
 * if another transaction has the place, and negative if this one would not see what others commit. It reads no entry: most
 * keys are new, and a short statement is planned sooner.
 */
export function lockStatement(dialect: Dialect, place: Place): Statement {
  const text = textFor(dialect, "lock", () => {
    const { tryLock, entries, ofLock, nextToken, placeholder } = dialect;
    const isThere = `EXISTS (SELECT 1 FROM ${entries} WHERE ${new StatementDraft(dialect).isAt(place)})`;
    const isFree = tryLock(placeholder(1), placeholder(2), placeholder(3));
    return `SELECT CASE ${ofLock}WHEN ${isThere} THEN 0 WHEN ${isFree} THEN ${nextToken} END AS drawn`;
  });
  return { text, values: [place.kind, place.scope, place.key] };
}

/** Answers one row with token and revision, or none. An entry that is made with a given token answers what the dialect says. */
export function putStatement(
  dialect: Dialect,
  place: Place,
  expected: Expected,
  write: EntryWrite,
): Statement {
  return expected.kind === "absent"
    ? insertStatement(dialect, place, write)
    : updateStatement(dialect, place, expected, write);
}

// What is made anew has a new token, also if `same` was asked for: an entry that was deleted and made again must not
// look unchanged.
function insertStatement(
  dialect: Dialect,
  place: Place,
  write: EntryWrite,
  conflict: "skipped" | "refused" = "skipped",
): Statement {
  const { kind, scope, key } = place;
  const { token, state, attempts, leaseMs, keepMs, fingerprint, data } = write;
  const isDrawn = typeof token !== "string";
  const isEnd = isDrawn && state !== "running";
  const isSkipped = conflict === "skipped";
  const print = fingerprint === "same" ? undefined : fingerprint.value;
  // What most work leaves behind: to bind what is always the same takes a third of the statement.
  const isUsual =
    isEnd && kind === "once" && state === "done" && attempts === 1 && print === undefined;
  const fixed = isUsual ? { kind, state, attempts } : undefined;
  const name = `insert ${isUsual ? "usual" : isEnd ? "end" : isDrawn ? "drawn" : "next"} ${conflict}`;
  const drawn = isDrawn ? [token.drawn] : [];
  const bytes = data === "same" ? undefined : data.value;
  const keep = delayOf(keepMs);
  const values: readonly (SqlValue | undefined)[] = isUsual
    ? [scope, key, ...drawn, keep, bytes]
    : [
        ...[kind, scope, key, ...drawn, state, attempts],
        // What has ended has no lease.
        ...(isEnd ? [] : [delayOf(leaseMs), givenOf(leaseMs)]),
        ...[keep, print, bytes],
      ];
  return {
    text: textFor(dialect, name, () => insertText(dialect, isDrawn, isEnd, isSkipped, fixed)),
    values: values.map((value) => value ?? null),
  };
}

/** `fixed`: values that are in the text, and not bound. Such an entry has no fingerprint. */
function insertText(
  dialect: Dialect,
  isDrawn: boolean,
  isEnd: boolean,
  isSkipped: boolean,
  fixed: { readonly kind: string; readonly state: string; readonly attempts: number } | undefined,
): string {
  const { placeholder, nextToken, after, now } = dialect;
  let place = 0;
  const next = (): string => placeholder((place += 1));
  const kind = fixed === undefined ? next() : quotedText(fixed.kind);
  const token = [next(), next(), isDrawn ? next() : nextToken];
  const head = [kind, ...token, isEnd ? dialect.endingRevision : "1"];
  const state = fixed === undefined ? next() : quotedText(fixed.state);
  const attempts = fixed === undefined ? next() : String(fixed.attempts);
  const lease = isEnd ? ["NULL", "NULL"] : [after(next()), next()];
  const keep = after(next());
  const print = fixed === undefined ? next() : "NULL";
  const values = [...head, state, attempts, ...lease, keep, now, print, next()].join(", ");
  // What `lock` had locked ends with this entry: only in the transaction that locked it, which still has its mark.
  const where = isEnd ? dialect.endingIf : "";
  const from = isEnd ? "" : fromOf(dialect.writing);
  const rows =
    where === "" && from === ""
      ? `VALUES (${values})`
      : `SELECT ${values}${from}${where === "" ? "" : ` WHERE ${where}`}`;
  const skipping = isSkipped ? "\n  ON CONFLICT (kind, scope, key) DO NOTHING" : "";
  const answer = isDrawn ? dialect.ofGiven : ` RETURNING token, revision${dialect.ofDrawn}`;
  return `INSERT INTO ${dialect.entries}
  (kind, scope, key, token, revision, state, attempts, lease_until, lease_ms, expires_at, made_at, fingerprint, data)
  ${rows}${skipping}${answer}`;
}

/** As `putStatement` for the end of a lock, but fails if there is an entry. */
export function endStatement(dialect: Dialect, place: Place, write: EntryWrite): Statement {
  return insertStatement(dialect, place, write, "refused");
}

// Columns that stay are left out: large data is not written again at every renewal.
function updateStatement(
  dialect: Dialect,
  place: Place,
  expected: Exclude<Expected, { readonly kind: "absent" }>,
  { state, token, attempts, leaseMs, keepMs, fingerprint, data }: EntryWrite,
): Statement {
  const draft = new StatementDraft(dialect);
  const sets = [
    "revision = revision + 1",
    `state = ${draft.bind(state)}`,
    `attempts = ${draft.bind(attempts)}`,
    `lease_until = ${draft.after(leaseMs)}`,
    `lease_ms = ${draft.bind(givenOf(leaseMs))}`,
    `expires_at = ${draft.after(keepMs)}`,
    ...(token === "same"
      ? []
      : [`token = ${token === "next" ? dialect.nextToken : draft.bind(token.drawn)}`]),
    ...(fingerprint === "same" ? [] : [`fingerprint = ${draft.bind(fingerprint.value)}`]),
    ...(data === "same" ? [] : [`data = ${draft.bind(data.value)}`]),
  ];
  const where = `${draft.isAt(place)} AND ${draft.isAsExpected(expected)}${dialect.guard}`;
  const drawn = token === "next" ? dialect.ofDrawn : "";
  const isEnd = expected.kind === "owned" && state !== "running";
  const from = fromOf(isEnd ? dialect.ending : dialect.writing);
  return draft.end(`UPDATE ${dialect.entries} SET ${sets.join(", ")}${from} WHERE ${where}
  RETURNING token, revision${drawn}`);
}

/**
 * As an update, but makes the entry in another table: the caller deletes it from its own. An entry that the other table has at the
 * place is replaced.
 */
export function moveStatement(
  dialect: Dialect,
  to: string,
  place: Place,
  expected: Exclude<Expected, { readonly kind: "absent" }>,
  { state, token, attempts, leaseMs, keepMs, fingerprint, data }: EntryWrite,
): Statement {
  const draft = new StatementDraft(dialect);
  const values = [
    "kind, scope, key",
    typeof token === "string" ? "token" : draft.bind(token.drawn),
    `revision + 1, ${draft.bind(state)}, ${draft.bind(attempts)}`,
    draft.after(leaseMs),
    draft.bind(givenOf(leaseMs)),
    draft.after(keepMs),
    "made_at",
    fingerprint === "same" ? "fingerprint" : draft.bind(fingerprint.value),
    data === "same" ? "data" : draft.bind(data.value),
  ].join(", ");
  const where = `${draft.isAt(place)} AND ${draft.isAsExpected(expected)}`;
  return draft.end(`INSERT OR REPLACE INTO ${to} (${COLUMNS})
  SELECT ${values} FROM ${dialect.entries} WHERE ${where} RETURNING token, revision`);
}

function delayOf(delayMs: number | undefined): number | undefined {
  return delayMs === undefined ? undefined : Math.min(delayMs, DELAY_MS_MAX);
}

function givenOf(leaseMs: number | undefined): number | undefined {
  return leaseMs === undefined ? undefined : Math.ceil(Math.min(leaseMs, DELAY_MS_MAX));
}

function fromOf(rows: string): string {
  return rows === "" ? "" : ` FROM ${rows}`;
}

/** Gives an entry that has just got its token another one. It is no write of its own: the revision stays. */
export function redrawStatement(
  dialect: Dialect,
  place: Place,
  { token, revision }: { readonly token: number; readonly revision: number },
): Statement {
  const draft = new StatementDraft(dialect);
  const expected = { kind: "unchanged", token, revision } as const;
  const where = `${draft.isAt(place)} AND ${draft.isAsExpected(expected)}`;
  const set = `token = ${dialect.nextToken}`;
  return draft.end(`UPDATE ${dialect.entries} SET ${set} WHERE ${where} RETURNING token, revision`);
}

/** Answers one row, or none. */
export function removeStatement(
  dialect: Dialect,
  place: Place,
  expected: Exclude<Expected, { readonly kind: "absent" }>,
): Statement {
  const draft = new StatementDraft(dialect);
  const where = `${draft.isAt(place)} AND ${draft.isAsExpected(expected)}${dialect.guard}`;
  const using = dialect.writing === "" ? "" : ` USING ${dialect.writing}`;
  return draft.end(`DELETE FROM ${dialect.entries}${using} WHERE ${where} RETURNING token`);
}

export function scanStatement(dialect: Dialect, filter: EntryFilter): Statement {
  const draft = new StatementDraft(dialect);
  const { kind, scope, state, isAbandoned, order = "made", max } = filter;
  const where = [
    `kind = ${draft.bind(kind)}`,
    ...(scope === undefined ? [] : [`scope = ${draft.bind(scope)}`]),
    // As text of the statement, not bound: an index of some states serves only who names one.
    ...(state === undefined ? [] : [`state = '${STATES[state]}'`]),
    ...(isAbandoned === true ? [`lease_until <= ${dialect.soughtNow}`] : []),
    ...(order === "due" ? ["lease_until IS NOT NULL"] : []),
  ].join(" AND ");
  return draft.end(`SELECT kind, scope, key, ${columnsOf(dialect)} FROM ${dialect.entries}
  WHERE ${where} ORDER BY ${ORDERS[order]} LIMIT ${draft.bind(max)}`);
}

/** LG10: one search for each kind. Answers one row, whose `due` is null if there is none. */
export function nextDueStatement(dialect: Dialect, kinds: readonly string[]): Statement {
  const draft = new StatementDraft(dialect);
  const { entries, between, now, textsOf } = dialect;
  const first = `SELECT lease_until FROM ${entries} WHERE kind = asked.value AND state = 'running'
    AND lease_until IS NOT NULL ORDER BY lease_until LIMIT 1`;
  const asked = textsOf(draft.bind(JSON.stringify(kinds)));
  return draft.end(`SELECT ${between(now, "min(until)")} AS due
  FROM (SELECT (${first}) AS until FROM ${asked} AS asked) AS firsts`);
}

/** Deletes entries that are past their retention; answers one row for each that was deleted. */
export function sweepStatement(dialect: Dialect, max: number): Statement {
  const draft = new StatementDraft(dialect);
  const { soughtNow, lockFree } = dialect;
  const isFree = `state <> 'running' OR lease_until IS NULL OR lease_until <= ${soughtNow}`;
  const limit = draft.bind(max);
  const where = dialect.isChosen(
    `FROM ${dialect.entries} WHERE expires_at <= ${soughtNow} AND (${isFree})
    ORDER BY expires_at LIMIT ${limit}${lockFree}`,
  );
  return draft.end(`DELETE FROM ${dialect.entries} WHERE ${where} RETURNING token`);
}

export const ORDERS: Readonly<Record<NonNullable<EntryFilter["order"]>, string>> = {
  made: "made_at, token",
  due: "lease_until, token",
};

export const STATES: Readonly<Record<EntryState, EntryState>> = {
  running: "running",
  done: "done",
  failed: "failed",
  released: "released",
};

// One lower-case word each: clients may be set to write the names in another way.
export function columnsOf({ between, now, data }: Dialect): string {
  return `token, revision, state, attempts, fingerprint, ${data}, ${between(now, "lease_until")} AS lease, lease_ms AS given,
  ${between(now, "expires_at")} AS keep, ${between("made_at", now)} AS age`;
}

/** Token and revision of a row. */
export function writtenOf(row: StatementRow): {
  readonly token: number;
  readonly revision: number;
} {
  return { token: integerOf(row["token"]), revision: integerOf(row["revision"]) };
}

/** LG9: `bytesOf` as the client has them. */
export function entryOf(
  row: StatementRow,
  bytesOf: (value: unknown) => Uint8Array | undefined,
): Entry {
  return {
    ...writtenOf(row),
    state: stateOf(row["state"]),
    attempts: integerOf(row["attempts"]),
    leaseLeftMs: leftOf(row["lease"]),
    leaseMs: row["given"] === null ? undefined : integerOf(row["given"]),
    keepLeftMs: leftOf(row["keep"]),
    ageMs: leftOf(row["age"]) ?? 0,
    fingerprint: row["fingerprint"] === null ? undefined : textOf(row["fingerprint"]),
    data: Number(row["isempty"]) === 1 ? new Uint8Array(0) : bytesOf(row["bytes"]),
  };
}

export function placedOf(
  row: StatementRow,
  bytesOf: (value: unknown) => Uint8Array | undefined,
): PlacedEntry {
  const place = {
    kind: textOf(row["kind"]),
    scope: textOf(row["scope"]),
    key: textOf(row["key"]),
  };
  return { ...entryOf(row, bytesOf), place };
}

/** PostgreSQL's clients have large integers as text, unless the user has set them otherwise. */
export function integerOf(value: unknown): number {
  const integer = typeof value === "number" ? value : Number(textOf(value));
  if (!Number.isSafeInteger(integer)) throw new RangeError(`no safe integer: ${String(value)}`);
  return integer;
}

export function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "bigint") return value.toString();
  throw new TypeError(`a column with text has a ${typeof value}`);
}

function stateOf(value: unknown): EntryState {
  for (const state of Object.values(STATES)) if (state === value) return state;
  throw new TypeError(`no state of an entry: ${String(value)}`);
}

// Rounded up, so that what is left never becomes nothing before it is.
export function leftOf(value: unknown): number | undefined {
  if (value === null || value === undefined) return undefined;
  const leftMs = Number(value);
  if (Number.isNaN(leftMs)) throw new TypeError("a column with a time has none");
  return Math.ceil(leftMs);
}
