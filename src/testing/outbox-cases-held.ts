/** Cases of the outbox: batches of rows, held events, cleaning. OL5 to OL7. */

import { strict as assert } from "node:assert";
import type { OutboxEvent } from "../toolkit/outbox/log.ts";
import {
  ALL_WAYS,
  LOG_WAYS,
  ROW_WAYS,
  add,
  textEvent,
  follow,
  heldOf,
  idsOf,
  LEASE_MS,
  mark,
  openFresh,
  OTHER_RELAY,
  type OutboxCase,
  readAllEvents,
  RELAY,
  rowsOf,
  settleBatch,
  spansOf,
  takeAll,
  payloadTexts,
} from "./outbox-case-kit.ts";

export const rowCases: readonly OutboxCase[] = [
  {
    title: "OL5 a batch is held by one relay, and so is every key in it",
    ways: ROW_WAYS,
    run: async (target) => {
      const [ledger, other] = [await openFresh(target), await target.open()];
      const [rows, otherRows] = [rowsOf(ledger), rowsOf(other)];
      await add(ledger, textEvent("a1", "a"), textEvent("b1", "b"), textEvent("a2", "a"));
      const batch = await rows.claim(RELAY, 2, LEASE_MS, "block");
      assert.ok(batch);
      assert.deepEqual(payloadTexts(batch.events), ["a1", "b1"]);
      await add(ledger, textEvent("b2", "b"), textEvent("c1", "c"), textEvent("free"));
      const next = await otherRows.claim(RELAY, 10, LEASE_MS, "block");
      assert.ok(next);
      assert.deepEqual(payloadTexts(next.events), ["c1", "free"]);
      assert.equal(await otherRows.claim(RELAY, 10, LEASE_MS, "block"), undefined);
      assert.equal(await settleBatch(ledger, batch, idsOf(batch.events)), true);
      const last = await otherRows.claim(RELAY, 10, LEASE_MS, "block");
      assert.ok(last);
      assert.deepEqual(payloadTexts(last.events), ["a2", "b2"]);
      assert.equal(await settleBatch(other, next, idsOf(next.events)), true);
      assert.equal(await settleBatch(other, last, idsOf(last.events)), true);
      return undefined;
    },
  },
  {
    title:
      "OL5 a lost batch comes again whole under its id, and the one who lost it can do nothing",
    ways: ROW_WAYS,
    run: async (target) => {
      const [ledger, other] = [await openFresh(target), await target.open()];
      const [rows, otherRows] = [rowsOf(ledger), rowsOf(other)];
      await add(ledger, textEvent("a1", "a"), textEvent("a2", "a"), textEvent("b1", "b"));
      const lost = await rows.claim(RELAY, 10, 1, "block");
      assert.ok(lost);
      assert.equal(lost.isTakeover, false);
      const taken = await untilTakenOver(() => otherRows.claim(RELAY, 2, LEASE_MS, "block"));
      assert.equal(taken.id, lost.id);
      assert.ok(taken.token > lost.token);
      assert.deepEqual(idsOf(taken.events), idsOf(lost.events));
      assert.equal(await rows.renew(lost, LEASE_MS), false);
      assert.equal(await settleBatch(ledger, lost, idsOf(lost.events)), false);
      assert.equal(await otherRows.renew(taken, LEASE_MS), true);
      assert.equal(await settleBatch(other, taken, idsOf(taken.events)), true);
      assert.equal(await settleBatch(other, taken, idsOf(taken.events)), false);
      assert.deepEqual(await takeAll(ledger, rows), []);
      return undefined;
    },
  },
  {
    title: "OL5 what was not done is free again, in its place",
    ways: ROW_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const rows = rowsOf(ledger);
      await add(ledger, textEvent("a1", "a"), textEvent("b1", "b"), textEvent("a2", "a"));
      const batch = await rows.claim(RELAY, 10, LEASE_MS, "block");
      assert.ok(batch);
      await add(ledger, textEvent("a3", "a"));
      assert.equal(await settleBatch(ledger, batch, idsOf(batch.events.slice(0, 1))), true);
      const next = await rows.claim(RELAY, 10, LEASE_MS, "block");
      assert.ok(next);
      assert.notEqual(next.id, batch.id);
      assert.deepEqual(payloadTexts(next.events), ["b1", "a2", "a3"]);
      assert.equal(await settleBatch(ledger, next, idsOf(next.events)), true);
      return undefined;
    },
  },
  {
    title: "OL5 the key of a held event is left alone",
    ways: ROW_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const rows = rowsOf(ledger);
      await add(ledger, textEvent("a1", "a"), textEvent("a2", "a"), textEvent("b1", "b"));
      const batch = await rows.claim(RELAY, 10, LEASE_MS, "block");
      assert.ok(batch);
      const [failed] = batch.events;
      assert.ok(failed);
      await ledger.transaction(async (tx) => {
        const { outbox } = ledger.in(tx);
        assert.equal(await rowsOf(ledger.in(tx)).settle(batch, [failed.id]), true);
        await outbox.held.change(RELAY, [heldOf(failed)], []);
      });
      const next = await takeAll(ledger, rows);
      assert.deepEqual(payloadTexts(next.flatMap(({ events }) => events)), ["b1"]);
      await ledger.transaction((tx) => ledger.in(tx).outbox.held.change(RELAY, [], [failed.id]));
      const last = await takeAll(ledger, rows);
      assert.deepEqual(payloadTexts(last.flatMap(({ events }) => events)), ["a2"]);
      return undefined;
    },
  },
  {
    title: "OL5 behind a dead event its key waits or goes on, as the relay wants it",
    ways: ROW_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const rows = rowsOf(ledger);
      await add(ledger, textEvent("a1", "a"), textEvent("b1", "b"));
      const batch = await rows.claim(RELAY, 10, LEASE_MS, "block");
      assert.ok(batch);
      await ledger.transaction(async (tx) => {
        const joined = ledger.in(tx);
        const [dead, waiting] = batch.events;
        assert.ok(dead && waiting);
        assert.equal(await rowsOf(joined).settle(batch, idsOf(batch.events)), true);
        await joined.outbox.held.change(
          RELAY,
          [heldOf(dead, { state: "dead" }), heldOf(waiting)],
          [],
        );
      });
      await add(ledger, textEvent("a2", "a"), textEvent("b2", "b"));
      assert.equal(await rows.claim(RELAY, 10, LEASE_MS, "block"), undefined);
      const next = await rows.claim(RELAY, 10, LEASE_MS, "continue");
      assert.ok(next);
      assert.deepEqual(payloadTexts(next.events), ["a2"]);
      assert.equal(await settleBatch(ledger, next, idsOf(next.events)), true);
      return undefined;
    },
  },
  {
    title: "OL5 with many relays at once every event is in one batch, in the order of its key",
    ways: ROW_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const ledgers = [ledger, await target.open(), await target.open()];
      const texts = Array.from({ length: 60 }, (_, index) => `${index % 4}.${index}`);
      for (const text of texts) await add(ledger, textEvent(text, text.slice(0, 1)));
      const batches = await Promise.all(ledgers.map((one) => takeAll(one, rowsOf(one), 3)));
      const all = batches.flat().toSorted((one, other) => one.token - other.token);
      const seen = payloadTexts(all.flatMap(({ events }) => events));
      assert.deepEqual(seen.toSorted(), texts.toSorted());
      for (const key of ["0", "1", "2", "3"]) {
        const ofKey = (text: string): boolean => text.startsWith(`${key}.`);
        assert.deepEqual(seen.filter(ofKey), texts.filter(ofKey));
      }
      return undefined;
    },
  },
];

