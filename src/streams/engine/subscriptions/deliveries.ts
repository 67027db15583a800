/**
 * Drives what happens by itself: webhooks are delivered and tried again, and leases end. It keeps no
 * state that matters: everything is in the world, and after a restart `arm` finds it there.
 *
 *   - a webhook is delivered only after the commit that woke its subscription is durable;
 *   - a subscription has at most one delivery at a time;
 *   - a failed delivery is tried again after 1 s to 60 s, also after a restart;
 *   - on a full disk an answer and the end of a lease wait until they can be written down. Until then a wake is
 *     not delivered again.
 */

import { assert } from "../../../base/assert.ts";
import {
  decideDelivered,
  decideDeliveryFailed,
  decideExpiry,
  isLeaseOver,
  type DeliveryRetry,
  type Scene,
  type WakeReference,
} from "../../core/subscription-decide.ts";
import type {
  SubscriptionPhase,
  Subscription,
  SubscriptionChange,
  SubscriptionId,
} from "../../core/subscription-state.ts";
import type { TimeMs } from "../../core/types.ts";
import type { Courier, CourierAnswer } from "../../courier.ts";
import { LIMITS } from "../../../protocol/all-limits.ts";
import type { Random } from "../../../base/random.ts";
import { issueToken, type Signer, webhookSignature } from "../../signer.ts";
import type { Tracer } from "../../tracer.ts";
import type { Writer } from "../writer.ts";
import { beginDelivery } from "./delivery-span.ts";
import { DeliveryQueue } from "./delivery-queue.ts";
import type { SubscriptionFormat } from "./format.ts";
import { deliveredStreams } from "./view.ts";

/** Between two looks whether a full disk has room again. */
export const FULL_REST_MS = 1000;

export interface DeliveriesParts {
  readonly writer: Writer;
  readonly random: Random;
  readonly courier: Courier;
  readonly format: SubscriptionFormat;
  readonly publicBaseUrl: () => string;
  readonly tracer?: Tracer | undefined;
  readonly signer: () => Promise<Signer>;
  readonly scene: (atMs: TimeMs) => Scene;
  /** Applies changes at once and arms what they touch when they are durable. */
  readonly submit: (changes: readonly SubscriptionChange[]) => Promise<void>;
}

interface RunningDelivery {
  readonly wakeId: string;
  readonly controller: AbortController;
  leaveQueue: () => void;
}

