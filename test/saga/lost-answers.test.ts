// SA2 SA4: the answer to a write is lost, and a signal or an operator's act comes before it is looked up.
import { describe, expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import type { MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import { createSagas, defineSaga, type SagaView } from "../../src/toolkit/saga.ts";
import { boom, flush, ID, stage } from "./stage.ts";

type Shop = Ledger<MemoryTransaction>;

const REF = { saga: "order", ...ID };
const LOST = "Connection terminated unexpectedly";

/** The ledger of a process that loses the answer to one commit. Before it can look it up, `then` happens. */
function losingCommit(ledger: Shop, isIt: () => boolean, then: () => Promise<unknown>): Shop {
  let isLost = false;
  return {
    ...ledger,
    in: (tx) => ledger.in(tx),
    transaction: async (work, signal) => {
      const result = await ledger.transaction(work, signal);
      if (isLost || !isIt()) return result;
      isLost = true;
      await then();
      throw new Error(LOST);
    },
  };
}

/** The same for one write that has these words in its data. */
function losingRecord(ledger: Shop, words: string, then: () => Promise<unknown>): Shop {
  let isLost = false;
  const { entries } = ledger;
  return {
    ...ledger,
    in: (tx) => ledger.in(tx),
    entries: {
      ...entries,
      put: async (place, expected, write) => {
        const written = await entries.put(place, expected, write);
        const text = write.data === "same" ? "" : new TextDecoder().decode(write.data.value);
        if (isLost || written === undefined || !text.includes(words)) return written;
        isLost = true;
        await then();
        throw new Error(LOST);
      },
    },
  };
}

const retry = { attemptsMax: 3, pauseMs: 100, pauseMsMax: 100 };

/** Two steps in the database, a parcel that may be refused, and a signal. */
function shopOf() {
  const { ledger, options, log, advance, write, fail, next } = stage();
  const order = defineSaga<string, MemoryTransaction>("order")
    .tx("open", {
      run: ({ tx }) => write(tx, "open"),
      undo: ({ tx }) => write(tx, "close"),
      retry,
    })
    .tx("charge", {
      run: ({ tx }) => write(tx, "charge"),
      undo: ({ tx }) => write(tx, "refund"),
      retry,
    })
    .call("ship", {
      run: async () => {
        await next("ship");
        log.push("ship");
      },
      retry,
      isFinal: (error) => error instanceof RangeError,
    })
    .signal("paid");
  const others = createSagas(ledger, [order], options);
  const acts = {
    signal: () => others.signal(REF, "paid", 1),
    abort: () => others.abort(REF, { by: "ann" }),
  };
  const run = async (mine: Shop): Promise<SagaView | undefined> => {
    await createSagas(mine, [order], options).start(order, ID, "a");
    await advance(1_000);
    return await others.find(REF);
  };
  return { ledger, log, fail, acts, run };
}

function timesOf(view: SagaView | undefined, what: string, step: string): number {
  return view?.history.filter((one) => one.what === what && one.step === step).length ?? 0;
}

describe("an answer that is lost, and an act before the write is looked up", () => {
  test.each([
    ["signal", "completed", ["open", "charge", "ship"]],
    ["abort", "undone", ["open", "charge", "refund", "close"]],
  ] as const)(
    "SA2 SA4 a tx step that is committed counts once, also if its answer is lost and a %s comes",
    async (act, state, expected) => {
      const { ledger, log, acts, run } = shopOf();
      const view = await run(losingCommit(ledger, () => log.includes("charge"), acts[act]));
      expect(log).toEqual(expected);
      expect(view?.state).toBe(state);
      expect(timesOf(view, "done", "charge")).toBe(1);
      expect(timesOf(view, "failed", "charge")).toBe(0);
    },
  );

  test("SA4 SA5 an undo that is committed counts once, also if its answer is lost and a signal comes", async () => {
    const { ledger, log, fail, acts, run } = shopOf();
    fail("ship", () => {
      throw new RangeError("no stock");
    });
    const view = await run(losingCommit(ledger, () => log.includes("refund"), acts.signal));
    expect(log).toEqual(["open", "charge", "refund", "close"]);
    expect(view?.state).toBe("undone");
    expect(timesOf(view, "undone", "charge")).toBe(1);
  });

  test("a failure counts once, also if the answer to its record is lost and a signal comes", async () => {
    const { ledger, log, fail, acts, run } = shopOf();
    fail("ship", boom);
    const view = await run(losingRecord(ledger, '"what":"failed"', acts.signal));
    expect(view?.state).toBe("completed");
    expect(timesOf(view, "failed", "ship")).toBe(1);
    expect(view?.steps.find(({ name }) => name === "ship")?.attempts).toBe(2);
    expect(log).toEqual(["open", "charge", "ship"]);
  });

  test("an intent counts once, also if the answer to its record is lost and a signal comes", async () => {
    const { ledger, log, acts, run } = shopOf();
    const view = await run(losingRecord(ledger, '"what":"began","step":"ship"', acts.signal));
    expect(view?.state).toBe("completed");
    expect(timesOf(view, "began", "ship")).toBe(1);
    expect(log).toEqual(["open", "charge", "ship"]);
  });

  test("a failure counts once, also if the answer to its record is lost and another branch writes first", async () => {
    const { ledger, options, advance } = stage();
    let open: () => void = () => undefined;
    let tries = 0;
    const two = defineSaga<string, MemoryTransaction>("order").parallel("both", (branches) =>
      branches
        .call("left", {
          run: () => {
            tries += 1;
            if (tries === 1) throw new Error("no");
          },
          retry,
        })
        .call("right", { run: () => new Promise<void>((resolve) => (open = resolve)), retry }),
    );
    const lossy = losingRecord(ledger, '"what":"failed"', async () => {
      open();
      await flush();
    });
    const sagas = createSagas(lossy, [two], options);
    await sagas.start(two, ID, "a");
    await advance(2_000);
    const view = await sagas.find(REF);
    expect(view?.state).toBe("completed");
    expect(timesOf(view, "failed", "left")).toBe(1);
    expect(tries).toBe(2);
  });
});
