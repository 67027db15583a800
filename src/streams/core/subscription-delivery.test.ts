/** Deliveries that fail, wakes that are never taken: the rules of webhooks. */

import { describe, expect, test } from "vitest";
import type { Change } from "./change.ts";
import {
  decideAck,
  decideAppendWake,
  decideDelivered,
  decideDeliveryFailed,
  decideExpiry,
  type Scene,
  type WakeReference,
} from "./subscription-decide.ts";
import { decideSubscribe } from "./subscription-link.ts";
import type { Subscription } from "./subscription-state.ts";
import { assert } from "../../base/assert.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld } from "./world.ts";
import { RUN } from "../../testing/commands.ts";

const LEASE_MS = 5000;
const NAMES = ["/v1/stream/a", "/v1/stream/b", "/v1/stream/c"] as StreamName[];
const WAY = { kind: "webhook", url: "https://example.com/hook" } as const;
const policy = (unit: number) => ({ delayMsMin: 1000, delayMsMax: 60_000, unit });

/** A webhook that follows three streams, all with ten bytes that the first of them woke it for. */
function createStage() {
  const world = createWorld();
  let wakes = 0;
  const stage = {
    atMs: 1000 as TimeMs,
    commit(changes: readonly Change[]): void {
      for (const change of changes) applyChange(world, change);
    },
    scene(wakeStreamsMax = 10): Scene {
      wakes += 1;
      const { streams } = world;
      const isBoundary = (): boolean => true;
      return { streams, atMs: stage.atMs, wakeId: `wake-${wakes}`, wakeStreamsMax, isBoundary };
    },
    pass(ms: number): void {
      stage.atMs = (stage.atMs + ms) as TimeMs;
    },
    get subscription(): Subscription {
      const subscription = world.subscriptions.byId.get("s");
      assert(subscription !== undefined, "no subscription");
      return subscription;
    },
    get wake(): WakeReference {
      const { phase } = stage.subscription;
      assert(phase.kind !== "idle", "no wake");
      return phase.wake;
    },
    fail(unit = 0.5): void {
      const { subscription, wake } = stage;
      stage.commit(decideDeliveryFailed(subscription, wake, policy(unit), stage.scene()));
    },
  };
  const { atMs } = stage;
  const settings = { way: WAY, pattern: undefined, streams: NAMES, leaseMs: LEASE_MS };
  const { subscriptions: book, streams } = world;
  const full = { ...settings, description: undefined };
  const decision = decideSubscribe(book, streams, "s", full, 10, atMs);
  assert(decision.kind === "created", decision.kind);
  stage.commit(decision.changes);
  for (const name of NAMES) {
    const [stream, contentType, expiry] = [world.nextId, "text/plain", { kind: "never" }] as const;
    const bare = { closes: false, producer: undefined, streamSeq: undefined, key: undefined };
    const plain = { run: RUN, fork: undefined, keys: undefined };
    const data = new Uint8Array(10);
    stage.commit([
      { kind: "created", atMs, stream, name, contentType, expiry, ...plain },
      { kind: "appended", atMs, stream, data, ...bare },
    ]);
    const woken = decideAppendWake(stage.subscription, name, stage.scene());
    if (woken !== undefined) stage.commit([woken]);
  }
  return stage;
}

