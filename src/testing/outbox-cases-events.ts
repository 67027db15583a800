/** Cases of the outbox: events, spans, and what was added when. OL1 to OL4. */

import { strict as assert } from "node:assert";
import type { Ledger, Place } from "../toolkit/ledgers/ledger.ts";
import {
  ALL_WAYS,
  LOG_WAYS,
  add,
  textEvent,
  follow,
  gate,
  idsOf,
  mark,
  openFresh,
  type OutboxCase,
  readAllEvents,
  RELAY,
  spansOf,
  payloadTexts,
  whyNotTwo,
} from "./outbox-case-kit.ts";

export const eventCases: readonly OutboxCase[] = [
  {
    title: "OL1 an event comes as it was added",
    ways: ALL_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const from = await mark(ledger.outbox);
      const payload = Uint8Array.from({ length: 256 }, (_, index) => index);
      const headers = { traceparent: "00-ab-cd-01", "odd \"name'": "äöü %s \n 漢" };
      const ids = await add(
        ledger,
        { topic: "orders", key: "k'1\"", payload, headers },
        { topic: "", key: "", payload: new Uint8Array(0) },
        { topic: "orders", payload },
      );
      const events = await readAllEvents(ledger, from);
      assert.deepEqual(idsOf(events), ids);
      assert.equal(new Set(ids).size, 3);
      assert.deepEqual(
        events.map(({ id: _id, addedAtMs: _at, ...rest }) => rest),
        [
          { topic: "orders", key: "k'1\"", payload, headers },
          { topic: "", key: "", payload: new Uint8Array(0), headers: {} },
          { topic: "orders", key: undefined, payload, headers: {} },
        ],
      );
      for (const { addedAtMs } of events) assert.ok(addedAtMs > 0, "it has a time");
      return undefined;
    },
  },
  {
    title: "OL1 what a transaction added is there with it, and gone with it",
    ways: ALL_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const from = await mark(ledger.outbox);
      const failing = ledger.transaction(async (tx) => {
        await ledger.in(tx).outbox.add(tx, [textEvent("never", "a"), textEvent("nowhere")]);
        throw new Error("it broke");
      });
      await assert.rejects(failing, /it broke/);
      await add(ledger, textEvent("one", "a"), textEvent("two", "a"));
      await assert.rejects(
        ledger.transaction(async (tx) => {
          await ledger.in(tx).outbox.add(tx, [textEvent("never", "a")]);
          throw new Error("it broke");
        }),
      );
      await add(ledger);
      await add(ledger, textEvent("three", "a"));
      assert.deepEqual(payloadTexts(await readAllEvents(ledger, from)), ["one", "two", "three"]);
      return undefined;
    },
  },
  {
    title: "OL1 no reader sees an event before its transaction is committed",
    ways: ALL_WAYS,
    run: async (target) => {
      const [ledger, other] = [await openFresh(target), await target.open()];
      const reason = whyNotTwo(ledger);
      if (reason !== undefined) return reason;
      const from = await mark(ledger.outbox);
      await ledger.transaction(async (tx) => {
        await ledger.in(tx).outbox.add(tx, [textEvent("late", "a")]);
        assert.deepEqual(await readAllEvents(other, from), []);
      });
      assert.deepEqual(payloadTexts(await readAllEvents(other, from)), ["late"]);
      return undefined;
    },
  },
  {
    title: "OL2 a span has the same events whenever it is read, by whomever",
    ways: LOG_WAYS,
    run: async (target) => {
      const [ledger, other] = [await openFresh(target), await target.open()];
      const [log, otherLog] = [spansOf(ledger), spansOf(other)];
      const from = await log.start("end", RELAY);
      for (const text of ["a", "b", "c"]) await add(ledger, textEvent(text, text));
      const span = await log.plan(from, 10);
      assert.ok(span);
      const first = await log.read(span);
      assert.deepEqual(payloadTexts(first), ["a", "b", "c"]);
      await add(other, textEvent("d", "a"));
      assert.deepEqual(await log.read(span), first);
      assert.deepEqual(await otherLog.read(span), first);
      const rest = await follow(otherLog, span.to, 10);
      assert.deepEqual(payloadTexts(rest.pages.flat()), ["d"]);
      return undefined;
    },
  },
  {
    title: "OL2 a span does not change when a transaction ends that was open when it was planned",
    ways: LOG_WAYS,
    run: async (target) => {
      const [ledger, other] = [await openFresh(target), await target.open()];
      const reason = whyNotTwo(ledger);
      if (reason !== undefined) return reason;
      const log = spansOf(ledger);
      const from = await log.start("end", RELAY);
      const [begun, end] = [gate(), gate()];
      const late = ledger.transaction(async (tx) => {
        await ledger.in(tx).outbox.add(tx, [textEvent("late", "a")]);
        begun.open();
        await end.opened;
      });
      await begun.opened;
      await add(other, textEvent("early", "b"));
      const span = await log.plan(from, 10);
      assert.ok(span);
      const before = await log.read(span);
      end.open();
      await late;
      assert.deepEqual(await log.read(span), before);
      assert.deepEqual(await spansOf(other).read(span), before);
      const { pages } = await follow(log, span.to, 10);
      assert.deepEqual(payloadTexts([...before, ...pages.flat()]), ["early", "late"]);
      return undefined;
    },
  },
  {
    title: "OL3 spans that follow each other have every event once, in pages",
    ways: LOG_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const log = spansOf(ledger);
      const from = await log.start("end", RELAY);
      assert.equal((await follow(log, from, 10)).pages.length, 0);
      const texts = Array.from({ length: 45 }, (_, index) => `e${index}`);
      for (let at = 0; at < texts.length; at += 3) {
        await add(ledger, ...texts.slice(at, at + 3).map((text) => textEvent(text, `k${at % 5}`)));
      }
      const { to, pages } = await follow(log, from, 10);
      assert.deepEqual(payloadTexts(pages.flat()), texts);
      assert.ok(
        pages.every((page) => page.length <= 10),
        "no more than asked for",
      );
      assert.equal((await follow(log, to, 10)).pages.length, 0);
      const again = await follow(spansOf(await target.open()), from, 7);
      assert.deepEqual(payloadTexts(again.pages.flat()), texts);
      return undefined;
    },
  },
  {
    title: "OL3 an event that commits late is in a later span, and nothing waits for it",
    ways: ALL_WAYS,
    run: async (target) => {
      const [ledger, other] = [await openFresh(target), await target.open()];
      const reason = whyNotTwo(ledger);
      if (reason !== undefined) return reason;
      let from = await mark(ledger.outbox);
      const [begun, end] = [gate(), gate()];
      const late = ledger.transaction(async (tx) => {
        await ledger.in(tx).outbox.add(tx, [textEvent("late", "a")]);
        begun.open();
        await end.opened;
      });
      await begun.opened;
      const seen: string[] = [];
      for (const text of ["one", "two"]) {
        await add(other, textEvent(text, text));
        seen.push(...payloadTexts(await readAllEvents(other, from)));
        if (from !== undefined) from = (await follow(spansOf(other), from, 100)).to;
        assert.equal(seen.at(-1), text);
      }
      end.open();
      await late;
      seen.push(...payloadTexts(await readAllEvents(other, from)));
      assert.deepEqual(seen, ["one", "two", "late"]);
      return undefined;
    },
  },
  {
    title: "OL3 with many at once, some of which fail, every committed event comes once",
    ways: ALL_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const ledgers = [ledger, await target.open(), await target.open()];
      const start = await mark(ledger.outbox);
      const expected: string[] = [];
      const work = ledgers.flatMap((one, writer) =>
        Array.from({ length: 12 }, async (_, index) => {
          const texts = [`${writer}.${index}.a`, `${writer}.${index}.b`];
          if (index % 4 !== 3) expected.push(...texts);
          await one
            .transaction(async (tx) => {
              for (const text of texts) {
                await one.in(tx).outbox.add(tx, [textEvent(text, `w${writer}`)]);
              }
              if (index % 4 === 3) throw new Error("on purpose");
            })
            .catch((error: unknown) => {
              assert.match(String(error), /on purpose/);
            });
        }),
      );
      let isOver = false;
      const writing = Promise.all(work).finally(() => (isOver = true));
      const seen: string[] = [];
      let from = start;
      while (!isOver) {
        seen.push(...payloadTexts(await readAllAndMove()));
        await letOthers(ledger);
      }
      await writing;
      seen.push(...payloadTexts(await readAllAndMove()));
      assert.deepEqual(seen.toSorted(), expected.toSorted());
      return undefined;

      async function readAllAndMove() {
        const { outbox } = ledger;
        if (outbox.way === "rows") return readAllEvents(ledger, undefined);
        const { to, pages } = await follow(outbox.spans, from ?? "", 5);
        from = to;
        return pages.flat();
      }
    },
  },
  {
    title: "OL3 a wait ends in time, and when it is given up",
    ways: ALL_WAYS,
    run: async (target) => {
      const { outbox } = await openFresh(target);
      await outbox.wait(5, new AbortController().signal);
      const stop = new AbortController();
      const waiting = outbox.wait(60_000, stop.signal);
      stop.abort();
      await waiting;
      await outbox.wait(60_000, stop.signal);
      return undefined;
    },
  },
  {
    title: "OL4 events of one key are in the order of transactions that excluded each other",
    ways: ALL_WAYS,
    run: async (target) => {
      const ledger = await openFresh(target);
      const ledgers = [ledger, await target.open(), await target.open(), await target.open()];
      const from = await mark(ledger.outbox);
      const place = await counterOf(ledger);
      const work = ledgers.flatMap((one) =>
        Array.from({ length: 8 }, () => addCounted(one, place, "counted")),
      );
      let isOver = false;
      const writing = Promise.all(work).finally(() => (isOver = true));
      const seen: string[] = [];
      let at = from;
      do {
        const { outbox } = ledger;
        if (outbox.way === "rows")
          seen.push(...payloadTexts(await readAllEvents(ledger, undefined)));
        else {
          const { to, pages } = await follow(outbox.spans, at ?? "", 4);
          at = to;
          seen.push(...payloadTexts(pages.flat()));
        }
        await letOthers(ledger);
      } while (!isOver);
      await writing;
      seen.push(...payloadTexts(await readAllEvents(ledger, at)));
      const expected = Array.from({ length: 32 }, (_, index) => String(index + 1));
      assert.deepEqual(seen, expected);
      return undefined;
    },
  },
];

