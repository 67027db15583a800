/** Cases of transactions: LG1 and LG5. */

import { strict as assert } from "node:assert";
import { isHapaxError } from "../base/errors.ts";
import type { Place } from "../toolkit/ledgers/ledger.ts";
import {
  ABSENT,
  asRead,
  CLAIM,
  DONE,
  effect,
  effectsOf,
  found,
  freshPlace,
  isInvalid,
  type LedgerCase,
  type LedgerTarget,
  openMany,
  put,
  dataText,
  Undo,
  undone,
  withData,
} from "./ledger-cases-kit.ts";

export const ledgerTransactionCases: readonly LedgerCase[] = [
  {
    title: "LG1 LG5 an entry and an effect stay together, and go together",
    needs: "transactions",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      const [kept, lost] = [freshPlace(), freshPlace()];
      const answer = await one.transaction(async (tx) => {
        await effect(target, tx, kept, "kept");
        await put(one.in(tx).entries, kept, ABSENT, withData(CLAIM, "kept"));
        return "answer";
      });
      assert.equal(answer, "answer");
      await undone(one, async (tx) => {
        await put(one.in(tx).entries, lost, ABSENT, CLAIM);
        await effect(target, tx, lost, "lost");
      });
      assert.equal(dataText(await other.entries.find(kept)), "kept");
      assert.deepEqual(await effectsOf(target, kept), ["kept"]);
      assert.equal(await other.entries.find(lost), undefined);
      assert.deepEqual(await effectsOf(target, lost), []);
    },
  },
  {
    title: "LG1 a rollback takes back changes and deletions as well",
    needs: "transactions",
    run: async (target) => {
      const ledger = await target.open();
      const [changed, removed] = [freshPlace(), freshPlace()];
      const at = await put(ledger.entries, changed, ABSENT, withData(CLAIM, "before"));
      const gone = await put(ledger.entries, removed, ABSENT, withData(CLAIM, "before"));
      await undone(ledger, async (tx) => {
        const { entries } = ledger.in(tx);
        await put(entries, changed, { kind: "owned", token: at.token }, withData(DONE, "after"));
        assert.equal(await entries.remove(removed, asRead(gone)), true);
        assert.equal(await entries.find(removed), undefined);
      });
      for (const place of [changed, removed]) {
        const entry = await found(ledger.entries, place);
        assert.deepEqual([dataText(entry), entry.state, entry.revision], ["before", "running", 1]);
      }
      await put(ledger.entries, changed, asRead(at), DONE);
    },
  },
  {
    title:
      "LG1 what a transaction wrote is seen outside only after its commit, even by its own ledger",
    needs: "transactions",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      const place = freshPlace();
      const seen: Promise<unknown>[] = [];
      await undone(one, async (tx) => {
        await put(one.in(tx).entries, place, ABSENT, CLAIM);
        assert.notEqual(await one.in(tx).entries.find(place), undefined);
        for (const { entries } of [one, other]) {
          seen.push(entries.find(place));
          seen.push(entries.scan({ ...place, max: 1 }).then(([first]) => first));
        }
        // With one transaction at a time, the reads may wait for the end of this one.
        if (!one.supports.isExclusive) await Promise.all(seen);
      });
      assert.deepEqual(await Promise.all(seen), [undefined, undefined, undefined, undefined]);
    },
  },
  {
    title: "LG1 what was found in a transaction is not changed by others until its end",
    needs: "transactions",
    run: async (target) => {
      const ledgers = await openMany(target, 5);
      const place = freshPlace();
      const [first] = ledgers;
      assert.ok(first !== undefined);
      await put(first.entries, place, ABSENT, withData(CLAIM, "0"));
      const increments = Array.from({ length: 4 }, () => ledgers)
        .flat()
        .map((ledger) =>
          ledger.transaction(async (tx) => {
            const { entries } = ledger.in(tx);
            const entry = await found(entries, place);
            const next = `${Number(dataText(entry)) + 1}`;
            await put(entries, place, asRead(entry), { ...withData(CLAIM, next), token: "same" });
          }),
        );
      await Promise.all(increments);
      const entry = await found(first.entries, place);
      assert.deepEqual([dataText(entry), entry.revision], ["20", 21]);
    },
  },
  {
    title: "LG5 a joined ledger begins and ends nothing",
    needs: "transactions",
    run: async (target) => {
      const ledger = await target.open();
      const places = [freshPlace(), freshPlace(), freshPlace()] as const;
      assert.equal(ledger.isJoined, false);
      await undone(ledger, async (tx) => {
        const joined = ledger.in(tx);
        assert.equal(joined.isJoined, true);
        assert.deepEqual(joined.supports, ledger.supports);
        const answer = await joined.transaction(async (inner) => {
          await effect(target, inner, places[0], "inner");
          await put(joined.in(inner).entries, places[0], ABSENT, CLAIM);
          return 7;
        });
        assert.equal(answer, 7);
        await put(joined.entries, places[1], ABSENT, CLAIM);
        // An error that the caller catches does not end the transaction either.
        await assert.rejects(
          joined.transaction(async (inner) => {
            await put(joined.in(inner).entries, places[2], ABSENT, CLAIM);
            throw new Undo("inner");
          }),
          Undo,
        );
        for (const place of places) await found(joined.entries, place);
        assert.equal((await joined.entries.scan({ ...places[1], max: 5 })).length, 1);
      });
      for (const place of places) {
        assert.equal(await ledger.entries.find(place), undefined);
        assert.deepEqual(await effectsOf(target, place), []);
      }
    },
  },
  {
    title: "LG5 LG2 of many transactions that make the same entry at once, one has an effect",
    needs: "transactions",
    run: async (target) => {
      const place = freshPlace();
      const outcomes = await race(target, place, () => false);
      assert.equal(outcomes.filter((outcome) => outcome === "made").length, 1);
      assert.equal((await effectsOf(target, place)).length, 1);
    },
  },
  {
    title: "LG5 LG2 when the one that made an entry is rolled back, the next one makes it",
    needs: "transactions",
    run: async (target) => {
      const place = freshPlace();
      let winners = 0;
      const outcomes = await race(target, place, () => {
        winners += 1;
        return winners <= 2;
      });
      assert.equal(outcomes.filter((outcome) => outcome === "undone").length, 2);
      assert.equal(outcomes.filter((outcome) => outcome === "made").length, 1);
      assert.equal((await effectsOf(target, place)).length, 1);
    },
  },
  {
    title: "LG1 a synchronous transaction keeps all or nothing, and runs alone",
    needs: "synchronous transactions",
    run: async (target) => {
      const ledger = await target.open();
      const sync = <T>(work: (tx: never) => T): T => {
        assert.ok(ledger.transactionSync !== undefined);
        return ledger.transactionSync(work as Parameters<typeof ledger.transactionSync<T>>[0]);
      };
      const [kept, lost] = [freshPlace(), freshPlace()];
      const writes: Promise<void>[] = [];
      const answer = sync((tx) => {
        writes.push(effect(target, tx, kept, "kept"));
        return 7;
      });
      assert.equal(answer, 7);
      const fail = (end: () => unknown): void => {
        sync((tx) => {
          writes.push(effect(target, tx, lost, "lost"));
          return end();
        });
      };
      assert.throws(() => {
        fail(() => {
          throw new Undo("undo");
        });
      }, Undo);
      // What follows an await would be outside of the transaction.
      assert.throws(() => {
        fail(() => Promise.resolve());
      }, isInvalid);
      await Promise.all(writes);
      assert.deepEqual(await effectsOf(target, kept), ["kept"]);
      assert.deepEqual(await effectsOf(target, lost), []);
      await ledger.transaction(async () => {
        assert.throws(
          () => sync(() => undefined),
          (error) => isHapaxError(error, "in_progress"),
        );
      });
    },
  },
];

/** Runs eight transactions that make the same entry with an effect. */
async function race<Tx>(
  target: LedgerTarget<Tx>,
  place: Place,
  undoes: () => boolean,
): Promise<readonly string[]> {
  const ledgers = await openMany(target, 8);
  return Promise.all(
    ledgers.map((ledger, index) =>
      ledger
        .transaction(async (tx) => {
          const written = await ledger.in(tx).entries.put(place, ABSENT, CLAIM);
          if (written === undefined) return "there";
          await effect(target, tx, place, `${index}`);
          if (undoes()) throw new Undo("undo");
          return "made";
        })
        .catch((error: unknown) => {
          if (error instanceof Undo) return "undone";
          throw error;
        }),
    ),
  );
}
