// Relays that will not come back, and what would go wrong if they did.
import { expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import {
  createDeadLetters,
  createOutbox,
  createRelay,
  forgetRelay,
  functionPublisher,
  type Publisher,
} from "../../src/toolkit/outbox.ts";
import { hapaxPublisher } from "../../src/toolkit/outbox/hapax-publisher.ts";
import { openStage as openServer } from "../processing/stage.ts";
import { openStage, pump, textOf, turns } from "./relay-kit.ts";

const nothing = functionPublisher(() => Promise.resolve());
const broken = functionPublisher(() => Promise.reject(new Error("no route")));

test("a relay cannot be forgotten while it runs, and can when its lease is over", async () => {
  const { ledger, clock, add } = openStage();
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  const slow = functionPublisher(() => opened, { clock });
  await add("a.1");
  const running = createRelay(ledger, slow, { clock, leaseMs: 1000 }).runOnce();
  await turns(5);
  await expect(forgetRelay(ledger, "relay")).rejects.toMatchObject({ code: "in_progress" });
  open();
  await running;
  expect(await forgetRelay(ledger, "relay")).toMatchObject({ isFound: true, isUnfinished: false });
  expect(await forgetRelay(ledger, "relay")).toMatchObject({ isFound: false });
  await expect(forgetRelay(ledger, "no name")).rejects.toMatchObject({ code: "invalid_request" });
});

test("events are deleted without a forgotten relay, and its held ones are kept or thrown away as told", async () => {
  const { ledger, clock, add } = openStage();
  const run = (name: string, publisher: Publisher) =>
    createRelay(ledger, publisher, { name, clock, retry: { attemptsMax: 1 } }).runOnce();
  const left = async (): Promise<number> => {
    const { outbox } = ledger;
    if (outbox.way === "rows") throw new Error("no spans");
    return (await outbox.spans.read({ from: "0", to: "1000000" })).length;
  };
  const keys = Array.from({ length: 1100 }, (_, index) => `k${index}.1`);
  await add("a.1");
  await run("old", nothing);
  await add(...keys);
  await run("bad", broken);
  await run("new", nothing);
  expect(await left()).toBe(1100);
  await forgetRelay(ledger, "old");
  await add("b.1");
  await run("new", nothing);
  await forgetRelay(ledger, "bad", { discardsHeld: false });
  const letters = createDeadLetters(ledger, { relay: "bad" });
  expect(await letters.list({ max: 2000 })).toHaveLength(1100);
  expect(await forgetRelay(ledger, "bad", { discardsHeld: true })).toEqual({
    isFound: true,
    heldKept: 0,
    heldDiscarded: 1100,
    isUnfinished: false,
    position: undefined,
  });
  expect(await letters.list()).toEqual([]);
  await run("new", nothing);
  expect(await left()).toBe(0);
});

test("a relay that is made anew under an old name loses nothing at a target that remembers its numbers", async () => {
  const { direct: connection, close } = await openServer();
  try {
    const { ledger } = openStage();
    const outbox = createOutbox(ledger);
    const publisher = hapaxPublisher({
      connection,
      streamOf: () => "/v1/stream/orders",
      create: {},
      hasEnvelope: false,
    });
    const relay = () => createRelay(ledger, publisher, { from: "end" });
    const send = async (payload: number): Promise<void> => {
      await relay().runOnce();
      await ledger.transaction((tx) => outbox.add(tx, { topic: "orders", payload: { payload } }));
      await relay().runOnce();
    };
    await send(1);
    await forgetRelay(ledger, "relay");
    await send(2);
    const values = await connection.stream("/v1/stream/orders").read().values();
    expect(values).toEqual([{ payload: 1 }, { payload: 2 }]);
  } finally {
    await close();
  }
});

/** The ledger, but `clean` waits until it may go on. */
function withSlowClean<Tx>(ledger: Ledger<Tx>, wait: () => Promise<void>): Ledger<Tx> {
  const slowed = (one: Ledger<Tx>): Ledger<Tx> => {
    const { outbox } = one;
    if (outbox.way === "rows") throw new Error("no spans");
    return {
      ...one,
      entries: one.entries,
      outbox: {
        ...outbox,
        spans: {
          ...outbox.spans,
          clean: async (...given) => {
            await wait();
            return await outbox.spans.clean(...given);
          },
        },
      },
      in: (tx) => slowed(one.in(tx)),
    };
  };
  return slowed(ledger);
}

test("a relay that begins while others delete keeps the stretch that it has planned", async () => {
  const { ledger, clock, add } = openStage();
  await add("a.1", "b.1", "c.1");
  const done: string[] = [];
  let isCleaning = false;
  let goOn: () => void = () => undefined;
  const maySweep = new Promise<void>((resolve) => (goOn = resolve));
  const slow = withSlowClean(ledger, async () => {
    isCleaning = true;
    await maySweep;
  });
  const cleaner = createRelay(slow, nothing, { name: "old", clock }).runOnce();
  await pump(clock, () => isCleaning);
  // Begins, plans all three, and dies when one is published.
  const life = new AbortController();
  const publisher = functionPublisher(async (event) => {
    if (textOf(event) === "b.1" && !life.signal.aborted) {
      life.abort();
      throw new Error("dying");
    }
    done.push(textOf(event));
  });
  const begin = () => createRelay(ledger, publisher, { name: "new", clock, concurrency: 1 });
  const dying = begin()
    .runOnce(life.signal)
    .catch(() => undefined);
  await turns(50);
  goOn();
  await cleaner;
  await dying;
  await turns(5);
  await begin().runOnce();
  // What was there when it began, as a whole, or what was left behind the deletion.
  expect([[], ["a.1", "b.1", "c.1"]]).toContainEqual([...new Set(done)].toSorted());
});
