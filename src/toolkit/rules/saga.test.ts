// SA1 to SA10 as far as they are rules: every history of small sagas, with a crash at every point, against a world that counts.
import { describe, expect, test } from "vitest";
import { decideNext, type SagaTask } from "./saga.ts";
import { decideAct, decideSignal } from "./saga-acts.ts";
import { applySagaEvent, type SagaEvent } from "./saga-events.ts";
import {
  type SagaPlan,
  type SagaProgress,
  sagaStep,
  type SagaStepKind,
  type SagaStepPlan,
  sagaSteps,
} from "./saga-plan.ts";

const FAILURE = { name: "Error", message: "no" };
const DEADLINE_MS = 1;
/** Every step is begun so often. Groups have many more histories: one attempt has every crash too. */
const IN_GROUPS = process.env["HAPAX_LONG"] === "1" ? 2 : 1;

type Step = Partial<SagaStepPlan> & { readonly kind: SagaStepKind };

function stepOf(name: string, step: Step): SagaStepPlan {
  return {
    name,
    isPivot: false,
    hasUndo: true,
    attemptsMax: 2,
    onTimeout: "stuck",
    ...step,
  };
}

function planOf(stages: readonly (readonly Step[])[]): SagaPlan {
  let count = 0;
  return {
    deadlineMs: DEADLINE_MS,
    stages: stages.map((steps) => ({
      group: steps.length > 1 ? "group" : undefined,
      steps: steps.map((step) => stepOf(`s${(count += 1)}`, step)),
    })),
  };
}

const BEGINNING: SagaProgress = {
  saga: "s",
  version: 1,
  digest: "d",
  input: undefined,
  direction: "forward",
  steps: {},
  signals: {},
  isPastPivot: false,
  history: [],
};

/** What the outside has seen. */
interface Seen {
  /** How often the effect of each step is there. */
  readonly there: Readonly<Record<string, number>>;
  /** Effects and undos, in the order in which they happened first. */
  readonly log: readonly string[];
  /** Keys that a remote with keys has answered. */
  readonly keys: readonly string[];
}

interface State {
  readonly progress: SagaProgress;
  readonly seen: Seen;
  readonly nowMs: number;
  /** Whether the operator has aborted. */
  readonly isAborted: boolean;
}

const NOTHING: Seen = { there: {}, log: [], keys: [] };

function perform(seen: Seen, { name, kind }: SagaStepPlan): Seen {
  // A remote with keys answers the first result again. One that is asked does what it is sent, each time.
  if (kind === "call" && seen.keys.includes(name)) return seen;
  const there = { ...seen.there, [name]: (seen.there[name] ?? 0) + 1 };
  return { there, log: [...seen.log, name], keys: [...seen.keys, name] };
}

function takeBack(seen: Seen, { name, kind }: SagaStepPlan): Seen {
  const key = `${name}/undo`;
  if (kind === "call" && seen.keys.includes(key)) return seen;
  const count = seen.there[name] ?? 0;
  // A remote with keys knows that it has nothing to take back. The others were asked before, or recorded it.
  if (count === 0 && kind === "call") return { ...seen, keys: [...seen.keys, key] };
  const there = { ...seen.there, [name]: count - 1 };
  return { there, log: [...seen.log, key], keys: [...seen.keys, key] };
}

