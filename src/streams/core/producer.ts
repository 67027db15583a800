/**
 * The rule that makes an append idempotent.
 *
 * A producer numbers its appends 0, 1, 2, … within an epoch. The stream remembers the last number that it accepted
 * from each producer. That is enough to tell a retry from a new append. The client declares the epoch, or the epoch
 * belongs to a session: then the server counts it, and the client has only its nonce.
 *
 * Invariants (the tests carry these names):
 *   P1  an accepted sequence is one more than the last accepted, or 0 in a new epoch;
 *   P2  an epoch never goes back: the older writer is fenced;
 *   P3  a duplicate changes nothing;
 *   P4  a producer that the stream does not know starts at 0;
 *   P5  a session begins once: after it was replaced, everything that it sends is fenced, its seq 0 too;
 *   P6  an epoch that a session has taken belongs to that session alone;
 *   P7  a duplicate of one of the last appends carries the offset where its original ended;
 *   P8  among the last appends, a repeated number with other content never counts as a retry.
 *
 * PROTOCOL.md §5, §14, §18. Pure: no clock, no storage, no await.
 */

import {
  type Epoch,
  nextSequence,
  type Offset,
  type ProducerId,
  SEQUENCE_ZERO,
  type Sequence,
  type SessionNonce,
} from "./types.ts";

/** How many replaced sessions of a producer the stream remembers by their nonces, to fence them. */
export const SESSIONS_KEPT = 16;
/** How many appends of a producer the stream remembers with end and digest. */
export const ENDS_KEPT = 32;
const EPOCH_MAX = Number.MAX_SAFE_INTEGER as Epoch;
const EPOCH_ZERO = 0 as Epoch;
const NOTHING_ACCEPTED = -1 as Sequence;

/** What a stream knows of a producer. Only `applyProducer` writes it, in place. */
export interface ProducerState {
  readonly epoch: Epoch;
  /** -1 after a reset: the stream has accepted nothing since. */
  readonly lastSequence: Sequence;
  /** The session that has the epoch. Undefined: the client declared the epoch. */
  readonly session: SessionNonce | undefined;
  /** Nonces of sessions that have ended, oldest first. */
  readonly replaced: readonly SessionNonce[] | undefined;
  /**
   * The last appends of the epoch: where each ended, and then the digest of its content. Sequence n stands at
   * `recentAt(n)`. This is one list and not two: most of a million producers have one append, and a list costs more
   * than that.
   */
  readonly recent: readonly number[];
  /** How often the producer was reset. */
  readonly resets: number;
}

/** What one append says about its producer: an epoch of its own, or its session. */
export interface ProducerClaim {
  readonly id: ProducerId;
  readonly sequence: Sequence;
  readonly epoch: Epoch | undefined;
  readonly session: SessionNonce | undefined;
}

/** An accepted append, as the journal has it. Its epoch is known. */
export interface ProducerMark {
  readonly id: ProducerId;
  readonly epoch: Epoch;
  readonly sequence: Sequence;
  readonly session: SessionNonce | undefined;
  readonly resets: number;
  /** Digest of the content (content-digest.ts). */
  readonly digest: number;
}

export type ProducerRefusal =
  | { readonly kind: "fenced"; readonly currentEpoch: Epoch }
  | { readonly kind: "gap"; readonly expected: Sequence; readonly received: Sequence }
  | { readonly kind: "epoch_start"; readonly received: Sequence }
  | { readonly kind: "epoch_exhausted" }
  /** The number was used before, for other content. */
  | { readonly kind: "reused"; readonly received: Sequence };

export type ProducerDecision =
  | { readonly kind: "accepted"; readonly mark: ProducerMark }
  | {
      readonly kind: "duplicate";
      readonly state: ProducerState;
      readonly end: Offset | undefined;
      /**
       * The original had other content. With a session that is a refusal; the public protocol has no refusal for it.
       */
      readonly isOther: boolean;
    }
  | ProducerRefusal;

/**
 * Decides an append of a producer. `digest` is that of the content. Without a digest the call only looks: do not
 * apply what it accepts.
 */
export function decideProducer(
  state: ProducerState | undefined,
  claim: ProducerClaim,
  digest: number | undefined,
): ProducerDecision {
  if (claim.session !== undefined) return decideSession(state, claim, claim.session, digest);
  const { epoch = EPOCH_ZERO, sequence } = claim;
  if (state === undefined || isReset(state)) {
    if (sequence === SEQUENCE_ZERO) return accept(state, claim, epoch, digest);
    return { kind: "gap", expected: SEQUENCE_ZERO, received: sequence };
  }
  if (epoch < state.epoch) return { kind: "fenced", currentEpoch: state.epoch };
  if (epoch > state.epoch) {
    // Any other number means that appends of the new epoch were lost before they reached us.
    return sequence === SEQUENCE_ZERO
      ? accept(state, claim, epoch, digest)
      : { kind: "epoch_start", received: sequence };
  }
  if (state.session !== undefined) return { kind: "fenced", currentEpoch: state.epoch };
  return decideSequence(state, claim, digest);
}

