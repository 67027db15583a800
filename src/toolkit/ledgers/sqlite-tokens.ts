/**
 * The tokens of a ledger in SQLite (LG3). `hapax_tokens.last` is the end of what may have been given.
 *
 *   - a connection that draws many has a block of them: it moves `last` once for all. The block is its own while `last` is where
 *     this connection has committed it. Who finds another `last` begins behind it;
 *   - a block begins at the clock (tokens.ts), and none is taken while `last` is ahead of the clock. So tokens are ahead of the
 *     clock by one block at most, also if processes come and go;
 *   - a token that was given in a transaction and rolled back is not given again over the same connection, and if the
 *     transaction was the ledger's own, over no other either: it was of the block, or is kept when the rest is taken back.
 */

import type { Stopper } from "../../base/aborts.ts";
import type { SqliteConnection, SqliteSession } from "../databases/sqlite.ts";
import type { SqliteLoan } from "../databases/sqlite-lending.ts";
import { integerOf } from "./entry-statements.ts";
import { SQLITE_NOW } from "./sqlite-schema.ts";
import { nextTokenAt } from "./tokens.ts";

/** 10 ms of the clock: a restored database needs longer than that to give its first token. */
const BLOCK = 10_000;
/** So many are left of a block when a transaction begins to use it: more than most transactions draw. */
const SPARE = 5_000;

const STATE = `SELECT last, ${SQLITE_NOW} AS now FROM hapax_tokens WHERE id = 1`;
const RAISE = "UPDATE hapax_tokens SET last = ? WHERE id = 1 AND last < ?";

/** No block ends there. */
const NONE = -2;

interface Tokens {
  /** The greatest that was given over the connection. */
  max: number;
  /** The end of the connection's own block. */
  end: number;
  /** Of an open transaction of the ledger: its tokens are of the block. Undefined: none is open, or its `last` is not known. */
  isCovered: boolean | undefined;
  /** The end of a block that is not committed yet. */
  coming: number | undefined;
}

const tokensOf = new WeakMap<SqliteConnection, Tokens>();

function tokensAt({ connection }: SqliteSession<SqliteConnection>): Tokens {
  let tokens = tokensOf.get(connection);
  if (tokens === undefined) {
    tokens = { max: 0, end: -1, isCovered: undefined, coming: undefined };
    tokensOf.set(connection, tokens);
  }
  return tokens;
}

interface State {
  readonly last: number;
  readonly now: number;
}

function stateOf(session: SqliteSession<SqliteConnection>): State {
  const row = session.prepare(STATE).get() as Readonly<Record<string, unknown>> | undefined;
  if (row === undefined) throw new Error("LG3 hapax_tokens has no row");
  return { last: integerOf(row["last"]), now: integerOf(row["now"]) };
}

/** The last token of all; also before the tables are made. */
function lastOf(session: SqliteSession<SqliteConnection>): number {
  try {
    return stateOf(session).last;
  } catch {
    return NONE;
  }
}

/** Returns whether the block is still the connection's, and has enough left for a transaction. */
function hasSpare({ end, max }: Tokens, last: number): boolean {
  return last === end && max + SPARE <= last;
}

/** Returns whether a draw writes nothing. */
export function drawsFreely(session: SqliteSession<SqliteConnection>): boolean {
  return tokensAt(session).isCovered === true;
}

/** Gives a token that was never given. The caller has a transaction that writes. */
export function drawToken(session: SqliteSession<SqliteConnection>): number {
  const tokens = tokensAt(session);
  if (tokens.isCovered !== true || tokens.max >= tokens.end)
    return drawAnew(session, tokens, stateOf(session));
  tokens.max += 1;
  return tokens.max;
}

function drawAnew(
  session: SqliteSession<SqliteConnection>,
  tokens: Tokens,
  { last, now }: State,
): number {
  const next = nextTokenAt(Math.max(last, tokens.max), now);
  // Of a transaction of the caller it is not known whether it was committed.
  const mayReserve =
    tokens.isCovered === false && tokens.coming === undefined && next <= now * 1000;
  const reserves = mayReserve && !hasSpare(tokens, last);
  if (!reserves && last === tokens.end && tokens.max < last) {
    tokens.max += 1;
    return tokens.max;
  }
  // A transaction has used up its block: if it is rolled back, what it draws from here on is kept by the clock alone.
  if (tokens.isCovered === true) tokens.isCovered = undefined;
  tokens.max = next;
  if (reserves) tokens.coming = next + BLOCK;
  raise(session, Math.max(next, tokens.coming ?? 0));
  return next;
}

/** Runs a transaction of the ledger in which nothing but the ledger writes. */
export async function reserving<T>(
  session: SqliteSession<SqliteConnection>,
  work: () => T,
): Promise<T> {
  const tokens = tokensAt(session);
  return await session.transaction(() => {
    tokens.isCovered = false;
    return work();
  }, ending(tokens));
}

/**
 * Does the work of a transaction of its own. When it fails, all is taken back but the tokens that it gave: they may
 * be known outside. `begun` looks up the last token of all, and how many rows the connection has changed. `failed` says what an
 * error means.
 */
export function keepingTokens<T, Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  work: (loan: SqliteLoan<Connection>) => T | Promise<T>,
  over: Stopper | undefined,
  begun: () => Begun = () => ({ last: lastOf(session), total: undefined }),
  failed: (error: unknown) => T = rethrow,
): Promise<T> {
  const tokens = tokensAt(session);
  const kept: Kept = { failure: undefined };
  const ended = session.transaction(() => {
    const { last, total } = begun();
    tokens.isCovered = hasSpare(tokens, last);
    // What is of the block stays given when all is taken back.
    return tokens.isCovered
      ? session.lend(work, over, total)
      : workSaved(session, tokens, work, over, kept);
  }, ending(tokens));
  // What went wrong first is what the caller wants to know, also if the tokens could not be kept.
  return ended.then(
    (result) => (kept.failure === undefined ? (result as T) : failed(kept.failure.error)),
    (error: unknown) => failed(kept.failure === undefined ? error : kept.failure.error),
  );
}

function rethrow(error: unknown): never {
  throw error;
}

interface Begun {
  readonly last: number;
  readonly total: number | undefined;
}

/** What went wrong in a transaction that is committed all the same, for its tokens. */
interface Kept {
  failure: { readonly error: unknown } | undefined;
}

async function workSaved<T, Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  tokens: Tokens,
  work: (loan: SqliteLoan<Connection>) => T | Promise<T>,
  over: Stopper | undefined,
  kept: Kept,
): Promise<T | undefined> {
  const before = tokens.max;
  session.connection.exec("SAVEPOINT hapax_work");
  try {
    return await session.lend(work, over);
  } catch (error) {
    kept.failure = { error };
    if (tokens.max === before) throw error;
    session.connection.exec("ROLLBACK TO hapax_work");
    tokens.coming = undefined;
    raise(session, tokens.max);
    return undefined;
  }
}

/** A block is the connection's when the transaction that took it is committed. */
function ending(tokens: Tokens): (isCommitted: boolean) => void {
  return (isCommitted) => {
    if (isCommitted) tokens.end = tokens.coming ?? tokens.end;
    tokens.isCovered = undefined;
    tokens.coming = undefined;
  };
}

function raise(session: SqliteSession<SqliteConnection>, token: number): void {
  session.prepare(RAISE).run(token, token);
}
