// SA8: which sagas go on with other steps, and what of them stays.
import { describe, expect, test } from "vitest";
import { decideNext } from "./saga.ts";
import { decideMigration, type SagaMove } from "./saga-migration.ts";
import { outlineOf } from "./saga-outline.ts";
import type {
  SagaPlan,
  SagaProgress,
  SagaStepKind,
  SagaStepPlan,
  SagaStepProgress,
} from "./saga-plan.ts";

type Words = `${string} ${SagaStepKind}${"" | " pivot" | " bare"}`;

/** The plan of words such as `pay call`. A step that is not `bare`, and is not the pivot, has an undo. */
function targetOf(...stages: readonly (readonly Words[])[]) {
  const stepOf = (words: Words): SagaStepPlan => {
    const isPivot = words.endsWith(" pivot");
    const hasUndo = !isPivot && !words.endsWith(" bare");
    const parts = words.replace(/ (?:pivot|bare)$/, "").split(" ");
    // Cast: the type of the words says so.
    const kind = parts.pop() as SagaStepKind;
    const name = parts.join(" ");
    return { name, kind, isPivot, hasUndo, attemptsMax: 2, onTimeout: "stuck" };
  };
  const plan: SagaPlan = {
    deadlineMs: 1,
    stages: stages.map((words) => ({
      group: words.length > 1 ? "a group" : undefined,
      steps: words.map(stepOf),
    })),
  };
  return { version: 2, outline: outlineOf(plan.stages), plan };
}

const OPEN: SagaStepProgress = {
  state: "open",
  attempts: 1,
  isUnknown: false,
  sinceMs: 0,
  asks: 0,
  outcome: "none",
};
const UNKNOWN: SagaStepProgress = { ...OPEN, isUnknown: true, outcome: "unknown" };
const DONE: SagaStepProgress = { ...OPEN, state: "done", outcome: "done", result: "1" };

const OLD = targetOf(["hold it tx"], ["pay call", "pack probe"], ["send call pivot"]);

function oldSaga(steps: SagaProgress["steps"], more: Partial<SagaProgress> = {}): SagaProgress {
  return {
    saga: "s",
    version: 1,
    digest: OLD.outline,
    input: '"in"',
    direction: "forward",
    steps,
    signals: {},
    isPastPivot: false,
    history: [],
    ...more,
  };
}

const NOTHING: SagaMove = { done: new Map(), dropped: [] };

const migrate = (
  progress: SagaProgress,
  target: ReturnType<typeof targetOf>,
  move: Partial<SagaMove> = {},
) => decideMigration(progress, target, { ...NOTHING, ...move }, 7);

const why = (...given: Parameters<typeof migrate>): string => {
  const decision = migrate(...given);
  return decision.kind === "refused" ? decision.why : "it is not refused";
};

