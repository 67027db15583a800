/**
 * The state of subscriptions, and the only code that changes it. The decisions are in subscription-decide.ts (wakes,
 * claims, acks) and subscription-link.ts (which streams it follows). PROTOCOL.md §11.
 *
 * A subscription follows streams and remembers for each how far it was processed (`acked`). When a followed stream
 * has more, there is one wake. The server announces it to workers or delivers it to a webhook. Then it is held under
 * a lease until the holder is done or releases it, or until the lease ends.
 *
 *   - the generation only grows, also when a subscription is deleted and its id is used again, and is never below the
 *     clock (numbers.ts);
 *   - an ack, callback or release changes something only with the current generation and wake id,
 *     and only while the lease runs;
 *   - an acked offset never goes back, never passes the tail, and is between two records;
 *   - at most one wake: none begins while another is announced, in delivery or held;
 *   - no wake-up is lost: a subscription with pending work is never idle;
 *   - the offset of a deleted stream never counts for the stream that is created after it;
 *   - a stream found by its pattern is followed from its tail before the append that revealed it;
 *   - the index finds the subscriptions that a scan of all of them would find.
 */

import { Glob } from "../../base/glob.ts";
import { GlobIndex } from "./glob-index.ts";
import type {
  ChangeBase,
  Link,
  SubscriptionPhase,
  StreamLink,
  Subscription,
  SubscriptionAcked,
  SubscriptionBook,
  SubscriptionChange,
  SubscriptionClaimed,
  SubscriptionCreated,
  SubscriptionDeleted,
  SubscriptionDeliveryFailed,
  SubscriptionId,
  SubscriptionWoken,
  Wake,
} from "./subscription-state.ts";
import { assert } from "../../base/assert.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";

export type { SubscriptionBook, SubscriptionChange } from "./subscription-state.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type MutableWake = Omit<Wake, "tails"> & { readonly tails: Map<StreamName, Offset | undefined> };
type MutableSubscription = Mutable<Omit<Subscription, "links">> & {
  readonly links: Map<StreamName, Link>;
};
type MutableBook = Mutable<Omit<SubscriptionBook, "byId" | "byStream" | "globs">> & {
  readonly byId: Map<SubscriptionId, MutableSubscription>;
  readonly byStream: Map<StreamName, Set<SubscriptionId>>;
  readonly globs: GlobIndex<SubscriptionId>;
};

const IDLE: SubscriptionPhase = { kind: "idle" };

export function createSubscriptionBook(): SubscriptionBook {
  const book: MutableBook = {
    byId: new Map(),
    generationFloor: 0,
    byStream: new Map(),
    globs: new GlobIndex(),
    settledStreams: new WeakSet(),
  };
  return book;
}

export function applySubscription(
  readonlyBook: SubscriptionBook,
  change: SubscriptionChange,
): void {
  // The cast gives write access. The types make the book read-only for all other code.
  const book = readonlyBook as unknown as MutableBook;
  switch (change.kind) {
    case "subscription_created":
      applyCreated(book, change);
      return;
    case "subscription_deleted":
      applyDeleted(book, change);
      return;
    case "subscription_linked":
      applyLinks(book, subscriptionOf(book, change), change.links);
      return;
    case "subscription_unlinked":
      applyUnlinked(book, subscriptionOf(book, change), change.stream);
      return;
    case "subscription_woken":
      applyWoken(subscriptionOf(book, change), change);
      return;
    case "subscription_claimed":
      applyClaimed(subscriptionOf(book, change), change);
      return;
    case "subscription_delivered":
      applyAccepted(subscriptionOf(book, change), undefined);
      return;
    case "subscription_delivery_failed":
      applyDeliveryFailed(subscriptionOf(book, change), change);
      return;
    case "subscription_acked":
      applyAcked(subscriptionOf(book, change), change);
      return;
    case "subscription_released":
      subscriptionOf(book, change).phase = IDLE;
      return;
    default:
      change satisfies never;
  }
}

/**
 * Removes a stream that is gone. A pattern finds the next stream of the name by itself. An explicit link waits for
 * it, from its first record on.
 */
export function applyStreamGone(readonlyBook: SubscriptionBook, stream: StreamName): void {
  const book = readonlyBook as unknown as MutableBook;
  const followers = book.byStream.get(stream);
  if (followers === undefined) return;
  for (const id of [...followers]) {
    const subscription = book.byId.get(id);
    const link = subscription?.links.get(stream);
    assert(subscription !== undefined && link !== undefined, `a link is missing: id=${id}`);
    loseInWake(subscription, stream);
    if (link.isExplicit) {
      subscription.links.set(stream, { isExplicit: true, isGlob: false, acked: undefined });
    } else {
      removeLink(book, subscription, stream);
    }
  }
}

function subscriptionOf(book: MutableBook, change: ChangeBase): MutableSubscription {
  const subscription = book.byId.get(change.subscription);
  assert(subscription !== undefined, `a change names no subscription: id=${change.subscription}`);
  return subscription;
}

