/**
 * `hapax/ledgers/durable-object`: the ledger in the storage of a Durable Object, beside the object's own tables. Takes `ctx.storage`
 * of an object that keeps its data in SQLite.
 *
 *   - how it uses the storage is in toolkit/databases/durable-object.ts.
 */

import type { ObjectStorage } from "../databases/durable-object.ts";
import { type DurableObjectLedger, objectLedgerAt } from "./durable-object-ledger.ts";

export type { ObjectStorage } from "../databases/durable-object.ts";
export type { DurableObjectLedger, SyncEntries } from "./durable-object-ledger.ts";

/**
 * Creates a ledger in the storage of a Durable Object. Create it in the constructor of the object, and call `migrate` and
 * `recover` before the first event.
 *
 * Do not call the ledger inside `ctx.storage.transaction`, because the platform would make its writes a part of that
 * transaction. Use `ledger.transaction`. A transaction of the ledger may be open for 29 s. Do not await `fetch` in it: the
 * request leaves before the commit, and all other events of the object wait meanwhile.
 *
 * ```ts
 * import { GLOBAL, processOnce } from "hapax/ledger";
 * import { durableObjectLedger, type ObjectStorage } from "hapax/ledgers/durable-object";
 *
 * interface Context {
 *   readonly storage: ObjectStorage;
 *   blockConcurrencyWhile(work: () => Promise<void>): void;
 * }
 *
 * class Account {
 *   readonly ledger;
 *   constructor(ctx: Context) {
 *     this.ledger = durableObjectLedger(ctx.storage);
 *     ctx.blockConcurrencyWhile(async () => {
 *       await this.ledger.migrate();
 *       await this.ledger.recover(); // What an earlier life had begun can be claimed at once.
 *     });
 *   }
 *   book(id: string, cents: number) {
 *     return processOnce(this.ledger, { scope: GLOBAL, key: id }, ({ tx }) => {
 *       tx.sql.exec("UPDATE balance SET cents = cents + ?", cents); // `tx` is the storage, until the work ends.
 *     });
 *   }
 * }
 * console.assert(Account.name === "Account");
 * ```
 */
export function durableObjectLedger<Storage extends ObjectStorage>(
  storage: Storage,
): DurableObjectLedger<Storage> {
  return objectLedgerAt(storage, 0);
}
