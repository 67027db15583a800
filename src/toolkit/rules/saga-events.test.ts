// What events a step can have: one that contradicts its record is a fault, and is not written.
import { expect, test } from "vitest";
import { applySagaEvent, SagaContradiction, type SagaEvent } from "./saga-events.ts";
import type { SagaPlan, SagaProgress } from "./saga-plan.ts";

const PLAN: SagaPlan = {
  deadlineMs: 1,
  stages: [
    {
      group: undefined,
      steps: [
        {
          name: "pay",
          kind: "tx",
          isPivot: false,
          hasUndo: true,
          attemptsMax: 3,
          onTimeout: "stuck",
        },
      ],
    },
  ],
};

const BEGINNING: SagaProgress = {
  saga: "s",
  version: 1,
  digest: "pay tx undo",
  input: undefined,
  direction: "forward",
  steps: {},
  signals: {},
  isPastPivot: false,
  history: [],
};

const failure = { name: "Error", message: "no" };
const certain = { step: "pay", failure, isCertain: true, isFinal: false, pauseMs: 0 };
const FAILED: SagaEvent = { kind: "failed", ...certain };
const UNDO_FAILED: SagaEvent = { kind: "undo failed", ...certain };
const DONE: SagaEvent = { kind: "done", step: "pay", result: "1" };
const UNDONE: SagaEvent = { kind: "undone", step: "pay" };

const after = (...events: readonly SagaEvent[]): SagaProgress =>
  events.reduce((before, event) => applySagaEvent(PLAN, before, event, 0), BEGINNING);

test("SA2 SA4 a step that is done or undone cannot fail any more", () => {
  expect(() => after(DONE, FAILED)).toThrow(SagaContradiction);
  expect(() => after(DONE, UNDONE, FAILED)).toThrow(SagaContradiction);
  expect(() => after(DONE, UNDONE, UNDO_FAILED)).toThrow(SagaContradiction);
  expect(after(FAILED, DONE).steps["pay"]?.state).toBe("done");
  // The undo of a tx step has no intent: its first failure finds the step done.
  expect(after(DONE, UNDO_FAILED, UNDO_FAILED).steps["pay"]).toMatchObject({
    state: "undoing",
    attempts: 2,
  });
});

test("SA8 an event of a step that the plan does not have is refused", () => {
  expect(() => after({ ...DONE, step: "other" })).toThrow(SagaContradiction);
});
