/** A world with subscriptions, in the few words that their tests speak. */

import type { Change } from "../../src/streams/core/change.ts";
import type { Fork } from "../../src/streams/core/stream.ts";
import {
  decideAppendWake,
  decideSubscriptionClaim,
  type Scene,
} from "../../src/streams/core/subscription-decide.ts";
import {
  decideFound,
  decideSubscribe,
  followersOf,
} from "../../src/streams/core/subscription-link.ts";
import type {
  Subscription,
  SubscriptionSettings,
} from "../../src/streams/core/subscription-state.ts";
import { assert } from "../../src/base/assert.ts";
import type { StreamName, TimeMs } from "../../src/streams/core/types.ts";
import { applyChange, createWorld } from "../../src/streams/core/world.ts";
import { RUN } from "../../src/testing/commands.ts";

export const ORDERS = "/v1/stream/orders" as StreamName;
export const EVENTS = "/v1/stream/events/one" as StreamName;
export const WAKES = "/v1/stream/wakes" as StreamName;
export const LEASE_MS = 1000;

export const PULL: SubscriptionSettings = {
  way: { kind: "pull_wake", wakeStream: WAKES },
  pattern: undefined,
  streams: [ORDERS],
  leaseMs: LEASE_MS,
  description: undefined,
};
export const WEBHOOK: SubscriptionSettings = {
  ...PULL,
  way: { kind: "webhook", url: "https://a.example" },
};

export function createStage() {
  const world = createWorld();
  const book = world.subscriptions;
  let wakes = 0;
  const stage = {
    world,
    book,
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
    create(name: StreamName, fork?: Fork): void {
      const { atMs } = stage;
      const [stream, contentType, expiry] = [
        world.nextId,
        "text/plain",
        { kind: "never" },
      ] as const;
      const rest = { run: RUN, keys: undefined };
      stage.commit([{ kind: "created", atMs, stream, name, contentType, expiry, fork, ...rest }]);
    },
    state(name: StreamName) {
      const state = world.streams.get(name);
      assert(state !== undefined, `no stream ${name}`);
      return state;
    },
    append(name: StreamName, bytes = 10): void {
      if (!world.streams.has(name)) stage.create(name);
      const { atMs } = stage;
      const state = stage.state(name);
      stage.commit(decideFound(book, state, atMs));
      const [closes, producer, streamSeq, key] = [false, undefined, undefined, undefined];
      const [stream, data] = [state.id, new Uint8Array(bytes)];
      stage.commit([{ kind: "appended", atMs, stream, data, closes, producer, streamSeq, key }]);
      for (const follower of followersOf(book, name)) {
        const woken = decideAppendWake(follower, name, stage.scene());
        if (woken !== undefined) stage.commit([woken]);
      }
    },
    remove(name: StreamName): void {
      stage.commit([{ kind: "removed", atMs: stage.atMs, stream: stage.state(name).id }]);
    },
    subscribe(id: string, settings: SubscriptionSettings, matchesMax = 100): Subscription {
      const { atMs } = stage;
      const decision = decideSubscribe(book, world.streams, id, settings, matchesMax, atMs);
      if (decision.kind === "created") stage.commit(decision.changes);
      return stage.subscription(id);
    },
    subscription(id: string): Subscription {
      const subscription = book.byId.get(id);
      assert(subscription !== undefined, `no subscription ${id}`);
      return subscription;
    },
    claim(id: string, worker = "worker"): { generation: number; wakeId: string } {
      const decision = decideSubscriptionClaim(stage.subscription(id), worker, stage.scene());
      assert(decision.kind === "claimed", `not claimed: ${decision.kind}`);
      stage.commit(decision.changes);
      return decision.wake;
    },
  };
  return stage;
}