async function untilTakenOver<Batch extends { readonly isTakeover: boolean }>(
  claim: () => Promise<Batch | undefined>,
): Promise<Batch> {
  // The lease of a millisecond ends before the next statement, or soon after.
  for (let attempt = 0; attempt < 1000; attempt += 1) {
    const batch = await claim();
    if (batch?.isTakeover === true) return batch;
    assert.equal(batch, undefined, "OL5 a batch under its lease is left alone");
  }
  throw new Error("OL5 the lost batch did not come again");
}

async function addAndRead(
  target: Parameters<OutboxCase["run"]>[0],
  texts: readonly string[],
): Promise<readonly OutboxEvent[]> {
  const ledger = await openFresh(target);
  const from = await mark(ledger.outbox);
  await add(ledger, ...texts.map((text) => textEvent(text, text.slice(0, 1))));
  return readAllEvents(ledger, from);
}

export const heldCases: readonly OutboxCase[] = [
  {
    title: "OL6 held events are kept with what failed, in the order in which they were added",
    ways: ALL_WAYS,
    run: async (target) => {
      const texts = Array.from({ length: 12 }, (_, index) => `${index % 3}.${index}`);
      const events = await addAndRead(target, texts);
      const [ledger, other] = [await target.open(), await target.open()];
      const puts = events.map((event, index) =>
        heldOf(event, {
          attempts: index,
          state: index === 4 ? "dead" : "waiting",
          dueInMs: index === 5 ? 3_600_000 : 0,
          reason: index === 6 ? undefined : { fingerprint: `f${index % 2}`, message: 'it\'s "so"' },
        }),
      );
      await ledger.transaction((tx) => ledger.in(tx).outbox.held.change(RELAY, puts, []));
      const { outbox } = other;
      const all = await outbox.held.list({ relay: RELAY, max: 100 });
      assert.deepEqual(
        all.map(({ dueInMs: _due, ...rest }) => rest),
        puts.map(({ dueInMs: _due, ...rest }) => rest),
      );
      for (const [index, { dueInMs }] of all.entries()) {
        if (index === 5) assert.ok(dueInMs > 3_000_000 && dueInMs <= 3_600_000);
        else assert.ok(dueInMs <= 0);
      }
      const texted = async (filter: object): Promise<readonly string[]> => {
        const held = await outbox.held.list({ relay: RELAY, max: 100, ...filter });
        return payloadTexts(held.map(({ event }) => event));
      };
      assert.deepEqual(await texted({ max: 2 }), texts.slice(0, 2));
      assert.deepEqual(await texted({ key: "1" }), ["1.1", "1.4", "1.7", "1.10"]);
      assert.deepEqual(await texted({ key: "1", state: "waiting" }), ["1.1", "1.7", "1.10"]);
      assert.deepEqual(await texted({ state: "dead" }), ["1.4"]);
      assert.deepEqual(await texted({ fingerprint: "f1", key: "1" }), ["1.1", "1.7"]);
      assert.deepEqual(await texted({ isDue: true, key: "2" }), ["2.2", "2.8", "2.11"]);
      const ids = [events[11]?.id ?? "", events[0]?.id ?? "", "no such id"];
      assert.deepEqual(await texted({ ids }), ["0.0", "2.11"]);
      assert.deepEqual(await texted({ ids: [] }), []);
      const keysOf = async (state?: "waiting" | "dead"): Promise<readonly string[]> => {
        const keys = await outbox.held.keys(RELAY, ["0", "2", "1", "1", "none"], state);
        return [...keys].toSorted();
      };
      assert.deepEqual(await keysOf(), ["0", "1", "2"]);
      assert.deepEqual(await keysOf("dead"), ["1"]);
      assert.deepEqual([...(await outbox.held.keys(RELAY, []))], []);
      assert.equal(await outbox.held.count({ relay: RELAY, max: 100 }), 12);
      assert.equal(await outbox.held.count({ relay: RELAY, state: "waiting", max: 100 }), 11);
      assert.equal(await outbox.held.count({ relay: RELAY, key: "1", max: 3 }), 3);
      return undefined;
    },
  },
  {
    title: "OL6 a held event changes in its place, goes by its id, and is its relay's own",
    ways: ALL_WAYS,
    run: async (target) => {
      const events = await addAndRead(target, ["a1", "a2", "b1"]);
      const ledger = await target.open();
      const hold = (relay: string, puts: readonly OutboxEvent[], removes: readonly string[] = []) =>
        ledger.transaction((tx) =>
          ledger.in(tx).outbox.held.change(
            relay,
            puts.map((event) => heldOf(event, { relay, attempts: 7 })),
            removes,
          ),
        );
      const texts = async (relay: string): Promise<readonly string[]> =>
        payloadTexts((await ledger.outbox.held.list({ relay, max: 10 })).map(({ event }) => event));
      await hold(RELAY, events);
      await hold(OTHER_RELAY, events.slice(1));
      await hold(RELAY, events.slice(0, 1));
      assert.deepEqual(await texts(RELAY), ["a1", "a2", "b1"]);
      await hold(RELAY, [], [events[1]?.id ?? "", "no such id"]);
      assert.deepEqual(await texts(RELAY), ["a1", "b1"]);
      assert.deepEqual(await texts(OTHER_RELAY), ["a2", "b1"]);
      await hold(RELAY, [], [events[0]?.id ?? ""]);
      assert.deepEqual([...(await ledger.outbox.held.keys(RELAY, ["a", "b"]))], ["b"]);
      return undefined;
    },
  },
  {
    title: "OL6 held events change with the entries of their transaction, or not at all",
    ways: ALL_WAYS,
    run: async (target) => {
      const events = await addAndRead(target, ["a1", "b1"]);
      const ledger = await target.open();
      const [first, second] = events;
      assert.ok(first && second);
      await ledger.transaction((tx) =>
        ledger.in(tx).outbox.held.change(RELAY, [heldOf(first)], []),
      );
      const failing = ledger.transaction(async (tx) => {
        const joined = ledger.in(tx);
        await joined.outbox.held.change(RELAY, [heldOf(second)], [first.id]);
        const keys = await joined.outbox.held.keys(RELAY, ["a", "b"]);
        assert.deepEqual([...keys], ["b"]);
        throw new Error("it broke");
      });
      await assert.rejects(failing, /it broke/);
      assert.deepEqual([...(await ledger.outbox.held.keys(RELAY, ["a", "b"]))], ["a"]);
      return undefined;
    },
  },
];

