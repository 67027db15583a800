/**
 * The tokens of a ledger in a Durable Object (LG3). `hapax_tokens.last` is the end of what may have been given.
 *
 *   - a block is reserved outside of every transaction: a rollback cannot take back what its work has told others;
 *   - a block begins behind the last one, and at the clock (tokens.ts): a life never knows what the life before has given of
 *     its own block, and a restored object begins above all that it had;
 *   - one row is written for a block, and so for each life that draws.
 */

import type { ObjectSession, ObjectStorage } from "../databases/durable-object.ts";
import { integerOf } from "./entry-statements.ts";
import { nextTokenAt } from "./tokens.ts";

/** One millisecond of the clock. */
const BLOCK = 1_000;
/** So many are left when a transaction begins: more than most transactions draw. */
const SPARE = 100;

const LAST = "SELECT last FROM hapax_tokens WHERE id = 1";
const RAISE = "UPDATE hapax_tokens SET last = ? WHERE id = 1 AND last < ?";

export class ObjectTokens {
  readonly #session: ObjectSession<ObjectStorage>;
  /** The greatest that was given, and the end of the block. */
  #max = 0;
  #end = 0;
  #first: number | undefined;

  constructor(session: ObjectSession<ObjectStorage>) {
    this.#session = session;
  }

  /** The first token of this life; undefined: it has given none. All claims below are of earlier lives. */
  get first(): number | undefined {
    return this.#first;
  }

  /** Reserves a block, unless enough is left of the last one. Call it outside of transactions. */
  reserve(nowMs: number): void {
    if (this.#end - this.#max < SPARE) this.#take(this.#last(), nowMs);
  }

  /** Gives a token that was never given. */
  draw(nowMs: number): number {
    if (this.#max >= this.#end) {
      // A transaction has used up its block. A rollback takes the next one back, so its end is kept then.
      this.#take(this.#last(), nowMs);
      this.#session.onUndo(() => {
        this.#session.rows(RAISE, this.#end, this.#end);
      });
    }
    this.#max += 1;
    return this.#max;
  }

  #last(): number {
    const [row] = this.#session.rows(LAST);
    if (row === undefined) throw new Error("LG3 hapax_tokens has no row");
    return integerOf(row["last"]);
  }

  #take(last: number, nowMs: number): void {
    const first = nextTokenAt(Math.max(last, this.#end), nowMs);
    const end = first + BLOCK - 1;
    this.#session.rows(RAISE, end, end);
    this.#max = first - 1;
    this.#end = end;
    this.#first ??= first;
  }
}
