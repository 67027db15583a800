/** Subscriptions over the real engine and a memory store, with a moved clock. */

import { describe, expect, test } from "vitest";
import type { SubscriptionSettings } from "../core/subscription-state.ts";
import { assert } from "../../base/assert.ts";
import type { Offset, StreamName } from "../core/types.ts";
import { systemRandom } from "../../base/random.ts";
import type { Store } from "../store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand, joinedText } from "../../testing/commands.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { jsonRecordEnd } from "../../protocol/json.ts";
import { subscriptionFormat } from "../../protocol/subscription.ts";
import { WholeEngine } from "./whole-engine.ts";
import { type ClaimOutcome, Subscriptions } from "./subscriptions.ts";

const ORDERS = "/v1/stream/orders" as StreamName;
const EVENTS = "/v1/stream/events" as StreamName;
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

const START_MS = 1_800_000_000_000;
/** The first generation: it begins at the clock. */
const FIRST = START_MS * 1000;

async function openStage(store: Store = openMemoryStore(), startMs = START_MS) {
  const clock = createVirtualClock(startMs);
  const engine = new WholeEngine({
    store,
    clock,
    jsonRecordsEnd: jsonRecordEnd,
    random: { ...systemRandom, unit: () => 0.5 },
    createSubscriptions: (parts) =>
      new Subscriptions({
        ...parts,
        courier: {
          deliver: () => Promise.resolve({ kind: "refused", reason: "no webhooks here" }),
        },
        format: subscriptionFormat,
        publicBaseUrl: () => BASE_URL,
      }),
  });
  const { subscriptions } = engine;
  await subscriptions.start();
  return {
    store,
    clock,
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

type Claimed = Extract<ClaimOutcome, { kind: "claimed" }>;

function requireClaimed(outcome: ClaimOutcome): Claimed {
  assert(outcome.kind === "claimed", `not claimed: ${outcome.kind}`);
  return outcome;
}

/** A report of everything that a claim named. */
function everything(claim: Claimed, isDone: boolean) {
  const { wakeId, generation, streams } = claim;
  const acks = streams
    .filter(({ hasPending }) => hasPending)
    .map(({ stream, tail }) => ({ stream, offset: tail }));
  return { wakeId, generation, acks, isDone };
}

describe("pull-wake", () => {
  test("the wake event is in the wake stream when the append is answered", async () => {
    const stage = await openStage();
    await stage.create(WAKES);
    await stage.subscriptions.subscribe("s", PULL);
    await stage.create(ORDERS);
    await stage.append(ORDERS);
    await stage.append(ORDERS);
    expect(await stage.events()).toEqual([
      {
        type: "wake",
        subscription_id: "s",
        stream: "orders",
        generation: FIRST,
        ts: stage.clock.nowMs(),
      },
    ]);
  });

  test("a zombie's ack after its lease is fenced, and its successor's cursor stays", async () => {
    const stage = await openStage();
    await stage.create(WAKES);
    await stage.create(ORDERS);
    const { subscriptions } = stage;
    await subscriptions.subscribe("s", PULL);
    await stage.append(ORDERS);
    const zombie = requireClaimed(await subscriptions.claim("s", "zombie"));
    expect(await subscriptions.claim("s", "other")).toEqual({
      kind: "held",
      holder: "zombie",
      generation: FIRST,
    });
    stage.clock.advance(1000);
    await stage.engine.settled();
    expect((await stage.events()).map(({ generation }) => generation)).toEqual([
      FIRST,
      FIRST + 1_000_000,
    ]);
    const successor = requireClaimed(await subscriptions.claim("s", "other"));
    expect(successor.generation).toBe(FIRST + 1_000_000);
    const late = everything(zombie, true);
    expect(await subscriptions.report("s", "claim", zombie.token, late)).toEqual({
      kind: "fenced",
    });
    // Neither does the old token speak for the new wake.
    const mixed = { ...late, wakeId: successor.wakeId, generation: successor.generation };
    expect(await subscriptions.report("s", "claim", zombie.token, mixed)).toEqual({
      kind: "fenced",
    });
    const { token } = successor;
    expect(await subscriptions.report("s", "claim", token, everything(successor, true))).toEqual({
      kind: "settled",
      isWokenAgain: false,
    });
  });

  test("a token of a deleted subscription is worthless for the next one of its id", async () => {
    const stage = await openStage();
    const { subscriptions } = stage;
    await stage.create(ORDERS);
    await subscriptions.subscribe("s", PULL);
    await stage.append(ORDERS);
    const old = requireClaimed(await subscriptions.claim("s", "one"));
    await subscriptions.unsubscribe("s");
    expect(await subscriptions.release("s", old.token, old)).toEqual({ kind: "missing" });
    await subscriptions.subscribe("s", PULL);
    await stage.append(ORDERS);
    const fresh = requireClaimed(await subscriptions.claim("s", "two"));
    expect(fresh.generation).toBe(FIRST + 1);
    expect(await subscriptions.release("s", old.token, old)).toEqual({ kind: "fenced" });
    await subscriptions.subscribe("t", PULL);
    expect(await subscriptions.release("t", fresh.token, fresh)).toEqual({ kind: "token_invalid" });
  });

  test("a token for claims is none for callbacks", async () => {
    const stage = await openStage();
    const { subscriptions } = stage;
    await stage.create(ORDERS);
    await subscriptions.subscribe("s", PULL);
    await stage.append(ORDERS);
    const claim = requireClaimed(await subscriptions.claim("s", "one"));
    await subscriptions.unsubscribe("s");
    await subscriptions.subscribe("s", WEBHOOK);
    const report = everything(claim, true);
    expect(await subscriptions.report("s", "callback", claim.token, report)).toEqual({
      kind: "token_invalid",
    });
  });

  test("who claims after a lease is over ends it, and needs no wake event", async () => {
    const stage = await openStage();
    const { subscriptions } = stage;
    await stage.create(WAKES);
    await stage.create(ORDERS);
    await subscriptions.subscribe("s", PULL);
    await stage.append(ORDERS);
    await subscriptions.claim("s", "zombie");
    // A server that starts when the lease is over: the claim comes before its first timer.
    const later = await openStage(stage.store, START_MS + 1000);
    const { generation } = requireClaimed(await later.subscriptions.claim("s", "other"));
    expect(generation).toBe(FIRST + 1_000_000);
    expect((await later.events()).map((event) => event.generation)).toEqual([FIRST]);
  });

  test.each(["missing", "closed", "not JSON"])(
    "a wake stream that is %s loses the event only: the claim works",
    async (fault) => {
      const stage = await openStage();
      if (fault === "closed") await stage.create(WAKES, "application/json", true);
      if (fault === "not JSON") await stage.create(WAKES, "text/plain");
      await stage.create(ORDERS);
      await stage.subscriptions.subscribe("s", PULL);
      await stage.append(ORDERS);
      expect(stage.engine.world.streams.get(WAKES)?.tail ?? 0).toBe(0);
      expect((await stage.subscriptions.claim("s", "one")).kind).toBe("claimed");
    },
  );

  test("a wake event is an append: who follows the wake stream wakes in the same commit", async () => {
    const stage = await openStage();
    await stage.create(WAKES);
    await stage.create(ORDERS);
    const named = { ...PULL, pattern: undefined };
    await stage.subscriptions.subscribe("s", { ...named, streams: [ORDERS] });
    const way = { kind: "pull_wake", wakeStream: EVENTS } as const;
    await stage.subscriptions.subscribe("t", { ...named, way, streams: [WAKES] });
    const appended = stage.append(ORDERS);
    expect([stage.phase("s"), stage.phase("t")]).toEqual(["waking", "waking"]);
    await appended;
  });

  test("no wake-up is lost between a worker's last look and its done", async () => {
    const stage = await openStage();
    const { subscriptions } = stage;
    await stage.create(WAKES);
    await stage.create(ORDERS);
    await subscriptions.subscribe("s", PULL);
    let appends = 0;
    let seen = 0;
    const writer = async (): Promise<void> => {
      for (; appends < 200; appends += 1) {
        await stage.append(ORDERS);
        // Every phase is hit in turn. Idle also ends the wait: an idle subscription would never reach another phase.
        const target = ["idle", "waking", "held", "held"][appends % 4];
        await settle(() => [target, "idle"].includes(stage.phase("s")));
      }
    };
    // The worker acts on wake events alone; time stands still, so that no lease can save it.
    const worker = async (): Promise<void> => {
      for (;;) {
        const events = await stage.events();
        if (events.length === seen) {
          if (appends === 200 && stage.phase("s") === "idle") return;
          await nextTurn();
          continue;
        }
        seen = events.length;
        const outcome = await subscriptions.claim("s", "worker");
        if (outcome.kind !== "claimed") continue;
        await subscriptions.report("s", "claim", outcome.token, everything(outcome, true));
      }
    };
    await Promise.all([writer(), worker()]);
    const { links } = (await subscriptions.describe("s")) ?? assertNever();
    expect(links).toEqual([{ stream: ORDERS, isExplicit: false, acked: 400 }]);
    expect(seen).toBeGreaterThan(50);
  });
});

function assertNever(): never {
  throw new Error("this cannot be");
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