/** Gives waiting writers time: a client that answers at once leaves them none. */
function letOthers<Tx>({ outbox }: Ledger<Tx>): Promise<void> {
  return outbox.wait(1, new AbortController().signal);
}

/** Makes a counter behind the lock of an entry. */
async function counterOf<Tx>({ entries }: Ledger<Tx>): Promise<Place> {
  const place: Place = { kind: "conformance", scope: "outbox", key: "counter" };
  const found = await entries.find(place);
  if (found !== undefined) {
    const { token, revision } = found;
    await entries.remove(place, { kind: "unchanged", token, revision });
  }
  await entries.put(place, { kind: "absent" }, writeOf(0));
  return place;
}

function writeOf(count: number) {
  return {
    state: "done",
    token: "next",
    attempts: count,
    leaseMs: undefined,
    keepMs: undefined,
    fingerprint: { value: undefined },
    data: { value: undefined },
  } as const;
}

async function addCounted<Tx>(ledger: Ledger<Tx>, place: Place, key: string): Promise<void> {
  await ledger.transaction(async (tx) => {
    const { entries, outbox } = ledger.in(tx);
    const entry = await entries.find(place);
    assert.ok(entry);
    const { token, revision, attempts } = entry;
    const count = attempts + 1;
    const written = await entries.put(
      place,
      { kind: "unchanged", token, revision },
      writeOf(count),
    );
    assert.ok(written, "LG2 the entry is locked since it was found");
    await outbox.add(tx, [textEvent(String(count), key)]);
  });
}