export const cleanCases: readonly OutboxCase[] = [
  {
    title:
      "OL7 OL6 cleaning takes what every relay is past, so many at once, and nothing that is held",
    ways: LOG_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const log = spansOf(ledger);
      const slow = await log.start("end", RELAY);
      await add(ledger, ...["a1", "a2", "a3", "a4"].map((text) => textEvent(text, "a")));
      const { to: middle, pages } = await follow(log, slow, 100);
      const events = pages.flat();
      const [first] = events;
      assert.ok(first);
      await ledger.transaction((tx) =>
        ledger.in(tx).outbox.held.change(RELAY, [heldOf(first)], []),
      );
      await add(ledger, ...["b1", "b2"].map((text) => textEvent(text, "b")));
      const { to: fast } = await follow(log, middle, 100);

      assert.equal(await log.clean([], 0, 100), 0);
      await log.clean([fast, slow], 0, 100);
      assert.deepEqual(payloadTexts((await follow(log, slow, 100)).pages.flat()).length, 6);
      await log.clean([fast, middle], 3_600_000, 100);
      assert.deepEqual(payloadTexts((await follow(log, slow, 100)).pages.flat()).length, 6);

      // Events that other cases left may be cleaned first.
      for (let round = 0; round < 50; round += 1) {
        assert.ok((await log.clean([middle, fast], 0, 2)) <= 2);
      }
      const rest = payloadTexts((await follow(log, middle, 100)).pages.flat());
      assert.deepEqual(rest, ["b1", "b2"]);
      const held = await ledger.outbox.held.list({ relay: RELAY, max: 10 });
      assert.deepEqual(
        held.map(({ event }) => event),
        [first],
      );
      return undefined;
    },
  },
  {
    title: "OL7 the lag is that of the oldest event which is not passed",
    ways: ALL_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const from = await mark(ledger.outbox);
      assert.equal((await ledger.outbox.lag(from)).oldestMs, 0);
      await add(ledger, textEvent("a1", "a"));
      const { oldestMs } = await ledger.outbox.lag(from);
      assert.ok(oldestMs >= 0 && oldestMs < 600_000);
      if (ledger.outbox.way === "rows") await takeAll(ledger, ledger.outbox.rows);
      const to = from === undefined ? undefined : (await follow(spansOf(ledger), from, 10)).to;
      assert.equal((await ledger.outbox.lag(to)).oldestMs, 0);
      return undefined;
    },
  },
];