/** All that one attempt can be: what the outside sees, and what is recorded; a crash records no more. */
function attemptsOf(
  plan: SagaPlan,
  state: State,
  task: SagaTask,
  direction: "forward" | "undo",
): readonly { readonly state: State; readonly isCrash: boolean }[] {
  const step = sagaSteps(plan).find(({ name }) => name === task.step);
  if (step === undefined) throw new Error(task.step);
  const { name, kind } = step;
  const isUndo = direction === "undo";
  const record = (from: State, event: SagaEvent): State => ({
    ...from,
    progress: applySagaEvent(plan, from.progress, event, from.nowMs),
  });
  const effect = (from: State): State => ({
    ...from,
    seen: isUndo ? takeBack(from.seen, step) : perform(from.seen, step),
  });
  const ended: SagaEvent = isUndo
    ? { kind: "undone", step: name }
    : { kind: "done", step: name, result: name };
  const failed = (isCertain: boolean, isFinal: boolean): SagaEvent => ({
    kind: isUndo ? "undo failed" : "failed",
    step: name,
    failure: FAILURE,
    isCertain,
    isFinal,
    pauseMs: 0,
  });
  const goes = (after: State) => ({ state: after, isCrash: false });
  const dies = (after: State) => ({ state: after, isCrash: true });
  if (task.mode === "ask") {
    const isThere = (state.seen.there[name] ?? 0) > 0;
    const truth: SagaEvent = isThere
      ? { kind: "asked", step: name, answer: "done", result: name, pauseMs: 0 }
      : { kind: "asked", step: name, answer: "not_done", pauseMs: 0 };
    const later = { ...state, nowMs: state.nowMs + 1 };
    return [
      goes(record(state, truth)),
      goes(record(later, { kind: "asked", step: name, answer: "unknown", pauseMs: 0 })),
      dies(state),
    ];
  }
  if (task.mode === "sleep" || task.mode === "listen") {
    const begun = record(state, { kind: "began", step: name, forMs: 1 });
    return [goes({ ...begun, nowMs: begun.nowMs + 1 })];
  }
  if (kind === "tx") {
    return [
      goes(record(effect(state), ended)),
      dies(record(effect(state), ended)),
      goes(record(state, failed(true, false))),
      goes(record(state, failed(true, true))),
      dies(record(state, { kind: "lost", step: name })),
    ];
  }
  const begun = record(state, { kind: isUndo ? "undo began" : "began", step: name });
  const happens = effect(begun);
  // A remote that has done it says so again: it does not say that it will never do it.
  const isRefusable = isUndo || happens.seen !== begun.seen;
  return [
    dies(state),
    dies(begun),
    dies(happens),
    goes(record(happens, ended)),
    goes(record(happens, failed(false, false))),
    goes(record(begun, failed(false, false))),
    ...(isRefusable ? [goes(record(begun, failed(true, true)))] : []),
  ];
}

/** All states that can follow. Branches of a group: the intents first, then the outcomes in any order of crashes. */
function successors(plan: SagaPlan, state: State): readonly State[] {
  const { progress, next } = decideNext(plan, state.progress, state.nowMs);
  const from = { ...state, progress };
  const after: State[] = [];
  if (!state.isAborted) {
    const act = decideAct(progress, { kind: "abort", by: "op" }, state.nowMs);
    if (act.kind === "applied") after.push({ ...from, progress: act.progress, isAborted: true });
  }
  if (next.kind === "undo")
    after.push(...attemptsOf(plan, from, next.task, "undo").map((one) => one.state));
  if (next.kind === "run") {
    let open: readonly State[] = [from];
    for (const task of next.tasks) {
      const results = open.flatMap((one) => attemptsOf(plan, one, task, "forward"));
      after.push(...results.filter(({ isCrash }) => isCrash).map((one) => one.state));
      open = results.filter(({ isCrash }) => !isCrash).map((one) => one.state);
    }
    after.push(...open);
  }
  return after;
}

interface Explored {
  readonly states: number;
  readonly completed: number;
  readonly undone: number;
  readonly reasons: ReadonlySet<string>;
}

/** Walks through every history. `check` gets every state in which nothing more happens by itself. */
function explore(
  plan: SagaPlan,
  check: (state: State, kind: "completed" | "undone" | "stuck") => void,
): Explored {
  const visited = new Set<string>();
  const stack: State[] = [{ progress: BEGINNING, seen: NOTHING, nowMs: 0, isAborted: false }];
  const reasons = new Set<string>();
  let [completed, undone] = [0, 0];
  for (let state = stack.pop(); state !== undefined; state = stack.pop()) {
    const { history: _, cause: __, ...known } = state.progress;
    const id = JSON.stringify({ ...state, progress: known });
    if (visited.has(id)) continue;
    visited.add(id);
    const { next, progress } = decideNext(plan, state.progress, state.nowMs);
    if (next.kind === "end") {
      check({ ...state, progress }, next.ending === "completed" ? "completed" : "undone");
      if (next.ending === "completed") completed += 1;
      else undone += 1;
      continue;
    }
    if (next.kind === "stuck") {
      reasons.add(next.stuck.reason);
      check({ ...state, progress }, "stuck");
      continue;
    }
    const following = successors(plan, state);
    if (following.length === 0) throw new Error(`nothing follows ${id}`);
    stack.push(...following);
  }
  return { states: visited.size, completed, undone, reasons };
}

