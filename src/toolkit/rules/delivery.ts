/**
 * Numbers the events that one object sends to another, and decides them where they arrive, by the rule of producers
 * (streams/core/producer.ts).
 *
 *   - a number belongs to one event for good: it is written down before the event is sent for the first time;
 *   - events are sent in their order; the next ones get numbers when those before them are acknowledged or given up;
 *   - if one that was given up has not arrived, the receiver finds a gap. Then the sender opens a new epoch, and sends nothing
 *     before the receiver has answered that: what was given up cannot arrive any more;
 *   - the answer says how far the receiver came in the epoch before. So what was given up and had arrived is known, and is not
 *     sent again;
 *   - a sender that was restored from a copy uses old numbers for new events. The receiver knows the last events by their
 *     digests, and no true repetition is older than those: so it refuses them, and they go under a new epoch.
 *
 * Pure.
 */

import { FNV_START, fnvStep } from "../../base/fnv.ts";
import {
  applyProducer,
  decideProducer,
  ENDS_KEPT,
  type MutableProducer,
} from "../../streams/core/producer.ts";
import type { Epoch, Offset, ProducerId, Sequence } from "../../streams/core/types.ts";

/** The most events of one call: the receiver knows so many by their digests. */
export const DELIVERY_MAX = ENDS_KEPT;
/** How many events that were given up, and had arrived, a sender remembers of each receiver. */
const ARRIVED_MAX = 200;

interface NumberedId {
  readonly id: string;
  readonly sequence: number;
}

/** What a sender knows of one receiver. */
export interface DeliveryPeer {
  readonly epoch: number;
  /** The receiver has not answered yet that it has begun this epoch. Its number 0 is that question. */
  readonly isOpening: boolean;
  /** The number of the first of `ids`. The others follow it. */
  readonly first: number;
  /** The events that have numbers and were sent last. */
  readonly ids: readonly string[];
  /** How many of `ids` the receiver has acknowledged. */
  readonly acknowledged: number;
  /** Events before `ids` that were given up without an answer; while it is opening, those of the epoch `leftEpoch`. */
  readonly left: readonly NumberedId[];
  readonly leftEpoch: number;
  /** Events that were given up without an answer, of which is known that the receiver has them. */
  readonly arrived: readonly string[];
}

export const NEW_PEER: DeliveryPeer = {
  epoch: 0,
  isOpening: false,
  first: 0,
  ids: [],
  acknowledged: 0,
  left: [],
  leftEpoch: 0,
  arrived: [],
};

/** The result of `numberEvents()`: how many of the first events go in one call, and under which numbers. */
export interface Numbered {
  /** Store it before anything is sent. The same object: nothing has changed. */
  readonly peer: DeliveryPeer;
  readonly sequence: number;
  /** 0: the call only opens the epoch. */
  readonly count: number;
}

/** Numbers the next events for a receiver. `ids` is not empty, and has no event that `hasArrived`. */
export function numberEvents(peer: DeliveryPeer, ids: readonly string[]): Numbered {
  if (peer.isOpening) return { peer, sequence: 0, count: 0 };
  const at = peer.ids.indexOf(ids[0] ?? "");
  if (at >= 0) {
    let count = 1;
    while (count < ids.length && peer.ids[at + count] === ids[count]) count += 1;
    return { peer, sequence: peer.first + at, count };
  }
  const given = peer.left.find(({ id }) => id === ids[0]);
  if (given !== undefined) return { peer, sequence: given.sequence, count: 1 };
  const fresh = ids.slice(0, DELIVERY_MAX);
  const known = new Set([...peer.ids, ...peer.left.map(({ id }) => id)]);
  const end = fresh.findIndex((id) => known.has(id));
  const next = end < 0 ? fresh : fresh.slice(0, end);
  const numbered: DeliveryPeer = {
    ...peer,
    first: peer.first + peer.ids.length,
    ids: next,
    acknowledged: 0,
    left: [...peer.left, ...unanswered(peer)],
  };
  return { peer: numbered, sequence: numbered.first, count: next.length };
}

function unanswered({ ids, first, acknowledged }: DeliveryPeer): readonly NumberedId[] {
  return ids.map((id, at) => ({ id, sequence: first + at })).slice(acknowledged);
}

/** Whether an event that was given up has arrived all the same. */
export function hasArrived(peer: DeliveryPeer, id: string): boolean {
  return peer.arrived.includes(id);
}

/**
 * The receiver has acknowledged a call that began at `sequence`, up to and with `last`. So it has everything before the call
 * as well.
 */
