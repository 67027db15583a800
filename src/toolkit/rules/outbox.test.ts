import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  applyOutcomes,
  type BatchNumber,
  beginIntent,
  decideFailed,
  headsOf,
  type KeyedEvent,
  type EventOutcome,
  type RetryPolicy,
  selectEvents,
} from "./outbox.ts";

const policy: RetryPolicy = { pauseMs: 100, pauseMsMax: 1000, attemptsMax: 3, afterDead: "block" };
const span = { kind: "span", from: "0", to: "9", ids: [] } as const;
const failure = { fingerprint: "f", message: "m" };
const PUBLISHED: EventOutcome = { kind: "published" };
const SKIPPED: EventOutcome = { kind: "skipped" };
const FAILED: EventOutcome = { kind: "failed", failure, isFinal: false };
const FINAL: EventOutcome = { kind: "failed", failure, isFinal: true };
const START: BatchNumber = { epoch: 4, sequence: 7 };

function eventsOf(...keys: readonly (string | undefined)[]): readonly KeyedEvent[] {
  return keys.map((key) => ({ key, attempts: 0 }));
}

describe("what goes", () => {
  test("events of keys that wait stay behind, all others go in their order", () => {
    const events = eventsOf("a", "b", undefined, "a", "c");
    const intent = beginIntent(span, events, (key) => key === "a");
    expect(selectEvents(intent, events.length)).toEqual([1, 2, 4]);
    expect(intent.marks).toEqual([
      { at: 0, kind: "blocked" },
      { at: 3, kind: "blocked" },
    ]);
  });

  test("of held events the first of every key goes, and every one without", () => {
    const events = eventsOf("a", undefined, "a", "b", undefined).map((one, at) => ({ ...one, at }));
    expect(headsOf(events).map(({ at }) => at)).toEqual([0, 1, 3, 4]);
  });
});

describe("what an outcome leads to", () => {
  const apply = (
    keys: readonly (string | undefined)[],
    outcomes: readonly EventOutcome[],
    other: Partial<RetryPolicy> = {},
  ) => {
    const events = eventsOf(...keys);
    const intent = beginIntent(span, events, () => false);
    const sent = selectEvents(intent, events.length);
    const round = applyOutcomes(START, intent, events, sent, outcomes, { ...policy, ...other });
    return { round, left: selectEvents(round.intent, events.length) };
  };

  test("the next number follows a batch that was published as a whole", () => {
    const { round, left } = apply(["a", "b"], [PUBLISHED, PUBLISHED]);
    expect([round.epoch, round.sequence, left]).toEqual([4, 8, []]);
  });

  test("what is left of a batch goes under a new epoch", () => {
    const { round, left } = apply(["a", "b", "c"], [SKIPPED, FINAL, SKIPPED]);
    expect([round.epoch, round.sequence, left]).toEqual([5, 0, [0, 2]]);
  });

  test("behind a failure its key waits, and nothing else", () => {
    const keys = ["a", "b", "a", undefined, "b"];
    const { round, left } = apply(keys, [SKIPPED, FAILED, SKIPPED, SKIPPED, SKIPPED]);
    expect(left).toEqual([0, 2, 3]);
    expect(round.intent.marks.map(({ at, kind }) => [at, kind])).toEqual([
      [1, "failed"],
      [4, "blocked"],
    ]);
  });

  test("behind a dead event its key goes on only if that is wanted", () => {
    const outcomes = [FINAL, SKIPPED];
    expect(apply(["a", "a"], outcomes).left).toEqual([]);
    expect(apply(["a", "a"], outcomes, { afterDead: "continue" }).left).toEqual([1]);
    expect(apply(["a", "a"], [FAILED, SKIPPED], { afterDead: "continue" }).left).toEqual([]);
  });

  test("a batch that was refused without a reason is halved under new numbers", () => {
    const events = eventsOf("a", "b", "c");
    let round = applyOutcomes(
      START,
      beginIntent(span, events, () => false),
      events,
      [0, 1, 2],
      [SKIPPED, SKIPPED, SKIPPED],
      policy,
    );
    expect(round.hasProgressed).toBe(false);
    expect(selectEvents(round.intent, 3)).toEqual([0, 1]);
    round = applyOutcomes(round, round.intent, events, [0, 1], [SKIPPED, SKIPPED], policy);
    expect(selectEvents(round.intent, 3)).toEqual([0]);
    expect([round.epoch, round.sequence]).toEqual([6, 0]);
    round = applyOutcomes(round, round.intent, events, [0], [FINAL], policy);
    expect(selectEvents(round.intent, 3)).toEqual([1]);
  });

  test("after every sequence of outcomes, no number has two contents and no event overtakes its key", () => {
    const outcome = fc.constantFrom(PUBLISHED, SKIPPED, FAILED, FINAL);
    const keys = fc.array(fc.option(fc.constantFrom("a", "b", "c"), { nil: undefined }), {
      minLength: 1,
      maxLength: 8,
    });
    fc.assert(
      fc.property(keys, fc.infiniteStream(outcome), (names, stream) => {
        const events = eventsOf(...names);
        const contents = new Map<string, string>();
        let number: BatchNumber = { epoch: 0, sequence: 0 };
        let intent = beginIntent(span, events, () => false);
        const order: number[] = [];
        for (let rounds = 0; rounds < 200; rounds += 1) {
          const sent = selectEvents(intent, events.length);
          if (sent.length === 0) break;
          const name = `${number.epoch}.${number.sequence}`;
          expect(contents.has(name)).toBe(false);
          contents.set(name, sent.join());
          // A publisher that keeps the order: behind what was not published nothing of the key is.
          const stopped = new Set<string>();
          const outcomes = sent.map((at) => {
            const key = names[at];
            if (key !== undefined && stopped.has(key)) return SKIPPED;
            const said = stream.next().value ?? PUBLISHED;
            if (said.kind === "published") order.push(at);
            else if (key !== undefined) stopped.add(key);
            return said;
          });
          const round = applyOutcomes(number, intent, events, sent, outcomes, policy);
          ({ intent } = round);
          number = { epoch: round.epoch, sequence: round.sequence };
        }
        for (const key of ["a", "b", "c"]) {
          const ofKey = names.flatMap((name, at) => (name === key ? [at] : []));
          const published = order.filter((at) => names[at] === key);
          expect(published).toEqual(ofKey.slice(0, published.length));
        }
      }),
    );
  });
});

describe("what becomes of failures", () => {
  test("a pause doubles up to its maximum, and is never less than half of it", () => {
    const patient = { ...policy, attemptsMax: 2_000_000 };
    const dueInMs = (attempts: number, unit: number): number =>
      decideFailed(attempts - 1, false, patient, unit).dueInMs;
    expect([1, 2, 3, 9].map((n) => dueInMs(n, 0))).toEqual([50, 100, 200, 500]);
    expect([1, 2, 3, 9].map((n) => dueInMs(n, 1))).toEqual([100, 200, 400, 1000]);
    expect(dueInMs(1_000_000, 1)).toBe(1000);
    expect(dueInMs(1, 0.123)).toBe(56);
  });

  test("after so many attempts, or when trying again is of no use, it is dead", () => {
    expect(decideFailed(0, false, policy, 1)).toEqual({
      state: "waiting",
      attempts: 1,
      dueInMs: 100,
    });
    expect(decideFailed(2, false, policy, 1)).toEqual({ state: "dead", attempts: 3, dueInMs: 0 });
    expect(decideFailed(0, true, policy, 1)).toEqual({ state: "dead", attempts: 1, dueInMs: 0 });
  });
});
