/** The contract of store.ts as cases that any test runner can run: vitest, bun test, workerd, yours. */

import { storeCases } from "./store-cases.ts";
import type { ConformanceCase, OpenStore } from "./store-case-kit.ts";
import { durableStoreCases } from "./store-durable-cases.ts";
import { fencingStoreCases } from "./store-fencing-cases.ts";
import { seekStoreCases } from "./store-seek-cases.ts";
import { groupStoreCases, trimStoreCases } from "./store-trim-cases.ts";

export type { ConformanceCase, OpenStore } from "./store-case-kit.ts";

/** Every case of the contract of a store. */
export const STORE_CASES: readonly ConformanceCase[] = [
  ...storeCases,
  ...trimStoreCases,
  ...durableStoreCases,
  ...groupStoreCases,
  ...seekStoreCases,
  ...fencingStoreCases,
];

/**
 * Returns the cases that apply to a store. Those about reopening need a durable one, those about failed
 * commits need a way to make one fail, those about takeovers a store that two processes can open.
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
  open: Pick<OpenStore, "isDurable" | "failNextCommit" | "takeOver">,
): readonly ConformanceCase[] {
  return STORE_CASES.filter(({ needs }) => {
    if (needs === "durability") return open.isDurable;
    if (needs === "takeover") return open.takeOver !== undefined;
    return needs === "nothing" || open.failNextCommit !== undefined;
  });
}
