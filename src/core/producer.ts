/**
 * The rule that makes an append idempotent.
 *
 * A producer numbers its appends 0, 1, 2, … within an epoch. The stream remembers, for each producer,
 * the last number it accepted: enough to tell a retry from a new append.
 *
 * Invariants (the tests carry these names):
 *   P1  an accepted sequence is one more than the last accepted, or 0 in a new epoch;
 *   P2  an epoch never goes back: the older writer is fenced;
 *   P3  a duplicate changes nothing;
 *   P4  a producer that the stream does not know starts at 0: nothing is accepted on faith.
 *
 * PROTOCOL.md §5. Pure: no clock, no storage, no await.
 */

import {
  type Epoch,
  nextSequence,
  type ProducerId,
  SEQUENCE_ZERO,
  type Sequence,
} from "./types.ts";

export interface ProducerState {
  readonly epoch: Epoch;
  readonly lastSequence: Sequence;
}

/** What one append says about itself. */
export interface ProducerClaim {
  readonly id: ProducerId;
  readonly epoch: Epoch;
  readonly sequence: Sequence;
}

export type ProducerRefusal =
  | { readonly kind: "fenced"; readonly currentEpoch: Epoch }
  | { readonly kind: "gap"; readonly expected: Sequence; readonly received: Sequence }
  | { readonly kind: "epoch_start"; readonly received: Sequence };

export type ProducerDecision =
  | { readonly kind: "accepted" }
  | { readonly kind: "duplicate"; readonly state: ProducerState }
  | ProducerRefusal;

const ACCEPTED: ProducerDecision = { kind: "accepted" };

export function decideProducer(
  state: ProducerState | undefined,
  claim: ProducerClaim,
): ProducerDecision {
  const { epoch, sequence } = claim;
  if (state === undefined) {
    if (sequence === SEQUENCE_ZERO) return ACCEPTED;
    return { kind: "gap", expected: SEQUENCE_ZERO, received: sequence };
  }
  if (epoch < state.epoch) return { kind: "fenced", currentEpoch: state.epoch };
  if (epoch > state.epoch) {
    // Any other number means that appends of the new epoch were lost before they reached us.
    return sequence === SEQUENCE_ZERO ? ACCEPTED : { kind: "epoch_start", received: sequence };
  }
  if (sequence <= state.lastSequence) return { kind: "duplicate", state };
  const expected = nextSequence(state.lastSequence);
  return sequence === expected ? ACCEPTED : { kind: "gap", expected, received: sequence };
}

/** The state after an accepted claim. */
export function applyProducer(claim: ProducerClaim): ProducerState {
  return { epoch: claim.epoch, lastSequence: claim.sequence };
}
