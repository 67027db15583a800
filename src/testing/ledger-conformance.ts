/** The contract of ledger.ts as cases that any test runner can run. */

import type { Ledger } from "../toolkit/ledgers/ledger.ts";
import { ledgerDueCases } from "./ledger-cases-due.ts";
import type { LedgerCase } from "./ledger-cases-kit.ts";
import { ledgerLockCases } from "./ledger-cases-locks.ts";
import { ledgerPageCases } from "./ledger-cases-pages.ts";
import { ledgerTimeCases } from "./ledger-cases-times.ts";
import { ledgerTransactionCases } from "./ledger-cases-transactions.ts";
import { ledgerWriteCases } from "./ledger-cases-writes.ts";

export type { LedgerCase, LedgerTarget } from "./ledger-cases-kit.ts";

/**
 * Every case of the contract of a ledger. Run them one after the other. They need no cleanup between them. A ledger
 * without transactions skips those that need them: ask `whySkipped`.
 *
 * ```ts
 * import { memoryLedger, type MemoryTransaction } from "hapax/ledgers/memory";
 * import { ledgerConformance } from "hapax/testing";
 *
 * const ledger = memoryLedger();
 * const effects: string[] = [];
 * for (const { run } of ledgerConformance)
 *   await run({
 *     open: async () => ledger,
 *     async write(tx: MemoryTransaction, text: string) {
 *       effects.push(text);
 *       tx.undo(() => effects.pop());
 *     },
 *     read: async () => effects,
 *   });
 * console.assert(ledgerConformance.length > 20);
 * ```
 */
export const ledgerConformance: readonly LedgerCase[] = [
  ...ledgerTransactionCases,
  ...ledgerWriteCases,
  ...ledgerTimeCases,
  ...ledgerDueCases,
  ...ledgerPageCases,
  ...ledgerLockCases,
];

/**
 * Returns why a case does not apply to a ledger, for the report of the test runner, or undefined if it applies.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { ledgerConformance, whySkipped } from "hapax/testing";
 *
 * const reasons = ledgerConformance.map((one) => whySkipped(one, memoryLedger()));
 * console.assert(reasons.every((reason) => reason === undefined)); // It can do everything.
 * ```
 */
export function whySkipped<Tx>(
  { needs }: Pick<LedgerCase, "needs">,
  ledger: Pick<Ledger<Tx>, "name" | "supports" | "entries" | "transactionSync" | "recover">,
): string | undefined {
  const isOffered = {
    nothing: true,
    transactions: ledger.supports.transactions,
    "synchronous transactions": ledger.transactionSync !== undefined,
    "locks in transactions": ledger.entries.lock !== undefined,
    recovery: ledger.recover !== undefined,
  }[needs];
  return isOffered ? undefined : `the ledger ${ledger.name} has no ${needs}`;
}