describe("SA8 a saga that goes on with other steps", () => {
  const renewed = targetOf(
    ["hold it tx"],
    ["check call"],
    ["pay call", "pack probe"],
    ["send call pivot"],
    ["mail call"],
  );

  test("keeps the progress of each step, its signals and its history", () => {
    const steps = { "hold it": DONE, pay: UNKNOWN, pack: OPEN };
    const signals = { go: { payload: "1" } };
    const decision = migrate(oldSaga(steps, { signals }), renewed);
    expect(decision).toMatchObject({
      kind: "migrated",
      progress: { version: 2, digest: renewed.outline, input: '"in"', steps, signals },
    });
    const { progress } = decision as Extract<typeof decision, { readonly kind: "migrated" }>;
    expect(progress.history).toEqual([{ atMs: 7, what: "migrated", note: "version 1 to 2" }]);
    // The new step is next, although later ones have begun.
    expect(decideNext(renewed.plan, progress, 8).next).toEqual({
      kind: "run",
      tasks: [{ step: "check", mode: "run" }],
    });
  });

  test("takes new steps for done, and new input, if the migration says so", () => {
    const decision = migrate(oldSaga({ "hold it": DONE }), renewed, {
      done: new Map([["check", "true"]]),
      input: { json: "[1]" },
    });
    expect(decision).toMatchObject({
      progress: { input: "[1]", steps: { check: { state: "done", result: "true" } } },
    });
    expect(why(oldSaga({}), renewed, { done: new Map([["what", "1"]]) })).toContain("no step what");
    const begun = oldSaga({ "hold it": OPEN });
    const done = new Map([["hold it", "1"]]);
    expect(why(begun, renewed, { done })).toContain("has begun already");
  });

  test("forgets what a step may have left behind only if the migration says so", () => {
    const shorter = targetOf(["hold it tx"], ["send call pivot"]);
    for (const at of [DONE, UNKNOWN, { ...DONE, state: "undoing" } as const]) {
      const progress = oldSaga({ "hold it": DONE, pay: at });
      expect(why(progress, shorter)).toContain("pay is gone");
      expect(migrate(progress, shorter, { dropped: ["pay"] })).toMatchObject({
        kind: "migrated",
        progress: { steps: { "hold it": DONE } },
      });
    }
    for (const state of ["open", "failed", "undone"] as const)
      expect(migrate(oldSaga({ pay: { ...OPEN, state } }), shorter).kind).toBe("migrated");
    expect(why(oldSaga({ pay: DONE }), OLD, { dropped: ["pay"] })).toContain("still there");
  });

  test("leaves a step without the undo that it had only if the migration says so", () => {
    const bare = targetOf(["hold it tx"], ["pay call bare", "pack probe"], ["send call pivot"]);
    for (const at of [DONE, UNKNOWN, { ...DONE, state: "undoing" } as const]) {
      const progress = oldSaga({ "hold it": DONE, pay: at });
      expect(why(progress, bare)).toBe(
        "the step pay has no undo any more, and may have left something behind",
      );
      expect(migrate(progress, bare, { dropped: ["pay"] })).toMatchObject({
        kind: "migrated",
        progress: { digest: bare.outline, steps: { "hold it": DONE, pay: at } },
      });
      const past = oldSaga({ ...progress.steps, send: DONE }, { isPastPivot: true });
      expect(migrate(past, bare).kind).toBe("migrated");
    }
    for (const state of ["open", "failed", "undone"] as const)
      expect(migrate(oldSaga({ pay: { ...OPEN, state } }), bare).kind).toBe("migrated");
    expect(migrate(oldSaga({ pack: DONE }), bare).kind).toBe("migrated");
    // It had none before.
    const back = oldSaga({ pay: DONE }, { digest: bare.outline });
    expect(migrate(back, bare).kind).toBe("migrated");
    expect(migrate(back, OLD).kind).toBe("migrated");
    expect(why(back, bare, { dropped: ["pay"] })).toContain("still there");
  });

  test("is refused if a step that has begun is of another kind", () => {
    const probed = targetOf(["hold it tx"], ["pay probe", "pack probe"], ["send call pivot"]);
    expect(why(oldSaga({ pay: DONE }), probed)).toBe("the step pay was a call, and is a probe");
    expect(migrate(oldSaga({ "hold it": DONE }), probed).kind).toBe("migrated");
    const later = targetOf(["hold it tx"], ["pay call", "pack probe"], ["send tx pivot"]);
    const past = oldSaga({ send: DONE }, { isPastPivot: true });
    expect(why(past, later)).toBe("the step send was a call, and is a tx");
  });

  test("SA6 stays past its pivot, and does not get past it while it is undone", () => {
    const past = oldSaga({ "hold it": DONE, send: UNKNOWN }, { isPastPivot: true });
    const without = targetOf(["hold it tx"], ["send call"]);
    expect(why(past, without)).toContain("would not be");
    expect(migrate(past, renewed)).toMatchObject({ progress: { isPastPivot: true } });
    const earlier = targetOf(["hold it tx pivot"], ["send call"]);
    const back = oldSaga({ "hold it": DONE }, { direction: "undo" });
    expect(why(back, earlier, { dropped: ["hold it"] })).toContain("being undone");
    expect(migrate(back, renewed).kind).toBe("migrated");
  });
});
