// Every combination of {closed, content type, data, close, producer state and claim, If-Match, Stream-Seq}, against
// the precedence of the protocol written as a table of its own. PROTOCOL.md §4
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { appendCommand, producerClaim, sessionClaim, TEXT, RUN } from "../../testing/commands.ts";
import { type AppendCommand, type AppendDecision, decideAppend } from "./append.ts";
import { digestContent } from "./content-digest.ts";
import type { ProducerClaim, ProducerMark } from "./producer.ts";
import { NEVER_EXPIRES, type StreamState } from "./stream.ts";
import type {
  Epoch,
  Offset,
  ProducerId,
  Sequence,
  SessionNonce,
  StreamId,
  StreamName,
  TimeMs,
} from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const NOW = 5 as TimeMs;
const NAME = "/a" as StreamName;

/**
 * A claim, the verdict of the producer rule, and its epoch if it is accepted. The stream knows "p" at epoch 2,
 * sequence 3, and "s" at the same numbers in a session.
 */
const CLAIMS: readonly [ProducerClaim | undefined, verdict: string, epoch?: number][] = [
  [undefined, "none"],
  [producerClaim("p", 2, 4), "accepted", 2],
  [producerClaim("p", 3, 0), "accepted", 3],
  [producerClaim("unknown", 9, 0), "accepted", 9],
  [sessionClaim("p", "new", 0), "accepted", 3],
  [sessionClaim("p", "new", 1), "gap"],
  [sessionClaim("s", "now", 4), "accepted", 2],
  [sessionClaim("s", "now", 3), "duplicate"],
  [sessionClaim("s", "before", 0), "fenced"],
  [producerClaim("s", 2, 4), "fenced"],
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
    readonly moved: boolean;
    readonly regression: boolean;
  };
}

/** Ends without digests. Tests of the content are below. */
const RECENT: number[] = [];
for (const [sequence, end] of [1, 3, 6, 8].entries()) RECENT[2 * sequence] = end;

const nonce = (text: string): SessionNonce => text as SessionNonce;

function stateOf(isClosed: boolean, lastStreamSeq: string | undefined): StreamState {
  const known = {
    epoch: 2 as Epoch,
    lastSequence: 3 as Sequence,
    session: undefined as SessionNonce | undefined,
    replaced: undefined as SessionNonce[] | undefined,
    recent: RECENT,
    resets: 0,
  };
  const session = { ...known, session: nonce("now"), replaced: [nonce("before")] };
  return {
    id: 1 as StreamId,
    name: NAME,
    contentType: TEXT,
    expiry: NEVER_EXPIRES,
    fork: undefined,
    run: RUN,
    createdAtMs: 1 as TimeMs,
    tail: 10 as Offset,
    isClosed,
    isDeleted: false,
    forkCount: 0,
    lastStreamSeq,
    producers: new Map([
      ["p" as ProducerId, known],
      ["s" as ProducerId, session],
    ]),
    keys: undefined,
    accessedAtMs: 1 as TimeMs,
    retained: undefined,
    compaction: undefined,
  };
}

const TAILS = [undefined, 10, 9, 11, "none"] as (Offset | "none" | undefined)[];
/** Every Stream-Seq with every If-Match; the tail is 10. */
const ORDERS = [undefined, "a", "m", "z"].flatMap((streamSeq) =>
  TAILS.map((expectedTail) => [streamSeq, expectedTail] as const),
);

function* combinations(): Generator<Combination> {
  for (const closed of [false, true])
    for (const contentType of [TEXT, "TEXT/Plain; charset=utf-8", "text/html", undefined])
      for (const text of ["data", ""])
        for (const closes of [false, true])
          for (const [producer, claim] of CLAIMS)
            for (const last of [undefined, "m"])
              for (const [streamSeq, expectedTail] of ORDERS) {
                const parts = { contentType, closes, producer, streamSeq, expectedTail };
                const command = appendCommand(text, parts);
                const hasData = text !== "";
                const wrongType =
                  hasData && (contentType === "text/html" || contentType === undefined);
                const regression = last === "m" && (streamSeq === "a" || streamSeq === "m");
                const moved = expectedTail !== undefined && expectedTail !== 10;
                const facts = { closed, wrongType, hasData, closes, claim, moved, regression };
                yield { state: stateOf(closed, last), command, facts };
              }
}

/** Returns the mark of an accepted claim. */
function markOf(
  claim: ProducerClaim | undefined,
  { data, closes }: AppendCommand,
): ProducerMark | undefined {
  const digest = digestContent(data, closes);
  const epoch = CLAIMS.find(([known]) => known === claim)?.[2];
  return claim === undefined ? undefined : { ...claim, epoch: epoch as Epoch, resets: 0, digest };
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
  [({ moved }) => moved, "tail_moved"],
  [({ regression }) => regression, "sequence_regression"],
  [() => true, "accepted"],
];

describe("every combination", () => {
  test("A1 A5 is answered by the first rule of the protocol that applies", () => {
    const seen = new Map<string, number>();
    for (const { state, command, facts } of combinations()) {
      const [, expected] = PRECEDENCE.find(([applies]) => applies(facts)) ?? [];
      const { kind } = decideAppend(state, command, NOW);
      if (kind !== expected) expect([facts, kind]).toBe(expected);
      seen.set(kind, (seen.get(kind) ?? 0) + 1);
    }
    // Each outcome occurred, so no row of the table is dead.
    expect([...seen.keys()].toSorted()).toEqual(
      [...new Set(PRECEDENCE.map(([, kind]) => kind))].toSorted(),
    );
    expect([...seen.values()].reduce((sum, count) => sum + count)).toBe(
      2 * 4 * 2 * 2 * CLAIMS.length * 2 * ORDERS.length,
    );
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
          producer: markOf(producer, command),
          streamSeq,
          key: undefined,
        };
        expect(decision.change).toEqual(change);
      } else if (decision.kind === "duplicate") {
        const { isClosed } = state;
        const end = command.producer?.sequence === 0 ? 1 : 8;
        const known = { epoch: 2, lastSequence: 3, end, isClosed, isOther: false };
        expect(decision).toEqual({ kind: "duplicate", ...known });
      }
    }
  });
});

function worldWithStream(): { world: World; state: StreamState } {
  const world = createWorld();
  const [stream, atMs] = [1 as StreamId, 1 as TimeMs];
  const parts = {
    run: RUN,
    contentType: TEXT,
    expiry: NEVER_EXPIRES,
    fork: undefined,
    keys: undefined,
  };
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
