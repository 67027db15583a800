/** Cases of single reads and writes: LG2, LG3, LG6 and LG9. */

import { strict as assert } from "node:assert";
import { systemClock } from "../base/clock.ts";
import type { Entry, Expected, Place } from "../toolkit/ledgers/ledger.ts";
import {
  ABSENT,
  asRead,
  bytes,
  CLAIM,
  DONE,
  found,
  freshPlace,
  freshScope,
  isInvalid,
  type LedgerCase,
  openMany,
  put,
  dataText,
  undone,
  withData,
} from "./ledger-cases-kit.ts";

/** Returns an entry without its times, which change by themselves. */
function still({ token, revision, state, attempts, fingerprint, data }: Entry): unknown {
  return { token, revision, state, attempts, fingerprint, data };
}

/** Texts that cause trouble in SQL, in collations, in patterns, and in code that joins them with a separator. */
const ODD_TEXTS: readonly string[] = [
  "",
  " ",
  "a",
  "A",
  "a ",
  " a",
  "a/b",
  "b",
  'quo"te',
  "quo'te",
  "'; DROP TABLE hapax_entries; --",
  "%",
  "_",
  "\\",
  "$1",
  "?",
  ":a",
  "line\nfeed",
  "line\r\nfeed",
  "\t",
  "null",
  "é",
  "e\u0301",
  "ß",
  "ss",
  "ı",
  "日本語",
  "👩‍👩‍👧",
  "\u0001",
  "\u200b",
  "\uffff",
];

