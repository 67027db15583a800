// SA6: what a saga cannot keep, and questions that end their processes. It is undone or stuck then, and never tried without end.
import { describe, expect, test } from "vitest";
import type { MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import { createSagas, defineSaga, type Saga } from "../../src/toolkit/saga.ts";
import {
  SAGA_BYTES_MAX,
  SAGA_RESULT_BYTES_MAX,
  SAGA_STEPS_MAX,
} from "../../src/toolkit/saga/limits.ts";
import type { SagaProgress } from "../../src/toolkit/rules/saga-plan.ts";
import { decodeSaga, encodeSaga } from "../../src/toolkit/saga/record.ts";
import { boom, flush, ID, stage } from "./stage.ts";

const REF = { saga: "large", ...ID };
const PLACE = { kind: "saga", scope: `large/${ID.scope}`, key: ID.key };
/** The largest result: its JSON has two quotes more. */
const MOST = "x".repeat(SAGA_RESULT_BYTES_MAX - 2);
/** With so many of them there is room for less than one more. */
const COUNT = Math.floor(SAGA_BYTES_MAX / SAGA_RESULT_BYTES_MAX) - 1;

type Large = Saga<string, Record<never, never>, MemoryTransaction>;

function withResults(saga: Large, count: number): Large {
  if (count === 0) return saga;
  return withResults(saga, count - 1).call(`step ${count}`, { run: () => MOST });
}

const large = withResults(defineSaga("large"), COUNT);

/** Sagas of one definition, and the errors that no caller gets. */
function sagasOf(one: Large) {
  const { ledger, options, advance } = stage();
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  const sagas = createSagas(ledger, [one], { ...options, onError });
  return { ledger, options, advance, errors, sagas };
}

describe("a saga that is full", () => {
  test("SA6 has room for what happens to it: a result that just fits keeps no step from going on", async () => {
    let fill = "";
    const whole = large
      .signal("go")
      .call("fill", { run: () => fill })
      .call("last", {
        run: ({ attempt }) => {
          if (attempt < 3) boom();
        },
      });
    const { ledger, sagas, advance, errors } = sagasOf(whole);
    const roomOf = async (): Promise<number> =>
      SAGA_BYTES_MAX - ((await ledger.entries.find(PLACE))?.data?.length ?? 0);
    await sagas.start(whole, ID, "");
    await flush();
    // The step itself takes some hundred bytes beside its result.
    fill = "y".repeat((await roomOf()) - 450);
    await sagas.signal(REF, "go");
    const running = sagas.runDue();
    await advance(5_000);
    await running;
    expect(errors).toEqual([]);
    expect(await sagas.find(REF)).toMatchObject({ state: "completed" });
    expect(await roomOf()).toBeLessThan(0);
  });

  test("SA6 undoes a result that does not fit as unknown, and refuses a signal that does not", async () => {
    const undone: string[] = [];
    const whole = large.signal("go").call("fill", {
      run: () => MOST,
      undo: ({ outcome }) => void undone.push(outcome.kind),
    });
    const { sagas, errors, advance } = sagasOf(whole);
    await sagas.start(whole, ID, "");
    await flush();
    await expect(sagas.signal(REF, "go", MOST)).rejects.toMatchObject({ code: "invalid_request" });
    await sagas.signal(REF, "go");
    const running = sagas.runDue();
    await advance(1_000);
    await running;
    expect(errors).toEqual([]);
    expect(await sagas.find(REF)).toMatchObject({ state: "undone" });
    expect(undone).toEqual(["unknown"]);
  });

  test("SA6 asks again if what a probe has found does not fit, and is stuck in the end", async () => {
    const whole = defineSaga<string, MemoryTransaction>("large", { deadlineMs: 5_000 });
    const probed = withResults(whole, COUNT).probe("find", {
      run: boom,
      probe: () => ({ kind: "done", result: MOST as never }),
    });
    const { sagas, errors, advance } = sagasOf(probed);
    await sagas.start(probed, ID, "");
    await advance(20_000);
    await sagas.runDue();
    expect(errors).toEqual([]);
    expect(await sagas.find(REF)).toMatchObject({
      state: "stuck",
      stuck: { reason: "outcome_unknown", step: "find" },
    });
  });

  test("SA6 shortens a history of long errors, and keeps how it began and ended", () => {
    // Six bytes a character.
    const failure = { name: "Error", message: "\u0001".repeat(500) };
    const step = { attempts: 1, isUnknown: false, sinceMs: 0, asks: 0, outcome: "none" } as const;
    const names = Array.from({ length: SAGA_STEPS_MAX }, (_, at) => `step ${at}`);
    const progress: SagaProgress = {
      saga: "large",
      version: 1,
      digest: "",
      input: "x".repeat(SAGA_BYTES_MAX - 1_000),
      direction: "undo",
      steps: Object.fromEntries(names.map((name) => [name, { ...step, state: "open", failure }])),
      signals: {},
      isPastPivot: false,
      history: names.map((what, atMs) => ({ atMs, what, note: failure.message })),
    };
    const kept = decodeSaga(encodeSaga(progress));
    expect(kept).toMatchObject({ input: progress.input, direction: "undo" });
    expect(Object.keys(kept.steps)).toEqual(names);
    expect(kept.history[0]?.what).toBe(names[0]);
    expect(kept.history.at(-1)?.what).toBe(names.at(-1));
    expect(() => encodeSaga(progress, true)).toThrow("too large");
    // What is read and written again stays as it is.
    expect(Buffer.compare(encodeSaga(kept), encodeSaga(progress))).toBe(0);
  });

  test("SA6 SA8 is stuck if a migration would make it too large, and says so", async () => {
    const old = defineSaga<string, MemoryTransaction>("large").signal("go");
    const { sagas, ledger, options } = sagasOf(old);
    await sagas.start(old, ID, "");
    await flush();
    const names = Array.from({ length: COUNT + 1 }, (_, at) => `step ${at + 1}`);
    const next = defineSaga<string, MemoryTransaction>("large", {
      version: 2,
      migrate: () => ({ done: Object.fromEntries(names.map((name) => [name, MOST])) }),
    }).signal("go");
    const after = createSagas(ledger, [withResults(next, names.length)], options);
    await after.signal(REF, "go");
    await after.runDue();
    expect(await after.find(REF)).toMatchObject({
      state: "stuck",
      stuck: { reason: "definition_changed", message: expect.stringContaining("too large") },
    });
  });
});

test("SA6 a probe that ends its process each time is stuck after deadlineMs", async () => {
  const { ledger, options, advance } = stage();
  const saga = defineSaga<string, MemoryTransaction>("large", { deadlineMs: 10_000 }).probe(
    "find",
    {
      run: boom,
      probe: () => ({ kind: "not_done" }),
    },
  );
  let asked = 0;
  const deadly = defineSaga<string, MemoryTransaction>("large").probe("find", {
    run: boom,
    // As a process that dies.
    probe: () => {
      asked += 1;
      return new Promise(() => undefined);
    },
  });
  for (let life = 0; life < 9; life += 1) {
    const clock = { ...options.clock, after: () => () => undefined };
    const runner = createSagas(ledger, [deadly], { ...options, clock });
    if (life === 0) await runner.start(deadly, ID, "");
    else void runner.runDue();
    await advance(2_000);
  }
  await createSagas(ledger, [saga], options).runDue();
  expect(asked).toBeGreaterThan(3);
  expect(await createSagas(ledger, [], options).find(REF)).toMatchObject({
    state: "stuck",
    stuck: { reason: "outcome_unknown", step: "find" },
  });
});

test("SA6 an outcome that is unknown for longer than deadlineMs is asked for once more after a long outage", async () => {
  const { ledger, options, advance, fail, next, clock } = stage();
  const saga = defineSaga<string, MemoryTransaction>("large", { deadlineMs: 10_000 }).probe(
    "find",
    {
      run: async () => await next("run"),
      probe: () => ({ kind: "done", result: "found" as never }),
    },
  );
  fail("run", () => new Promise(() => undefined));
  const dead = { ...options, clock: { ...options.clock, after: () => () => undefined } };
  await createSagas(ledger, [saga], dead).start(saga, ID, "");
  await flush();
  clock.advance(1_000_000);
  await createSagas(ledger, [saga], options).runDue();
  await advance(100);
  expect(await createSagas(ledger, [], options).find(REF)).toMatchObject({ state: "completed" });
});
