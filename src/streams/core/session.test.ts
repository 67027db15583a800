// Every row of the tables of PROTOCOL.md §14 and §12.5, all short histories of sessions, epochs and resets, and
// long ones in which copies of earlier requests arrive at any time.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { producerClaim, sessionClaim } from "../../testing/commands.ts";
import {
  applyProducer,
  applyReset,
  decideProducer,
  ENDS_KEPT,
  lastEnd,
  type MutableProducer,
  type ProducerClaim,
  type ProducerDecision,
  SESSIONS_KEPT,
} from "./producer.ts";
import type { Offset } from "./types.ts";

const MAX = Number.MAX_SAFE_INTEGER;

const epoch = (number: number, sequence: number): ProducerClaim =>
  producerClaim("p", number, sequence);
const session = (nonce: string, sequence: number): ProducerClaim =>
  sessionClaim("p", nonce, sequence);

/** One producer of one stream, with the rules only. Every append has 10 bytes. */
class Producer {
  state: MutableProducer | undefined;
  tail = 0;
  readonly accepted: ProducerClaim[] = [];

  send(claim: ProducerClaim, digest = 7): ProducerDecision {
    const decision = decideProducer(this.state, claim, digest);
    if (decision.kind === "accepted") {
      this.accepted.push(claim);
      this.tail += 10;
      this.state = applyProducer(this.state, decision.mark, this.tail as Offset);
    }
    return decision;
  }

  reset(): void {
    if (this.state !== undefined) applyReset(this.state, this.state.resets + 1);
  }

  /** Sends claims that must be accepted. */
  after(...claims: readonly ProducerClaim[]): this {
    for (const claim of claims) expect(this.send(claim).kind).toBe("accepted");
    return this;
  }
}

const known = (...claims: readonly ProducerClaim[]): Producer => new Producer().after(...claims);
/** Session "a" at sequence 1, in epoch 0. */
const inSession = (): Producer => known(session("a", 0), session("a", 1));

describe("the table of sessions", () => {
  const rows: readonly [title: string, before: Producer, sent: ProducerClaim, outcome: object][] = [
    ["nothing known, 0", known(), session("a", 0), { kind: "accepted", mark: { epoch: 0 } }],
    ["nothing known, 1", known(), session("a", 1), { kind: "gap", expected: 0, received: 1 }],
    ["this session, its last", inSession(), session("a", 1), { kind: "duplicate", end: 20 }],
    ["this session, its first", inSession(), session("a", 0), { kind: "duplicate", end: 10 }],
    [
      "this session, the next",
      inSession(),
      session("a", 2),
      { kind: "accepted", mark: { epoch: 0, sequence: 2, session: "a" } },
    ],
    ["this session, one too far", inSession(), session("a", 3), { kind: "gap", expected: 2 }],
    [
      "a replaced session, 0",
      inSession().after(session("b", 0)),
      session("a", 0),
      { kind: "fenced", currentEpoch: 1 },
    ],
    [
      "a replaced session, its next",
      inSession().after(session("b", 0)),
      session("a", 2),
      { kind: "fenced", currentEpoch: 1 },
    ],
    [
      "another session, 0",
      inSession(),
      session("b", 0),
      { kind: "accepted", mark: { epoch: 1, sequence: 0, session: "b" } },
    ],
    ["another session, 2", inSession(), session("b", 2), { kind: "gap", expected: 0, received: 2 }],
    [
      "a declared epoch, 0",
      known(epoch(7, 0)),
      session("a", 0),
      { kind: "accepted", mark: { epoch: 8, session: "a" } },
    ],
    ["a declared epoch, 1", known(epoch(7, 0)), session("a", 1), { kind: "gap", expected: 0 }],
    ["the last epoch, 0", known(epoch(MAX, 0)), session("a", 0), { kind: "epoch_exhausted" }],
    ["the last epoch, 1", known(epoch(MAX, 0)), session("a", 1), { kind: "gap", expected: 0 }],
  ];
  test.each(rows)("P5 %s", (_title, before, sent, outcome) => {
    expect(before.send(sent)).toMatchObject(outcome);
  });

  test("P5 the last epoch but one has room for one more session", () => {
    const producer = known(epoch(MAX - 1, 0), session("a", 0), session("a", 1));
    expect(producer.state?.epoch).toBe(MAX);
    expect(producer.send(session("a", 1)).kind).toBe("duplicate");
    expect(producer.send(session("b", 0)).kind).toBe("epoch_exhausted");
    expect(producer.send(session("a", 2)).kind).toBe("accepted");
  });
});

