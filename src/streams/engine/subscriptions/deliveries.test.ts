/** Webhooks over the real engine and a memory store: the courier is scripted, the clock is moved. */

import { describe, expect, test } from "vitest";
import type { SubscriptionSettings } from "../../core/subscription-state.ts";
import { assert } from "../../../base/assert.ts";
import type { Offset, StreamName } from "../../core/types.ts";
import type { Courier, CourierAnswer, CourierRequest } from "../../courier.ts";
import { systemRandom } from "../../../base/random.ts";
import { verifyWebhookSignature } from "../../signer.ts";
import type { Store } from "../../store.ts";
import { openMemoryStore } from "../../stores/memory.ts";
import { appendCommand, createCommand, joinedText } from "../../../testing/commands.ts";
import { openGatedStore } from "../../../../test/kits/gated-store.ts";
import { createVirtualClock } from "../../../testing/virtual-clock.ts";
import { jsonRecordEnd } from "../../../protocol/json.ts";
import { subscriptionFormat } from "../../../protocol/subscription.ts";
import { WholeEngine } from "../whole-engine.ts";
import { Subscriptions } from "../subscriptions.ts";

const ORDERS = "/v1/stream/orders" as StreamName;
const WAKES = "/v1/stream/wakes" as StreamName;
const JSON_TYPE = "application/json";
const BASE_URL = "https://hapax.example";

const PULL: SubscriptionSettings = {
  way: { kind: "pull_wake", wakeStream: WAKES },
  pattern: "/v1/stream/*",
  streams: [],
  leaseMs: 1000,
  description: undefined,
};
const WEBHOOK: SubscriptionSettings = {
  ...PULL,
  way: { kind: "webhook", url: "https://receiver.example/hook" },
};

interface Delivery {
  readonly request: CourierRequest;
  readonly body: {
    readonly wake_id: string;
    readonly generation: number;
    readonly callback_url: string;
    readonly callback_token: string;
    readonly streams: readonly { readonly path: string; readonly tail_offset: string }[];
  };
  readonly answer: (answer: CourierAnswer) => void;
}

/** A receiver that the test plays itself. */
class ScriptedCourier implements Courier {
  readonly deliveries: Delivery[] = [];
  /** A courier should end at once when its signal aborts; this one may be slow. */
  ignoresAbort = false;
  readonly #waiting: ((delivery: Delivery) => void)[] = [];

  deliver(request: CourierRequest): Promise<CourierAnswer> {
    return new Promise((resolve) => {
      request.signal.addEventListener("abort", () => {
        if (!this.ignoresAbort) resolve({ kind: "failed", reason: "aborted" });
      });
      const body = JSON.parse(new TextDecoder().decode(request.body)) as Delivery["body"];
      const delivery: Delivery = { request, body, answer: resolve };
      this.deliveries.push(delivery);
      this.#waiting.shift()?.(delivery);
    });
  }

  /** The next delivery that begins after this call. */
  next(): Promise<Delivery> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }
}

const answered = (status: number, body = ""): CourierAnswer => ({
  kind: "answered",
  status,
  body: new TextEncoder().encode(body),
});

async function openStage(
  store: Store = openMemoryStore(),
  clock = createVirtualClock(1_800_000_000_000),
) {
  const courier = new ScriptedCourier();
  const engine = new WholeEngine({
    store,
    clock,
    jsonRecordsEnd: jsonRecordEnd,
    random: { ...systemRandom, unit: () => 0.5 },
    createSubscriptions: (parts) =>
      new Subscriptions({
        ...parts,
        courier,
        format: subscriptionFormat,
        publicBaseUrl: () => BASE_URL,
      }),
  });
  const { subscriptions } = engine;
  await subscriptions.start();
  return {
    store,
    clock,
    courier,
    engine,
    subscriptions,
    create: (name: StreamName, contentType = JSON_TYPE, isClosed = false) =>
      engine.create(createCommand(name, { contentType, isClosed })),
    append: (name: StreamName, text = "1,") =>
      engine.append(name, appendCommand(text, { contentType: JSON_TYPE })),
    async events(): Promise<readonly { subscription_id: string; generation: number }[]> {
      const state = engine.world.streams.get(WAKES);
      assert(state !== undefined, "no wake stream");
      const { appends } = await engine.read(state, 0 as Offset, 1_000_000);
      return JSON.parse(`[${joinedText(appends).slice(0, -1)}]`) as never;
    },
    phase(id: string): string | undefined {
      return engine.world.subscriptions.byId.get(id)?.phase.kind;
    },
  };
}

