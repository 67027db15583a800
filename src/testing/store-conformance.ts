/** The contract of store.ts as cases that any test runner can run: vitest, bun test, workerd, yours. */

import { storeCases } from "./store-cases.ts";
import type { ConformanceCase, OpenStore } from "./store-case-kit.ts";
import { durableStoreCases } from "./store-durable-cases.ts";
import { groupStoreCases, trimStoreCases } from "./store-trim-cases.ts";

export type { ConformanceCase, OpenStore } from "./store-case-kit.ts";

/**
 * Every case of the contract, S1 to S9. Use `storeConformanceFor` to leave out the cases that your store cannot run.
 */
export const storeConformance: readonly ConformanceCase[] = [
  ...storeCases,
  ...trimStoreCases,
  ...durableStoreCases,
  ...groupStoreCases,
];

/**
 * Returns the cases that apply to a store. Those about reopening need a durable one, those about failed
 * commits need a way to make one fail.
 *
 * ```ts
 * import { openMemoryStore } from "hapax/stores/memory";
 * import { storeConformanceFor } from "hapax/testing";
 *
 * const open = {
 *   isDurable: false,
 *   open: async () => openMemoryStore(),
 *   abandon: async () => undefined,
 *   failNextCommit: undefined,
 * };
 * for (const { run } of storeConformanceFor(open)) await run(open);
 * ```
 */
export function storeConformanceFor(
  open: Pick<OpenStore, "isDurable" | "failNextCommit">,
): readonly ConformanceCase[] {
  return storeConformance.filter(({ needs }) => {
    if (needs === "durability") return open.isDurable;
    return needs === "nothing" || open.failNextCommit !== undefined;
  });
}
