/** What a subscription's owner and its workers are shown of it. */

import type {
  Generation,
  Link,
  Subscription,
  SubscriptionId,
  SubscriptionSettings,
  Wake,
} from "../../core/subscription-state.ts";
import type { StreamState } from "../../core/stream.ts";
import { type Offset, OFFSET_ZERO, type StreamName, type TimeMs } from "../../core/types.ts";
import { LIMITS } from "../../../protocol/all-limits.ts";
import type { Writer } from "../writer.ts";

export interface ShownLink {
  readonly stream: StreamName;
  readonly isExplicit: boolean;
  readonly acked: Offset | undefined;
}

export interface FollowedStream extends ShownLink {
  readonly tail: Offset;
  readonly hasPending: boolean;
}

export interface SubscriptionView {
  readonly id: SubscriptionId;
  readonly settings: SubscriptionSettings;
  readonly createdAtMs: TimeMs;
  readonly generation: Generation;
  readonly isFailed: boolean;
  readonly links: readonly ShownLink[];
  readonly baseUrl: string;
  /** The key that signs; for webhooks only. */
  readonly keyId: string | undefined;
}

/** A subscription in a list. */
export interface SubscriptionSummary {
  readonly id: SubscriptionId;
  readonly settings: SubscriptionSettings;
  readonly createdAtMs: TimeMs;
  readonly generation: Generation;
  readonly isFailed: boolean;
  /** Whether a worker or a webhook has its work, or could take it. */
  readonly phase: Subscription["phase"]["kind"];
  /** How many streams it follows now. */
  readonly streams: number;
}

export function summaryOf(subscription: Subscription): SubscriptionSummary {
  const { id, settings, createdAtMs, generation, retry, phase, links } = subscription;
  const isFailed = retry !== undefined;
  return {
    id,
    settings,
    createdAtMs,
    generation,
    isFailed,
    phase: phase.kind,
    streams: links.size,
  };
}

/** Links in the order in which they are shown: what was named explicitly first. */
export function shownLinks(subscription: Subscription): readonly ShownLink[] {
  const explicit: ShownLink[] = [];
  const found: ShownLink[] = [];
  for (const [stream, { isExplicit, acked }] of subscription.links) {
    if (isExplicit) explicit.push({ stream, isExplicit, acked });
    else if (found.length < LIMITS.subscriptionStreamsMax)
      found.push({ stream, isExplicit, acked });
  }
  return [...explicit, ...found];
}

/**
 * Lists the streams of a wake for its webhook: with the tails that the wake began with, which are what an
 * answer of "done" stands for.
 */
export function deliveredStreams(
  writer: Writer,
  subscription: Subscription,
  wake: Wake,
): readonly FollowedStream[] {
  const streams: FollowedStream[] = [];
  for (const [stream, tail] of wake.tails) {
    const link = subscription.links.get(stream);
    if (link !== undefined && tail !== undefined) streams.push(follow(stream, link, tail));
  }
  return fillUp(streams, subscription, (state) => writer.durableTail(state), writer);
}

/** The streams as a worker claims them, pending ones first. The answer waits until they are durable. */
export function claimedStreams(
  writer: Writer,
  subscription: Subscription,
): readonly FollowedStream[] {
  const streams: FollowedStream[] = [];
  for (const [stream, link] of subscription.links) {
    if (streams.length === LIMITS.wakeStreamsMax) break;
    const state = writer.world.streams.get(stream);
    if (state === undefined || state.isDeleted) continue;
    const followed = follow(stream, link, state.tail, state);
    if (followed.hasPending) streams.push(followed);
  }
  return fillUp(streams, subscription, (state) => state.tail, writer);
}

function fillUp(
  streams: FollowedStream[],
  subscription: Subscription,
  tailOf: (state: StreamState) => Offset,
  writer: Writer,
): readonly FollowedStream[] {
  const named = new Set(streams.map(({ stream }) => stream));
  for (const [stream, link] of subscription.links) {
    if (streams.length >= LIMITS.wakeStreamsMax) break;
    if (named.has(stream)) continue;
    const state = writer.world.streams.get(stream);
    const tail = state === undefined || state.isDeleted ? OFFSET_ZERO : tailOf(state);
    streams.push(follow(stream, link, tail, state));
  }
  return streams;
}

function follow(stream: StreamName, link: Link, tail: Offset, state?: StreamState): FollowedStream {
  const { isExplicit, acked } = link;
  return { stream, isExplicit, acked, tail, hasPending: tail > (acked ?? state?.fork?.at ?? 0) };
}
