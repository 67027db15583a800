/**
 * Fences: of several who work on the same thing, also outside of the object, the newest counts. An older one is refused by the
 * transaction in which it would write.
 */

import { HapaxError } from "../../base/errors.ts";
import type { ObjectStorage } from "../ledgers/durable-object.ts";
import { nextTokenAt } from "../ledgers/tokens.ts";
import { Check } from "../once/check.ts";
import { type ObjectSql, objectRows } from "./context.ts";
import { type ObjectWork, requireSync, type Steps } from "./steps.ts";

/** A fence that was taken. Made by `ExactlyOnce.fence()`. */
export interface ObjectFence<Storage> {
  readonly name: string;
  /**
   * Greater than that of every earlier fence of the name. Pass it to the processes that work for the holder.
   */
  readonly token: number;
  /**
   * Runs the work in a transaction. If a newer fence of the name was taken, it throws `lease_lost` and writes
   * nothing.
   */
  run<T>(work: (work: ObjectWork<Storage>) => T): Promise<T>;
}

const TABLE = `CREATE TABLE IF NOT EXISTS hapax_fences (name TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID`;
const FIND = "SELECT token FROM hapax_fences WHERE name = ?";
const PUT = "INSERT OR REPLACE INTO hapax_fences (name, token) VALUES (?, ?)";

export function makeFenceTable(sql: ObjectSql): void {
  sql.exec(TABLE);
}

/** `token`: that of a fence which was taken before; undefined: takes a new one. */
export async function takeFence<Storage extends ObjectStorage>(
  sql: ObjectSql,
  steps: Steps<Storage>,
  nowMs: () => number,
  name: string,
  token: number | undefined,
): Promise<ObjectFence<Storage>> {
  const check = new Check();
  check.name("name", name);
  if (token !== undefined) check.whole("token", token, token, 1, Number.MAX_SAFE_INTEGER);
  check.end("invalid_request");
  const newest = (): number => Number(objectRows(sql, FIND, name)[0]?.["token"] ?? 0);
  const own =
    token ??
    (await steps.run(() => {
      // Not below the clock: also after the object was restored from a copy.
      const next = nextTokenAt(newest(), nowMs());
      sql.exec(PUT, name, next);
      return next;
    }));
  return {
    name,
    token: own,
    run: (work) =>
      steps.run((context) => {
        const current = newest();
        if (current === own) return requireSync(work(context));
        const facts = `name=${name} token=${own} newest=${current}`;
        throw new HapaxError("lease_lost", `a newer fence was taken; ${facts}`);
      }),
  };
}
