/** The contract of outbox-log.ts as cases that any test runner can run. */

import type { OutboxCase } from "./outbox-case-kit.ts";
import { eventCases } from "./outbox-cases-events.ts";
import { cleanCases, heldCases, rowCases } from "./outbox-cases-held.ts";

export type { OutboxCase, OutboxTarget } from "./outbox-case-kit.ts";

/**
 * Every case of the contract of an outbox. Each case names the ways that it is for, and returns the reason if it does not
 * apply. They share one database and must run one after the other.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { outboxConformance } from "hapax/testing";
 *
 * const ledger = memoryLedger();
 * const skipped: string[] = [];
 * for (const { title, ways, run } of outboxConformance) {
 *   if (!ways.includes(ledger.outbox.way)) continue;
 *   const reason = await run({ open: () => Promise.resolve(ledger) });
 *   if (reason !== undefined) skipped.push(`${title}: ${reason}`);
 * }
 * console.assert(skipped.length < outboxConformance.length);
 * ```
 */
export const outboxConformance: readonly OutboxCase[] = [
  ...eventCases,
  ...rowCases,
  ...heldCases,
  ...cleanCases,
];