describe("an epoch that a session has", () => {
  test.each([0, 1, 2, 3])("P6 is closed to the client that declares it, at sequence %d", (sent) => {
    const producer = inSession();
    expect(producer.send(epoch(0, sent))).toEqual({ kind: "fenced", currentEpoch: 0 });
    expect(producer.send(session("a", 2)).kind).toBe("accepted");
  });

  test("P6 is replaced by a higher declared one that starts at 0", () => {
    const producer = inSession();
    expect(producer.send(epoch(1, 1))).toEqual({ kind: "epoch_start", received: 1 });
    expect(producer.send(epoch(1, 0)).kind).toBe("accepted");
    expect(producer.state).toMatchObject({ epoch: 1, session: undefined, replaced: ["a"] });
    expect(producer.send(session("a", 2)).kind).toBe("fenced");
    expect(producer.send(session("a", 0)).kind).toBe("fenced");
    expect(producer.send(epoch(1, 1)).kind).toBe("accepted");
  });

  test("P6 fences lower ones", () => {
    const producer = known(epoch(3, 0), session("a", 0));
    for (const lower of [0, 3]) {
      expect(producer.send(epoch(lower, 0))).toEqual({ kind: "fenced", currentEpoch: 4 });
    }
  });
});

describe("replaced sessions", () => {
  const nonces = Array.from({ length: SESSIONS_KEPT + 2 }, (_, index) => `nonce ${index}`);

  test("P5 the last sixteen stay fenced with every sequence they send", () => {
    const producer = known(...nonces.slice(0, SESSIONS_KEPT + 1).map((nonce) => session(nonce, 0)));
    for (const nonce of nonces.slice(0, SESSIONS_KEPT)) {
      for (const sequence of [0, 1, 5]) {
        expect(producer.send(session(nonce, sequence)).kind).toBe("fenced");
      }
    }
  });

  test("P5 the seventeenth before the last is forgotten: that is the documented limit", () => {
    const producer = known(...nonces.map((nonce) => session(nonce, 0)));
    expect(producer.state?.replaced).toEqual(nonces.slice(1, -1));
    expect(producer.send(session("nonce 1", 0)).kind).toBe("fenced");
    expect(producer.send(session("nonce 0", 0)).kind).toBe("accepted");
  });
});

describe("after a reset", () => {
  test("P5 every nonce that was known stays fenced, also the last one", () => {
    const producer = known(session("a", 0), session("b", 0), epoch(9, 0), session("c", 0));
    producer.reset();
    for (const nonce of ["a", "b", "c"]) {
      for (const sequence of [0, 1]) {
        expect(producer.send(session(nonce, sequence)).kind).toBe("fenced");
      }
    }
    expect(producer.send(session("d", 0))).toMatchObject({
      kind: "accepted",
      mark: { epoch: 0, session: "d", resets: 1 },
    });
    expect(producer.send(session("c", 0)).kind).toBe("fenced");
  });

  test.each([0, 1, 5, MAX])("P4 sequence 0 of epoch %d is accepted, and nothing else", (number) => {
    const producer = known(epoch(MAX, 0), epoch(MAX, 1));
    producer.reset();
    expect(producer.state === undefined ? 0 : lastEnd(producer.state)).toBeUndefined();
    // The same answer as to an unknown producer.
    expect(producer.send(epoch(number, 1))).toEqual({ kind: "gap", expected: 0, received: 1 });
    expect(producer.send(session("a", 1))).toEqual({ kind: "gap", expected: 0, received: 1 });
    expect(producer.send(epoch(number, 0)).kind).toBe("accepted");
    expect(producer.send(epoch(number, 0))).toMatchObject({ kind: "duplicate", end: 30 });
    expect(producer.send(epoch(number, 1)).kind).toBe("accepted");
  });

  test("P5 a session goes on after the epochs were exhausted", () => {
    const producer = known(epoch(MAX, 0));
    expect(producer.send(session("a", 0)).kind).toBe("epoch_exhausted");
    producer.reset();
    producer.after(session("a", 0), session("a", 1), session("b", 0));
    expect(producer.state).toMatchObject({ epoch: 1, resets: 1, replaced: ["a"] });
  });

  test("P3 a reset that the state contains, or a mark from before it, changes nothing", () => {
    const producer = known(epoch(5, 0));
    const decision = decideProducer(producer.state, epoch(5, 1), 7);
    producer.reset();
    const { state } = producer;
    if (state === undefined || decision.kind !== "accepted") throw new Error("it was not accepted");
    const before = structuredClone(state);
    applyReset(state, 1);
    applyProducer(state, decision.mark, 20 as Offset);
    expect(state).toEqual(before);
  });
});

describe("where the original ended", () => {
  test("P7 is known for the last 32 appends of the epoch, and for no older one", () => {
    const producer = known();
    for (let sequence = 0; sequence < 100; sequence += 1) {
      producer.after(session("a", sequence));
      for (let sent = 0; sent <= sequence; sent += 1) {
        const end = sent > sequence - ENDS_KEPT ? (sent + 1) * 10 : undefined;
        const decision = producer.send(session("a", sent));
        if (decision.kind !== "duplicate" || decision.end !== end) {
          expect([sent, decision]).toEqual([end, "duplicate"]);
        }
      }
    }
    expect(producer.tail).toBe(1000);
  });

  test.each([
    ["a declared epoch", epoch(1, 0), epoch(1, 1)],
    ["a session", session("b", 0), session("b", 1)],
  ])("P7 starts anew with %s", (_what, first, second) => {
    const producer = known(...Array.from({ length: 40 }, (_, index) => epoch(0, index)));
    producer.after(first);
    expect(producer.send(first)).toMatchObject({ kind: "duplicate", end: 410 });
    producer.after(second);
    expect(producer.send(first)).toMatchObject({ kind: "duplicate", end: 410 });
    expect(producer.send(second)).toMatchObject({ kind: "duplicate", end: 420 });
    expect(producer.send(epoch(0, 39)).kind).toBe("fenced");
  });
});

