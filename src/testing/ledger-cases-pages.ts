/** Cases of reading entries page by page: LG13. */

import { strict as assert } from "node:assert";
import type { Entries, EntryWrite, PageFilter, PlacedEntry } from "../toolkit/ledgers/ledger.ts";
import {
  ABSENT,
  CLAIM,
  dataText,
  DONE,
  freshScope,
  type LedgerCase,
  put,
  withData,
} from "./ledger-cases-kit.ts";

/** More than any ledger needs for the entries of a case. */
const PAGES_MAX = 200;

type Sought = { readonly kind: string } & (
  | { readonly scope?: string }
  | { readonly state: "running" | "released" | "failed" }
);

/** Returns what all pages have, one after the other. */
async function allOf(
  entries: Entries,
  sought: Sought,
  max: number,
  isBare = false,
): Promise<readonly PlacedEntry[]> {
  const found: PlacedEntry[] = [];
  let from: string | undefined;
  for (let pages = 0; pages < PAGES_MAX; pages += 1) {
    const filter: PageFilter = { ...sought, from, max, isBare };
    const page = await entries.page(filter);
    assert.ok(page.entries.length <= max, "a page has more than its most");
    found.push(...page.entries);
    from = page.next;
    if (from === undefined) return found;
  }
  assert.fail("the pages do not end");
}

/** With characters that databases order in different ways, quote, or search for. */
const KEYS = ["a", "A", "é", "%", "_", "'", '"', "\\", " ", "\u{1F600}", "\uFFFD", "z"];

export const ledgerPageCases: readonly LedgerCase[] = [
  {
    title: "LG13 pages of any size have every entry of a kind or a scope once, with any characters",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const [kind, one] = [`kind-${freshScope()}`, freshScope()];
      const scopes = [one, `${one}-é`, `${one}'`];
      const write = withData({ ...DONE, token: "next", fingerprint: { value: "f" } }, "kept");
      for (const scope of scopes)
        for (const key of KEYS) {
          await put(entries, { kind, scope, key }, ABSENT, write);
          await put(entries, { kind: `${kind}-other`, scope, key }, ABSENT, write);
        }
      const names = (found: readonly PlacedEntry[]): readonly string[] =>
        found.map(({ place }) => JSON.stringify([place.kind, place.scope, place.key])).toSorted();
      const named = (all: readonly string[]): readonly string[] =>
        all.flatMap((scope) => KEYS.map((key) => JSON.stringify([kind, scope, key]))).toSorted();
      for (const max of [1, 5, 36, 100]) {
        assert.deepEqual(names(await allOf(entries, { kind }, max)), named(scopes));
        assert.deepEqual(names(await allOf(entries, { kind, scope: one }, max)), named([one]));
      }
      assert.deepEqual(await allOf(entries, { kind, scope: `${one}-none` }, 5), []);
      const [whole] = await allOf(entries, { kind }, 5);
      assert.equal(dataText(whole), "kept");
      const [bare] = await allOf(entries, { kind }, 5, true);
      assert.deepEqual(
        { ...bare, ageMs: 0, keepLeftMs: 0 },
        { ...whole, data: undefined, ageMs: 0, keepLeftMs: 0 },
      );
    },
  },
  {
    title: "LG13 pages of a state have every entry in it once, also those of one moment",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const [kind, scope] = [`kind-${freshScope()}`, freshScope()];
      const states = ["running", "released", "failed", "done"] as const;
      const writes = states.map((state): EntryWrite =>
        state === "running"
          ? CLAIM
          : { ...DONE, state, token: "next", fingerprint: { value: undefined } },
      );
      // Together, so that some are made in the same moment.
      await Promise.all(
        writes.flatMap((write) =>
          Array.from({ length: 9 }, (_, key) =>
            put(entries, { kind, scope, key: `${write.state} ${key}` }, ABSENT, write),
          ),
        ),
      );
      for (const state of ["running", "released", "failed"] as const)
        for (const max of [1, 4, 9, 50]) {
          const found = await allOf(entries, { kind, state }, max);
          assert.deepEqual(
            found.map(({ place }) => place.key).toSorted(),
            Array.from({ length: 9 }, (_, key) => `${state} ${key}`),
          );
          assert.ok(found.every((entry) => entry.state === state));
        }
    },
  },
];