/** Throws by itself: there are many thousands of states. */
function expectOnce(plan: SagaPlan, { seen }: State, kind: "completed" | "undone" | "stuck"): void {
  const words = `${kind}: ${seen.log.join(" ")}`;
  const demand = (isSo: boolean, rule: string): void => {
    if (!isSo) throw new Error(`${rule}; ${words}`);
  };
  for (const { name, hasUndo } of sagaSteps(plan)) {
    const count = seen.there[name] ?? 0;
    if (kind === "completed") demand(count === 1, `${name} is there ${count} times`);
    else if (kind === "undone" && hasUndo) demand(count === 0, `${name} is not undone`);
    else demand(count === 0 || count === 1, `${name} is there ${count} times`);
    // Once, in either direction.
    for (const what of [name, `${name}/undo`])
      demand(seen.log.filter((one) => one === what).length <= 1, `${what} happened twice`);
  }
  const undos = seen.log.filter((one) => one.endsWith("/undo"));
  const order = undos.map((one) => Number(one.slice(1, -"/undo".length)));
  demand(
    order.every((one, at) => at === 0 || one < (order[at - 1] ?? 0)),
    "not in reverse order",
  );
  // SA10: nothing is done once something was undone.
  const first = seen.log.findIndex((one) => one.endsWith("/undo"));
  demand(first < 0 || seen.log.length - first === undos.length, "done after an undo");
}

const KINDS = ["tx", "call", "probe"] as const;
const PAIRS = KINDS.flatMap((one) => KINDS.map((other) => [one, other] as const));

describe("every history, with a crash at every point", () => {
  test.each(PAIRS)(
    "SA2 SA4 SA5 of %s and %s: each effect once, undone whole, in reverse order and once",
    (one, other) => {
      const plan = planOf([[{ kind: one }], [{ kind: other }]]);
      const found = explore(plan, (state, kind) => {
        expectOnce(plan, state, kind);
      });
      expect(found.completed).toBeGreaterThan(0);
      expect(found.undone).toBeGreaterThan(0);
    },
  );

  test.each(PAIRS)(
    "SA10 of %s and %s side by side: both have settled before one is undone",
    (one, other) => {
      const plan = planOf([
        [{ kind: "tx", attemptsMax: 1 }],
        [
          { kind: one, attemptsMax: IN_GROUPS },
          { kind: other, attemptsMax: IN_GROUPS },
        ],
      ]);
      const found = explore(plan, (state, kind) => {
        expectOnce(plan, state, kind);
      });
      expect(found.completed).toBeGreaterThan(0);
      expect(found.undone).toBeGreaterThan(0);
    },
  );

  test.each(KINDS)(
    "SA6 after a pivot that is a %s nothing is undone: it ends, or is stuck",
    (kind) => {
      const plan = planOf([
        [{ kind: "call" }],
        [{ kind, isPivot: true, hasUndo: false }],
        [{ kind: "call", hasUndo: false }],
      ]);
      const found = explore(plan, (state, end) => {
        expectOnce(plan, state, end);
        const isPivotThere = (state.seen.there["s2"] ?? 0) > 0;
        // Only forward: what may have happened is not followed by an undo.
        if (isPivotThere) expect(state.seen.log.filter((one) => one.endsWith("/undo"))).toEqual([]);
        if (isPivotThere) expect(end).not.toBe("undone");
      });
      expect(found.completed).toBeGreaterThan(0);
      expect(found.undone).toBeGreaterThan(0);
      expect(found.reasons).toContain("exhausted");
      expect(found.reasons).toContain("failed");
    },
  );

  test("SA6 is stuck only for reasons that an operator has to see to", () => {
    const reasons = new Set<string>();
    for (const kind of KINDS)
      for (const reason of explore(planOf([[{ kind }], [{ kind }]]), () => undefined).reasons)
        reasons.add(reason);
    expect([...reasons].toSorted()).toEqual(["outcome_unknown", "undo_exhausted", "undo_failed"]);
  });

  test("a step is begun at most attemptsMax times, also if it ends its process each time", () => {
    for (const kind of KINDS) {
      const plan = planOf([[{ kind, attemptsMax: 3 }]]);
      explore(plan, ({ progress }) => {
        expect(sagaStep(progress, "s1")?.attempts ?? 0).toBeLessThanOrEqual(3);
      });
    }
  });
});