type Step = ProducerClaim | "reset";

/** One life: what was accepted of one session or epoch. Lists have the oldest first. */
interface Life {
  readonly identity: string;
  readonly epoch: number;
  count: number;
}

/** Returns the right answer, from the lives alone. `since` is the first life after the last reset. */
function judge(lives: readonly Life[], since: number, sent: ProducerClaim): string {
  const now = lives.length > since ? lives.at(-1) : undefined;
  const identity = sent.session ?? sent.epoch;
  if (now?.identity === String(identity)) {
    if (sent.sequence < now.count) return "duplicate";
    return sent.sequence === now.count ? `accepted in ${now.epoch}` : "gap";
  }
  if (sent.session !== undefined) {
    if (lives.some((life) => life.identity === sent.session)) return "fenced";
    if (sent.sequence !== 0) return "gap";
    return `accepted in ${now === undefined ? 0 : now.epoch + 1}`;
  }
  if (now !== undefined && (sent.epoch ?? 0) <= now.epoch) return "fenced";
  if (sent.sequence === 0) return `accepted in ${sent.epoch ?? 0}`;
  return now === undefined ? "gap" : "epoch_start";
}

/** Runs a history and compares every answer. Returns the lives at its end. */
function checkHistory(history: readonly Step[]): readonly Life[] {
  const producer = new Producer();
  const lives: Life[] = [];
  let since = 0;
  for (const step of history) {
    if (step === "reset") {
      producer.reset();
      since = lives.length;
      continue;
    }
    const expected = judge(lives, since, step);
    const decision = producer.send(step);
    const told =
      decision.kind === "accepted" ? `accepted in ${decision.mark.epoch}` : decision.kind;
    if (told !== expected) expect([history, step, told]).toBe(expected);
    if (decision.kind !== "accepted") continue;
    const identity = String(step.session ?? step.epoch);
    const now = lives.length > since ? lives.at(-1) : undefined;
    if (now?.identity === identity) now.count += 1;
    else lives.push({ identity, epoch: decision.mark.epoch, count: 1 });
  }
  return lives;
}

describe("histories", () => {
  test("P5 P6 every answer of every history of four steps follows from what was accepted", () => {
    const claims = ["a", "b", "c"].flatMap((nonce) => [session(nonce, 0), session(nonce, 1)]);
    claims.push(...[0, 1, 2].flatMap((number) => [epoch(number, 0), epoch(number, 1)]));
    const steps: readonly Step[] = [...claims, "reset"];
    let count = 0;
    for (const one of steps)
      for (const two of steps)
        for (const three of steps)
          for (const four of steps) {
            checkHistory([one, two, three, four]);
            count += 1;
          }
    expect(count).toBe(13 ** 4);
  });

  const nonce = fc.integer({ min: 0, max: 15 }).map((index) => `nonce ${index}`);
  const number = fc.integer({ min: 0, max: 12 });
  /** Writers mostly continue, and sometimes skip or restart. Anything that was ever sent may come again. */
  const step = fc.oneof(
    { weight: 8, arbitrary: fc.record({ kind: fc.constant("next" as const), skip: fc.nat(1) }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant("session" as const), nonce }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("epoch" as const), number }) },
    { weight: 6, arbitrary: fc.record({ kind: fc.constant("copy" as const), index: fc.nat() }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("reset" as const) }) },
  );

  test("G2 G13 P5 no session or epoch has a sequence accepted twice, also when copies arrive late", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const history: Step[] = [];
        let last = session("nonce 0", 0);
        for (const move of steps) {
          let next: Step = last;
          if (move.kind === "reset") next = "reset";
          else if (move.kind === "session") next = session(move.nonce, 0);
          else if (move.kind === "epoch") next = epoch(move.number, 0);
          else if (move.kind === "copy") next = history[move.index % history.length] ?? last;
          else {
            const sequence = last.sequence + 1 + move.skip;
            next =
              last.session === undefined
                ? epoch(last.epoch ?? 0, sequence)
                : session(last.session, sequence);
          }
          history.push(next);
          if (next !== "reset") last = next;
        }
        // At most sixteen nonces: none is forgotten, so a session never begins twice.
        const lives = checkHistory(history).map(({ identity }) => identity);
        const sessions = lives.filter((identity) => identity.startsWith("nonce"));
        expect(new Set(sessions).size).toBe(sessions.length);
      }),
      { numRuns: 2000 },
    );
  });
});
