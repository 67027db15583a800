/** The contract of ledger.ts as cases that any test runner can run. */

import type { LedgerCase } from "./ledger-cases-kit.ts";
import { ledgerTimeCases } from "./ledger-cases-times.ts";
import { ledgerTransactionCases } from "./ledger-cases-transactions.ts";
import { ledgerWriteCases } from "./ledger-cases-writes.ts";

export type { LedgerCase, LedgerTarget } from "./ledger-cases-kit.ts";

/**
 * Every case of the contract of a ledger. Run them one after the other. They need no cleanup between them.
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
];
