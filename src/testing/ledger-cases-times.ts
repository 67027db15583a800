/** Cases of leases, retention, scans and migrations: LG4, LG7 and LG8. */

import { strict as assert } from "node:assert";
import type { EntryWrite, Ledger, Place } from "../toolkit/ledgers/ledger.ts";
import {
  ABSENT,
  asRead,
  CLAIM,
  DONE,
  found,
  freshPlace,
  freshScope,
  type LedgerCase,
  openMany,
  put,
  dataText,
  wait,
  withData,
} from "./ledger-cases-kit.ts";

/** A write whose retention ends at once. */
const OVER: EntryWrite = { ...CLAIM, state: "done", leaseMs: undefined, keepMs: 0 };

/** Sweeps first, because entries of other cases would be counted too. */
async function sweepAll<Tx>({ entries }: Ledger<Tx>): Promise<void> {
  while ((await entries.sweep(100)) > 0);
}

export const ledgerTimeCases: readonly LedgerCase[] = [
  {
    title: "LG4 leases and retention run by themselves, and begin anew with a write",
    needs: "nothing",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      const place = freshPlace();
      const { token } = await put(one.entries, place, ABSENT, { ...CLAIM, leaseMs: 30 });
      const early = await found(other.entries, place);
      assert.ok((early.leaseLeftMs ?? 99) <= 30 && (early.keepLeftMs ?? 0) <= 3_600_000);
      assert.ok(early.ageMs >= 0);
      await wait(40);
      const late = await found(other.entries, place);
      assert.ok((late.leaseLeftMs ?? 1) <= 0 && late.ageMs >= 30);
      assert.ok((late.keepLeftMs ?? 0) < (early.keepLeftMs ?? 0));
      const renewal = { ...CLAIM, token: "same", leaseMs: 60_000 } as const;
      await put(one.entries, place, { kind: "owned", token }, renewal);
      const renewed = await found(other.entries, place);
      assert.ok((renewed.leaseLeftMs ?? 0) > 50_000 && renewed.ageMs >= late.ageMs);
    },
  },
  {
    title: "LG4 what has no lease or no end of its retention has none",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const place = freshPlace();
      const forever = { ...CLAIM, leaseMs: undefined, keepMs: undefined };
      const made = await put(entries, place, ABSENT, forever);
      const entry = await found(entries, place);
      assert.deepEqual([entry.leaseLeftMs, entry.keepLeftMs], [undefined, undefined]);
      await put(entries, place, asRead(made), CLAIM);
      assert.ok((await found(entries, place)).leaseLeftMs !== undefined);
      const aeon = { ...CLAIM, keepMs: Number.MAX_SAFE_INTEGER };
      await put(
        entries,
        place,
        { kind: "owned", token: (await found(entries, place)).token },
        aeon,
      );
      assert.ok(((await found(entries, place)).keepLeftMs ?? 0) > 90 * 365 * 86_400_000);
    },
  },
  {
    title: "LG4 the clock goes on inside a transaction",
    needs: "transactions",
    run: async (target) => {
      const ledger = await target.open();
      const place = freshPlace();
      await ledger.transaction(async (tx) => {
        const { entries } = ledger.in(tx);
        const { token } = await put(entries, place, ABSENT, { ...CLAIM, leaseMs: 30 });
        await wait(40);
        assert.ok(((await found(entries, place)).leaseLeftMs ?? 1) <= 0);
        const renewal = { ...CLAIM, token: "same", leaseMs: 10_000 } as const;
        await put(entries, place, { kind: "owned", token }, renewal);
        // The lease counts from now, and not from the beginning of the transaction.
        const left = (await found(entries, place)).leaseLeftMs ?? 0;
        assert.ok(left > 9_000 && left <= 10_000);
      });
    },
  },
  {
    title:
      "LG4 LG2 of many that take over an abandoned claim at once, one does, and the one before can do nothing",
    needs: "nothing",
    run: async (target) => {
      const ledgers = await openMany(target, 6);
      const [first] = ledgers;
      assert.ok(first !== undefined);
      const place = freshPlace();
      const lost = await put(first.entries, place, ABSENT, { ...CLAIM, leaseMs: 0 });
      const all = await Promise.all(
        ledgers.map(async ({ entries }) => {
          const entry = await found(entries, place);
          if ((entry.leaseLeftMs ?? 0) > 0) return undefined;
          return entries.put(place, asRead(entry), { ...CLAIM, attempts: entry.attempts + 1 });
        }),
      );
      const taken = all.filter((written) => written !== undefined);
      assert.equal(taken.length, 1);
      assert.ok((taken[0]?.token ?? 0) > lost.token);
      const owned = { kind: "owned", token: lost.token } as const;
      assert.equal(await first.entries.put(place, owned, withData(DONE, "zombie")), undefined);
      assert.equal(await first.entries.remove(place, owned), false);
      const entry = await found(first.entries, place);
      assert.deepEqual([entry.token, entry.attempts, entry.data], [taken[0]?.token, 2, undefined]);
    },
  },
  {
    title: "LG4 LG6 a scan has what it was asked for, oldest first",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const [kind, scope] = [`kind-${freshScope()}`, freshScope()];
      const writes: readonly (readonly [string, string, EntryWrite])[] = [
        ["f", scope, { ...CLAIM, leaseMs: 0 }],
        ["e", scope, CLAIM],
        ["d", scope, { ...DONE, token: "next" }],
        ["c", scope, { ...CLAIM, leaseMs: undefined }],
        ["b", `${scope}-other`, { ...CLAIM, leaseMs: 0 }],
        ["a", scope, { ...OVER, state: "failed", keepMs: 60_000 }],
      ];
      for (const [key, where, write] of writes) {
        const place: Place = { kind, scope: where, key };
        await put(entries, place, ABSENT, withData(write, key));
        await put(entries, { ...place, kind: `${kind}-other` }, ABSENT, write);
      }
      const keys = async (filter: object): Promise<string> => {
        const all = await entries.scan({ kind, max: 10, ...filter });
        for (const entry of all) assert.equal(dataText(entry), entry.place.key);
        return all.map(({ place }) => place.key).join("");
      };
      assert.equal(await keys({}), "fedcba");
      assert.equal(await keys({ max: 2 }), "fe");
      assert.equal(await keys({ scope }), "fedca");
      assert.equal(await keys({ scope, state: "running" }), "fec");
      assert.equal(await keys({ state: "done" }), "d");
      assert.equal(await keys({ state: "failed" }), "a");
      assert.equal(await keys({ state: "released" }), "");
      assert.equal(await keys({ isAbandoned: true }), "fb");
      assert.equal(await keys({ isAbandoned: true, state: "running", scope }), "f");
      assert.equal(await keys({ isAbandoned: true, max: 1 }), "f");
    },
  },
  {
    title: "LG7 migrate can be called again, and by many at once, and keeps what is there",
    needs: "nothing",
    run: async (target) => {
      const ledgers = await openMany(target, 6);
      const [first] = ledgers;
      assert.ok(first !== undefined);
      const place = freshPlace();
      const { token } = await put(first.entries, place, ABSENT, withData(CLAIM, "kept"));
      await Promise.all([...ledgers, ...ledgers].map((ledger) => ledger.migrate()));
      if (first.supports.transactions) await first.transaction((tx) => first.in(tx).migrate());
      assert.equal(dataText(await found(first.entries, place)), "kept");
      assert.ok((await put(first.entries, freshPlace(), ABSENT, CLAIM)).token > token);
    },
  },
  {
    title: "LG8 a sweep deletes what is past its retention, so many at once, and nothing else",
    needs: "nothing",
    run: async (target) => {
      const ledger = await target.open();
      const { entries } = ledger;
      await sweepAll(ledger);
      const over = Array.from({ length: 5 }, freshPlace);
      for (const place of over) await put(entries, place, ABSENT, OVER);
      const lost = freshPlace();
      await put(entries, lost, ABSENT, { ...CLAIM, leaseMs: 0, keepMs: 0 });
      const stay = {
        "its retention": { ...OVER, keepMs: 60_000 },
        "its eternity": { ...OVER, keepMs: undefined },
        "a lease": { ...CLAIM, keepMs: 0 },
        "a lease that is over, and eternity": { ...CLAIM, leaseMs: 0, keepMs: undefined },
      } satisfies Record<string, EntryWrite>;
      const kept = freshScope();
      for (const [key, write] of Object.entries(stay))
        await put(entries, { kind: "once", scope: kept, key }, ABSENT, write);
      assert.deepEqual([await entries.sweep(4), await entries.sweep(4)], [4, 2]);
      assert.equal(await entries.sweep(4), 0);
      for (const place of [...over, lost]) assert.equal(await entries.find(place), undefined);
      for (const key of Object.keys(stay)) await found(entries, { kind: "once", scope: kept, key });
    },
  },
  {
    title: "LG8 many sweeps at once delete each entry once",
    needs: "nothing",
    run: async (target) => {
      const ledgers = await openMany(target, 4);
      const [first] = ledgers;
      assert.ok(first !== undefined);
      await sweepAll(first);
      const make = async ({ entries }: Pick<typeof first, "entries">): Promise<void> => {
        for (let made = 0; made < 40; made += 1) await put(entries, freshPlace(), ABSENT, OVER);
      };
      if (first.supports.transactions) await first.transaction((tx) => make(first.in(tx)));
      else await make(first);
      let swept = 0;
      for (let round = 0; round < 100 && swept < 40; round += 1) {
        const counts = await Promise.all(ledgers.map(({ entries }) => entries.sweep(3)));
        swept += counts.reduce((sum, count) => sum + count, 0);
      }
      assert.equal(swept, 40);
      assert.equal(await first.entries.sweep(1), 0);
    },
  },
  {
    title: "LG8 a sweep neither waits for a transaction nor deletes what it works on",
    needs: "transactions",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      await sweepAll(one);
      const [held, free] = [freshPlace(), freshPlace()];
      const at = await put(one.entries, held, ABSENT, OVER);
      await put(one.entries, free, ABSENT, OVER);
      let sweeping: Promise<number> | undefined;
      await one.transaction(async (tx) => {
        const { entries } = one.in(tx);
        await found(entries, held);
        sweeping = other.entries.sweep(10);
        // With one transaction at a time, the sweep comes after it, or finds nothing to do.
        if (!one.supports.isExclusive) assert.equal(await sweeping, 1);
        await put(entries, held, asRead(at), CLAIM);
      });
      await sweeping;
      await sweepAll(other);
      assert.equal((await found(other.entries, held)).state, "running");
      assert.equal(await other.entries.find(free), undefined);
    },
  },
  {
    title: "LG8 LG5 a sweep in a transaction goes with it",
    needs: "transactions",
    run: async (target) => {
      const ledger = await target.open();
      await sweepAll(ledger);
      const place = freshPlace();
      await put(ledger.entries, place, ABSENT, OVER);
      const failed = ledger.transaction(async (tx) => {
        assert.equal(await ledger.in(tx).entries.sweep(10), 1);
        throw new Error("undo");
      });
      await assert.rejects(failed, /undo/);
      await found(ledger.entries, place);
      assert.equal(await ledger.transaction((tx) => ledger.in(tx).entries.sweep(10)), 1);
      assert.equal(await ledger.entries.find(place), undefined);
    },
  },
];
