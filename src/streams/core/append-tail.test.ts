// If-Match alone and with every identity that an append can have, and the ends in the answers to duplicates.
// PROTOCOL.md §15, §18
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  appendCommand,
  createCommand,
  keyClaim,
  producerClaim,
  sessionClaim,
  RUN,
} from "../../testing/commands.ts";
import { type AppendCommand, type AppendDecision, decideAppend } from "./append.ts";
import { decideCreate } from "./create.ts";
import { KEY_DEFAULTS } from "./keys.ts";
import { ENDS_KEPT } from "./producer.ts";
import type { StreamState } from "./stream.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const A = "/a" as StreamName;
const NOW = 1 as TimeMs;
const at = (tail: number): Partial<AppendCommand> => ({ expectedTail: tail as Offset });

class Stream {
  readonly #world: World = createWorld();

  constructor() {
    const created = decideCreate(
      undefined,
      undefined,
      createCommand(A),
      this.#world.nextId,
      RUN,
      NOW,
    );
    if (created.kind !== "created") throw new Error(created.kind);
    for (const change of created.changes) applyChange(this.#world, change);
  }

  get state(): StreamState {
    const state = this.#world.streams.get(A);
    if (state === undefined) throw new Error("there is no stream");
    return state;
  }

  send(text: string, parts: Partial<AppendCommand> = {}): AppendDecision {
    const scene = { defaults: KEY_DEFAULTS, durableTail: this.state.tail };
    const decision = decideAppend(this.state, appendCommand(text, parts), NOW, scene);
    if (decision.kind === "accepted") applyChange(this.#world, decision.change);
    return decision;
  }
}

/** Every way to identify an append, for the append that comes second. */
const IDENTITIES: readonly [string, Partial<AppendCommand>][] = [
  ["an epoch", { producer: producerClaim("p", 3, 0) }],
  ["a session", { producer: sessionClaim("p", "s", 0) }],
  ["a key", { key: keyClaim("k", "two") }],
];

describe("an append that names a tail", () => {
  test("A5 is stored at that tail and at no other", () => {
    const stream = new Stream();
    expect(stream.send("one", at(0))).toMatchObject({ kind: "accepted", tail: 3 });
    for (const tail of [0, 2, 4, Number.MAX_SAFE_INTEGER]) {
      expect(stream.send("x", at(tail))).toEqual({ kind: "tail_moved", tail: 3 });
    }
    expect(stream.send("two", at(3))).toMatchObject({ kind: "accepted", tail: 6 });
    expect(stream.send("two", at(3))).toEqual({ kind: "tail_moved", tail: 6 });
  });

  test("A5 `none` matches no tail, not even the first", () => {
    const stream = new Stream();
    expect(stream.send("x", { expectedTail: "none" })).toEqual({ kind: "tail_moved", tail: 0 });
    stream.send("one");
    expect(stream.send("x", { expectedTail: "none" })).toEqual({ kind: "tail_moved", tail: 3 });
  });

  test("A5 a close alone may name one too", () => {
    const stream = new Stream();
    stream.send("one");
    expect(stream.send("", { closes: true, ...at(0) }).kind).toBe("tail_moved");
    expect(stream.send("", { closes: true, ...at(3) }).kind).toBe("accepted");
    expect(stream.send("x", at(0))).toEqual({ kind: "closed", tail: 3 });
    expect(stream.send("", { closes: true, ...at(0) }).kind).toBe("already_closed");
  });

  test.each(IDENTITIES)("A5 with %s is a duplicate when it comes again", (_what, identity) => {
    const stream = new Stream();
    stream.send("one");
    expect(stream.send("two", { ...identity, ...at(3) })).toMatchObject({ kind: "accepted" });
    stream.send("three");
    for (const tail of [3, 6, 99]) {
      const again = stream.send("two", { ...identity, ...at(tail) });
      expect(["duplicate", "replayed"]).toContain(again.kind);
      expect(again).toMatchObject({ end: 6, isClosed: false });
    }
    const none = stream.send("two", { ...identity, expectedTail: "none" });
    expect(["duplicate", "replayed"]).toContain(none.kind);
    expect(stream.state.tail).toBe(11);
  });

  test.each(IDENTITIES)("A5 with %s consumes nothing when it is refused", (_what, identity) => {
    const stream = new Stream();
    stream.send("one");
    const before = structuredClone({ ...stream.state, keys: undefined });
    expect(stream.send("two", { ...identity, ...at(0) })).toEqual({ kind: "tail_moved", tail: 3 });
    expect(structuredClone({ ...stream.state, keys: undefined })).toEqual(before);
    expect(stream.state.keys).toBeUndefined();
    expect(stream.send("two", { ...identity, ...at(3) })).toMatchObject({ kind: "accepted" });
  });

  test("A1 A5 a problem with the producer is reported before the conflict", () => {
    const stream = new Stream();
    stream.send("one", { producer: producerClaim("p", 3, 0) });
    const asked: readonly [Partial<AppendCommand>, string][] = [
      [{ producer: producerClaim("p", 3, 2) }, "gap"],
      [{ producer: producerClaim("p", 2, 0) }, "fenced"],
      [{ producer: producerClaim("p", 4, 1) }, "epoch_start"],
      [{ producer: sessionClaim("p", "s", 1) }, "gap"],
      [{ contentType: "text/html" }, "content_type_mismatch"],
      [{ producer: producerClaim("p", 3, 1) }, "tail_moved"],
      [{ streamSeq: "a" }, "tail_moved"],
    ];
    for (const [parts, kind] of asked)
      expect(stream.send("x", { ...parts, ...at(0) }).kind).toBe(kind);
  });

  test("G14 A5 of any writers that read the tail and append to it one wins each time", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(4), { minLength: 1, maxLength: 60 }), (writers) => {
        const stream = new Stream();
        const seen = [0, 0, 0, 0, 0];
        let wins = 0;
        for (const writer of writers) {
          const decision = stream.send("x", at(seen[writer] ?? 0));
          const isCurrent = seen[writer] === wins;
          expect(decision.kind).toBe(isCurrent ? "accepted" : "tail_moved");
          if (decision.kind === "accepted") wins += 1;
          seen[writer] = stream.state.tail;
        }
        expect(stream.state.tail).toBe(wins);
      }),
    );
  });
});