export function applyAcknowledged(
  peer: DeliveryPeer,
  sequence: number,
  last: number,
): DeliveryPeer {
  const count = Math.min(peer.ids.length, last - peer.first + 1);
  const before = [...peer.left, ...unanswered(peer)].filter((one) => one.sequence < sequence);
  return {
    ...peer,
    acknowledged: Math.max(peer.acknowledged, count),
    left: peer.left.filter((one) => one.sequence > last),
    arrived: remembered(peer, before),
  };
}

/** The receiver has refused a call: a new epoch begins. `currentEpoch` is the one that the receiver knows, if it says so. */
export function applyDeliveryRefused(peer: DeliveryPeer, currentEpoch = 0): DeliveryPeer {
  const epoch = Math.max(peer.epoch, currentEpoch) + 1;
  if (peer.isOpening) return { ...peer, epoch };
  return {
    ...NEW_PEER,
    epoch,
    isOpening: true,
    first: 1,
    left: [...peer.left, ...unanswered(peer)],
    leftEpoch: peer.epoch,
    arrived: peer.arrived,
  };
}

/** The receiver has begun the epoch. `before` is how far it came in the last one; undefined: it knew none. */
export function applyOpened(peer: DeliveryPeer, before: EpochEnd | undefined): DeliveryPeer {
  const last = before?.epoch === peer.leftEpoch ? before.last : -1;
  const found = peer.left.filter(({ sequence }) => sequence <= last);
  return { ...peer, isOpening: false, left: [], arrived: remembered(peer, found) };
}

function remembered({ arrived }: DeliveryPeer, found: readonly NumberedId[]): readonly string[] {
  const fresh = found.filter(({ id }) => !arrived.includes(id)).map(({ id }) => id);
  return fresh.length === 0 ? arrived : [...arrived, ...fresh].slice(-ARRIVED_MAX);
}

/** How far a receiver came in an epoch. */
export interface EpochEnd {
  readonly epoch: number;
  readonly last: number;
}

/** What a receiver knows of one sender, as it is stored. */
export interface SenderState extends Pick<MutableProducer, "epoch" | "lastSequence" | "recent"> {
  /** The epoch before. */
  readonly before: EpochEnd | undefined;
}

/** The number of one event on its way. */
export interface DeliveryNumber {
  readonly epoch: number;
  readonly sequence: number;
}

/** The result of `decideDelivery()`. */
export type DeliveryDecision =
  | { readonly kind: "accepted"; readonly state: SenderState }
  | { readonly kind: "duplicate"; readonly state: SenderState }
  | { readonly kind: "refused"; readonly currentEpoch: number };

/** Decides one event of a sender. The opening of an epoch is an event without an id. */
export function decideDelivery(
  known: SenderState | undefined,
  { epoch, sequence }: DeliveryNumber,
  eventId: string,
): DeliveryDecision {
  const state = known === undefined ? undefined : producerOf(known);
  // Casts: whole numbers, as the door has checked. The sender is named by the row that the state is in.
  const claim = {
    id: "" as ProducerId,
    epoch: epoch as Epoch,
    sequence: sequence as Sequence,
    session: undefined,
  };
  const decision = decideProducer(state, claim, digestOf(eventId));
  if (decision.kind === "accepted") {
    const isNewEpoch = known !== undefined && known.epoch !== epoch;
    const before = isNewEpoch ? { epoch: known.epoch, last: known.lastSequence } : known?.before;
    const { lastSequence, recent } = applyProducer(state, decision.mark, 0 as Offset);
    return {
      kind: "accepted",
      state: { epoch: decision.mark.epoch, lastSequence, recent, before },
    };
  }
  const isRepetition =
    decision.kind === "duplicate" &&
    !decision.isOther &&
    sequence > decision.state.lastSequence - ENDS_KEPT;
  if (isRepetition && known !== undefined) return { kind: "duplicate", state: known };
  return { kind: "refused", currentEpoch: known?.epoch ?? 0 };
}

function producerOf({ epoch, lastSequence, recent }: SenderState): MutableProducer {
  return {
    epoch,
    lastSequence,
    recent: [...recent],
    session: undefined,
    replaced: undefined,
    resets: 0,
  };
}

/** 32 bits: tells the last few events of a sender apart. */
function digestOf(id: string): number {
  let hash = FNV_START;
  for (let at = 0; at < id.length; at += 1) hash = fnvStep(hash, id.charCodeAt(at));
  return hash >>> 0;
}
