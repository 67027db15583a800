/**
 * Decides which streams a subscription follows. PROTOCOL.md §11.
 *
 * A pattern may match a stream that has no append yet. It needs no link: to link it at the tail before its next
 * append has the same effect. So a creation may list some matches now and leave the rest for later.
 */

import { Glob } from "../../base/glob.ts";
import type { StreamsByName, StreamState } from "./stream.ts";
import type {
  StreamLink,
  Subscription,
  SubscriptionBook,
  SubscriptionChange,
  SubscriptionId,
  SubscriptionSettings,
} from "./subscription-state.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";

export type SubscribeDecision =
  | { readonly kind: "created"; readonly changes: readonly SubscriptionChange[] }
  | { readonly kind: "exists"; readonly subscription: Subscription }
  | { readonly kind: "conflict"; readonly reason: string };

/**
 * Decides a new subscription. `matchesMax` bounds the matches that it lists at once, and so the streams that it looks
 * at. The next append to each of the others finds it.
 */
export function decideSubscribe(
  book: SubscriptionBook,
  streams: StreamsByName,
  id: SubscriptionId,
  settings: SubscriptionSettings,
  matchesMax: number,
  atMs: TimeMs,
): SubscribeDecision {
  const existing = book.byId.get(id);
  if (existing !== undefined) {
    const reason = findDifference(existing.settings, settings);
    if (reason !== undefined) return { kind: "conflict", reason };
    return { kind: "exists", subscription: existing };
  }
  const links: StreamLink[] = [];
  const glob = settings.pattern === undefined ? undefined : new Glob(settings.pattern);
  const isFollowed = (name: StreamName): boolean =>
    glob !== undefined && isFollowable(settings, name) && glob.matches(name);
  for (const stream of settings.streams) {
    const acked = ackedAtTail(streams.get(stream));
    links.push({ stream, isExplicit: true, isGlob: isFollowed(stream), acked });
  }
  if (glob !== undefined) {
    const named = new Set(settings.streams);
    let count = 0;
    let looked = 0;
    for (const [stream, state] of streams) {
      looked += 1;
      if (count === matchesMax || looked > 2 * matchesMax) break;
      if (state.isDeleted || named.has(stream) || !isFollowed(stream)) continue;
      links.push({ stream, isExplicit: false, isGlob: true, acked: ackedAtTail(state) });
      count += 1;
    }
  }
  const { generationFloor: generation } = book;
  const kind = "subscription_created";
  return {
    kind: "created",
    changes: [{ kind, atMs, subscription: id, settings, generation, links }],
  };
}

export function decideUnsubscribe(
  book: SubscriptionBook,
  id: SubscriptionId,
  atMs: TimeMs,
): readonly SubscriptionChange[] {
  return book.byId.has(id) ? [{ kind: "subscription_deleted", atMs, subscription: id }] : [];
}

/** Decides which streams to link. A stream that is already named changes nothing. */
export function decideLink(
  book: SubscriptionBook,
  streams: StreamsByName,
  subscription: Subscription,
  names: readonly StreamName[],
  atMs: TimeMs,
): readonly SubscriptionChange[] {
  const { id, settings } = subscription;
  const links: StreamLink[] = [];
  for (const stream of new Set(names)) {
    if (subscription.links.get(stream)?.isExplicit === true) continue;
    const isGlob = isFollowable(settings, stream) && book.globs.get(id)?.matches(stream) === true;
    links.push({ stream, isExplicit: true, isGlob, acked: ackedAtTail(streams.get(stream)) });
  }
  return links.length === 0 ? [] : [{ kind: "subscription_linked", atMs, subscription: id, links }];
}

export function decideUnlink(
  subscription: Subscription,
  stream: StreamName,
  atMs: TimeMs,
): readonly SubscriptionChange[] {
  if (subscription.links.get(stream)?.isExplicit !== true) return [];
  return [{ kind: "subscription_unlinked", atMs, subscription: subscription.id, stream }];
}

/** Returns the links that an append to this stream reveals. `state` is the stream before the append. */
export function decideFound(
  book: SubscriptionBook,
  state: StreamState,
  atMs: TimeMs,
): readonly SubscriptionChange[] {
  // The common case takes constant time: there is no pattern, or all patterns were asked before.
  if (book.globs.size === 0 || book.settledStreams.has(state)) return [];
  const changes: SubscriptionChange[] = [];
  for (const id of book.globs.matching(state.name)) {
    const subscription = book.byId.get(id);
    if (subscription === undefined || subscription.links.get(state.name)?.isGlob === true) continue;
    if (!isFollowable(subscription.settings, state.name)) continue;
    const acked = ackedAtTail(state);
    const links = [{ stream: state.name, isExplicit: false, isGlob: true, acked }];
    changes.push({ kind: "subscription_linked", atMs, subscription: id, links });
  }
  // Remember only if there was nothing to do: the caller may still drop a change.
  if (changes.length === 0) book.settledStreams.add(state);
  return changes;
}

/** The subscriptions that follow a stream. */
export function followersOf(book: SubscriptionBook, stream: StreamName): readonly Subscription[] {
  const ids = book.byStream.get(stream);
  if (ids === undefined) return [];
  const followers: Subscription[] = [];
  for (const id of ids) {
    const subscription = book.byId.get(id);
    if (subscription !== undefined) followers.push(subscription);
  }
  return followers;
}

/**
 * Whether a subscription may follow a stream. Every wake writes to the wake stream, so a pattern that followed it
 * would wake itself endlessly.
 */
export function isFollowable(settings: SubscriptionSettings, stream: StreamName): boolean {
  return settings.way.kind !== "pull_wake" || settings.way.wakeStream !== stream;
}

function ackedAtTail(state: StreamState | undefined): Offset | undefined {
  return state === undefined || state.isDeleted || state.tail === 0 ? undefined : state.tail;
}

function findDifference(
  one: SubscriptionSettings,
  other: SubscriptionSettings,
): string | undefined {
  if (one.way.kind === "webhook") {
    if (other.way.kind !== "webhook") return "type";
    if (one.way.url !== other.way.url) return "webhook.url";
  } else {
    if (other.way.kind !== "pull_wake") return "type";
    if (one.way.wakeStream !== other.way.wakeStream) return "wake_stream";
  }
  if (one.pattern !== other.pattern) return "pattern";
  if (one.streams.join("\n") !== other.streams.join("\n")) return "streams";
  if (one.leaseMs !== other.leaseMs) return "lease_ttl_ms";
  if (one.description !== other.description) return "description";
  return undefined;
}
