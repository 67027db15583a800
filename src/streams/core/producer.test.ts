// Small scope, every case: all histories of four claims over three epochs and three sequences
// (9^4 = 6,561). The model is the definition of exactly-once itself: the accepted claims, in order.
// PROTOCOL.md §5
import fc from "fast-check";
import { expect, test } from "vitest";
import { producerClaim } from "../../testing/commands.ts";
import {
  applyProducer,
  decideProducer,
  type MutableProducer,
  type ProducerClaim,
  type ProducerDecision,
  type ProducerState,
} from "./producer.ts";
import type { Epoch, Offset, Sequence } from "./types.ts";

type EpochClaim = ProducerClaim & { readonly epoch: Epoch };

const claim = (epoch: number, sequence: number): EpochClaim => ({
  ...producerClaim("p", epoch, sequence),
  epoch: epoch as Epoch,
});
const DIGEST = 7;
const CLAIMS = [0, 1, 2].flatMap((epoch) => [0, 1, 2].map((sequence) => claim(epoch, sequence)));

function* histories(length: number): Generator<readonly EpochClaim[]> {
  if (length === 0) return yield [];
  for (const rest of histories(length - 1)) for (const first of CLAIMS) yield [first, ...rest];
}

interface Step {
  readonly sent: EpochClaim;
  readonly before: ProducerState | undefined;
  readonly decision: ProducerDecision;
}

function run(history: readonly EpochClaim[]): { steps: Step[]; accepted: EpochClaim[] } {
  let state: MutableProducer | undefined;
  const steps: Step[] = [];
  const accepted: EpochClaim[] = [];
  for (const sent of history) {
    const decision = decideProducer(state, sent, DIGEST);
    steps.push({ sent, before: state, decision });
    if (decision.kind !== "accepted") continue;
    accepted.push(sent);
    state = applyProducer(state, decision.mark, accepted.length as Offset);
  }
  return { steps, accepted };
}

/** Returns the right answer, from the accepted claims alone and without remembered state. */
function judge(accepted: readonly EpochClaim[], sent: EpochClaim): string {
  const newest = Math.max(-1, ...accepted.map(({ epoch }) => epoch));
  const sameEpoch = accepted.filter(({ epoch }) => epoch === sent.epoch);
  if (sent.epoch < newest) return `fenced by ${newest}`;
  if (sameEpoch.some(({ sequence }) => sequence === sent.sequence)) return "duplicate";
  if (sent.sequence === sameEpoch.length) return "accepted";
  if (accepted.length > 0 && sameEpoch.length === 0) return "epoch_start";
  return `gap: ${sameEpoch.length} before ${sent.sequence}`;
}

function describe(decision: ProducerDecision): string {
  if (decision.kind === "fenced") return `fenced by ${decision.currentEpoch}`;
  if (decision.kind === "gap") return `gap: ${decision.expected} before ${decision.received}`;
  return decision.kind;
}

test("P1 an accepted sequence is the next one, or 0 in a new epoch, in every history", () => {
  for (const history of histories(4)) {
    const { accepted } = run(history);
    for (const [index, { epoch, sequence }] of accepted.entries()) {
      const last = accepted[index - 1];
      const isNewEpoch = last === undefined || epoch > last.epoch;
      if (sequence !== (isNewEpoch ? 0 : last.sequence + 1)) expect(history).toBe("in order");
    }
  }
});

test("G7 P2 an epoch never goes back, in every history", () => {
  for (const history of histories(4)) {
    const epochs = run(history).accepted.map(({ epoch }) => epoch);
    if (epochs.some((epoch, index) => epoch < (epochs[index - 1] ?? 0))) {
      expect(history).toBe("without a step back");
    }
  }
});

test("G2 P3 sending every claim twice changes nothing, in every history", () => {
  for (const history of histories(4)) {
    const twice = run(history.flatMap((sent) => [sent, sent])).accepted;
    const once = run(history).accepted;
    if (JSON.stringify(twice) !== JSON.stringify(once)) expect(twice).toEqual(once);
  }
});

test("P3 the answer to a duplicate has the newest state of its producer", () => {
  for (const history of histories(4)) {
    for (const { decision, before } of run(history).steps) {
      if (decision.kind === "duplicate" && decision.state !== before) {
        expect(decision.state).toEqual(before);
      }
    }
  }
});

test("P4 an unknown producer starts at 0 in any epoch, and nothing else is accepted", () => {
  for (const sent of CLAIMS) {
    const expected =
      sent.sequence === 0
        ? { kind: "accepted", mark: { ...sent, resets: 0, digest: DIGEST } }
        : { kind: "gap", expected: 0, received: sent.sequence };
    expect(decideProducer(undefined, sent, DIGEST)).toEqual(expected);
  }
});

test("P1 P2 P3 P4 every answer of every history is the one the accepted claims call for", () => {
  let count = 0;
  for (const history of histories(4)) {
    const { steps } = run(history);
    const accepted: EpochClaim[] = [];
    for (const { sent, decision } of steps) {
      const expected = judge(accepted, sent);
      if (describe(decision) !== expected) expect([history, describe(decision)]).toBe(expected);
      if (decision.kind === "accepted") accepted.push(sent);
      count += 1;
    }
  }
  expect(count).toBe(4 * 9 ** 4);
});

// A window of one would take the older of several lost answers for new, or refuse it.
test.each([5, 50])(
  "P3 %d appends in flight with lost answers are stored once, in order",
  (size) => {
    fc.assert(
      fc.property(fc.array(fc.nat(size - 1), { maxLength: 20 * size }), (arrivals) => {
        let state: MutableProducer | undefined;
        const stored: number[] = [];
        // After any arrivals in any order, the client sends everything again, in order.
        const everything = Array.from({ length: size }, (_, sequence) => sequence);
        for (const sequence of [...arrivals, ...everything, ...arrivals]) {
          const sent = claim(0, sequence);
          const decision = decideProducer(state, sent, DIGEST);
          if (decision.kind !== "accepted") continue;
          state = applyProducer(state, decision.mark, stored.length as Offset);
          stored.push(sequence);
        }
        expect(stored).toEqual(everything);
      }),
    );
  },
);

// The arithmetic also works for the largest epoch that a client can name.
test("P1 P2 the largest epoch and sequence are ordinary ones", () => {
  const max = Number.MAX_SAFE_INTEGER;
  expect(decideProducer(undefined, claim(max, 0), DIGEST).kind).toBe("accepted");
  const nothing = { session: undefined, replaced: undefined, recent: [], resets: 0 };
  const state = { epoch: max as Epoch, lastSequence: (max - 1) as Sequence, ...nothing };
  const decision = decideProducer(state, claim(max, max), DIGEST);
  if (decision.kind !== "accepted") throw new Error(`it is ${decision.kind}`);
  expect(decideProducer(state, claim(max, max - 1), DIGEST).kind).toBe("duplicate");
  expect(decideProducer(state, claim(max - 1, 0), DIGEST)).toEqual({
    kind: "fenced",
    currentEpoch: max,
  });
  const last = applyProducer(state, decision.mark, 1 as Offset);
  expect(decideProducer(last, claim(max, max), DIGEST).kind).toBe("duplicate");
});
