// SA8: the words that say which definition a saga goes on with.
import { expect, test } from "vitest";
import { outlineOf, stepsOfOutline } from "./saga-outline.ts";
import type { SagaStepPlan } from "./saga-plan.ts";

const STEP = { isPivot: false, hasUndo: false, attemptsMax: 1, onTimeout: "stuck" } as const;

const one = (step: SagaStepPlan): string => outlineOf([{ group: undefined, steps: [step] }]);

test("SA8 an outline has names, kinds, order, groups, the pivot, undos and the ends of signals, and is read again", () => {
  const outline = outlineOf([
    { group: undefined, steps: [{ ...STEP, name: "hold tx undo", kind: "tx", hasUndo: true }] },
    {
      group: "book",
      steps: [
        { ...STEP, name: "charge", kind: "call", hasUndo: true },
        { ...STEP, name: "label", kind: "probe" },
      ],
    },
    { group: undefined, steps: [{ ...STEP, name: "rest", kind: "sleep" }] },
    {
      group: undefined,
      steps: [{ ...STEP, name: "go", kind: "tx", isPivot: true, hasUndo: true }],
    },
    { group: undefined, steps: [{ ...STEP, name: "paid", kind: "signal", onTimeout: "undo" }] },
  ]);
  expect(outline).toBe(
    "hold tx undo tx undo; book (charge call undo, label probe); rest sleep; go tx pivot undo; paid signal else undo",
  );
  expect([...stepsOfOutline(outline)]).toEqual([
    ["hold tx undo", { kind: "tx", hasUndo: true }],
    ["charge", { kind: "call", hasUndo: true }],
    ["label", { kind: "probe", hasUndo: false }],
    ["rest", { kind: "sleep", hasUndo: false }],
    ["go", { kind: "tx", hasUndo: true }],
    ["paid", { kind: "signal", hasUndo: false }],
  ]);
});

test("SA8 steps that differ in an undo, or in what follows a signal that does not come, have other outlines", () => {
  const call = { ...STEP, name: "a", kind: "call" } as const;
  expect(one({ ...call, hasUndo: true })).not.toBe(one(call));
  const ends = (["undo", "continue", "stuck"] as const).map((onTimeout) =>
    one({ ...STEP, name: "a", kind: "signal", onTimeout }),
  );
  expect(new Set(ends).size).toBe(3);
});