export const ledgerWriteCases: readonly LedgerCase[] = [
  {
    title: "LG2 of many that make the same entry at once, one does",
    needs: "nothing",
    run: async (target) => {
      const place = freshPlace();
      const ledgers = await openMany(target, 6);
      const puts = Array.from({ length: 4 }, () => ledgers)
        .flat()
        .map(({ entries }, index) => entries.put(place, ABSENT, withData(CLAIM, `${index}`)));
      const all = await Promise.all(puts);
      const winners = all.flatMap((written, index) => (written === undefined ? [] : [index]));
      assert.equal(winners.length, 1);
      for (const { entries } of ledgers) {
        const entry = await found(entries, place);
        assert.equal(dataText(entry), `${winners[0]}`);
        assert.deepEqual(all[winners[0] ?? -1], { token: entry.token, revision: 1 });
      }
    },
  },
  {
    title: "LG2 of many that change an entry as they read it, one does",
    needs: "nothing",
    run: async (target) => {
      const place = freshPlace();
      const ledgers = await openMany(target, 6);
      const [first] = ledgers;
      assert.ok(first !== undefined);
      let at = await put(first.entries, place, ABSENT, CLAIM);
      for (let round = 0; round < 5; round += 1) {
        const write = { ...CLAIM, token: round % 2 === 0 ? "next" : "same" } as const;
        const all = await Promise.all(
          [...ledgers, ...ledgers].map(({ entries }) => entries.put(place, asRead(at), write)),
        );
        const winners = all.filter((written) => written !== undefined);
        assert.equal(winners.length, 1);
        at = winners[0] ?? at;
        assert.equal(at.revision, round + 2);
      }
    },
  },
  {
    title: "LG2 what is not as expected is left as it is",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const place = freshPlace();
      const other = { ...place, key: "other" };
      const { token, revision } = await put(entries, place, ABSENT, withData(CLAIM, "a"));
      const before = still(await found(entries, place));
      const wrong: readonly Expected[] = [
        ABSENT,
        { kind: "unchanged", token, revision: revision + 1 },
        { kind: "unchanged", token: token + 1, revision },
        { kind: "unchanged", token: token - 1, revision },
        { kind: "owned", token: token + 1 },
        { kind: "owned", token: token - 1 },
      ];
      for (const expected of wrong) {
        assert.equal(await entries.put(place, expected, withData(DONE, "b")), undefined);
        assert.equal(await entries.remove(place, expected), false);
      }
      assert.deepEqual(still(await found(entries, place)), before);
      for (const expected of [{ kind: "owned", token } as const, asRead({ token, revision })]) {
        assert.equal(await entries.put(other, expected, CLAIM), undefined);
        assert.equal(await entries.remove(other, expected), false);
      }
      assert.equal(await entries.find(other), undefined);
      assert.equal(await entries.remove(place, { kind: "owned", token }), true);
      assert.equal(await entries.find(place), undefined);
    },
  },
  {
    title: "LG2 an entry that is done, failed or released has no owner",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      for (const state of ["done", "failed", "released"] as const) {
        const place = freshPlace();
        const { token } = await put(entries, place, ABSENT, CLAIM);
        const owned: Expected = { kind: "owned", token };
        const ended = await put(entries, place, owned, { ...DONE, state });
        assert.deepEqual(ended, { token, revision: 2 });
        assert.equal(await entries.put(place, owned, CLAIM), undefined);
        assert.equal(await entries.remove(place, owned), false);
        assert.equal((await found(entries, place)).state, state);
        assert.equal(await entries.remove(place, asRead(ended)), true);
      }
    },
  },
  {
    title: "LG2 an owner may write again, and the members it does not name stay as they were",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const place = freshPlace();
      const claim = { ...withData(CLAIM, "progress"), fingerprint: { value: "print" } };
      const { token } = await put(entries, place, ABSENT, claim);
      const owned: Expected = { kind: "owned", token };
      const renewal = { ...CLAIM, token: "same", fingerprint: "same", data: "same" } as const;
      for (const revision of [2, 3, 4])
        assert.deepEqual(await put(entries, place, owned, renewal), { token, revision });
      const kept = await found(entries, place);
      assert.deepEqual([kept.fingerprint, dataText(kept), kept.attempts], ["print", "progress", 1]);
      await put(entries, place, owned, { ...withData(DONE, "result"), attempts: 7 });
      const done = await found(entries, place);
      assert.deepEqual([done.fingerprint, dataText(done)], ["print", "result"]);
      assert.deepEqual([done.state, done.attempts, done.revision], ["done", 7, 5]);
      const cleared = { ...DONE, fingerprint: { value: undefined } };
      await put(entries, place, asRead(done), cleared);
      const empty = await found(entries, place);
      assert.deepEqual([empty.fingerprint, empty.data], [undefined, undefined]);
    },
  },
  {
    title: "LG2 an entry that was deleted and made again is another one",
    needs: "nothing",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      // `same` asks for the present token. A new entry has none, and gets a new one.
      for (const token of ["next", "same"] as const) {
        const place = freshPlace();
        const read = await put(one.entries, place, ABSENT, { ...CLAIM, token });
        await other.entries.remove(place, asRead(read));
        const again = await put(other.entries, place, ABSENT, { ...CLAIM, token });
        assert.ok(again.token > read.token);
        for (const expected of [asRead(read), { kind: "owned", token: read.token } as const]) {
          assert.equal(await one.entries.put(place, expected, DONE), undefined);
          assert.equal(await one.entries.remove(place, expected), false);
        }
        assert.equal((await found(one.entries, place)).state, "running");
      }
    },
  },
  {
    title: "LG3 every token is greater than all before it, from any ledger and after any deletion",
    needs: "nothing",
    run: async (target) => {
      const ledgers = await openMany(target, 3);
      let last = 0;
      for (let round = 0; round < 4; round += 1) {
        for (const { entries } of [...ledgers, await target.open()]) {
          const place = freshPlace();
          const made = await put(entries, place, ABSENT, CLAIM);
          const taken = await put(entries, place, asRead(made), CLAIM);
          assert.ok(Number.isSafeInteger(made.token) && made.token > last);
          assert.ok(taken.token > made.token);
          last = taken.token;
          assert.equal(await entries.remove(place, asRead(taken)), true);
        }
      }
    },
  },
  {
    title: "LG3 a token is not below the clock, in microseconds since 1970",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const place = freshPlace();
      const made = await put(entries, place, ABSENT, CLAIM);
      const taken = await put(entries, place, asRead(made), CLAIM);
      // The database's clock may be another one than ours; a counter that began at 1 is decades behind.
      const yesterday = (systemClock.nowMs() - 86_400_000) * 1000;
      for (const { token } of [made, taken])
        assert.ok(Number.isSafeInteger(token) && token > yesterday, `${token}`);
    },
  },
  {
    title: "LG3 tokens that are given at once are all different, and the next one is greater",
    needs: "nothing",
    run: async (target) => {
      const ledgers = await openMany(target, 4);
      const all = await Promise.all(
        Array.from({ length: 10 }, () => ledgers)
          .flat()
          .map(({ entries }) => put(entries, freshPlace(), ABSENT, CLAIM)),
      );
      const tokens = all.map(({ token }) => token);
      assert.equal(new Set(tokens).size, tokens.length);
      const next = await put((await target.open()).entries, freshPlace(), ABSENT, CLAIM);
      assert.ok(next.token > Math.max(...tokens));
    },
  },
  {
    title: "LG3 a token that was given in a transaction is not given again when it is rolled back",
    needs: "transactions",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      const place = freshPlace();
      let given = 0;
      await undone(one, async (tx) => {
        const { entries } = one.in(tx);
        await put(entries, freshPlace(), ABSENT, CLAIM);
        given = (await put(entries, place, ABSENT, CLAIM)).token;
      });
      for (const { entries } of [other, one, other]) {
        const { token } = await put(entries, freshPlace(), ABSENT, CLAIM);
        assert.ok(token > given);
        given = token;
      }
      assert.equal(await one.entries.find(place), undefined);
    },
  },
  {
    title:
      "LG6 names of entries may have any characters: no two are mixed up, and each is read back unchanged",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const scope = freshScope();
      const kind = `odd-${scope}`.slice(0, 60);
      const long = "x".repeat(511);
      const texts = [...ODD_TEXTS, `${long}y`, `${long}z`, "語".repeat(170)];
      const path = "z".repeat(1023);
      const places: Place[] = texts.flatMap((text) => [
        { kind, scope: text, key: "key" },
        { kind, scope: "key", key: text },
      ]);
      places.push({ kind: `${kind}'"\n%`, scope: "a/b", key: "c" });
      const apart = ["a", "b", ""].flatMap((one) => [
        { kind, scope: `${one}:a`, key: "b:c" },
        { kind, scope: `${one}:a:b`, key: "c" },
      ]);
      places.push(...apart);
      for (const end of ["y", "z"]) places.push({ kind, scope: `${long}y`, key: `${path}${end}` });
      for (const [index, place] of places.entries())
        await put(entries, place, ABSENT, withData(CLAIM, `${index}`));
      const reader = (await target.open()).entries;
      for (const [index, place] of places.entries()) {
        const entry = await found(reader, place);
        assert.equal(dataText(entry), `${index}`);
        const [scanned] = await reader.scan({ kind: place.kind, scope: place.scope, max: 1 });
        assert.deepEqual([scanned?.place.kind, scanned?.place.scope], [place.kind, place.scope]);
      }
      const all = await reader.scan({ kind, max: places.length + 1 });
      const told = new Set(all.map(({ place }) => JSON.stringify([place.scope, place.key])));
      assert.equal(told.size, places.length - 1);
      for (const place of places) {
        const { token } = await found(entries, place);
        assert.equal(await entries.remove(place, { kind: "owned", token }), true);
      }
      assert.deepEqual(await reader.scan({ kind, max: 1 }), []);
    },
  },
  {
    title: "LG6 a place that no database could keep apart is refused",
    needs: "nothing",
    run: async (target) => {
      const { entries } = await target.open();
      const place = freshPlace();
      for (const name of ["kind", "scope", "key"] as const) {
        // A key may be the path of a stream.
        const longest = name === "key" ? 1024 : 512;
        const long = ["x".repeat(longest + 1), "語".repeat(Math.ceil((longest + 1) / 3))];
        for (const text of ["nul\0", "half \ud800", "\udc00", ...long]) {
          const wrong = { ...place, [name]: text };
          await assert.rejects(entries.find(wrong), isInvalid);
          await assert.rejects(entries.put(wrong, ABSENT, CLAIM), isInvalid);
          await assert.rejects(entries.remove(wrong, { kind: "owned", token: 1 }), isInvalid);
        }
      }
      await put(entries, place, ABSENT, CLAIM);
    },
  },
  {
    title: "LG9 bytes come back as they were put",
    needs: "nothing",
    run: async (target) => {
      const [one, other] = await openMany(target, 2);
      assert.ok(one !== undefined && other !== undefined);
      const every = Uint8Array.from({ length: 256 }, (_, value) => value);
      const large = Uint8Array.from(
        { length: 1024 * 1024 },
        (_, at) => (at * 31 + (at >> 8)) % 256,
      );
      const values = [new Uint8Array(0), every, large, large.subarray(1000, 1010), bytes("é\0é")];
      for (const value of values) {
        const place = freshPlace();
        // The piece of a larger buffer is put as it is; the others are changed afterwards.
        const given = value.length === 10 ? value : value.slice();
        const claim = { ...CLAIM, data: { value: given } };
        const { token } = await put(one.entries, place, ABSENT, claim);
        if (given !== value) given.fill(7);
        for (const write of [CLAIM, DONE]) {
          const entry = await found(other.entries, place);
          assert.ok(entry.data instanceof Uint8Array && !(entry.data instanceof Buffer));
          assert.ok(Buffer.compare(entry.data, value) === 0);
          entry.data.fill(9);
          const [scanned] = await other.entries.scan({ ...place, max: 1 });
          assert.ok(scanned?.data !== undefined && Buffer.compare(scanned.data, value) === 0);
          const same = { ...write, token: "same", fingerprint: "same", data: "same" } as const;
          await put(one.entries, place, { kind: "owned", token }, same);
        }
      }
      const none = freshPlace();
      await put(one.entries, none, ABSENT, CLAIM);
      assert.equal((await found(other.entries, none)).data, undefined);
      for (const key of ["empty", "empty too", "empty as well"])
        await put(one.entries, { ...none, key }, ABSENT, withData(CLAIM, ""));
      for (let round = 0; round < 20; round += 1) {
        const all: readonly Entry[] = await other.entries.scan({ ...none, max: 4 });
        assert.deepEqual(
          all.map(({ data }) => data?.length),
          [undefined, 0, 0, 0],
        );
      }
    },
  },
];
