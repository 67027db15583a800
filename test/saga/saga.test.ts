// What a saga does, on a ledger in memory whose time is moved by hand.
import { describe, expect, test } from "vitest";
import { createSagas, defineSaga, describeSaga } from "../../src/toolkit/saga.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { boom, flush, ID, REF, stage } from "./stage.ts";

const INPUT = { cents: 5 };
const WHOLE = ["reserve", "charge", "label", "send"];

describe("a saga", () => {
  test("G53 runs its steps in order, and each gets the results before it", async () => {
    const { ledger, checkout, options, log, count } = stage();
    const sagas = createSagas(ledger, [checkout], options);
    const ended = await sagas.start(checkout, ID, INPUT, { waitMs: 1_000 });
    expect(ended).toMatchObject({ state: "completed", isDuplicate: false });
    if (ended.state !== "completed") return;
    expect(ended.results).toEqual({
      reserve: { shelf: 5 },
      charge: { receipt: "r5" },
      label: { id: "l-r5" },
      send: undefined,
    });
    expect(log).toEqual(WHOLE);
    expect(count("saga_steps_total checkout done")).toBe(4);
  });

  test("SA7 a caller who waits goes on with what no process drives, without a runner", async () => {
    const { ledger, checkout, options, advance, log } = stage();
    const sagas = createSagas(ledger, [checkout], options);
    await ledger.transaction((tx) => sagas.in(tx).start(checkout, ID, INPUT));
    expect(log).toEqual([]);
    const ended = await sagas.start(checkout, ID, INPUT, { waitMs: 1_000 });
    expect(ended).toMatchObject({ state: "completed", isDuplicate: true });
    expect(log).toEqual(WHOLE);

    // A process that dies once the saga is stored keeps it for the rest of its lease, and no longer.
    const other = { ...ID, key: "order 2" };
    setFailpoint((name) => {
      if (name === "saga.started") throw new Error("killed");
    });
    await expect(sagas.start(checkout, other, INPUT)).rejects.toThrow("killed");
    setFailpoint(undefined);
    const second = createSagas(ledger, [checkout], { ...options, everyMs: 86_400_000 });
    const waited = second.start(checkout, other, INPUT, { waitMs: 60_000 });
    await advance(60_000);
    expect(await waited).toMatchObject({ state: "completed", isDuplicate: true });
    expect(log).toEqual([...WHOLE, ...WHOLE]);
    // A caller who does not wait leaves it to runners.
    const third = { ...ID, key: "order 3" };
    await ledger.transaction((tx) => sagas.in(tx).start(checkout, third, INPUT));
    expect(await sagas.start(checkout, third, INPUT)).toMatchObject({ state: "running" });
    await flush();
    expect(log).toHaveLength(8);
  }, 10_000);

  test("SA3 gives each step a key that is the same in every attempt, and its undo another one", async () => {
    const { ledger, checkout, options, fail, keys, advance, log } = stage();
    fail("charge", boom, boom);
    fail("send", boom);
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await advance(1_000);
    expect((await sagas.find(REF))?.state).toBe("undone");
    const key = "shop/checkout/order%201/charge";
    expect(keys).toEqual([key, key, key, `${key}/undo`]);
    expect(log.filter((one) => one === "charge")).toHaveLength(1);
  });

  test("SA4 is undone in reverse order, with what each step has returned", async () => {
    const { ledger, checkout, options, fail, log } = stage();
    fail("send", boom);
    const sagas = createSagas(ledger, [checkout], options);
    const ended = await sagas.start(checkout, ID, INPUT, { waitMs: 1_000 });
    expect(ended).toMatchObject({
      state: "undone",
      cause: { step: "send", name: "Error", message: "boom" },
    });
    expect(log.slice(3)).toEqual(["cancel l-r5", "refund r5", "release 5"]);
  });

  test("SA3 an undo gets the key that its step was sent with", async () => {
    const { ledger, options, advance } = stage();
    const seen: Record<string, string> = {};
    const pay = defineSaga<string>("pay")
      .call("charge", {
        run: ({ key }) => void (seen["run"] = key),
        undo: ({ key, runKey }) => void Object.assign(seen, { undo: key, runKey }),
      })
      .call("ship", { run: boom, isFinal: () => true });
    const sagas = createSagas(ledger, [pay], options);
    await sagas.start(pay, ID, "");
    await advance(50);
    expect(seen["runKey"]).toBe(seen["run"]);
    expect(seen["undo"]).not.toBe(seen["run"]);
    expect((await sagas.find({ saga: "pay", ...ID }))?.state).toBe("undone");
  });

  test("SA4 a call without an answer is undone as unknown, one that failed for certain is not", async () => {
    const lost = stage();
    lost.fail("charge", boom, boom, boom);
    const sagas = createSagas(lost.ledger, [lost.checkout], lost.options);
    await sagas.start(lost.checkout, ID, INPUT);
    await lost.advance(1_000);
    expect(lost.log).toEqual(["reserve", "charge", "refund unknown", "release 5"]);
    const declined = stage();
    declined.fail("charge before", () => {
      throw new RangeError("declined");
    });
    const others = createSagas(declined.ledger, [declined.checkout], declined.options);
    const ended = await others.start(declined.checkout, ID, INPUT, { waitMs: 1_000 });
    expect(ended.state).toBe("undone");
    expect(declined.log).toEqual(["reserve", "release 5"]);
  });

  test("SA2 the intent of a call is stored before it is sent", async () => {
    const { ledger, checkout, options, fail } = stage();
    const seen: unknown[] = [];
    const sagas = createSagas(ledger, [checkout], options);
    const look = async () =>
      void seen.push((await sagas.find(REF))?.steps.map(({ name, state }) => `${name} ${state}`));
    fail("charge before", look);
    fail("label before", look);
    fail("cancel before", look);
    fail("send", boom);
    await sagas.start(checkout, ID, INPUT, { waitMs: 1_000 });
    expect(seen).toEqual([
      ["reserve done", "charge open"],
      ["reserve done", "charge done", "label open"],
      ["reserve done", "charge done", "label undoing", "send failed"],
    ]);
  });

  test("SA2 a tx step that throws leaves nothing behind, and is tried again", async () => {
    const { ledger, checkout, options, fail, log, advance } = stage();
    fail("reserve", boom, boom);
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await flush();
    expect(log).toEqual([]);
    await advance(500);
    expect(log).toEqual(WHOLE);
  });

  test("SA5 an undo is tried again, and its effect is asked for first if it can be", async () => {
    const { ledger, checkout, options, fail, log, advance } = stage();
    fail("send", boom);
    fail("cancel", boom);
    fail("release", boom);
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await advance(1_000);
    expect((await sagas.find(REF))?.state).toBe("undone");
    expect(log.slice(3)).toEqual(["cancel l-r5", "asked", "refund r5", "release 5"]);
  });

  test("a probe step is asked before it is repeated, and what is there is recorded", async () => {
    const { ledger, checkout, options, fail, log, advance } = stage();
    fail("label before", boom);
    fail("label", boom);
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await advance(1_000);
    // Not there: repeated. There, and its answer lost: recorded.
    expect(log).toEqual(["reserve", "charge", "asked", "label", "asked", "send"]);
    expect(await sagas.start(checkout, ID, INPUT)).toMatchObject({
      state: "completed",
      isDuplicate: true,
      results: { label: { id: "l-found" } },
    });
  });

  test("a call that hangs is given up after timeoutMs, and its signal aborts", async () => {
    const { ledger, checkout, options, fail, log, advance } = stage();
    fail("charge before", () => new Promise(() => undefined));
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await advance(6_000);
    expect(log).toEqual(WHOLE);
    const view = await sagas.find(REF);
    expect(view?.history.map(({ what }) => what)).toContain("failed");
  });

  test("SA6 is stuck with a reason when an undo is exhausted, and goes on when an operator retries", async () => {
    const { ledger, checkout, options, fail, log, advance, levels } = stage();
    fail("send", boom);
    fail("refund", boom, boom, boom);
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await advance(1_000);
    const [stuck] = await sagas.list({ state: "stuck" });
    expect(stuck?.stuck).toEqual({ reason: "undo_exhausted", step: "charge", message: "boom" });
    await sagas.measure();
    expect(levels.get("sagas stuck")).toBe(1);
    expect((await sagas.runDue()).ran).toBe(0);
    await sagas.retry(REF, { by: "ann", note: "provider is back" });
    await sagas.runDue();
    const ended = await sagas.find(REF);
    expect(ended?.state).toBe("undone");
    expect(ended?.history).toContainEqual(
      expect.objectContaining({ what: "retry", by: "ann", note: "provider is back" }),
    );
    expect(log.at(-1)).toBe("release 5");
    await expect(sagas.retry(REF, { by: "ann" })).rejects.toMatchObject({ code: "act_refused" });
  });

  test("SA6 an outcome that stays unknown is stuck after deadlineMs, and a skip takes its result", async () => {
    const { ledger, checkout, options, fail, advance, log } = stage();
    fail("label", boom);
    fail("probe", ...Array.from({ length: 500 }, () => () => "unknown"));
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await advance(9_000);
    expect((await sagas.find(REF))?.state).not.toBe("stuck");
    await advance(2_000);
    expect((await sagas.find(REF))?.stuck).toMatchObject({ reason: "outcome_unknown" });
    await expect(sagas.skip(REF, "charge", { by: "ann" })).rejects.toMatchObject({
      code: "act_refused",
    });
    await sagas.skip(REF, "label", { by: "ann", result: { id: "by hand" } });
    await sagas.runDue();
    expect(log.at(-1)).toBe("send");
    expect(await sagas.start(checkout, ID, INPUT)).toMatchObject({
      state: "completed",
      results: { label: { id: "by hand" } },
    });
  });

  test("SA6 an abort undoes what was done, also while a step runs: what it does is taken back", async () => {
    const { ledger, checkout, options, fail, log, advance } = stage();
    let answer: (value: unknown) => void = () => undefined;
    fail("charge", () => new Promise((resolve) => (answer = resolve)));
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await flush();
    const view = await createSagas(ledger, [], options).abort(REF, { by: "ann" });
    expect(view.state).toBe("undoing");
    answer(undefined);
    await advance(100);
    expect(log).toEqual(["reserve", "charge", "refund r5", "release 5"]);
    expect(await sagas.find(REF)).toMatchObject({ state: "undone", cause: { name: "Aborted" } });
  });

  test("SA6 a finish ends a stuck saga as it is", async () => {
    const { ledger, checkout, options, fail, log, advance } = stage();
    fail("send", boom);
    fail("refund", boom, boom, boom);
    const sagas = createSagas(ledger, [checkout], options);
    await sagas.start(checkout, ID, INPUT);
    await advance(1_000);
    await sagas.finish(REF, { by: "ann", note: "refunded by hand" });
    expect(await sagas.runDue()).toMatchObject({ ran: 0 });
    expect((await sagas.find(REF))?.state).toBe("finished");
    expect(log).not.toContain("release 5");
  });
});

