/**
 * Decides when a subscription wakes, and which calls about a wake count. subscription.ts lists the invariants.
 * PROTOCOL.md §11.
 *
 * A wake ends in one of three ways: its holder is done, its holder releases it, or the lease ends. If there is
 * pending work then, the next wake begins in the same step, so that no wake is lost.
 */

import { doubledMs, spreadMs } from "../../base/backoff.ts";
import { decideNumber } from "./numbers.ts";
import type { IsBoundary, StreamsByName } from "./stream.ts";
import type {
  Ack,
  Generation,
  Retry,
  Subscription,
  SubscriptionAcked,
  SubscriptionChange,
  SubscriptionReleased,
  SubscriptionWoken,
} from "./subscription-state.ts";
import { assert } from "../../base/assert.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";

/** What one decision knows of the world around the subscription. */
export interface Scene {
  readonly streams: StreamsByName;
  readonly atMs: TimeMs;
  /** Id of the wake that may begin. It is never used again. */
  readonly wakeId: string;
  /** Most streams that one wake names. The rest follow with the next wake. */
  readonly wakeStreamsMax: number;
  readonly isBoundary: IsBoundary;
}

/** Names the wake that a call is about. */
export interface WakeReference {
  readonly generation: Generation;
  readonly wakeId: string;
}

export interface Fenced {
  readonly kind: "fenced";
  /** Not empty if this call was the first after the end of the lease. */
  readonly changes: readonly SubscriptionChange[];
}

export interface InvalidAck {
  readonly kind: "invalid_ack";
  readonly stream: StreamName;
  readonly reason: string;
}

export interface Settled {
  readonly kind: "settled";
  readonly changes: readonly SubscriptionChange[];
  /** Another wake has begun. */
  readonly isWokenAgain: boolean;
}

export type AckDecision = Settled | Fenced | InvalidAck;
export type ReleaseDecision = Settled | Fenced;

export type SubscriptionClaimDecision =
  | {
      readonly kind: "claimed";
      readonly changes: readonly SubscriptionChange[];
      readonly wake: WakeReference;
    }
  | { readonly kind: "held"; readonly holder: string; readonly generation: Generation }
  | { readonly kind: "nothing_pending"; readonly changes: readonly SubscriptionChange[] };

/** How long to wait before the next attempt of a delivery. */
export interface DeliveryRetry {
  readonly delayMsMin: number;
  readonly delayMsMax: number;
  /** A random number in [0, 1) that spreads the retries. */
  readonly unit: number;
}

const NO_ACKS: ReadonlyMap<StreamName, Offset> = new Map();
const RETRY_JITTER = 0.2;

/** Returns the wake that an append to `stream` causes. Call it after the append. */
export function decideAppendWake(
  subscription: Subscription,
  stream: StreamName,
  scene: Scene,
): SubscriptionWoken | undefined {
  if (subscription.phase.kind !== "idle") return undefined;
  const tail = pendingTail(subscription, stream, scene.streams, NO_ACKS);
  // An idle subscription has nothing pending, so this stream is all there is.
  return tail === undefined ? undefined : wokenChange(subscription, [[stream, tail]], scene);
}

/** Returns the wake that pending work causes. For a start after a stop, and after a link. */
export function decideWake(
  subscription: Subscription,
  scene: Scene,
): SubscriptionWoken | undefined {
  if (subscription.phase.kind !== "idle") return undefined;
  const tails = pendingTails(subscription, scene, NO_ACKS);
  return tails.length === 0 ? undefined : wokenChange(subscription, tails, scene);
}

