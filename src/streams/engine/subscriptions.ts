/**
 * Subscriptions: follows appends, answers owners and workers. The rules are in core/subscription*.ts; the
 * timers and webhooks in subscriptions/deliveries.ts. PROTOCOL.md §11.
 *
 * What an append causes is part of its commit, so that a wake can be neither lost nor invented by a
 * crash. Every answer waits until the state that it speaks of is durable (W2).
 */

import type { Change } from "../core/change.ts";
import {
  type AckDecision,
  decideAck,
  decideAppendWake,
  decideSubscriptionClaim,
  decideSubscriptionRelease,
  decideWake,
  type Scene,
  type WakeReference,
} from "../core/subscription-decide.ts";
import {
  decideFound,
  decideLink,
  decideSubscribe,
  decideUnlink,
  decideUnsubscribe,
  followersOf,
  isFollowable,
} from "../core/subscription-link.ts";
import type {
  Ack,
  Generation,
  Subscription,
  SubscriptionChange,
  SubscriptionId,
  SubscriptionSettings,
} from "../core/subscription-state.ts";
import { type IsBoundary, isJson, type StreamState } from "../core/stream.ts";
import { assert } from "../../base/assert.ts";
import type { StreamName, TimeMs } from "../core/types.ts";
import type { Courier } from "../courier.ts";
import type { Tracer } from "../tracer.ts";
import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { Random } from "../../base/random.ts";
import { issueToken, type PublicJwks, readToken, type TokenClaims } from "../signer.ts";
import type { Boundaries } from "./boundaries.ts";
import type { Allowance } from "./holdings.ts";
import { FirstNames } from "./listing.ts";
import { type CountLimits, NamespaceCounts } from "./namespace-counts.ts";
import type { AppendObserver } from "./observer.ts";
import { Deliveries, FULL_REST_MS } from "./subscriptions/deliveries.ts";
import type { SubscriptionFormat } from "./subscriptions/format.ts";
import { SignerOfWorld } from "./subscriptions/signing.ts";
import {
  claimedStreams,
  type FollowedStream,
  shownLinks,
  type SubscriptionSummary,
  type SubscriptionView,
  summaryOf,
} from "./subscriptions/view.ts";
import type { Writer } from "./writer.ts";

/** What subscriptions need of the world outside. */
export interface SubscriptionOutside {
  /** Sends webhooks. */
  readonly courier: Courier;
  readonly format: SubscriptionFormat;
  /** Where clients and webhooks reach this server, without a slash at the end. */
  readonly publicBaseUrl: () => string;
  /** Begins a span for each webhook. */
  readonly tracer?: Tracer | undefined;
}

export interface SubscriptionParts extends SubscriptionOutside {
  readonly writer: Writer;
  readonly boundaries: Boundaries;
  readonly random: Random;
}

export interface NoSubscription {
  readonly kind: "missing";
}

export type SubscribeOutcome =
  | { readonly kind: "created" | "exists"; readonly view: SubscriptionView }
  | { readonly kind: "conflict"; readonly reason: string };

/** What a worker says with its token. */
export interface Report extends WakeReference {
  readonly acks: readonly Ack[];
  readonly isDone: boolean;
}

export type TokenRefusal =
  | { readonly kind: "token_invalid" }
  | { readonly kind: "token_expired" }
  /** The call does not apply to this type of subscription. */
  | { readonly kind: "wrong_type" };

export type ReportOutcome =
  | { readonly kind: "settled"; readonly isWokenAgain: boolean }
  | Exclude<AckDecision, { kind: "settled" | "fenced" }>
  | { readonly kind: "fenced" }
  | TokenRefusal
  | NoSubscription;

export type ClaimOutcome =
  | {
      readonly kind: "claimed";
      readonly wakeId: string;
      readonly generation: Generation;
      readonly token: string;
      readonly streams: readonly FollowedStream[];
      readonly leaseMs: number;
    }
  | { readonly kind: "held"; readonly holder: string; readonly generation: Generation }
  | { readonly kind: "nothing_pending" }
  | { readonly kind: "wrong_type" }
  | NoSubscription;

