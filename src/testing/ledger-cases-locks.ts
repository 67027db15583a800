/** Cases of places that are locked before they have an entry: LG11. */

import { strict as assert } from "node:assert";
import type { Ledger, Locked, LockedEnd, Place } from "../toolkit/ledgers/ledger.ts";
import {
  ABSENT,
  CLAIM,
  DONE,
  effect,
  effectsOf,
  found,
  freshPlace,
  type LedgerCase,
  openMany,
  put,
  dataText,
  undone,
  withData,
} from "./ledger-cases-kit.ts";

async function lock<Tx>({ entries }: Ledger<Tx>, place: Place): Promise<Locked> {
  const locked = await entries.lock?.(place);
  assert.ok(locked !== undefined, "the ledger has no locks");
  return locked;
}

/** Locks a place that must be free. Returns the token for its entry. */
async function lockFree<Tx>(ledger: Ledger<Tx>, place: Place): Promise<number> {
  const locked = await lock(ledger, place);
  assert.ok(locked.kind === "absent", locked.kind);
  return locked.token;
}

export const ledgerLockCases: readonly LedgerCase[] = [
  {
    title:
      "LG11 a locked place gets its entry under the token of its lock, with the effect or not at all",
    needs: "locks in transactions",
    run: async (target) => {
      const ledger = await target.open();
      const [kept, lost] = [freshPlace(), freshPlace()];
      let given = 0;
      await ledger.transaction(async (tx) => {
        given = await lockFree(ledger.in(tx), kept);
        await effect(target, tx, kept, "kept");
        const done = { ...withData(DONE, "result"), token: { drawn: given } };
        const write = { ...done, fingerprint: { value: "print" } };
        const written = await put(ledger.in(tx).entries, kept, ABSENT, write);
        assert.deepEqual(written, { token: given, revision: 1 });
      });
      const entry = await found(ledger.entries, kept);
      assert.deepEqual([entry.token, entry.state, entry.fingerprint], [given, "done", "print"]);
      assert.equal(dataText(entry), "result");
      let undoneToken = 0;
      await undone(ledger, async (tx) => {
        undoneToken = await lockFree(ledger.in(tx), lost);
        await effect(target, tx, lost, "lost");
      });
      assert.ok(undoneToken > given);
      assert.equal(await ledger.entries.find(lost), undefined);
      assert.deepEqual(await effectsOf(target, lost), []);
      // LG3: also a token that was only given, and never written.
      assert.ok((await put(ledger.entries, freshPlace(), ABSENT, CLAIM)).token > undoneToken);
      const again = await ledger.transaction((tx) => lockFree(ledger.in(tx), lost));
      assert.ok(again > undoneToken);
    },
  },
  {
    title: "LG11 a place with an entry is not locked: its entry is answered",
    needs: "locks in transactions",
    run: async (target) => {
      const ledger = await target.open();
      const place = freshPlace();
      const made = await put(ledger.entries, place, ABSENT, withData(CLAIM, "progress"));
      const locked = await ledger.transaction((tx) => lock(ledger.in(tx), place));
      assert.ok(locked.kind === "found", locked.kind);
      const { entry } = locked;
      assert.deepEqual([entry.token, entry.revision, entry.state], [made.token, 1, "running"]);
      assert.ok((entry.leaseLeftMs ?? 0) > 30_000 && dataText(entry) === "progress");
    },
  },
  {
    title: "LG11 of two open transactions one locks a place, and the other does not wait for it",
    needs: "locks in transactions",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      const [place, beside] = [freshPlace(), freshPlace()];
      let twin: Promise<Locked> | undefined;
      let isOver = false;
      const ask = (where: Place): Promise<Locked> =>
        other.transaction((tx) => lock(other.in(tx), where));
      await one.transaction(async (tx) => {
        const token = await lockFree(one.in(tx), place);
        twin = ask(place).finally(() => {
          isOver = true;
        });
        if (one.supports.isExclusive) {
          // One transaction at a time: the other has to wait for its turn.
          await Promise.resolve();
          assert.equal(isOver, false);
        } else {
          const held = await twin;
          assert.ok(held.kind === "held", held.kind);
          assert.ok((held.heldMs ?? 0) >= 0);
          assert.equal((await ask(beside)).kind, "absent");
        }
        const done = { ...DONE, token: { drawn: token }, fingerprint: { value: undefined } };
        await put(one.in(tx).entries, place, ABSENT, done);
      });
      await twin;
      assert.equal((await ask(place)).kind, "found");
    },
  },
  {
    title:
      "LG11 LG2 the entry decides, and not the lock: one that was made meanwhile is not replaced",
    needs: "locks in transactions",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      const place = freshPlace();
      let token = 0;
      await one.transaction(async (tx) => {
        token = await lockFree(one.in(tx), place);
      });
      const made = await put(other.entries, place, ABSENT, CLAIM);
      const late = { ...DONE, token: { drawn: token }, fingerprint: { value: undefined } };
      await one.transaction(async (tx) => {
        assert.equal(await one.in(tx).entries.put(place, ABSENT, late), undefined);
      });
      assert.equal((await found(one.entries, place)).token, made.token);
    },
  },
  {
    title:
      "LG11 LG1 a locked transaction makes its entry at its end, and commits nothing if there is one by then",
    needs: "locks in transactions",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      // The primitives do the same in single steps, which the other cases are about.
      if (one.lockedTransaction === undefined) return;
      const [kept, taken] = [freshPlace(), freshPlace()];
      const work = (place: Place, meanwhile: () => Promise<unknown>) =>
        one.lockedTransaction?.(
          place,
          async (tx, locked): Promise<LockedEnd<Locked>> => {
            if (locked.kind !== "absent") return { value: locked, entry: undefined };
            await effect(target, tx, place, "effect");
            await meanwhile();
            const entry = { ...withData(DONE, "result"), token: { drawn: locked.token } };
            return { value: locked, entry: { ...entry, fingerprint: { value: undefined } } };
          },
          () => undefined,
        );
      const end = await work(kept, () => Promise.resolve());
      assert.ok(end !== undefined && end !== "late" && end.value.kind === "absent");
      const entry = await found(one.entries, kept);
      assert.deepEqual([entry.token, entry.state], [end.value.token, "done"]);
      assert.deepEqual(await effectsOf(target, kept), ["effect"]);
      const again = await work(kept, () => Promise.resolve());
      assert.ok(again !== undefined && again !== "late" && again.value.kind === "found");
      if (one.supports.isExclusive) return;
      const made = (): Promise<unknown> => put(other.entries, taken, ABSENT, CLAIM);
      assert.equal(await work(taken, made), "late");
      assert.deepEqual(await effectsOf(target, taken), []);
      assert.equal((await found(one.entries, taken)).state, "running");
    },
  },
];