function decideSession(
  state: ProducerState | undefined,
  claim: ProducerClaim,
  session: SessionNonce,
  digest: number | undefined,
): ProducerDecision {
  if (state?.session === session) return decideSequence(state, claim, digest);
  if (state?.replaced?.includes(session) === true) {
    return { kind: "fenced", currentEpoch: state.epoch };
  }
  const { sequence } = claim;
  if (sequence !== SEQUENCE_ZERO) {
    return { kind: "gap", expected: SEQUENCE_ZERO, received: sequence };
  }
  if (state === undefined || isReset(state)) return accept(state, claim, EPOCH_ZERO, digest);
  if (state.epoch === EPOCH_MAX) return { kind: "epoch_exhausted" };
  return accept(state, claim, (state.epoch + 1) as Epoch, digest);
}

/** Whether the producer has sent nothing since its reset. Then the stream knows only the sessions that have ended. */
function isReset(state: ProducerState): boolean {
  return state.lastSequence === NOTHING_ACCEPTED;
}

/** Decides a claim whose epoch or session is the current one. */
function decideSequence(
  state: ProducerState,
  claim: ProducerClaim,
  digest: number | undefined,
): ProducerDecision {
  const { sequence } = claim;
  if (sequence <= state.lastSequence) {
    const isOther = hasOtherContent(state, sequence, digest);
    if (isOther && claim.session !== undefined) return { kind: "reused", received: sequence };
    return { kind: "duplicate", state, end: endOf(state, sequence), isOther };
  }
  const expected = nextSequence(state.lastSequence);
  return sequence === expected
    ? accept(state, claim, state.epoch, digest)
    : { kind: "gap", expected, received: sequence };
}

/** P8 */
function hasOtherContent(
  state: ProducerState,
  sequence: Sequence,
  digest: number | undefined,
): boolean {
  if (digest === undefined || sequence <= state.lastSequence - ENDS_KEPT) return false;
  const known = state.recent[recentAt(sequence) + 1];
  return known !== undefined && known !== digest;
}

function accept(
  state: ProducerState | undefined,
  claim: ProducerClaim,
  epoch: Epoch,
  digest = 0,
): ProducerDecision {
  const { id, sequence, session } = claim;
  const resets = state?.resets ?? 0;
  return { kind: "accepted", mark: { id, epoch, sequence, session, resets, digest } };
}

/** Where `recent` has the end of this append. Its digest stands behind it. */
export function recentAt(sequence: Sequence): number {
  return 2 * (sequence % ENDS_KEPT);
}

function endOf(state: ProducerState, sequence: Sequence): Offset | undefined {
  if (sequence <= state.lastSequence - ENDS_KEPT) return undefined;
  // Cast: every even place has an end.
  return state.recent[recentAt(sequence)] as Offset | undefined;
}

/** Returns where the last accepted append ended. */
export function lastEnd(state: ProducerState): Offset | undefined {
  return state.lastSequence < 0 ? undefined : endOf(state, state.lastSequence);
}

export interface MutableProducer {
  epoch: Epoch;
  lastSequence: Sequence;
  session: SessionNonce | undefined;
  replaced: SessionNonce[] | undefined;
  recent: number[];
  resets: number;
}

/**
 * Returns the state after an accepted mark whose append ended at `end`: the same object, or a new one for a new
 * producer. A mark that the state already contains changes nothing, because the image in a snapshot may be later than
 * the replay.
 */
export function applyProducer(
  state: MutableProducer | undefined,
  mark: ProducerMark,
  end: Offset,
): MutableProducer {
  const { epoch, sequence, session, resets, digest } = mark;
  if (state === undefined) {
    const recent = [end, digest];
    return { epoch, lastSequence: sequence, session, replaced: undefined, recent, resets };
  }
  if (isContained(state, mark)) return state;
  if (epoch !== state.epoch || session !== state.session) {
    retireSession(state);
    state.recent = [];
  }
  state.epoch = epoch;
  state.session = session;
  state.lastSequence = sequence;
  const at = recentAt(sequence);
  state.recent[at] = end;
  state.recent[at + 1] = digest;
  return state;
}

function isContained(state: ProducerState, mark: ProducerMark): boolean {
  if (mark.resets !== state.resets) return mark.resets < state.resets;
  if (mark.epoch !== state.epoch) return mark.epoch < state.epoch;
  return mark.sequence <= state.lastSequence;
}

/** Forgets epoch and sequence. Every known session stays fenced. */
export function applyReset(state: MutableProducer, resets: number): void {
  if (resets <= state.resets) return;
  retireSession(state);
  state.epoch = EPOCH_ZERO;
  state.lastSequence = NOTHING_ACCEPTED;
  state.session = undefined;
  state.recent = [];
  state.resets = resets;
}

function retireSession(state: MutableProducer): void {
  if (state.session === undefined) return;
  const replaced = state.replaced ?? [];
  replaced.push(state.session);
  if (replaced.length > SESSIONS_KEPT) replaced.shift();
  state.replaced = replaced;
}
