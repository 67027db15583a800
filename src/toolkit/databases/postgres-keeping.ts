/**
 * Statements that connections keep prepared, so that PostgreSQL parses and plans them seldom. They are made and used by texts of
 * SQL (PREPARE, EXECUTE), which can be sent together with BEGIN and COMMIT.
 *
 *   - a connection that is used often gets them. For one that is used now and then they would cost more than they save;
 *   - they are made again after ten seconds: a plan is made for the size that a table has at that moment, and a table that
 *     was small then may have grown;
 *   - a pool whose connections forget them gets no more of them: behind a pooler of transactions the same connection of the client is
 *     each time another one of the database. The first transaction that finds that out begins again, before its work.
 */

/** How long a plan is kept: a busy program adds some ten thousand rows meanwhile, which can be read in a few milliseconds. */
const KEEP_MS = 10_000;
/** From which use of a connection on, within that time, statements are prepared. */
const USES_MIN = 3;
/** SQLSTATE invalid_sql_statement_name and duplicate_prepared_statement. */
const FORGOTTEN: ReadonlySet<unknown> = new Set(["26000", "42P05"]);

/** A statement that can be kept. Its name needs no quotes; its `text` has `$1` and so on, of these types. */
export interface Keepable {
  readonly name: string;
  readonly types: readonly string[];
  readonly text: string;
}

interface Connection {
  sinceMs: number;
  uses: number;
  /** Whether it has the statements, of now or of an earlier time. */
  hasSome: boolean;
  isFresh: boolean;
  isBarred: boolean;
}

export class KeptStatements {
  readonly #connections = new WeakMap<object, Connection>();
  readonly statements: readonly Keepable[];
  readonly #prepare: string;
  readonly #drop: string;
  #isOff = false;

  /** The first statement must be the one that a transaction uses first: it is made last, so who has it has the others. */
  constructor(statements: readonly Keepable[]) {
    this.statements = statements;
    const names = statements.map(({ name }) => `DEALLOCATE ${name}; `);
    this.#drop = names.join("");
    this.#prepare = statements
      .toReversed()
      .map(({ name, types, text }) => `PREPARE ${name}(${types.join()}) AS ${text}; `)
      .join("");
  }

  /**
   * Counts a use of the connection. Returns what to send before the statements are executed, in the same text: mostly
   * nothing. Undefined: do not execute them, send them as they are.
   */
  before(connection: object, nowMs: number): string | undefined {
    if (this.#isOff) return undefined;
    let known = this.#connections.get(connection);
    if (known === undefined) {
      known = { sinceMs: nowMs, uses: 0, hasSome: false, isFresh: false, isBarred: false };
      this.#connections.set(connection, known);
    } else if (nowMs - known.sinceMs >= KEEP_MS) {
      known.sinceMs = nowMs;
      known.uses = 0;
      known.isFresh = false;
    }
    known.uses += 1;
    if (known.isBarred) return undefined;
    if (known.isFresh) return "";
    if (known.uses < USES_MIN) return undefined;
    const drop = known.hasSome ? this.#drop : "";
    known.hasSome = true;
    known.isFresh = true;
    return drop + this.#prepare;
  }

  /** Call when a connection has failed to prepare its statements: it is unknown which it has, so it gets no more of them. */
  bar(connection: object): void {
    const known = this.#connections.get(connection);
    if (known !== undefined) known.isBarred = true;
  }

  /** Returns whether the error says that a connection does not keep statements. Then none are kept any more. */
  areForgotten(error: unknown): boolean {
    const { code } = Object(error) as { readonly code?: unknown };
    const isForgotten = FORGOTTEN.has(code);
    if (isForgotten) this.#isOff = true;
    return isForgotten;
  }
}
