/**
 * The types of subscriptions: what a subscription is, and what can happen to it, as plain data. The rules are in
 * subscription.ts and beside it.
 */

import type { Glob } from "../../base/glob.ts";
import type { GlobIndex } from "./glob-index.ts";
import type { StreamState } from "./stream.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";

export type SubscriptionId = string;
/** Number of a wake. A higher one fences every lower one. */
export type Generation = number;

export type DeliveryWay =
  | { readonly kind: "webhook"; readonly url: string }
  | { readonly kind: "pull_wake"; readonly wakeStream: StreamName };

export interface SubscriptionSettings {
  readonly way: DeliveryWay;
  /** Matches absolute names. */
  readonly pattern: string | undefined;
  /** The streams named at creation: sorted, each once. */
  readonly streams: readonly StreamName[];
  readonly leaseMs: number;
  readonly description: string | undefined;
}

/** Why a subscription follows a stream, and how far the stream was processed. At least one reason holds. */
export interface Link {
  readonly isExplicit: boolean;
  readonly isGlob: boolean;
  /** Undefined: nothing was processed yet. Work begins at the first record that was written to the stream. */
  readonly acked: Offset | undefined;
}

export interface StreamLink extends Link {
  readonly stream: StreamName;
}

export interface Ack {
  readonly stream: StreamName;
  readonly offset: Offset;
}

export interface Wake {
  readonly wakeId: string;
  readonly generation: Generation;
  /**
   * The tails of the streams with pending work, from the time when the wake began. Undefined: the stream was lost
   * during the wake, and the holder's offsets are about another life of its name.
   */
  readonly tails: ReadonlyMap<StreamName, Offset | undefined>;
}

export type SubscriptionPhase =
  | { readonly kind: "idle" }
  /** Announced and unclaimed, or on its way to a webhook. Only a webhook has a lease in this phase. */
  | { readonly kind: "waking"; readonly wake: Wake; readonly leaseUntilMs: TimeMs | undefined }
  | {
      readonly kind: "held";
      readonly wake: Wake;
      readonly leaseUntilMs: TimeMs;
      /** The worker; a webhook has no name. */
      readonly holder: string | undefined;
    };

/** How many deliveries of a webhook failed in a row, and when the next one is due. */
export interface Retry {
  readonly attempts: number;
  readonly nextAttemptAtMs: TimeMs;
}

export interface Subscription {
  readonly id: SubscriptionId;
  readonly settings: SubscriptionSettings;
  readonly createdAtMs: TimeMs;
  readonly generation: Generation;
  readonly links: ReadonlyMap<StreamName, Link>;
  readonly phase: SubscriptionPhase;
  /** Undefined if the last delivery succeeded. Then the subscription counts as active, else as failed. */
  readonly retry: Retry | undefined;
}

export interface SubscriptionBook {
  readonly byId: ReadonlyMap<SubscriptionId, Subscription>;
  /** The highest generation of all deleted subscriptions. New ones start there. */
  readonly generationFloor: Generation;
  readonly byStream: ReadonlyMap<StreamName, ReadonlySet<SubscriptionId>>;
  readonly globs: ReadonlyMap<SubscriptionId, Glob> & Pick<GlobIndex<SubscriptionId>, "matching">;
  /** A cache: streams that every matching pattern already follows. See subscription-link.ts. */
  readonly settledStreams: WeakSet<StreamState>;
}

export interface ChangeBase {
  readonly atMs: TimeMs;
  readonly subscription: SubscriptionId;
}

export interface SubscriptionCreated extends ChangeBase {
  readonly kind: "subscription_created";
  readonly settings: SubscriptionSettings;
  readonly generation: Generation;
  readonly links: readonly StreamLink[];
}

export interface SubscriptionDeleted extends ChangeBase {
  readonly kind: "subscription_deleted";
}

/** The reasons are added to those of an existing link. The acked offset counts for new links only. */
export interface SubscriptionLinked extends ChangeBase {
  readonly kind: "subscription_linked";
  readonly links: readonly StreamLink[];
}

/** The stream is no longer named explicitly; its pattern may still follow it. */
export interface SubscriptionUnlinked extends ChangeBase {
  readonly kind: "subscription_unlinked";
  readonly stream: StreamName;
}

export interface SubscriptionWoken extends ChangeBase {
  readonly kind: "subscription_woken";
  readonly wakeId: string;
  readonly generation: Generation;
  readonly tails: readonly (readonly [StreamName, Offset])[];
  readonly leaseUntilMs: TimeMs | undefined;
}

export interface SubscriptionClaimed extends ChangeBase {
  readonly kind: "subscription_claimed";
  readonly holder: string;
  readonly leaseUntilMs: TimeMs;
}

export interface SubscriptionDelivered extends ChangeBase {
  readonly kind: "subscription_delivered";
}

export interface SubscriptionDeliveryFailed extends ChangeBase {
  readonly kind: "subscription_delivery_failed";
  readonly attempts: number;
  readonly nextAttemptAtMs: TimeMs;
  readonly leaseUntilMs: TimeMs;
}

/** A call of the holder: what it processed, and its lease from now on. */
export interface SubscriptionAcked extends ChangeBase {
  readonly kind: "subscription_acked";
  readonly acks: readonly Ack[];
  readonly leaseUntilMs: TimeMs;
}

export interface SubscriptionReleased extends ChangeBase {
  readonly kind: "subscription_released";
  readonly reason: "done" | "released" | "expired";
}

export type SubscriptionChange =
  | SubscriptionCreated
  | SubscriptionDeleted
  | SubscriptionLinked
  | SubscriptionUnlinked
  | SubscriptionWoken
  | SubscriptionClaimed
  | SubscriptionDelivered
  | SubscriptionDeliveryFailed
  | SubscriptionAcked
  | SubscriptionReleased;
