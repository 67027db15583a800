/** Cases of what is due: LG10, and the order of LG4. */

import { strict as assert } from "node:assert";
import type { EntryWrite } from "../toolkit/ledgers/ledger.ts";
import {
  ABSENT,
  asRead,
  CLAIM,
  DONE,
  found,
  freshScope,
  type LedgerCase,
  put,
} from "./ledger-cases-kit.ts";

export const ledgerDueCases: readonly LedgerCase[] = [
  {
    title:
      "LG10 LG4 a scan by due time has the lease that ends first first, and leaves out what has none",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const [kind, scope] = [`kind-${freshScope()}`, freshScope()];
      const writes: readonly (readonly [string, string, EntryWrite])[] = [
        ["d", scope, { ...CLAIM, leaseMs: 50_000 }],
        ["a", scope, { ...CLAIM, leaseMs: 0 }],
        ["e", scope, { ...CLAIM, leaseMs: 500_000 }],
        ["-", scope, { ...CLAIM, leaseMs: undefined }],
        ["-", `${scope}-done`, { ...DONE, token: "next" }],
        ["c", `${scope}-other`, { ...CLAIM, leaseMs: 20_000 }],
        ["b", scope, { ...CLAIM, leaseMs: 10_000 }],
      ];
      for (const [key, where, write] of writes) {
        await put(entries, { kind, scope: where, key }, ABSENT, write);
        await put(entries, { kind: `${kind}-other`, scope: where, key }, ABSENT, write);
      }
      const keys = async (filter: object): Promise<string> => {
        const all = await entries.scan({ kind, max: 10, order: "due", ...filter });
        return all.map(({ place }) => place.key).join("");
      };
      assert.equal(await keys({}), "abcde");
      assert.equal(await keys({ state: "running" }), "abcde");
      assert.equal(await keys({ state: "running", max: 2 }), "ab");
      assert.equal(await keys({ state: "running", scope }), "abde");
      assert.equal(await keys({ state: "running", isAbandoned: true }), "a");
      assert.equal(await keys({ state: "done" }), "");
    },
  },
  {
    title: "LG10 LG4 the next due time is that of the first lease of the kinds that were asked for",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const kinds = ["one", "two'"].map((name) => `${name}-${freshScope()}`);
      const [one = "", two = ""] = kinds;
      assert.equal(await entries.nextDue(kinds), undefined);
      assert.equal(await entries.nextDue([]), undefined);
      const place = { kind: one, scope: "s", key: "late" };
      const late = await put(entries, place, ABSENT, { ...CLAIM, leaseMs: 500_000 });
      const none = { ...CLAIM, leaseMs: undefined };
      await put(entries, { ...place, key: "none" }, ABSENT, none);
      await put(entries, { kind: two, scope: "s", key: "soon" }, ABSENT, CLAIM);
      const between = async (asked: readonly string[], from: number, to: number): Promise<void> => {
        const dueMs = await entries.nextDue(asked);
        assert.ok(dueMs !== undefined && dueMs > from && dueMs <= to, `${dueMs}`);
      };
      await between(kinds, 30_000, 60_000);
      await between([one], 400_000, 500_000);
      await between([two, two, "no such kind"], 30_000, 60_000);
      const over = { ...CLAIM, leaseMs: 0 };
      const owned = { kind: "owned", token: late.token } as const;
      await put(entries, place, owned, { ...over, token: "same" });
      await between(kinds, -60_000, 0);
      // What has ended is not due.
      await put(entries, place, asRead(await found(entries, place)), DONE);
      await between(kinds, 30_000, 60_000);
      assert.equal(await entries.nextDue([one]), undefined);
    },
  },
  {
    title: "LG12 a recovery ends no claim of this life, however often it is called",
    needs: "recovery",
    run: async (target) => {
      const ledger = await target.open();
      const { entries } = ledger;
      const scope = freshScope();
      const made = await put(entries, { kind: "once", scope, key: "k" }, ABSENT, CLAIM);
      assert.equal(await ledger.recover?.(), 0);
      assert.equal(await ledger.recover?.(), 0);
      const entry = await found(entries, { kind: "once", scope, key: "k" });
      assert.deepEqual([entry.token, entry.revision], [made.token, made.revision]);
      assert.ok((entry.leaseLeftMs ?? 0) > 30_000);
    },
  },
];