export function decideSubscriptionClaim(
  subscription: Subscription,
  worker: string,
  scene: Scene,
): SubscriptionClaimDecision {
  const { phase, id: subscriptionId, settings } = subscription;
  const { atMs } = scene;
  if (phase.kind === "held" && !isLeaseOver(subscription, atMs)) {
    return { kind: "held", holder: phase.holder ?? "", generation: subscription.generation };
  }
  const changes: SubscriptionChange[] = [];
  const tails = pendingTails(subscription, scene, NO_ACKS);
  if (phase.kind === "held") changes.push(releasedChange(subscription, "expired", atMs));
  if (tails.length === 0) {
    // The announced work has gone meanwhile, for instance with its stream.
    if (phase.kind === "waking") changes.push(releasedChange(subscription, "done", atMs));
    return { kind: "nothing_pending", changes };
  }
  let wake: WakeReference;
  if (phase.kind === "waking") {
    wake = phase.wake;
  } else {
    const woken = wokenChange(subscription, tails, scene);
    changes.push(woken);
    wake = woken;
  }
  const leaseUntilMs = (atMs + settings.leaseMs) as TimeMs;
  const kind = "subscription_claimed";
  changes.push({ kind, atMs, subscription: subscriptionId, holder: worker, leaseUntilMs });
  const { generation, wakeId } = wake;
  return { kind: "claimed", changes, wake: { generation, wakeId } };
}

/** Decides a callback or an ack: a sign of life, progress, and with `isDone` the end of the wake. */
export function decideAck(
  subscription: Subscription,
  reference: WakeReference,
  acks: readonly Ack[],
  isDone: boolean,
  scene: Scene,
): AckDecision {
  const fenced = decideFence(subscription, reference, scene);
  if (fenced !== undefined) return fenced;
  const offsets = new Map<StreamName, Offset>();
  for (const { stream, offset } of acks) {
    const reason = findAckFault(subscription, stream, offset, scene);
    if (reason !== undefined) return { kind: "invalid_ack", stream, reason };
    // The same stream twice in one call: the further offset counts, as if they had come in order.
    const other = offsets.get(stream);
    if (other === undefined || offset > other) offsets.set(stream, offset);
  }
  const acked = ackedChange(subscription, offsets, scene.atMs);
  if (!isDone) return { kind: "settled", changes: [acked], isWokenAgain: false };
  return endWake(subscription, [acked], "done", offsets, scene);
}

export function decideSubscriptionRelease(
  subscription: Subscription,
  reference: WakeReference,
  scene: Scene,
): ReleaseDecision {
  const fenced = decideFence(subscription, reference, scene);
  return fenced ?? endWake(subscription, [], "released", NO_ACKS, scene);
}

/** Decides that the webhook took the wake. With `isDone` it has processed everything that the wake named. */
export function decideDelivered(
  subscription: Subscription,
  reference: WakeReference,
  isDone: boolean,
  scene: Scene,
): ReleaseDecision {
  const fenced = decideFence(subscription, reference, scene);
  if (fenced !== undefined) return fenced;
  const { phase, id: subscriptionId } = subscription;
  assert(phase.kind !== "idle", `a current wake is not idle: id=${subscriptionId}`);
  if (!isDone) {
    const { atMs } = scene;
    const kind = "subscription_delivered";
    const changes: readonly SubscriptionChange[] =
      phase.kind === "held" ? [] : [{ kind, atMs, subscription: subscriptionId }];
    return { kind: "settled", changes, isWokenAgain: false };
  }
  const offsets = new Map<StreamName, Offset>();
  for (const [stream, tail] of phase.wake.tails) {
    const link = subscription.links.get(stream);
    // A callback may have acked more than the wake named. A lost stream is not acked at all.
    if (tail === undefined || link === undefined) continue;
    if (link.acked === undefined || tail > link.acked) offsets.set(stream, tail);
  }
  const acked = ackedChange(subscription, offsets, scene.atMs);
  return endWake(subscription, [acked], "done", offsets, scene);
}