function run(plan: SagaPlan, progress: SagaProgress, events: readonly SagaEvent[], nowMs = 0) {
  return events.reduce(
    (before, event) => applySagaEvent(plan, decideNext(plan, before, nowMs).progress, event, nowMs),
    progress,
  );
}

describe("what is waited for", () => {
  const plan = planOf([
    [{ kind: "sleep" }],
    [{ kind: "signal", onTimeout: "undo" }],
    [{ kind: "tx" }],
  ]);

  test("a sleep ends at its time, and not before", () => {
    const asleep = run(plan, BEGINNING, [{ kind: "began", step: "s1", forMs: 100 }]);
    expect(decideNext(plan, asleep, 99).next).toEqual({
      kind: "wait",
      for: "sleep",
      step: "s1",
      untilMs: 100,
    });
    expect(decideNext(plan, asleep, 100).next).toEqual({
      kind: "run",
      tasks: [{ step: "s2", mode: "listen" }],
    });
  });

  const listening = run(
    plan,
    run(plan, BEGINNING, [{ kind: "began", step: "s1", forMs: 0 }]),
    [{ kind: "began", step: "s2", forMs: 50 }],
    100,
  );

  test("a signal ends its wait, also if it came before, and only the first one counts", () => {
    const early = decideSignal(BEGINNING, "s2", '"a"', 0);
    if (early.kind !== "applied") throw new Error(early.kind);
    expect(decideSignal(early.progress, "s2", '"b"', 0)).toEqual({ kind: "unchanged" });
    const waiting = run(plan, early.progress, [{ kind: "began", step: "s1", forMs: 0 }]);
    const begun = run(plan, waiting, [{ kind: "began", step: "s2", forMs: 50 }]);
    const { progress, next } = decideNext(plan, begun, 0);
    expect(next).toEqual({ kind: "run", tasks: [{ step: "s3", mode: "run" }] });
    expect(sagaStep(progress, "s2")?.result).toBe('"a"');
  });

  test("a signal that is too late is undone, skipped or stuck, as its definition says", () => {
    expect(decideNext(plan, listening, 149).next).toMatchObject({ kind: "wait", for: "signal" });
    expect(decideNext(plan, listening, 150).next).toEqual({ kind: "end", ending: "undone" });
    const kept = planOf([[{ kind: "signal", onTimeout: "continue" }], [{ kind: "tx" }]]);
    const waiting = run(kept, BEGINNING, [{ kind: "began", step: "s1", forMs: 5 }]);
    expect(decideNext(kept, waiting, 5).next).toMatchObject({ kind: "run" });
    const strict = planOf([[{ kind: "signal" }], [{ kind: "tx" }]]);
    expect(decideNext(strict, waiting, 5).next).toMatchObject({
      kind: "stuck",
      stuck: { reason: "timed_out", step: "s1" },
    });
  });

  test("a retry waits for its pause, and a wait without an end has none", () => {
    const failed: SagaEvent = {
      kind: "failed",
      step: "s1",
      failure: FAILURE,
      isCertain: true,
      isFinal: false,
      pauseMs: 30,
    };
    const one = planOf([[{ kind: "tx" }]]);
    const paused = run(one, BEGINNING, [failed]);
    expect(decideNext(one, paused, 29).next).toMatchObject({ for: "retry", untilMs: 30 });
    expect(decideNext(one, paused, 30).next).toMatchObject({ kind: "run" });
    const open = planOf([[{ kind: "signal" }]]);
    const waiting = run(open, BEGINNING, [{ kind: "began", step: "s1" }]);
    expect(decideNext(open, waiting, 1e12).next).toMatchObject({ untilMs: undefined });
  });
});

