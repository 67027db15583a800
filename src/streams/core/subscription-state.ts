/**
 * The words of subscriptions: what one is, and what can happen to it, as plain data. The rules are in
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
  /** Over absolute names. */
  readonly pattern: string | undefined;
  /** The streams named at creation: sorted, each once. */
  readonly streams: readonly StreamName[];
  readonly leaseMs: number;
  readonly description: string | undefined;
}

/** Why a stream is followed, and how far it was processed. At least one reason holds. */
export interface Link {
  readonly isExplicit: boolean;
  readonly isGlob: boolean;
  /** Undefined: nothing yet, from the first record written to it. */
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
   * Tails when the wake began, of the streams with pending work. Undefined: the stream was lost during
   * the wake, and what the holder knows of it is about another life of its name (N6).
   */
  readonly tails: ReadonlyMap<StreamName, Offset | undefined>;
}

export type Phase =
  | { readonly kind: "idle" }
  /** Announced and unclaimed, or on its way to a webhook. Only a webhook has a lease by now. */
  | { readonly kind: "waking"; readonly wake: Wake; readonly leaseUntilMs: TimeMs | undefined }
  | {
      readonly kind: "held";
      readonly wake: Wake;
      readonly leaseUntilMs: TimeMs;
      /** The worker; a webhook has no name. */
      readonly holder: string | undefined;
    };

/** Deliveries of a webhook that failed in a row, and when the next one is due. */
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
  readonly phase: Phase;
  /** Undefined when the last delivery succeeded: the subscription counts as active, else as failed. */
  readonly retry: Retry | undefined;
}

export interface SubscriptionBook {
  readonly byId: ReadonlyMap<SubscriptionId, Subscription>;
  /** The highest generation of any deleted subscription: new ones start there (N1). */
  readonly generationFloor: Generation;
  readonly byStream: ReadonlyMap<StreamName, ReadonlySet<SubscriptionId>>;
  readonly globs: ReadonlyMap<SubscriptionId, Glob> & Pick<GlobIndex<SubscriptionId>, "matching">;
  /** A memo: streams that every matching pattern already follows. See subscription-link.ts. */
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

/** Reasons are added to those a link has; the acked offset counts for new links only. */
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

/** The holder spoke: what it processed, and its lease from now on. */
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