describe("a duplicate", () => {
  test("G18 P7 is answered with its own end for the last 32 appends, and with the tail before that", () => {
    const stream = new Stream();
    const sizes = Array.from({ length: 50 }, (_, index) => (index % 7) + 1);
    const ends: number[] = [];
    for (const [sequence, size] of sizes.entries()) {
      stream.send("x".repeat(size), { producer: producerClaim("p", 2, sequence) });
      ends.push(stream.state.tail);
      stream.send("another writer");
    }
    for (const [sequence] of sizes.entries()) {
      const isKept = sequence >= sizes.length - ENDS_KEPT;
      expect(stream.send("x", { producer: producerClaim("p", 2, sequence) })).toEqual({
        kind: "duplicate",
        epoch: 2,
        lastSequence: 49,
        end: isKept ? ends[sequence] : stream.state.tail,
        isClosed: false,
        isOther: isKept && sizes[sequence] !== 1,
      });
    }
  });

  test("P8 of a session is refused if its content is another one, for the last 32 appends", () => {
    const stream = new Stream();
    for (let sequence = 0; sequence < 50; sequence += 1) {
      stream.send(`text ${sequence}`, { producer: sessionClaim("p", "s", sequence) });
    }
    for (let sequence = 0; sequence < 50; sequence += 1) {
      const parts = { producer: sessionClaim("p", "s", sequence) };
      const isKept = sequence >= 50 - ENDS_KEPT;
      const refused = isKept ? { kind: "reused", received: sequence } : { kind: "duplicate" };
      expect(stream.send(`text ${sequence}`, parts).kind).toBe("duplicate");
      expect(stream.send("another text", parts)).toMatchObject(refused);
      expect(stream.send(`text ${sequence}`, { ...parts, closes: true })).toMatchObject(refused);
    }
    expect(stream.send("text 50", { producer: sessionClaim("p", "s", 50) }).kind).toBe("accepted");
  });

  test("P8 A2 is compared with the content of its original on a closed stream too", () => {
    const stream = new Stream();
    stream.send("one", { producer: producerClaim("q", 0, 0) });
    stream.send("two", { producer: producerClaim("q", 1, 0) });
    stream.send("end", { producer: sessionClaim("p", "s", 0), closes: true });
    const end = { producer: sessionClaim("p", "s", 0) };
    expect(stream.send("end", { ...end, closes: true }).kind).toBe("duplicate");
    expect(stream.send("end", end)).toEqual({ kind: "reused", received: 0 });
    const other = { producer: producerClaim("q", 1, 0) };
    expect(stream.send("two", other)).toMatchObject({ kind: "duplicate", isOther: false });
    expect(stream.send("one", other)).toMatchObject({ kind: "duplicate", isOther: true });
  });

  test("P7 is answered the same after the close, and the end of a close without data is the tail", () => {
    const stream = new Stream();
    stream.send("one", { producer: sessionClaim("p", "s", 0) });
    stream.send("two", { producer: sessionClaim("p", "s", 1) });
    stream.send("", { producer: sessionClaim("p", "s", 2), closes: true });
    const ends = ["one", "two", ""].map((text, sequence) =>
      stream.send(text, { producer: sessionClaim("p", "s", sequence), closes: text === "" }),
    );
    expect(ends).toMatchObject([
      { kind: "duplicate", end: 3, isClosed: true },
      { kind: "duplicate", end: 6, isClosed: true },
      { kind: "duplicate", end: 6, isClosed: true },
    ]);
  });
});