/** Decides a delivery that did not reach the webhook, or that the webhook did not take. */
export function decideDeliveryFailed(
  subscription: Subscription,
  reference: WakeReference,
  policy: DeliveryRetry,
  scene: Scene,
): readonly SubscriptionChange[] {
  const { phase } = subscription;
  // The answer was lost, but a callback came: the webhook took the wake.
  if (phase.kind !== "waking" || !isCurrent(subscription, reference)) return [];
  if (isLeaseOver(subscription, scene.atMs)) return decideExpiry(subscription, policy, scene);
  return [deliveryFailedChange(subscription, policy, scene.atMs)];
}

/** Decides what the end of a lease changes. Nothing, if the lease still runs. */
export function decideExpiry(
  subscription: Subscription,
  policy: DeliveryRetry,
  scene: Scene,
): readonly SubscriptionChange[] {
  const { phase } = subscription;
  if (phase.kind === "idle" || !isLeaseOver(subscription, scene.atMs)) return [];
  if (phase.kind === "held") return endWake(subscription, [], "expired", NO_ACKS, scene).changes;
  // The webhook did not take the wake in time. That is a failed delivery, so the next one waits.
  const failed = deliveryFailedChange(subscription, policy, scene.atMs);
  const { attempts, nextAttemptAtMs } = failed;
  const retry = { attempts, nextAttemptAtMs };
  return endWake({ ...subscription, retry }, [failed], "expired", NO_ACKS, scene).changes;
}

export function isLeaseOver(subscription: Subscription, atMs: TimeMs): boolean {
  const { phase } = subscription;
  if (phase.kind === "idle" || phase.leaseUntilMs === undefined) return false;
  return atMs >= phase.leaseUntilMs;
}

/** Returns the tail of a followed stream that has more than was acked. */
export function pendingTail(
  subscription: Subscription,
  stream: StreamName,
  streams: StreamsByName,
  acks: ReadonlyMap<StreamName, Offset>,
): Offset | undefined {
  const link = subscription.links.get(stream);
  const state = streams.get(stream);
  if (link === undefined || state === undefined || state.isDeleted) return undefined;
  // Data that a fork took over from its source was not written to the fork.
  const acked = acks.get(stream) ?? link.acked ?? state.fork?.at ?? 0;
  return state.tail > acked ? state.tail : undefined;
}

function pendingTails(
  subscription: Subscription,
  scene: Scene,
  acks: ReadonlyMap<StreamName, Offset>,
): readonly (readonly [StreamName, Offset])[] {
  const tails: (readonly [StreamName, Offset])[] = [];
  for (const stream of subscription.links.keys()) {
    if (tails.length === scene.wakeStreamsMax) break;
    const tail = pendingTail(subscription, stream, scene.streams, acks);
    if (tail !== undefined) tails.push([stream, tail]);
  }
  return tails;
}

function isCurrent(subscription: Subscription, reference: WakeReference): boolean {
  const { phase } = subscription;
  if (phase.kind === "idle") return false;
  const { generation, wakeId } = phase.wake;
  return generation === reference.generation && wakeId === reference.wakeId;
}

/** The first call after the end of a lease also ends the wake. */
function decideFence(
  subscription: Subscription,
  reference: WakeReference,
  scene: Scene,
): Fenced | undefined {
  const { phase, settings } = subscription;
  // A pull-wake without a claim has no holder.
  const isUnclaimed = phase.kind === "waking" && settings.way.kind === "pull_wake";
  if (!isCurrent(subscription, reference) || isUnclaimed) return { kind: "fenced", changes: [] };
  if (!isLeaseOver(subscription, scene.atMs)) return undefined;
  // The timer of an undelivered webhook ends it, and knows when to try again.
  if (phase.kind === "waking") return { kind: "fenced", changes: [] };
  const { changes } = endWake(subscription, [], "expired", NO_ACKS, scene);
  return { kind: "fenced", changes };
}