describe("an operator", () => {
  const plan = planOf([[{ kind: "call" }], [{ kind: "call", isPivot: true, hasUndo: false }]]);
  const by = { by: "ann", note: "ticket 7" };
  const failed = (step: string): SagaEvent => ({
    kind: "failed",
    step,
    failure: FAILURE,
    isCertain: false,
    isFinal: false,
    pauseMs: 0,
  });
  const stuck = decideNext(
    plan,
    run(plan, BEGINNING, [
      { kind: "began", step: "s1" },
      { kind: "done", step: "s1", result: "1" },
      { kind: "began", step: "s2" },
      failed("s2"),
      { kind: "began", step: "s2" },
      failed("s2"),
    ]),
    0,
  ).progress;

  test("SA6 sees the reason, and nothing happens until an act", () => {
    expect(stuck.stuck).toEqual({ reason: "exhausted", step: "s2", message: "no" });
    for (const nowMs of [0, 1, 1e15])
      expect(decideNext(plan, stuck, nowMs).next.kind).toBe("stuck");
  });

  test("SA6 every act is in the history with who did it", () => {
    const acts = [
      { kind: "retry", ...by },
      { kind: "skip", step: "s2", result: "2", ...by },
      { kind: "finish", ...by },
    ] as const;
    for (const act of acts) {
      const decision = decideAct(stuck, act, 9);
      if (decision.kind !== "applied") throw new Error(decision.kind);
      expect(decision.progress.history.at(-1)).toMatchObject({ atMs: 9, what: act.kind, ...by });
      expect(decision.progress.stuck).toBeUndefined();
    }
  });

  test("retry begins to count anew, skip takes the result, finish ends it", () => {
    const after = (act: Parameters<typeof decideAct>[1]): SagaProgress => {
      const decision = decideAct(stuck, act, 0);
      if (decision.kind !== "applied") throw new Error(decision.kind);
      return decision.progress;
    };
    const again = after({ kind: "retry", ...by });
    expect(decideNext(plan, again, 0).next).toEqual({
      kind: "run",
      tasks: [{ step: "s2", mode: "run" }],
    });
    expect(sagaStep(again, "s2")?.attempts).toBe(0);
    const skipped = after({ kind: "skip", step: "s2", result: "2", ...by });
    expect(decideNext(plan, skipped, 0).next).toEqual({ kind: "end", ending: "completed" });
    expect(sagaStep(skipped, "s2")?.result).toBe("2");
    const finished = after({ kind: "finish", ...by });
    expect(decideNext(plan, finished, 0).next).toEqual({ kind: "end", ending: "finished" });
  });

  test("SA6 acts that do not fit are refused", () => {
    const why = (progress: SagaProgress, act: Parameters<typeof decideAct>[1]) =>
      decideAct(progress, act, 0);
    expect(why(stuck, { kind: "abort", ...by })).toMatchObject({ kind: "refused" });
    expect(why(stuck, { kind: "skip", step: "s1", result: "1", ...by }).kind).toBe("refused");
    for (const kind of ["retry", "finish"] as const)
      expect(why(BEGINNING, { kind, ...by }).kind).toBe("refused");
    const ended = { ...BEGINNING, ended: "completed" } as const;
    expect(why(ended, { kind: "abort", ...by }).kind).toBe("refused");
    const aborted = why(BEGINNING, { kind: "abort", ...by });
    if (aborted.kind !== "applied") throw new Error(aborted.kind);
    expect(why(aborted.progress, { kind: "abort", ...by }).kind).toBe("unchanged");
  });

  test("a long history keeps its beginning and its end", () => {
    let progress = run(plan, BEGINNING, [{ kind: "began", step: "s1" }]);
    for (let nowMs = 1; nowMs <= 500; nowMs += 1)
      progress = applySagaEvent(plan, progress, failed("s1"), nowMs);
    expect(progress.history).toHaveLength(200);
    expect(progress.history[0]).toMatchObject({ atMs: 0, what: "began" });
    expect(progress.history.at(-1)).toMatchObject({ atMs: 500 });
  });
});