const COUNT_LIMITS: CountLimits = {
  what: "subscriptions",
  withoutNamespace: LIMITS.subscriptionsMax,
  perNamespace: LIMITS.namespaceSubscriptionsMax,
  inAll: LIMITS.serverSubscriptionsMax,
};
const MISSING: NoSubscription = { kind: "missing" };

export class Subscriptions implements AppendObserver {
  readonly #parts: SubscriptionParts;
  readonly #writer: Writer;
  readonly #signer: SignerOfWorld;
  readonly #deliveries: Deliveries;
  readonly #counts: NamespaceCounts;
  #cancelStart: () => void = () => undefined;

  constructor(parts: SubscriptionParts) {
    this.#parts = parts;
    this.#writer = parts.writer;
    this.#signer = new SignerOfWorld(parts.writer, parts.random);
    this.#deliveries = new Deliveries({
      ...parts,
      signer: () => this.#signer.get(),
      scene: (atMs) => this.#scene(atMs),
      submit: (changes) => this.#stage(changes),
    });
    this.#counts = new NamespaceCounts(COUNT_LIMITS, this.#book.byId.keys());
  }

  /** Begins to follow appends, and goes on with the deliveries and leases that it finds. */
  async start(): Promise<void> {
    this.#writer.observe(this);
    this.#deliveries.start();
    await this.#wakePending();
  }

  /** On a full disk this is done later, and nothing else waits for it. */
  async #wakePending(): Promise<void> {
    const scene = this.#scene(this.#writer.nowMs());
    const changes: SubscriptionChange[] = [];
    for (const subscription of this.#book.byId.values()) {
      const wakeId = this.#parts.random.id();
      const woken = decideWake(subscription, { ...scene, wakeId });
      if (woken !== undefined) changes.push(woken);
    }
    if (changes.length === 0) return;
    if (this.#writer.room.hasRoomToSpare || this.#writer.stopped !== undefined) {
      await this.#stage(changes);
      return;
    }
    this.#cancelStart = this.#writer.clock.after(FULL_REST_MS, () => {
      this.#wakePending().catch((error: unknown) => {
        // When writes have stopped the next start finds the same. Anything else is a bug, and must not go unseen.
        if (this.#writer.stopped === undefined) throw error;
      });
    });
  }

  /** Ends timers and deliveries. What they were for is in the world, for the next start. */
  stop(): void {
    this.#cancelStart();
    this.#deliveries.stop();
  }

  get isFollowing(): boolean {
    return this.#book.byId.size > 0;
  }

  before(state: StreamState, atMs: TimeMs): readonly Change[] {
    return decideFound(this.#book, state, atMs);
  }

  after(state: StreamState, atMs: TimeMs): readonly Change[] {
    const followers = followersOf(this.#book, state.name);
    if (followers.length === 0) return [];
    const changes: SubscriptionChange[] = [];
    for (const subscription of followers) {
      if (subscription.phase.kind !== "idle") continue;
      const woken = decideAppendWake(subscription, state.name, this.#scene(atMs));
      if (woken !== undefined) changes.push(woken);
    }
    if (changes.length > 0) this.#armWhenDurable(changes);
    return this.#withEvents(changes);
  }

  acked(changes: readonly SubscriptionChange[]): readonly Change[] {
    this.#armWhenDurable(changes);
    return this.#withEvents(changes);
  }

  /** Whether a token was issued for this subscription. What it is good for now is not asked. */
  async isTokenOf(id: SubscriptionId, token: string): Promise<boolean> {
    const reading = await readToken(await this.#signer.get(), token, this.#writer.nowMs());
    return reading.kind !== "invalid" && reading.claims.subscription === id;
  }

  /** Whether a token is good for reports about this wake. */
  async checkToken(
    id: SubscriptionId,
    token: string,
    wake: WakeReference,
  ): Promise<TokenRefusal | NoSubscription | { readonly kind: "fenced" } | undefined> {
    const way = this.#book.byId.get(id)?.settings.way;
    const found = await this.#authorise(
      id,
      way?.kind === "webhook" ? "callback" : "claim",
      token,
      wake,
    );
    return "kind" in found ? this.#settled(found) : undefined;
  }

  async subscribe(id: SubscriptionId, settings: SubscriptionSettings): Promise<SubscribeOutcome> {
    // The key comes first, because the step below must not wait in its middle.
    const keyId = await this.#keyId(settings);
    const { world } = this.#writer;
    if (!this.#book.byId.has(id)) this.#counts.admit(id);
    const atMs = this.#writer.nowMs();
    const streamsMax = LIMITS.subscriptionStreamsMax;
    const decision = decideSubscribe(this.#book, world.streams, id, settings, streamsMax, atMs);
    const changes = decision.kind === "created" ? decision.changes : [];
    const durable = this.#submit(changes);
    if (changes.length > 0) this.#counts.add(id);
    const subscription = this.#book.byId.get(id);
    const view = subscription === undefined ? undefined : this.#view(subscription, keyId);
    await durable;
    if (decision.kind === "conflict") return decision;
    assert(view !== undefined, `no subscription: id=${id}`);
    return { kind: decision.kind, view };
  }

  async describe(id: SubscriptionId): Promise<SubscriptionView | undefined> {
    const settings = this.#book.byId.get(id)?.settings;
    const keyId = settings === undefined ? undefined : await this.#keyId(settings);
    const subscription = this.#book.byId.get(id);
    const view = subscription === undefined ? undefined : this.#view(subscription, keyId);
    await this.#writer.settled();
    return view;
  }

  /** The first subscriptions after a name, of those that are shown. */
  async list(
    after: string,
    count: number,
    isShown: (subscription: Subscription) => boolean | Promise<boolean>,
  ): Promise<readonly SubscriptionSummary[]> {
    const { byId } = this.#book;
    const names = new FirstNames<SubscriptionId>(after, count);
    const slices = this.#writer.slices();
    for (const subscription of byId.values()) {
      if (!slices.take()) await slices.turn();
      if (await isShown(subscription)) names.add(subscription.id);
    }
    const found = names.take().flatMap((id) => byId.get(id) ?? []);
    const summaries = found.map((subscription) => summaryOf(subscription));
    await this.#writer.settled();
    return summaries;
  }

  /** Deleting what is not there is no error. Returns whether there was one. */
  async unsubscribe(id: SubscriptionId): Promise<boolean> {
    const changes = decideUnsubscribe(this.#book, id, this.#writer.nowMs());
    if (changes.length > 0) this.#writer.room.admitRemoval();
    const durable = this.#stage(changes);
    if (changes.length > 0) this.#counts.remove(id);
    await durable;
    return changes.length > 0;
  }

  async link(id: SubscriptionId, names: readonly StreamName[]): Promise<boolean> {
    const subscription = this.#book.byId.get(id);
    let changes: readonly SubscriptionChange[] = [];
    if (subscription !== undefined) {
      this.#requireLinkable(subscription, names);
      const { streams } = this.#writer.world;
      const atMs = this.#writer.nowMs();
      changes = decideLink(this.#book, streams, subscription, names, atMs);
    }
    await this.#submit(changes);
    return subscription !== undefined;
  }

  async unlink(id: SubscriptionId, stream: StreamName): Promise<boolean> {
    const subscription = this.#book.byId.get(id);
    const changes =
      subscription === undefined ? [] : decideUnlink(subscription, stream, this.#writer.nowMs());
    await this.#submit(changes);
    return subscription !== undefined;
  }

  /** `allowance`: what the worker may store. */
  async claim(id: SubscriptionId, worker: string, allowance?: Allowance): Promise<ClaimOutcome> {
    // A claim without a token would block the subscription for a lease: so the key comes first.
    const signer = await this.#signer.get();
    const subscription = this.#book.byId.get(id);
    if (subscription === undefined) return this.#settled(MISSING);
    const { way, leaseMs } = subscription.settings;
    if (way.kind !== "pull_wake") return this.#settled({ kind: "wrong_type" });
    const decision = decideSubscriptionClaim(
      subscription,
      worker,
      this.#scene(this.#writer.nowMs()),
    );
    if (decision.kind === "held") return this.#settled(decision);
    if (decision.kind !== "nothing_pending") allowance?.admitClaim();
    const durable = this.#submit(decision.changes);
    const streams = claimedStreams(this.#writer, subscription);
    await durable;
    if (decision.kind === "nothing_pending") return { kind: "nothing_pending" };
    const { wakeId, generation } = decision.wake;
    const expiresAtMs = this.#writer.nowMs() + LIMITS.tokenMs;
    const claims = { subscription: id, kind: "claim", generation, wakeId, expiresAtMs } as const;
    const token = await issueToken(signer, claims);
    return { kind: "claimed", wakeId, generation, token, streams, leaseMs };
  }

  /** What a webhook's receiver (`callback`) or a worker (`claim`) reports. */
  async report(
    id: SubscriptionId,
    kind: TokenClaims["kind"],
    token: string,
    report: Report,
  ): Promise<ReportOutcome> {
    const found = await this.#authorise(id, kind, token, report);
    if ("kind" in found) return this.#settled(found);
    const { acks, isDone } = report;
    const check = this.#parts.boundaries.check();
    for (;;) {
      const subscription = this.#book.byId.get(id);
      if (subscription === undefined) return this.#settled(MISSING);
      const scene = this.#scene(this.#writer.nowMs(), check.isBoundary);
      const decision = decideAck(subscription, report, acks, isDone, scene);
      if (check.isOpen) await check.learn();
      else return this.#reported(decision);
    }
  }

  async #reported(decision: AckDecision): Promise<ReportOutcome> {
    if (decision.kind === "invalid_ack") return this.#settled(decision);
    await this.#submit(decision.changes);
    if (decision.kind === "fenced") return { kind: "fenced" };
    return { kind: "settled", isWokenAgain: decision.isWokenAgain };
  }

  async release(
    id: SubscriptionId,
    token: string,
    reference: WakeReference,
  ): Promise<ReportOutcome> {
    const found = await this.#authorise(id, "claim", token, reference);
    if ("kind" in found) return this.#settled(found);
    const scene = this.#scene(this.#writer.nowMs());
    const decision = decideSubscriptionRelease(found.subscription, reference, scene);
    await this.#submit(decision.changes);
    if (decision.kind === "fenced") return { kind: "fenced" };
    return { kind: "settled", isWokenAgain: decision.isWokenAgain };
  }

  async jwks(): Promise<PublicJwks> {
    return (await this.#signer.get()).publicJwks();
  }

  get #book() {
    return this.#writer.world.subscriptions;
  }

  /** Only acks ask which offsets were handed out. */
  #scene(atMs: TimeMs, isBoundary: IsBoundary = () => false): Scene {
    const wakeId = this.#parts.random.id();
    const { streams } = this.#writer.world;
    return { streams, atMs, wakeId, wakeStreamsMax: LIMITS.wakeStreamsMax, isBoundary };
  }

  async #settled<T>(outcome: T): Promise<T> {
    await this.#writer.settled();
    return outcome;
  }

  /** What a client asks for: refused on a full disk. */
  #submit(changes: readonly SubscriptionChange[]): Promise<void> {
    if (changes.length > 0) this.#writer.room.admit(0);
    return this.#stage(changes);
  }

  async #stage(changes: readonly SubscriptionChange[]): Promise<void> {
    await this.#writer.submit(this.#withEvents(changes));
    for (const { subscription } of changes) this.#deliveries.arm(subscription);
  }

  #armWhenDurable(changes: readonly SubscriptionChange[]): void {
    const arm = (): void => {
      for (const { subscription } of changes) this.#deliveries.arm(subscription);
    };
    // The batch that these changes join is the newest. If it fails, the caller of the append gets the error.
    this.#writer.settled().then(arm, () => undefined);
  }

  /**
   * Adds the wake events of the pull-wakes that begin here. They come last: a wake event is an append
   * which may wake others, and by then everything above must have happened.
   */
  #withEvents(changes: readonly SubscriptionChange[]): readonly Change[] {
    const events: Change[] = [];
    for (const [index, change] of changes.entries()) {
      if (change.kind !== "subscription_woken") continue;
      // A wake that begins with a claim has its worker already: it needs no event.
      if (changes[index + 1]?.kind === "subscription_claimed") continue;
      const { subscription, generation, atMs } = change;
      const way = this.#book.byId.get(subscription)?.settings.way;
      const stream = change.tails[0]?.[0];
      if (way?.kind !== "pull_wake" || stream === undefined) continue;
      const state = this.#writer.world.streams.get(way.wakeStream);
      if (state === undefined || !canTakeEvent(state)) continue;
      const data = this.#parts.format.wakeEvent({ subscription, stream, generation, atMs });
      const bare = { closes: false, producer: undefined, streamSeq: undefined, key: undefined };
      events.push({ kind: "appended", atMs, stream: state.id, data, ...bare });
    }
    return events.length === 0 ? changes : [...changes, ...events];
  }

  async #authorise(
    id: SubscriptionId,
    kind: TokenClaims["kind"],
    token: string,
    reference: WakeReference,
  ): Promise<
    { readonly subscription: Subscription } | TokenRefusal | NoSubscription | { kind: "fenced" }
  > {
    const reading = await readToken(await this.#signer.get(), token, this.#writer.nowMs());
    // The token first: a caller without one does not learn whether there is such a subscription.
    if (reading.kind === "invalid") return { kind: "token_invalid" };
    const { claims } = reading;
    if (claims.subscription !== id) return { kind: "token_invalid" };
    const subscription = this.#book.byId.get(id);
    if (subscription === undefined) return MISSING;
    const isWebhook = subscription.settings.way.kind === "webhook";
    if (isWebhook !== (kind === "callback")) return { kind: "wrong_type" };
    if (claims.kind !== kind) return { kind: "token_invalid" };
    if (reading.kind === "expired") return { kind: "token_expired" };
    const isSame = claims.generation === reference.generation && claims.wakeId === reference.wakeId;
    return isSame ? { subscription } : { kind: "fenced" };
  }

  async #keyId(settings: SubscriptionSettings): Promise<string | undefined> {
    return settings.way.kind === "webhook" ? (await this.#signer.get()).keyId : undefined;
  }

  #requireLinkable(subscription: Subscription, names: readonly StreamName[]): void {
    for (const name of names) {
      if (!isFollowable(subscription.settings, name)) {
        throw new HapaxError("invalid_request", "streams must not name the wake_stream itself");
      }
    }
    const fresh = names.filter((name) => subscription.links.get(name)?.isExplicit !== true);
    const explicit = shownLinks(subscription).filter((link) => link.isExplicit);
    if (explicit.length + new Set(fresh).size > LIMITS.subscriptionStreamsMax) {
      const max = LIMITS.subscriptionStreamsMax;
      throw new HapaxError("too_many", `a subscription names at most ${max} streams`);
    }
  }

  #view(subscription: Subscription, keyId: string | undefined): SubscriptionView {
    const { id, settings, createdAtMs, generation, retry } = subscription;
    const isFailed = retry !== undefined;
    const links = shownLinks(subscription);
    const baseUrl = this.#parts.publicBaseUrl();
    return { id, settings, createdAtMs, generation, isFailed, links, baseUrl, keyId };
  }
}

function canTakeEvent(state: StreamState): boolean {
  return !state.isDeleted && !state.isClosed && isJson(state.contentType);
}