describe("webhooks", () => {
  test("are delivered only after the append that woke them is durable", async () => {
    const { stage, store } = await openGatedStage();
    const delivery = stage.courier.next();
    const appended = stage.append(ORDERS);
    expect(stage.phase("s")).toBe("waking");
    await manySignings();
    expect(stage.courier.deliveries).toEqual([]);
    store.open();
    await appended;
    await delivery;
  });

  test("are not sent early by the news of an earlier commit", async () => {
    const { stage, store } = await openGatedStage();
    const first = stage.courier.next();
    const appended = stage.append(ORDERS);
    await store.arrival();
    await store.release();
    await appended;
    const { body } = await first;
    const { wake_id: wakeId, generation, callback_token: token } = body;
    const report = { wakeId, generation, acks: [], isDone: false };
    const beat = stage.subscriptions.report("s", "callback", token, report);
    await store.arrival();
    const done = stage.subscriptions.report("s", "callback", token, { ...report, isDone: true });
    await settle(() => stage.engine.world.subscriptions.byId.get("s")?.generation !== generation);
    await store.release();
    await beat;
    await manySignings();
    expect(stage.courier.deliveries.length).toBe(1);
    const second = stage.courier.next();
    store.open();
    await done;
    expect((await second).body.generation).toBe(generation + 1);
  });

  test("a wake whose stream goes in the same commit still ends", async () => {
    const stage = await openStage();
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const next = stage.courier.next();
    await Promise.all([stage.append(ORDERS), stage.engine.delete(ORDERS)]);
    (await next).answer(answered(200));
    await settle(() => stage.phase("s") === "held");
    stage.clock.advance(1000);
    expect(stage.phase("s")).toBe("idle");
  });

  test("deleting a subscription ends its delivery and its timer", async () => {
    const stage = await openStage();
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const next = stage.courier.next();
    await stage.append(ORDERS);
    const { request } = await next;
    await stage.subscriptions.unsubscribe("s");
    expect(request.signal.aborted).toBe(true);
    expect(stage.clock.pending).toBe(0);
  });

  test("carry a signature and a token, and an answer of done acks the wake", async () => {
    const stage = await openStage();
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const next = stage.courier.next();
    await stage.append(ORDERS, "12345,");
    const { request, body, answer } = await next;
    const jwks = await stage.subscriptions.jwks();
    const header = request.headers["Webhook-Signature"] ?? "";
    const seconds = stage.clock.nowMs() / 1000;
    expect(await verifyWebhookSignature(header, request.body, jwks, seconds)).toBe(true);
    expect(body).toMatchObject({
      subscription_id: "s",
      generation: stage.clock.nowMs() * 1000,
      callback_url: `${BASE_URL}/v1/stream/__ds/subscriptions/s/callback`,
      streams: [{ path: "orders", acked_offset: "-1", has_pending: true }],
    });
    answer(answered(200, '{"done":true}'));
    await settle(() => stage.phase("s") === "idle");
    const view = await stage.subscriptions.describe("s");
    expect(view?.links).toEqual([{ stream: ORDERS, isExplicit: false, acked: 6 }]);
  });

  test("are tried again in the same wake, also by the server that starts after a stop", async () => {
    const stage = await openStage();
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const first = stage.courier.next();
    await stage.append(ORDERS);
    const { body, answer } = await first;
    answer(answered(500));
    await settle(() => stage.engine.world.subscriptions.byId.get("s")?.retry !== undefined);
    expect((await stage.subscriptions.describe("s"))?.isFailed).toBe(true);
    stage.subscriptions.stop();
    expect(stage.clock.pending).toBe(0);
    const { keys } = await stage.subscriptions.jwks();

    const later = await openStage(stage.store, stage.clock);
    const second = later.courier.next();
    stage.clock.advance(999);
    expect(later.courier.deliveries).toEqual([]);
    stage.clock.advance(1);
    const again = await second;
    expect(again.body.wake_id).toBe(body.wake_id);
    expect((await later.subscriptions.jwks()).keys).toEqual(keys);
    again.answer(answered(204));
    await settle(() => later.phase("s") === "held");
    expect((await later.subscriptions.describe("s"))?.isFailed).toBe(false);
  });

  test("a callback is fenced when the lease is over, and the next wake is delivered", async () => {
    const stage = await openStage();
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const first = stage.courier.next();
    await stage.append(ORDERS);
    const { body, answer } = await first;
    answer(answered(200));
    await settle(() => stage.phase("s") === "held");
    const second = stage.courier.next();
    stage.clock.advance(1000);
    const report = {
      wakeId: body.wake_id,
      generation: body.generation,
      acks: [{ stream: ORDERS, offset: 2 as Offset }],
      isDone: true,
    };
    const { subscriptions } = stage;
    const outcome = await subscriptions.report("s", "callback", body.callback_token, report);
    expect(outcome).toEqual({ kind: "fenced" });
    const { body: next } = await second;
    expect(next.generation).toBeGreaterThan(body.generation);
    const { wake_id: wakeId, generation, callback_token: token } = next;
    const fresh = { ...report, wakeId, generation };
    expect(await subscriptions.report("s", "callback", token, fresh)).toEqual({
      kind: "settled",
      isWokenAgain: false,
    });
  });

  test("a delivery in flight is given up when its lease is over, and counts as failed", async () => {
    const stage = await openStage();
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const first = stage.courier.next();
    await stage.append(ORDERS);
    const { request, body } = await first;
    expect(request.timeoutMs).toBe(1000);
    stage.clock.advance(1000);
    await settle(() => request.signal.aborted);
    const second = stage.courier.next();
    expect(stage.courier.deliveries.length).toBe(1);
    stage.clock.advance(1000);
    expect((await second).body.generation).toBeGreaterThan(body.generation);
  });

  test("a late answer to a delivery that was given up does not end the next one", async () => {
    const stage = await openStage();
    stage.courier.ignoresAbort = true;
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const first = stage.courier.next();
    await stage.append(ORDERS);
    const { request, answer } = await first;
    stage.clock.advance(1000);
    await settle(() => request.signal.aborted);
    const second = stage.courier.next();
    stage.clock.advance(1000);
    await second;
    answer(answered(500));
    await nextTurn();
    await stage.append(ORDERS);
    await manySignings();
    expect(stage.courier.deliveries.length).toBe(2);
  });

  test("a stop ends deliveries and timers", async () => {
    const stage = await openStage();
    await stage.create(ORDERS);
    await stage.subscriptions.subscribe("s", WEBHOOK);
    const first = stage.courier.next();
    await stage.append(ORDERS);
    const { request } = await first;
    stage.subscriptions.stop();
    expect(request.signal.aborted).toBe(true);
    expect(stage.clock.pending).toBe(0);
  });
});

/** A webhook in a store whose commits wait at a gate from now on. */
async function openGatedStage() {
  const memory = openMemoryStore();
  const before = await openStage(memory);
  await before.create(ORDERS);
  await before.subscriptions.subscribe("s", WEBHOOK);
  before.subscriptions.stop();
  const store = openGatedStore(memory);
  return { store, stage: await openStage(store, before.clock) };
}

/** Far more work than a delivery does before it is sent: a delivery that has begun would be seen. */
async function manySignings(): Promise<void> {
  for (let count = 0; count < 50; count += 1) {
    await crypto.subtle.digest("SHA-256", new Uint8Array(1));
  }
}

/** Waits for work that has already begun; nothing here depends on how long it takes. */
async function settle(isDone: () => boolean): Promise<void> {
  while (!isDone()) await nextTurn();
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