function findAckFault(
  subscription: Subscription,
  stream: StreamName,
  offset: Offset,
  { streams, isBoundary }: Scene,
): string | undefined {
  const { phase } = subscription;
  const link = subscription.links.get(stream);
  const state = streams.get(stream);
  if (link === undefined) return "the subscription does not follow the stream";
  if (state === undefined || state.isDeleted) return "the stream does not exist";
  if (phase.kind !== "idle") {
    const { tails } = phase.wake;
    if (tails.has(stream) && tails.get(stream) === undefined) {
      return "the stream was deleted or left out since the wake";
    }
  }
  if (offset < 0) return "nothing is before the first record";
  if (link.acked !== undefined && offset < link.acked) return "the offset is before the acked one";
  if (offset > state.tail) return "the offset is beyond the tail";
  if (offset !== link.acked && !isBoundary(state, offset)) {
    return "the offset is inside a record; send one that the stream has handed out";
  }
  return undefined;
}

function endWake(
  subscription: Subscription,
  before: readonly SubscriptionChange[],
  reason: SubscriptionReleased["reason"],
  acks: ReadonlyMap<StreamName, Offset>,
  scene: Scene,
): Settled {
  const changes = [...before, releasedChange(subscription, reason, scene.atMs)];
  const tails = pendingTails(subscription, scene, acks);
  if (tails.length === 0) return { kind: "settled", changes, isWokenAgain: false };
  // An ack or an answer ends a series of failures; an expiry does not.
  const next = reason === "expired" ? subscription : { ...subscription, retry: undefined };
  changes.push(wokenChange(next, tails, scene));
  return { kind: "settled", changes, isWokenAgain: true };
}

function wokenChange(
  subscription: Subscription,
  tails: SubscriptionWoken["tails"],
  scene: Scene,
): SubscriptionWoken {
  const { id, settings, generation, retry } = subscription;
  const { atMs, wakeId } = scene;
  const isWebhook = settings.way.kind === "webhook";
  return {
    kind: "subscription_woken",
    atMs,
    subscription: id,
    wakeId,
    generation: decideNumber(generation + 1, atMs),
    tails,
    leaseUntilMs: isWebhook ? leaseAfterAttempt(settings.leaseMs, retry, atMs) : undefined,
  };
}

// The lease of a webhook counts from the next attempt, so that it cannot end before it.
function leaseAfterAttempt(leaseMs: number, retry: Retry | undefined, atMs: TimeMs): TimeMs {
  const attemptAtMs = retry === undefined ? atMs : Math.max(atMs, retry.nextAttemptAtMs);
  return (attemptAtMs + leaseMs) as TimeMs;
}

function deliveryFailedChange(
  subscription: Subscription,
  policy: DeliveryRetry,
  atMs: TimeMs,
): SubscriptionChange & { readonly kind: "subscription_delivery_failed" } {
  const attempts = (subscription.retry?.attempts ?? 0) + 1;
  const { delayMsMin: pauseMs, delayMsMax: pauseMsMax, unit } = policy;
  const delayMs = spreadMs(doubledMs(attempts, { pauseMs, pauseMsMax }), RETRY_JITTER, unit);
  const nextAttemptAtMs = (atMs + Math.round(delayMs)) as TimeMs;
  const leaseUntilMs = (nextAttemptAtMs + subscription.settings.leaseMs) as TimeMs;
  const kind = "subscription_delivery_failed";
  return { kind, atMs, subscription: subscription.id, attempts, nextAttemptAtMs, leaseUntilMs };
}

function ackedChange(
  subscription: Subscription,
  offsets: ReadonlyMap<StreamName, Offset>,
  atMs: TimeMs,
): SubscriptionAcked {
  const acks = Array.from(offsets, ([stream, offset]) => ({ stream, offset }));
  const leaseUntilMs = (atMs + subscription.settings.leaseMs) as TimeMs;
  return { kind: "subscription_acked", atMs, subscription: subscription.id, acks, leaseUntilMs };
}

function releasedChange(
  subscription: Subscription,
  reason: SubscriptionReleased["reason"],
  atMs: TimeMs,
): SubscriptionReleased {
  return { kind: "subscription_released", atMs, subscription: subscription.id, reason };
}