describe("the start of a saga", () => {
  test("SA7 happens once for an identity, and other input is refused", async () => {
    const { ledger, checkout, options, log } = stage();
    const sagas = createSagas(ledger, [checkout], options);
    const others = createSagas({ ...ledger }, [checkout], options);
    const started = await Promise.all(
      [sagas, others, sagas].map((one) => one.start(checkout, ID, INPUT)),
    );
    expect(started.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    await flush();
    expect(log).toEqual(WHOLE);
    await expect(sagas.start(checkout, ID, { cents: 6 })).rejects.toMatchObject({
      code: "key_reused",
    });
  });

  test("SA7 in the caller's transaction it begins if and only if that is committed", async () => {
    const { ledger, checkout, options, log } = stage();
    const sagas = createSagas(ledger, [checkout], options);
    const begin = (fails: boolean) =>
      ledger.transaction(async (tx) => {
        const begun = await sagas.in(tx).start(checkout, ID, INPUT);
        expect(begun).toMatchObject({ state: "running", isDuplicate: false });
        if (fails) boom();
      });
    await expect(begin(true)).rejects.toThrow("boom");
    expect(await sagas.runDue()).toMatchObject({ ran: 0 });
    await begin(false);
    expect(log).toEqual([]);
    expect(await sagas.runDue()).toEqual({ ran: 1, nextDueMs: undefined });
    expect(log).toEqual(WHOLE);
  });

  test("needs a definition that was registered, and input that can be kept", async () => {
    const { ledger, checkout, options } = stage();
    const sagas = createSagas(ledger, [], options);
    await expect(sagas.start(checkout, ID, INPUT)).rejects.toMatchObject({
      code: "invalid_request",
    });
    const any = defineSaga<unknown>("any").call("one", { run: () => 1 });
    const kept = createSagas(ledger, [any], options);
    await expect(kept.start(any, ID, { at: () => 1 })).rejects.toMatchObject({
      code: "invalid_request",
    });
  });
});

describe("waits", () => {
  const sleepy = defineSaga<string, MemoryTransaction>("sleepy")
    .sleep("cool off", ({ input }) => input.length * 10_000)
    .signal("picked", {
      timeoutMs: 60_000,
      onTimeout: "undo",
      parse: (payload) => {
        if (typeof payload !== "string") throw new TypeError("not a name");
        return { by: payload };
      },
    })
    .call("tell", { run: ({ results }) => results.picked?.by });
  const ref = { saga: "sleepy", ...ID };

  test("a sleep needs no process, and ends at its time", async () => {
    const { ledger, options, advance } = stage();
    const sagas = createSagas(ledger, [sleepy], options);
    await sagas.start(sleepy, ID, "abc");
    await advance(1_000);
    expect(await sagas.find(ref)).toMatchObject({
      state: "sleeping",
      waiting: { for: "sleep", step: "cool off" },
    });
    const { ran, nextDueMs } = await sagas.runDue();
    expect(ran).toBe(0);
    expect(nextDueMs).toBeGreaterThan(28_000);
    await advance(30_000);
    expect((await sagas.runDue()).ran).toBe(1);
    expect(await sagas.find(ref)).toMatchObject({ waiting: { for: "signal", step: "picked" } });
  });

  test("a signal wakes it, once, also in a transaction and also before it is waited for", async () => {
    const { ledger, options, advance } = stage();
    const sagas = createSagas(ledger, [sleepy], options);
    await sagas.start(sleepy, ID, "a");
    await flush();
    await expect(sagas.signal(ref, "picked", 7)).rejects.toThrow("not a name");
    await expect(sagas.signal(ref, "nothing")).rejects.toMatchObject({ code: "invalid_request" });
    await ledger.transaction((tx) => sagas.in(tx).signal(ref, "picked", "ann"));
    await sagas.signal(ref, "picked", "bob");
    await sagas.runDue();
    expect((await sagas.find(ref))?.state).toBe("sleeping");
    await advance(10_000);
    await sagas.runDue();
    expect(await sagas.start(sleepy, ID, "a")).toMatchObject({
      state: "completed",
      results: { picked: { by: "ann" }, tell: "ann" },
    });
  });

  test("a search costs as many calls of the ledger, however many sagas sleep", async () => {
    const { ledger, options, advance } = stage();
    const calls: string[] = [];
    const { entries } = ledger;
    const counting = {
      ...ledger,
      entries: {
        ...entries,
        scan: (filter: Parameters<typeof entries.scan>[0]) => {
          calls.push("scan");
          return entries.scan(filter);
        },
        nextDue: (kinds: readonly string[]) => {
          calls.push("nextDue");
          return entries.nextDue(kinds);
        },
        find: (place: Parameters<typeof entries.find>[0]) => {
          calls.push("find");
          return entries.find(place);
        },
      },
    };
    const sagas = createSagas(counting, [sleepy], options);
    for (let at = 0; at < 50; at += 1) await sagas.start(sleepy, { scope: "s", key: `${at}` }, "a");
    await advance(50);
    calls.length = 0;
    expect((await sagas.runDue()).ran).toBe(0);
    expect(calls).toEqual(["scan", "nextDue"]);
  });

  test("SA6 one that is stuck is listed, however many sleep", async () => {
    const { ledger, checkout, options, fail, advance } = stage();
    const { entries } = ledger;
    // A search that is full of those that sleep: here ten are many.
    const scan: typeof entries.scan = (filter) =>
      entries.scan({ ...filter, max: Math.min(filter.max, 10) });
    const sagas = createSagas(
      { ...ledger, entries: { ...entries, scan } },
      [sleepy, checkout],
      options,
    );
    for (let at = 0; at < 20; at += 1) await sagas.start(sleepy, { scope: "s", key: `${at}` }, "a");
    fail("send", boom);
    fail("refund", boom, boom, boom);
    await sagas.start(checkout, ID, INPUT);
    await advance(1_000);
    expect((await sagas.list({ state: "stuck" })).map(({ saga }) => saga)).toEqual(["checkout"]);
  });

  test("run finds what is due, and hands everything over when it is stopped", async () => {
    const { ledger, options, advance } = stage();
    const sagas = createSagas(ledger, [sleepy], options);
    const stopping = new AbortController();
    const running = sagas.run(stopping.signal);
    await sagas.start(sleepy, ID, "a");
    await advance(11_000);
    await sagas.signal(ref, "picked", "ann");
    await advance(2_000);
    expect((await sagas.find(ref))?.state).toBe("completed");
    stopping.abort();
    await flush();
    await running;
    await sagas.stop();
  });
});

describe("several processes", () => {
  test("SA1 a runner whose saga was taken records nothing, in either direction", async () => {
    for (const isUndo of [false, true]) {
      const { ledger, checkout, options, fail, log, advance, clock, count } = stage();
      const wakes: ((value: unknown) => void)[] = [];
      const hang = () => new Promise((resolve) => wakes.push(resolve));
      if (isUndo) fail("send", boom);
      fail(isUndo ? "cancel" : "charge", hang);
      fail(isUndo ? "refund" : "label before", hang);
      // The first one does not renew: as a process that sleeps.
      const asleep = { ...clock, after: () => () => undefined };
      const first = createSagas({ ...ledger }, [checkout], { ...options, clock: asleep });
      await first.start(checkout, ID, INPUT);
      await advance(1_100);
      // The second one has taken over, and is at the next step when the first one wakes.
      const second = createSagas(ledger, [checkout], options);
      const driven = second.runDue();
      await flush();
      const before = await second.find(REF);
      wakes[0]?.(undefined);
      await flush();
      expect(await second.find(REF)).toEqual(before);
      expect(count("fenced_total saga")).toBe(1);
      wakes[1]?.(undefined);
      expect((await driven).ran).toBe(1);
      expect((await second.find(REF))?.state).toBe(isUndo ? "undone" : "completed");
      const back = ["cancel l-r5", "asked", "refund r5", "release 5"];
      expect(log).toEqual(isUndo ? ["reserve", "charge", "label", ...back] : WHOLE);
    }
  });

  test.each([
    // It stands still after the intent of `label`, or of its undo, until another process has ended the saga.
    ["in a step", false, 2, ["asked", "label", "send"]],
    ["in an undo", true, 4, ["label", "asked", "cancel l-r5", "refund r5", "release 5"]],
  ])("SA1 a process that wakes after its lease %s sends nothing", async (_, fails, at, after) => {
    const { ledger, checkout, options, log, advance, clock, fail } = stage();
    const asleep = { ...clock, after: () => () => undefined };
    const first = createSagas({ ...ledger }, [checkout], { ...options, clock: asleep });
    const second = createSagas(ledger, [checkout], options);
    if (fails) fail("send", boom);
    let intents = 0;
    let wake: () => void = () => undefined;
    setFailpoint(async (name) => {
      if (name === "saga.intended") intents += 1;
      if (intents === at) await new Promise<void>((resolve) => (wake = resolve));
    });
    try {
      await first.start(checkout, ID, INPUT);
      await flush();
      expect(intents).toBe(at);
    } finally {
      setFailpoint(undefined);
    }
    await advance(1_100);
    expect((await second.runDue()).ran).toBe(1);
    wake();
    await flush();
    expect((await second.find(REF))?.state).toBe(fails ? "undone" : "completed");
    expect(log).toEqual(["reserve", "charge", ...after]);
  });

  test("SA8 a changed definition is stuck, and goes on where the old one is registered", async () => {
    const { ledger, options, log, advance } = stage();
    const old = defineSaga<string>("mail")
      .call("write", { run: () => void log.push("write") })
      .sleep("wait", 5_000)
      .call("post", { run: () => void log.push("post") });
    const next = defineSaga<string>("mail", { version: 2 })
      .call("write", { run: () => void log.push("write") })
      .call("post", { run: () => void log.push("post") });
    await createSagas(ledger, [old], options).start(old, ID, "a");
    await advance(6_000);
    const renewed = createSagas(ledger, [next], options);
    expect((await renewed.runDue()).ran).toBe(0);
    const ref = { saga: "mail", ...ID };
    const [stuck] = await renewed.list({ state: "stuck" });
    expect(stuck?.stuck?.reason).toBe("definition_changed");
    expect(log).toEqual(["write"]);
    const both = createSagas(ledger, [next, old], options);
    await advance(61_000);
    expect((await both.runDue()).ran).toBe(1);
    expect(log).toEqual(["write", "post"]);
    expect(await both.find(ref)).toMatchObject({ state: "completed", version: 1 });
  });

  test("SA8 a process that knows only an older definition leaves the saga to others", async () => {
    const { ledger, options } = stage();
    const old = defineSaga<string>("mail").call("write", { run: () => 1 });
    const next = defineSaga<string>("mail", { version: 2 }).call("print", { run: () => 2 });
    const newer = createSagas(ledger, [next], options);
    await ledger.transaction((tx) => newer.in(tx).start(next, ID, "a"));
    const older = createSagas(ledger, [old], options);
    expect((await older.runDue()).ran).toBe(0);
    expect((await older.find({ saga: "mail", ...ID }))?.state).toBe("running");
  });

  test("SA9 a saga that cannot be read, or whose definition is gone, keeps no other from going on", async () => {
    const { ledger, checkout, options, log } = stage();
    const errors: unknown[] = [];
    const sagas = createSagas(ledger, [checkout], {
      ...options,
      concurrency: 1,
      onError: (error) => errors.push(error),
    });
    const due = {
      state: "running",
      token: "next",
      attempts: 1,
      leaseMs: 0,
      keepMs: undefined,
      fingerprint: { value: undefined },
    } as const;
    const put = (key: string, data: Uint8Array | undefined): Promise<unknown> =>
      ledger.entries.put(
        { kind: "saga", scope: "checkout/shop", key },
        { kind: "absent" },
        { ...due, data: { value: data } },
      );
    await put("torn", Uint8Array.of(1, 123));
    await put("empty", undefined);
    await put("newer", Uint8Array.of(9, 123, 125));
    await ledger.transaction((tx) => sagas.in(tx).start(checkout, ID, INPUT));
    expect((await sagas.runDue()).ran).toBe(1);
    expect(log).toEqual(WHOLE);
    expect(errors).toHaveLength(3);
    expect((await sagas.list()).map(({ key }) => key)).toEqual([ID.key]);
  });

  test("SA9 a saga that hangs keeps no other from being found", async () => {
    const { ledger, checkout, options, fail, log, advance } = stage();
    const sagas = createSagas(ledger, [checkout], { ...options, concurrency: 2 });
    fail("charge before", () => new Promise(() => undefined));
    const begin = (key: string) =>
      ledger.transaction((tx) => sagas.in(tx).start(checkout, { scope: "shop", key }, INPUT));
    await begin("hangs");
    const stopping = new AbortController();
    const running = sagas.run(stopping.signal);
    await advance(1_000);
    await begin("goes on");
    await advance(1_500);
    expect((await sagas.find({ ...REF, key: "goes on" }))?.state).toBe("completed");
    expect((await sagas.find({ ...REF, key: "hangs" }))?.state).toBe("running");
    await advance(4_000);
    expect((await sagas.find({ ...REF, key: "hangs" }))?.state).toBe("completed");
    expect(log.filter((one) => one === "send")).toHaveLength(2);
    stopping.abort();
    await advance(100);
    await running;
  });

  test("a tx step that ends its process each time is given up after attemptsMax", async () => {
    const { ledger, checkout, options, log, advance, fail } = stage();
    const sagas = createSagas(ledger, [checkout], options);
    fail("reserve", boom);
    for (let life = 0; life < 3; life += 1) {
      // As a process that dies right after it has taken hold of the saga.
      const dead = { ...ledger, transaction: () => new Promise<never>(() => undefined) };
      const runner = createSagas(dead, [checkout], {
        ...options,
        clock: { ...options.clock, after: () => () => undefined },
      });
      if (life === 0) await runner.start(checkout, ID, INPUT);
      else void runner.runDue();
      await flush();
      await advance(1_100);
    }
    await sagas.runDue();
    expect(log).toEqual([]);
    expect(await sagas.find(REF)).toMatchObject({ state: "undone", cause: { step: "reserve" } });
  });
});

describe("a group", () => {
  const events: string[] = [];
  let gates: (() => void)[] = [];
  const held = (name: string): Promise<void> =>
    new Promise((resolve) => {
      events.push(`${name} began`);
      gates.push(() => {
        events.push(name);
        resolve();
      });
    });
  const group = defineSaga<string, MemoryTransaction>("group")
    .parallel("all", (branches) =>
      branches
        .call("a", { run: () => held("a").then(() => "A"), undo: () => void events.push("undo a") })
        .tx("b", { run: () => held("b").then(() => "B"), undo: () => void events.push("undo b") })
        .tx("c", { run: () => held("c").then(() => "C"), undo: () => void events.push("undo c") })
        .call("d", {
          run: async ({ input }) => {
            await held("d");
            if (input === "fail") throw new Error("no");
            return "D";
          },
          isFinal: () => true,
          undo: () => void events.push("undo d"),
        }),
    )
    .call("after", { run: ({ results: { a, b, c, d } }) => a + b + c + d });

  async function openAll(): Promise<void> {
    for (let round = 0; round < 3; round += 1) {
      await flush();
      const open = gates;
      gates = [];
      for (const gate of open) gate();
    }
    await flush();
  }

  test("SA10 its calls run side by side, its tx branches one after the other", async () => {
    events.length = 0;
    const { options } = stage();
    const ledger = memoryLedger({ clock: options.clock });
    const sagas = createSagas(ledger, [group], options);
    await sagas.start(group, ID, "ok");
    await flush();
    expect(events.toSorted()).toEqual(["a began", "b began", "d began"]);
    await openAll();
    expect(await sagas.start(group, ID, "ok")).toMatchObject({
      state: "completed",
      results: { a: "A", b: "B", c: "C", d: "D", after: "ABCD" },
    });
    expect(events.indexOf("c began")).toBeGreaterThan(events.indexOf("b"));
  });

  test("SA10 a branch on its last attempt is not given up while it runs", async () => {
    const { options } = stage();
    let open: (value: string) => void = () => undefined;
    const retry = { attemptsMax: 1 };
    const two = defineSaga<string>("two").parallel("both", (branches) =>
      branches
        .call("slow", { run: () => new Promise<string>((resolve) => (open = resolve)), retry })
        .call("quick", { run: () => "quick", retry }),
    );
    const sagas = createSagas(memoryLedger({ clock: options.clock }), [two], options);
    await sagas.start(two, ID, "");
    await flush();
    open("slow");
    await flush();
    expect(await sagas.start(two, ID, "")).toMatchObject({
      state: "completed",
      results: { slow: "slow", quick: "quick" },
    });
  });

  test("SA10 all branches have settled before one is undone, in reverse order", async () => {
    events.length = 0;
    const { options } = stage();
    const sagas = createSagas(memoryLedger({ clock: options.clock }), [group], options);
    await sagas.start(group, ID, "fail");
    await openAll();
    expect(events.filter((one) => one.startsWith("undo"))).toEqual(["undo c", "undo b", "undo a"]);
    expect(events.indexOf("undo c")).toBeGreaterThan(events.indexOf("d"));
    expect((await sagas.find({ saga: "group", ...ID }))?.state).toBe("undone");
  });
});

describe("a definition", () => {
  test("is drawn as a flowchart, with its pivot and the way back", () => {
    const saga = defineSaga<string, MemoryTransaction>("drawn")
      .tx("reserve", { run: () => 1, undo: () => undefined })
      .parallel("book", (all) =>
        all
          .call("charge", { run: () => 1, undo: () => undefined })
          .probe("label", { run: () => 1, probe: () => ({ kind: "unknown" }) }),
      )
      .pivot("confirm", { run: () => 1 })
      .sleep("cool off", 5)
      .signal("picked");
    expect(describeSaga(saga)).toBe(`flowchart LR
  s1[("reserve")]
  s1 --> s2["charge"]
  s1 --> s3[/"label"/]
  subgraph "book"
    s2
    s3
  end
  s2 --> s4[("confirm")]
  s3 --> s4
  s4 --> s5(["cool off"])
  s5 --> s6{{"picked"}}
  s2 -.->|undo| s1
  style s4 stroke-width:4px
`);
  });

  test.each([
    ["a name with a slash", () => defineSaga("a/b")],
    ["a step without run", () => defineSaga("a").call("b", {} as never)],
    ["a probe without probe", () => defineSaga("a").probe("b", { run: () => 1 } as never)],
    [
      "a name that comes twice",
      () =>
        defineSaga("a")
          .call("b", { run: () => 1 })
          .call("b", { run: () => 1 }),
    ],
    [
      "an undo after the pivot",
      () =>
        defineSaga("a")
          .pivot("b", { run: () => 1 })
          .call("c", { run: () => 1, undo: () => 1 }),
    ],
    [
      "a second pivot",
      () =>
        defineSaga("a")
          .pivot("b", { run: () => 1 })
          .pivot("c", { run: () => 1 }),
    ],
    [
      "a signal after the pivot that would undo",
      () =>
        defineSaga("a")
          .pivot("b", { run: () => 1 })
          .signal("c", { onTimeout: "undo" }),
    ],
    ["an empty group", () => defineSaga("a").parallel("b", (group) => group)],
    ["no attempts", () => defineSaga("a").call("b", { run: () => 1, retry: { attemptsMax: 0 } })],
    ["no steps", () => createSagas(memoryLedger(), [defineSaga("a")])],
    [
      "the same steps twice",
      () => {
        const saga = defineSaga("a").call("b", { run: () => 1 });
        return createSagas(memoryLedger(), [saga, saga]);
      },
    ],
  ])("is refused with %s", (_, make) => {
    expect(make).toThrow(expect.objectContaining({ code: "invalid_options" }));
  });

  test("tx steps are refused by a ledger without transactions", () => {
    const ledger = memoryLedger();
    const supports = { ...ledger.supports, transactions: false };
    const saga = defineSaga<string, MemoryTransaction>("a").tx("b", { run: () => 1 });
    expect(() => createSagas({ ...ledger, supports }, [saga])).toThrow(
      expect.objectContaining({ code: "unsupported" }),
    );
    const calls = defineSaga<string>("a").call("b", { run: () => 1 });
    expect(createSagas({ ...ledger, supports }, [calls])).toBeDefined();
  });
});