describe("webhook deliveries", () => {
  test("are tried again after 1, 2, 4 … 60 seconds, in the same wake", () => {
    const stage = createStage();
    const { wakeId, generation } = stage.wake;
    const delays: number[] = [];
    for (let attempt = 0; attempt < 8; attempt += 1) {
      stage.fail();
      const { retry } = stage.subscription;
      assert(retry !== undefined, "no retry");
      delays.push(retry.nextAttemptAtMs - stage.atMs);
      expect(stage.subscription.phase).toMatchObject({
        kind: "waking",
        wake: { wakeId, generation },
        leaseUntilMs: retry.nextAttemptAtMs + LEASE_MS,
      });
      stage.atMs = retry.nextAttemptAtMs;
    }
    expect(delays).toEqual([1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
  });

  test.each([
    [0, 800],
    [0.5, 1000],
    [0.999999, 1200],
  ])("are spread by 20 percent: %d gives %d ms", (unit, delayMs) => {
    const stage = createStage();
    stage.fail(unit);
    expect(stage.subscription.retry).toEqual({
      attempts: 1,
      nextAttemptAtMs: stage.atMs + delayMs,
    });
  });

  test("a wake that is not taken before its lease is over fails, and the next one waits", () => {
    const stage = createStage();
    const { generation } = stage.wake;
    stage.pass(LEASE_MS);
    stage.commit(decideExpiry(stage.subscription, policy(0.5), stage.scene()));
    expect(stage.subscription.generation).toBeGreaterThan(generation);
    expect(stage.subscription).toMatchObject({
      phase: { kind: "waking", leaseUntilMs: stage.atMs + 1000 + LEASE_MS },
      retry: { attempts: 1, nextAttemptAtMs: stage.atMs + 1000 },
    });
  });

  test("an answer after the lease changes nothing", () => {
    const stage = createStage();
    stage.pass(LEASE_MS);
    const decision = decideDelivered(stage.subscription, stage.wake, true, stage.scene());
    expect(decision).toEqual({ kind: "fenced", changes: [] });
  });

  test("done acks what the wake named, and the rest wakes again", () => {
    const stage = createStage();
    const decision = decideDelivered(stage.subscription, stage.wake, true, stage.scene());
    assert(decision.kind === "settled", decision.kind);
    stage.commit(decision.changes);
    expect(decision.isWokenAgain).toBe(true);
    const acked = [...stage.subscription.links.values()].map((link) => link.acked);
    expect(acked).toEqual([10, undefined, undefined]);
    expect(stage.wake).toMatchObject({ tails: new Map(NAMES.slice(1).map((name) => [name, 10])) });
  });

  test("streams beyond the limit of one wake follow with the next", () => {
    const stage = createStage();
    const decision = decideDelivered(stage.subscription, stage.wake, true, stage.scene(1));
    assert(decision.kind === "settled", decision.kind);
    stage.commit(decision.changes);
    expect(stage.wake).toMatchObject({ tails: new Map([[NAMES[1], 10]]) });
  });

  test("done does not take back what a callback acked beyond the wake", () => {
    const stage = createStage();
    const [first] = NAMES;
    assert(first !== undefined, "no name");
    const acks = NAMES.map((stream) => ({ stream, offset: 10 as Offset }));
    const acked = decideAck(stage.subscription, stage.wake, acks, false, stage.scene());
    assert(acked.kind === "settled", acked.kind);
    stage.commit(acked.changes);
    const decision = decideDelivered(stage.subscription, stage.wake, true, stage.scene());
    assert(decision.kind === "settled", decision.kind);
    stage.commit(decision.changes);
    expect(decision.isWokenAgain).toBe(false);
    expect(stage.subscription.phase.kind).toBe("idle");
  });

  test("a callback during a pause starts the next wake at once, not after the pause", () => {
    const stage = createStage();
    stage.fail();
    const { generation } = stage.wake;
    const done = decideAck(stage.subscription, stage.wake, [], true, stage.scene());
    assert(done.kind === "settled", done.kind);
    stage.commit(done.changes);
    expect(stage.subscription).toMatchObject({
      generation: generation + 1,
      phase: { kind: "waking", leaseUntilMs: stage.atMs + LEASE_MS },
      retry: undefined,
    });
  });

  test("a callback ends the retries: the wake was taken although its answer got lost", () => {
    const stage = createStage();
    stage.fail();
    const acked = decideAck(stage.subscription, stage.wake, [], false, stage.scene());
    assert(acked.kind === "settled", acked.kind);
    stage.commit(acked.changes);
    expect(stage.subscription).toMatchObject({ phase: { kind: "held" }, retry: undefined });
    const { subscription, wake } = stage;
    expect(decideDeliveryFailed(subscription, wake, policy(0), stage.scene())).toEqual([]);
  });
});