export class Deliveries {
  readonly #parts: DeliveriesParts;
  readonly #queue = new DeliveryQueue({
    countMax: LIMITS.webhooksMax,
    perHostMax: LIMITS.webhooksPerHostMax,
  });
  readonly #flights = new Map<SubscriptionId, RunningDelivery>();
  readonly #timers = new Map<SubscriptionId, { readonly atMs: TimeMs; cancel: () => void }>();
  #isRunning = false;

  constructor(parts: DeliveriesParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#isRunning = true;
    for (const id of this.#parts.writer.world.subscriptions.byId.keys()) this.arm(id);
  }

  stop(): void {
    this.#isRunning = false;
    for (const id of [...this.#flights.keys()]) this.#abandon(id);
    for (const { cancel } of this.#timers.values()) cancel();
    this.#timers.clear();
  }

  /** Looks at a subscription and starts what it waits for: a delivery or a timer. May be called at any time. */
  arm(id: SubscriptionId): void {
    // When nothing can be written, no answer could be kept either.
    if (!this.#isRunning || this.#parts.writer.stopped !== undefined) return;
    const subscription = this.#find(id);
    const phase: SubscriptionPhase = subscription?.phase ?? { kind: "idle" };
    const flight = this.#flights.get(id);
    // The wake has ended: its answer changes nothing any more. A wake that a callback has taken may
    // still be answered with "done", so its delivery goes on.
    if (flight !== undefined && (phase.kind === "idle" || phase.wake.wakeId !== flight.wakeId)) {
      this.#abandon(id);
    }
    if (subscription === undefined || phase.kind === "idle" || phase.leaseUntilMs === undefined) {
      this.#setTimer(id, undefined);
      return;
    }
    const dueMs = subscription.retry?.nextAttemptAtMs ?? (0 as TimeMs);
    const isDue = this.#parts.writer.nowMs() >= dueMs;
    const isWaking = phase.kind === "waking";
    if (isWaking && isDue && !this.#flights.has(id)) this.#launch(subscription, phase.wake);
    this.#setTimer(id, isWaking && !isDue ? dueMs : phase.leaseUntilMs);
  }

  #find(id: SubscriptionId): Subscription | undefined {
    return this.#parts.writer.world.subscriptions.byId.get(id);
  }

  #setTimer(id: SubscriptionId, atMs: TimeMs | undefined): void {
    const timer = this.#timers.get(id);
    if (timer?.atMs === atMs) return;
    timer?.cancel();
    this.#timers.delete(id);
    if (atMs === undefined) return;
    const delayMs = Math.max(0, atMs - this.#parts.writer.nowMs());
    const cancel = this.#parts.writer.clock.after(delayMs, () => {
      this.#timers.delete(id);
      this.#wakeUp(id);
    });
    this.#timers.set(id, { atMs, cancel });
  }

  #wakeUp(id: SubscriptionId): void {
    const subscription = this.#find(id);
    const { writer } = this.#parts;
    if (subscription !== undefined && isLeaseOver(subscription, writer.nowMs())) {
      if (this.#mustWait) {
        this.#setTimer(id, (writer.nowMs() + FULL_REST_MS) as TimeMs);
        return;
      }
      const changes = decideExpiry(subscription, this.#retryPolicy(), this.#scene());
      this.#submit(changes);
    } else {
      this.arm(id);
    }
  }

  #submit(changes: readonly SubscriptionChange[]): void {
    const { writer, submit } = this.#parts;
    if (changes.length === 0 || writer.stopped !== undefined) return;
    submit(changes).catch((error: unknown) => {
      // When writes have stopped every caller that writes gets the error, and recovery finds the wake as it was.
      // Anything else is a bug, and must not go unseen.
      if (writer.stopped === undefined) throw error;
    });
  }

  get #mustWait(): boolean {
    const { room, stopped } = this.#parts.writer;
    return stopped === undefined && !room.hasRoomToSpare;
  }

  /** A little time, or less if the flight is abandoned. */
  #rest(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        signal.removeEventListener("abort", end);
        cancel();
        resolve();
      };
      const cancel = this.#parts.writer.clock.after(FULL_REST_MS, end);
      signal.addEventListener("abort", end);
    });
  }

  #scene(): Scene {
    return this.#parts.scene(this.#parts.writer.nowMs());
  }

  #retryPolicy(): DeliveryRetry {
    const { webhookRetryMsMin: delayMsMin, webhookRetryMsMax: delayMsMax } = LIMITS;
    return { delayMsMin, delayMsMax, unit: this.#parts.random.unit() };
  }

  #abandon(id: SubscriptionId): void {
    const flight = this.#flights.get(id);
    if (flight === undefined) return;
    this.#flights.delete(id);
    flight.leaveQueue();
    flight.controller.abort();
  }

  #launch(subscription: Subscription, wake: WakeReference): void {
    const { way } = subscription.settings;
    if (way.kind !== "webhook") return;
    const { id } = subscription;
    assert(!this.#flights.has(id), "a subscription has two deliveries");
    const controller = new AbortController();
    const { wakeId } = wake;
    const flight: RunningDelivery = { wakeId, controller, leaveQueue: () => undefined };
    this.#flights.set(id, flight);
    const host = URL.canParse(way.url) ? new URL(way.url).host : way.url;
    flight.leaveQueue = this.#queue.add(host, () => this.#fly(id, way.url, wake, flight));
  }

  async #fly(
    id: SubscriptionId,
    url: string,
    wake: WakeReference,
    flight: RunningDelivery,
  ): Promise<void> {
    const { wakeId, generation } = wake;
    const { signal } = flight.controller;
    const answer = await this.#deliver(id, url, { wakeId, generation }, signal);
    while (this.#mustWait && !signal.aborted) await this.#rest(signal);
    // Abandoned: the caller of `#abandon` has already dealt with what comes next.
    if (this.#flights.get(id) !== flight) return;
    this.#flights.delete(id);
    const subscription = this.#find(id);
    if (subscription === undefined) return;
    const isTaken = answer.kind === "answered" && answer.status >= 200 && answer.status < 300;
    if (!isTaken) {
      const policy = this.#retryPolicy();
      this.#submit(decideDeliveryFailed(subscription, wake, policy, this.#scene()));
      this.arm(id);
      return;
    }
    if (isLeaseOver(subscription, this.#parts.writer.nowMs())) {
      this.#wakeUp(id); // The answer has waited for too long.
      return;
    }
    const isDone = this.#parts.format.parseAnswer(answer.body);
    const decision = decideDelivered(subscription, wake, isDone, this.#scene());
    this.#submit(decision.changes);
    this.arm(id);
  }

  async #deliver(
    id: SubscriptionId,
    url: string,
    wake: WakeReference,
    signal: AbortSignal,
  ): Promise<CourierAnswer> {
    try {
      const { writer, courier } = this.#parts;
      // The wake may have begun a moment ago.
      await writer.settled();
      const body = await this.#body(id, wake);
      if (body === undefined || signal.aborted) return { kind: "failed", reason: "abandoned" };
      const signer = await this.#parts.signer();
      const unixSeconds = Math.floor(writer.clock.nowMs() / 1000);
      const signature = await webhookSignature(signer, unixSeconds, body);
      const phase = this.#find(id)?.phase;
      if (phase === undefined || phase.kind === "idle" || phase.leaseUntilMs === undefined) {
        return { kind: "failed", reason: "abandoned" };
      }
      // An answer after the lease would count for nothing.
      const leaseMs = phase.leaseUntilMs - writer.nowMs();
      const timeoutMs = Math.max(1, Math.min(LIMITS.webhookTimeoutMs, leaseMs));
      const span = beginDelivery(this.#parts.tracer, id, wake.wakeId, url);
      const headers = {
        "Content-Type": "application/json",
        "Webhook-Signature": signature,
        ...span.headers,
      };
      const answerBytesMax = LIMITS.webhookAnswerBytesMax;
      const request = { url, headers, body, timeoutMs, answerBytesMax, signal };
      const answer = await courier.deliver(request);
      span.end(answer);
      return answer;
    } catch (cause) {
      // A courier answers with values; a key that cannot be stored or a fault of ours ends up here, and
      // the wake must be tried again all the same.
      return { kind: "failed", reason: cause instanceof Error ? cause.message : String(cause) };
    }
  }

  async #body(id: SubscriptionId, wake: WakeReference): Promise<Uint8Array | undefined> {
    const { writer, format, publicBaseUrl } = this.#parts;
    const signer = await this.#parts.signer();
    const expiresAtMs = writer.nowMs() + LIMITS.tokenMs;
    const claims = { subscription: id, kind: "callback", ...wake, expiresAtMs } as const;
    const token = await issueToken(signer, claims);
    const subscription = this.#find(id);
    const phase = subscription?.phase;
    if (subscription === undefined || phase === undefined || phase.kind === "idle")
      return undefined;
    if (phase.wake.wakeId !== wake.wakeId) return undefined;
    const streams = deliveredStreams(writer, subscription, phase.wake);
    const baseUrl = publicBaseUrl();
    return format.notification({ subscription: id, ...wake, streams, baseUrl, token });
  }
}
