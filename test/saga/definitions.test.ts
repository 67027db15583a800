// SA8: definitions that change while their sagas run.
import { describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { createSagas, defineSaga } from "../../src/toolkit/saga.ts";
import { flush, ID, stage } from "./stage.ts";

interface Letter {
  readonly to: string;
}

const REF = { saga: "mail", ...ID };

/** A saga whose old steps have written a letter, and are asleep. */
async function asleep() {
  const { ledger, options, log, advance } = stage();
  const say = (text: string) => () => {
    log.push(text);
    return text;
  };
  const old = defineSaga<string>("mail")
    .call("write", { run: say("write"), undo: say("burn") })
    .sleep("wait", 5_000)
    .call("post", { run: say("post") });
  await createSagas(ledger, [old], options).start(old, ID, "ann");
  await advance(6_000);
  return { ledger, options, log, say, old };
}

describe("a definition that changed", () => {
  test("SA8 takes over a saga of older steps if it says how", async () => {
    const { ledger, options, log, say } = await asleep();
    const seen: unknown[] = [];
    const next = defineSaga<Letter>("mail", {
      version: 2,
      migrate: (before) => {
        seen.push(before);
        return { input: { to: String(before.input) }, done: { weigh: 20 } };
      },
    })
      .call("write", { run: say("write"), undo: say("burn") })
      .call("weigh", { run: () => 30 })
      .sleep("wait", 5_000)
      .call("stamp", { run: ({ input, results }) => `${results.weigh} to ${input.to}` })
      .call("post", { run: ({ results }) => void log.push(`post ${results.stamp}`) });
    const renewed = createSagas(ledger, [next], options);
    expect((await renewed.runDue()).ran).toBe(1);
    expect(log).toEqual(["write", "post 20 to ann"]);
    const ended = await renewed.find(REF);
    expect(ended).toMatchObject({ state: "completed", version: 2 });
    expect(ended?.history).toContainEqual(
      expect.objectContaining({ what: "migrated", note: "version 1 to 2" }),
    );
    expect(seen).toEqual([
      {
        version: 1,
        input: "ann",
        results: { write: "write" },
        states: { write: "done", wait: "open" },
      },
    ]);
  });

  test("SA8 undoes what older steps have done", async () => {
    const { ledger, options, log, say } = await asleep();
    const next = defineSaga<string>("mail", { version: 2, migrate: () => ({}) })
      .call("write", { run: say("write"), undo: ({ outcome }) => void log.push(outcome.kind) })
      .sleep("wait", 5_000)
      .call("stamp", {
        run: () => {
          throw new RangeError("no stamps");
        },
        isFinal: () => true,
      });
    const renewed = createSagas(ledger, [next], options);
    expect((await renewed.runDue()).ran).toBe(1);
    expect(await renewed.find(REF)).toMatchObject({ state: "undone", version: 2 });
    expect(log).toEqual(["write", "done"]);
  });

  test.each([
    ["has no answer", () => undefined, /no answer/],
    [
      "throws",
      () => {
        throw new RangeError("too old");
      },
      /RangeError: too old/,
    ],
    ["forgets a step", () => ({}), /write is gone/],
    ["gives a result that cannot be kept", () => ({ done: { print: 1n } }), /cannot be kept/],
  ])(
    "SA8 leaves a saga stuck if its migrate %s, and the old one still goes on",
    async (_, migrate, words) => {
      const { ledger, options, log, old } = await asleep();
      const next = defineSaga<string>("mail", { version: 2, migrate })
        .call("print", { run: () => 1 })
        .call("post", { run: () => 2 });
      const renewed = createSagas(ledger, [next], options);
      expect((await renewed.runDue()).ran).toBe(0);
      const [stuck] = await renewed.list({ state: "stuck" });
      expect(stuck?.stuck).toMatchObject({
        reason: "definition_changed",
        message: expect.stringMatching(words),
      });
      await renewed.retry(REF, { by: "ann" });
      expect((await createSagas(ledger, [old], options).runDue()).ran).toBe(1);
      expect(log).toEqual(["write", "post"]);
    },
  );

  test("SA8 an abort does not end undone with a definition that has lost an undo", async () => {
    const { ledger, options, log, say, old } = await asleep();
    const without = defineSaga<string>("mail")
      .call("write", { run: say("write") })
      .sleep("wait", 5_000)
      .call("post", { run: say("post") });
    const renewed = createSagas(ledger, [without], options);
    await renewed.abort(REF, { by: "ann" });
    expect((await renewed.runDue()).ran).toBe(0);
    expect(await renewed.find(REF)).toMatchObject({
      state: "stuck",
      stuck: { reason: "definition_changed" },
    });
    await renewed.retry(REF, { by: "ann" });
    const both = createSagas(ledger, [old], options);
    expect((await both.runDue()).ran).toBe(1);
    expect((await both.find(REF))?.state).toBe("undone");
    expect(log).toEqual(["write", "burn"]);
  });

  test("SA8 goes on with its own steps while those are registered, also beside one that migrates", async () => {
    const { ledger, options, log, old } = await asleep();
    const next = defineSaga<string>("mail", {
      version: 2,
      migrate: () => ({ dropped: ["write"] }),
    }).call("post", { run: () => 2 });
    expect((await createSagas(ledger, [next, old], options).runDue()).ran).toBe(1);
    expect(log).toEqual(["write", "post"]);
  });

  test("SA1 SA8 a process that wakes records nothing on a saga that was found without its definition", async () => {
    const { ledger, options, log, clock, advance, checkout } = stage();
    const sleeper = { ...clock, after: () => () => undefined };
    const first = createSagas({ ...ledger }, [checkout], { ...options, clock: sleeper });
    let wake: () => void = () => undefined;
    setFailpoint(async (name) => {
      if (name === "saga.called") await new Promise<void>((resolve) => (wake = resolve));
    });
    try {
      await first.start(checkout, ID, { cents: 5 });
      await flush();
    } finally {
      setFailpoint(undefined);
    }
    expect(log).toEqual(["reserve", "charge"]);
    await advance(1_100);
    const other = defineSaga<string>("checkout", { version: 2 }).call("a", { run: () => 1 });
    await createSagas(ledger, [other], options).runDue();
    wake();
    await flush();
    const ref = { ...REF, saga: "checkout" };
    const sagas = createSagas(ledger, [checkout], options);
    expect(await sagas.find(ref)).toMatchObject({ stuck: { reason: "definition_changed" } });
    await advance(61_000);
    expect((await sagas.runDue()).ran).toBe(1);
    expect((await sagas.find(ref))?.state).toBe("completed");
    expect(log).toEqual(["reserve", "charge", "label", "send"]);
  });

  test("SA8 a signal is taken by the steps that its saga was started with", async () => {
    const { ledger, options } = stage();
    const old = defineSaga<string>("mail")
      .signal("read", { parse: (payload) => ({ by: String(payload) }) })
      .call("tell", { run: ({ results }) => results.read?.by });
    const next = defineSaga<string>("mail", { version: 2 })
      .signal("read", { parse: (payload) => ({ readers: [String(payload)] }) })
      .call("tell", { run: ({ results }) => results.read?.readers })
      .signal("answered");
    const sagas = createSagas(ledger, [next, old], options);
    await sagas.start(old, ID, "");
    await sagas.start(next, { ...ID, key: "new" }, "");
    await flush();
    await expect(sagas.signal(REF, "answered")).rejects.toMatchObject({ code: "invalid_request" });
    await sagas.signal(REF, "read", "ann");
    await sagas.signal({ ...REF, key: "new" }, "read", "ann");
    await sagas.runDue();
    expect((await sagas.start(old, ID, "")).results).toMatchObject({ tell: "ann" });
    expect((await sagas.start(next, { ...ID, key: "new" }, "")).results).toMatchObject({
      tell: ["ann"],
    });
  });

  test("a migrate that is no function is refused", () => {
    expect(() => defineSaga("a", { migrate: 1 as never })).toThrow(
      expect.objectContaining({ code: "invalid_options" }),
    );
  });
});
