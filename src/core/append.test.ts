// Every combination of {closed, content type, data, close, producer state and claim, Stream-Seq}, against
// the precedence of the protocol written as a table of its own. PROTOCOL.md §4
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { appendCommand, producerClaim, TEXT } from "../testing/commands.ts";
import { type AppendCommand, type AppendDecision, decideAppend } from "./append.ts";
import type { ProducerClaim } from "./producer.ts";
import { NEVER, type StreamState } from "./stream.ts";
import type { Epoch, Offset, ProducerId, Sequence, StreamId, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const NOW = 5 as TimeMs;
const NAME = "/a" as StreamName;

/** A claim, and what the producer rule says of it when the stream knows "p" at epoch 2, sequence 3. */
const CLAIMS: readonly [ProducerClaim | undefined, string][] = [
  [undefined, "none"],
  [producerClaim("p", 2, 4), "accepted"],
  [producerClaim("p", 3, 0), "accepted"],
  [producerClaim("unknown", 9, 0), "accepted"],
  [producerClaim("p", 2, 3), "duplicate"],
  [producerClaim("p", 2, 0), "duplicate"],
  [producerClaim("p", 2, 5), "gap"],
  [producerClaim("unknown", 0, 1), "gap"],
  [producerClaim("p", 1, 0), "fenced"],
  [producerClaim("p", 3, 1), "epoch_start"],
];

interface Combination {
  readonly state: StreamState;
  readonly command: AppendCommand;
  readonly facts: {
    readonly closed: boolean;
    readonly wrongType: boolean;
    readonly hasData: boolean;
    readonly closes: boolean;
    readonly claim: string;
    readonly regression: boolean;
  };
}

function stateOf(isClosed: boolean, lastStreamSeq: string | undefined): StreamState {
  const known = { epoch: 2 as Epoch, lastSequence: 3 as Sequence };
  return {
    id: 1 as StreamId,
    name: NAME,
    contentType: TEXT,
    expiry: NEVER,
    fork: undefined,
    createdAtMs: 1 as TimeMs,
    tail: 10 as Offset,
    isClosed,
    isDeleted: false,
    forkCount: 0,
    lastStreamSeq,
    producers: new Map([["p" as ProducerId, known]]),
    accessedAtMs: 1 as TimeMs,
  };
}

function* combinations(): Generator<Combination> {
  for (const closed of [false, true])
    for (const contentType of [TEXT, "TEXT/Plain; charset=utf-8", "text/html", undefined])
      for (const text of ["data", ""])
        for (const closes of [false, true])
          for (const [producer, claim] of CLAIMS)
            for (const last of [undefined, "m"])
              for (const streamSeq of [undefined, "a", "m", "z"]) {
                const command = appendCommand(text, { contentType, closes, producer, streamSeq });
                const hasData = text !== "";
                const wrongType =
                  hasData && (contentType === "text/html" || contentType === undefined);
                const regression = last === "m" && (streamSeq === "a" || streamSeq === "m");
                const facts = { closed, wrongType, hasData, closes, claim, regression };
                yield { state: stateOf(closed, last), command, facts };
              }
}

type Facts = Combination["facts"];

/** The first row that applies is the answer. */
const PRECEDENCE: readonly [(facts: Facts) => boolean, AppendDecision["kind"]][] = [
  [({ closed, claim }) => closed && claim === "duplicate", "duplicate"],
  [({ closed, claim }) => closed && claim === "fenced", "fenced"],
  [
    ({ closed, claim, hasData, closes }) => closed && claim === "none" && !hasData && closes,
    "already_closed",
  ],
  [({ closed }) => closed, "closed"],
  [({ wrongType }) => wrongType, "content_type_mismatch"],
  [({ claim }) => claim === "fenced", "fenced"],
  [({ claim }) => claim === "epoch_start", "epoch_start"],
  [({ claim }) => claim === "gap", "gap"],
  [({ claim }) => claim === "duplicate", "duplicate"],
  [({ regression }) => regression, "sequence_regression"],
  [() => true, "accepted"],
];

describe("every combination", () => {
  test("A1 is answered by the first rule of the protocol that applies", () => {
    const seen = new Map<string, number>();
    for (const { state, command, facts } of combinations()) {
      const [, expected] = PRECEDENCE.find(([applies]) => applies(facts)) ?? [];
      const { kind } = decideAppend(state, command, NOW);
      if (kind !== expected) expect([facts, kind]).toBe(expected);
      seen.set(kind, (seen.get(kind) ?? 0) + 1);
    }
    // Each outcome was really met, so that no row of the table is dead.
    expect([...seen.keys()].toSorted()).toEqual(
      [...new Set(PRECEDENCE.map(([, kind]) => kind))].toSorted(),
    );
    expect([...seen.values()].reduce((sum, count) => sum + count)).toBe(2 * 4 * 2 * 2 * 10 * 2 * 4);
  });

  test("A3 leaves the state as it was, and a refusal carries no change", () => {
    for (const { state, command } of combinations()) {
      const before = structuredClone(state);
      const decision = decideAppend(state, command, NOW);
      expect(state).toEqual(before);
      expect("change" in decision).toBe(decision.kind === "accepted");
    }
  });

  test("A1 speaks of the tail and the close that follow from it", () => {
    for (const { state, command } of combinations()) {
      const decision = decideAppend(state, command, NOW);
      if (decision.kind === "accepted") {
        expect(decision.tail).toBe(state.tail + command.data.length);
        expect(decision.isClosed).toBe(command.closes);
        const { data, closes, producer, streamSeq } = command;
        const change = {
          kind: "appended",
          atMs: NOW,
          stream: 1,
          data,
          closes,
          producer,
          streamSeq,
        };
        expect(decision.change).toEqual(change);
      } else if (decision.kind === "duplicate") {
        const { isClosed, tail } = state;
        expect(decision).toEqual({ kind: "duplicate", epoch: 2, lastSequence: 3, tail, isClosed });
      }
    }
  });
});

function worldWithStream(): { world: World; state: StreamState } {
  const world = createWorld();
  const [stream, atMs] = [1 as StreamId, 1 as TimeMs];
  const parts = { contentType: TEXT, expiry: NEVER, fork: undefined };
  applyChange(world, { kind: "created", atMs, stream, name: NAME, ...parts });
  const state = world.streams.get(NAME);
  if (state === undefined) throw new Error("the stream was not created");
  return { world, state };
}

function send(world: World, state: StreamState, command: AppendCommand): AppendDecision {
  const decision = decideAppend(state, command, NOW);
  if (decision.kind === "accepted") applyChange(world, decision.change);
  return decision;
}

test("G5 A2 after a close the retry of any stored append is a duplicate, and a new one is closed", () => {
  const { world, state } = worldWithStream();
  const sent = [0, 1, 2].map((sequence) =>
    appendCommand(`${sequence}`, {
      producer: producerClaim("p", 0, sequence),
      closes: sequence === 2,
    }),
  );
  for (const command of sent) expect(send(world, state, command).kind).toBe("accepted");
  for (const command of sent) {
    expect(send(world, state, command)).toMatchObject({ kind: "duplicate", isClosed: true });
  }
  for (const producer of [producerClaim("p", 0, 3), producerClaim("q", 0, 0), undefined]) {
    expect(send(world, state, appendCommand("new", { producer }))).toEqual({
      kind: "closed",
      tail: 3,
    });
  }
  expect(state.tail).toBe(3);
});

test("A3 a refused append consumes neither its sequence nor its Stream-Seq", () => {
  const { world, state } = worldWithStream();
  send(world, state, appendCommand("1", { streamSeq: "m" }));
  const producer = producerClaim("p", 0, 0);
  const refused = [
    appendCommand("x", { producer, streamSeq: "a" }),
    appendCommand("x", { producer, streamSeq: "z", contentType: "text/html" }),
    appendCommand("x", { producer: producerClaim("p", 0, 4), streamSeq: "z" }),
  ];
  expect(refused.map((command) => send(world, state, command).kind)).toEqual([
    "sequence_regression",
    "content_type_mismatch",
    "gap",
  ]);
  expect(state.lastStreamSeq).toBe("m");
  expect(state.producers).toBeUndefined();
  expect(send(world, state, appendCommand("2", { producer, streamSeq: "n" })).kind).toBe(
    "accepted",
  );
});

test("A4 closing again is not an error, and changes nothing", () => {
  const { world, state } = worldWithStream();
  const close = appendCommand("", { closes: true });
  expect(send(world, state, close)).toMatchObject({ kind: "accepted", isClosed: true });
  expect(send(world, state, close)).toEqual({ kind: "already_closed", tail: 0 });
  expect(send(world, state, appendCommand("more", { closes: true })).kind).toBe("closed");
});

test("A1 Stream-Seq is ordered byte by byte, not as numbers", () => {
  const latin1 = fc.string({
    unit: fc.integer({ min: 1, max: 255 }).map((code) => String.fromCharCode(code)),
    minLength: 1,
    maxLength: 4,
  });
  fc.assert(
    fc.property(latin1, latin1, (last, next) => {
      const state = stateOf(false, last);
      const isAfter = Buffer.compare(Buffer.from(next, "latin1"), Buffer.from(last, "latin1")) > 0;
      const { kind } = decideAppend(state, appendCommand("x", { streamSeq: next }), NOW);
      expect(kind).toBe(isAfter ? "accepted" : "sequence_regression");
    }),
  );
  const state = stateOf(false, "9");
  expect(decideAppend(state, appendCommand("x", { streamSeq: "10" }), NOW).kind).toBe(
    "sequence_regression",
  );
});
