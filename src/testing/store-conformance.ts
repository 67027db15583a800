/** The contract of store.ts as cases that any test runner can run: vitest, bun test, workerd, yours. */

import { storeCases } from "./store-cases.ts";
import type { ConformanceCase, OpenStore } from "./store-case-kit.ts";
import { durableStoreCases } from "./store-durable-cases.ts";
import { groupStoreCases, trimStoreCases } from "./store-trim-cases.ts";

export type { ConformanceCase, OpenStore } from "./store-case-kit.ts";

/** Every case of the contract of a store. */
export const STORE_CASES: readonly ConformanceCase[] = [
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
 * import { storeConformance } from "hapax/testing";
 *
 * const open = {
 *   isDurable: false,
 *   open: async () => openMemoryStore(),
 *   abandon: async () => undefined,
 *   failNextCommit: undefined,
 * };
 * for (const { run } of storeConformance(open)) await run(open);
 * ```
 */
export function storeConformance(
  open: Pick<OpenStore, "isDurable" | "failNextCommit">,
): readonly ConformanceCase[] {
  return STORE_CASES.filter(({ needs }) => {
    if (needs === "durability") return open.isDurable;
    return needs === "nothing" || open.failNextCommit !== undefined;
  });
}