function applyCreated(book: MutableBook, change: SubscriptionCreated): void {
  const { subscription: id, settings, generation } = change;
  assert(!book.byId.has(id), `a subscription is created twice: id=${id}`);
  assert(generation >= book.generationFloor, `a generation goes back: id=${id}`);
  const subscription: MutableSubscription = {
    id,
    settings,
    createdAtMs: change.atMs,
    generation,
    links: new Map(),
    phase: IDLE,
    retry: undefined,
  };
  book.byId.set(id, subscription);
  if (settings.pattern !== undefined) {
    book.globs.set(id, new Glob(settings.pattern));
    // The new pattern may follow any stream, so no stream is settled any more.
    book.settledStreams = new WeakSet();
  }
  applyLinks(book, subscription, change.links);
}

function applyDeleted(book: MutableBook, change: SubscriptionDeleted): void {
  const subscription = subscriptionOf(book, change);
  for (const stream of [...subscription.links.keys()]) removeLink(book, subscription, stream);
  book.byId.delete(subscription.id);
  book.globs.delete(subscription.id);
  book.generationFloor = Math.max(book.generationFloor, subscription.generation);
}

function applyLinks(
  book: MutableBook,
  subscription: MutableSubscription,
  links: readonly StreamLink[],
): void {
  for (const { stream, isExplicit, isGlob, acked } of links) {
    const existing = subscription.links.get(stream);
    assert(isExplicit || isGlob, `a link without a reason: id=${subscription.id}`);
    subscription.links.set(stream, {
      isExplicit: isExplicit || existing?.isExplicit === true,
      isGlob: isGlob || existing?.isGlob === true,
      acked: existing === undefined ? acked : existing.acked,
    });
    const followers = book.byStream.get(stream);
    if (followers === undefined) book.byStream.set(stream, new Set([subscription.id]));
    else followers.add(subscription.id);
  }
}

function applyUnlinked(
  book: MutableBook,
  subscription: MutableSubscription,
  stream: StreamName,
): void {
  const link = subscription.links.get(stream);
  if (link === undefined) return;
  if (link.isGlob) {
    subscription.links.set(stream, { ...link, isExplicit: false });
    return;
  }
  loseInWake(subscription, stream);
  removeLink(book, subscription, stream);
}

function removeLink(
  book: MutableBook,
  subscription: MutableSubscription,
  stream: StreamName,
): void {
  subscription.links.delete(stream);
  const followers = book.byStream.get(stream);
  followers?.delete(subscription.id);
  if (followers?.size === 0) book.byStream.delete(stream);
}

function loseInWake(subscription: MutableSubscription, stream: StreamName): void {
  const { phase } = subscription;
  if (phase.kind === "idle") return;
  const wake = phase.wake as MutableWake;
  wake.tails.set(stream, undefined);
}

function applyWoken(subscription: MutableSubscription, change: SubscriptionWoken): void {
  const { wakeId, generation, leaseUntilMs } = change;
  assert(subscription.phase.kind === "idle", `a second wake begins: id=${subscription.id}`);
  assert(generation > subscription.generation, `a generation goes back: id=${subscription.id}`);
  const wake: MutableWake = { wakeId, generation, tails: new Map(change.tails) };
  subscription.generation = generation;
  subscription.phase = { kind: "waking", wake, leaseUntilMs };
}

function applyClaimed(subscription: MutableSubscription, change: SubscriptionClaimed): void {
  const { phase } = subscription;
  assert(phase.kind === "waking", `a claim without a wake: id=${subscription.id}`);
  const { holder, leaseUntilMs } = change;
  subscription.phase = { kind: "held", wake: phase.wake, leaseUntilMs, holder };
}

// A holder that answers or calls back has received the wake, so the delivery has ended too.
function applyAccepted(subscription: MutableSubscription, leaseUntilMs: TimeMs | undefined): void {
  const { phase } = subscription;
  assert(phase.kind !== "idle", `an answer without a wake: id=${subscription.id}`);
  const until = leaseUntilMs ?? phase.leaseUntilMs;
  assert(until !== undefined, `an answer without a lease: id=${subscription.id}`);
  const holder = phase.kind === "held" ? phase.holder : undefined;
  subscription.phase = { kind: "held", wake: phase.wake, leaseUntilMs: until, holder };
  subscription.retry = undefined;
}

function applyDeliveryFailed(
  subscription: MutableSubscription,
  change: SubscriptionDeliveryFailed,
): void {
  const { phase } = subscription;
  const { attempts, nextAttemptAtMs, leaseUntilMs } = change;
  assert(phase.kind === "waking", `a failed delivery without a wake: id=${subscription.id}`);
  subscription.retry = { attempts, nextAttemptAtMs };
  subscription.phase = { kind: "waking", wake: phase.wake, leaseUntilMs };
}

function applyAcked(subscription: MutableSubscription, change: SubscriptionAcked): void {
  for (const { stream, offset } of change.acks) {
    const link = subscription.links.get(stream);
    assert(link !== undefined, `an ack without a link: id=${subscription.id}`);
    assert(link.acked === undefined || offset >= link.acked, "an acked offset goes back");
    subscription.links.set(stream, { ...link, acked: offset });
  }
  applyAccepted(subscription, change.leaseUntilMs);
}
