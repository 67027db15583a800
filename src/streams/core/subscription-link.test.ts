/** Which streams a subscription follows, and from which offset. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  createStage,
  EVENTS,
  ORDERS,
  PULL,
  WAKES,
  WEBHOOK,
} from "../../../test/kits/subscription-stage.ts";
import { decideSubscriptionClaim } from "./subscription-decide.ts";
import { decideLink, decideSubscribe, decideUnlink, followersOf } from "./subscription-link.ts";
import type { SubscriptionSettings } from "./subscription-state.ts";
import type { Offset, StreamName } from "./types.ts";

const EVERYTHING: SubscriptionSettings = { ...PULL, streams: [], pattern: "/v1/stream/**" };

const at = (offset: number): Offset => offset as Offset;

describe("links", () => {
  test("a stream found by its pattern is followed from before the append that revealed it", () => {
    const stage = createStage();
    stage.append(ORDERS, 10);
    const subscription = stage.subscribe("s", EVERYTHING, 0);
    expect(subscription.links.size).toBe(0);
    stage.append(ORDERS, 5);
    expect(subscription.links.get(ORDERS)).toEqual({ isExplicit: false, isGlob: true, acked: 10 });
    stage.append(EVENTS, 5);
    expect(subscription.links.get(EVENTS)?.acked).toBeUndefined();
  });

  test("a creation follows existing streams from their tails", () => {
    const stage = createStage();
    stage.append(ORDERS, 10);
    const subscription = stage.subscribe("s", EVERYTHING);
    expect(subscription.links.get(ORDERS)).toEqual({ isExplicit: false, isGlob: true, acked: 10 });
    expect(subscription.phase.kind).toBe("idle");
  });

  test("what a fork took over from its source is not pending", () => {
    const stage = createStage();
    stage.append(ORDERS, 10);
    const subscription = stage.subscribe("s", { ...PULL, streams: [EVENTS] });
    const { id: source } = stage.state(ORDERS);
    const fork = { source, sourceName: ORDERS, anchor: at(10), subOffset: 0, at: at(10) };
    stage.create(EVENTS, { ...fork, inheritsExpiry: true });
    expect(decideSubscriptionClaim(subscription, "one", stage.scene()).kind).toBe(
      "nothing_pending",
    );
    stage.append(EVENTS, 1);
    expect(subscription.phase.kind).toBe("waking");
  });

  test("a subscription never follows its own wake stream by a pattern", () => {
    const stage = createStage();
    stage.append(WAKES);
    const subscription = stage.subscribe("s", EVERYTHING);
    stage.append(WAKES);
    expect(subscription.links.has(WAKES)).toBe(false);
    expect(subscription.phase.kind).toBe("idle");
  });

  test("removing the explicit reason leaves what the pattern follows, with its progress", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", { ...EVERYTHING, streams: [ORDERS] });
    stage.append(ORDERS, 10);
    stage.commit(decideUnlink(subscription, ORDERS, stage.atMs));
    expect(subscription.links.get(ORDERS)).toEqual({
      isExplicit: false,
      isGlob: true,
      acked: undefined,
    });
    expect(decideUnlink(subscription, ORDERS, stage.atMs)).toEqual([]);
  });

  test("naming a stream that a pattern follows does not skip what is pending", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", EVERYTHING);
    stage.append(ORDERS, 10);
    stage.commit(decideLink(stage.book, stage.world.streams, subscription, [ORDERS], stage.atMs));
    const both = { isExplicit: true, isGlob: true, acked: undefined };
    expect(subscription.links.get(ORDERS)).toEqual(both);
  });

  test("a subscription of another configuration is a conflict, of the same one it exists", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    const { streams } = stage.world;
    const decide = (settings: SubscriptionSettings) =>
      decideSubscribe(stage.book, streams, "s", settings, 10, stage.atMs);
    expect(decide({ ...PULL })).toEqual({ kind: "exists", subscription });
    const others: readonly (readonly [string, SubscriptionSettings])[] = [
      ["type", WEBHOOK],
      ["wake_stream", { ...PULL, way: { kind: "pull_wake", wakeStream: ORDERS } }],
      ["pattern", { ...PULL, pattern: "/v1/stream/*" }],
      ["streams", { ...PULL, streams: [EVENTS] }],
      ["lease_ttl_ms", { ...PULL, leaseMs: 1001 }],
      ["description", { ...PULL, description: "" }],
    ];
    for (const [reason, settings] of others) {
      expect(decide(settings)).toEqual({ kind: "conflict", reason });
    }
  });

  test("the index finds the same subscriptions as a scan, while patterns and streams come and go", () => {
    const name = fc.constantFrom("/a", "/b", "/a/x", "/a/y", "/b/x") as fc.Arbitrary<StreamName>;
    const pattern = fc.constantFrom("/*", "/**", "/a/*", "/*/x", "/b/**");
    const step = fc.oneof(
      fc.record({ kind: fc.constant("append" as const), name }),
      fc.record({ kind: fc.constant("remove" as const), name }),
      fc.record({ kind: fc.constant("subscribe" as const), pattern }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const stage = createStage();
        for (const [index, each] of steps.entries()) {
          if (each.kind === "subscribe") {
            stage.subscribe(`s${index}`, { ...PULL, streams: [], pattern: each.pattern }, 1);
          } else if (each.kind === "append") {
            stage.append(each.name);
            const { globs } = stage.book;
            const scanned = [...globs].flatMap(([id, g]) => (g.matches(each.name) ? [id] : []));
            const found = followersOf(stage.book, each.name).map(({ id }) => id);
            expect(found.toSorted()).toEqual(scanned.toSorted());
          } else if (stage.world.streams.has(each.name)) {
            stage.remove(each.name);
            expect(followersOf(stage.book, each.name)).toEqual([]);
          }
        }
      }),
    );
  });

  test("an append to a settled stream asks no pattern", () => {
    const stage = createStage();
    stage.subscribe("s", { ...EVERYTHING, pattern: "/elsewhere/*" });
    stage.append(ORDERS);
    expect(stage.book.settledStreams.has(stage.state(ORDERS))).toBe(true);
    stage.subscribe("t", { ...EVERYTHING, pattern: "/v1/stream/*" }, 0);
    expect(stage.book.settledStreams.has(stage.state(ORDERS))).toBe(false);
    stage.append(ORDERS);
    expect(followersOf(stage.book, ORDERS).map(({ id }) => id)).toEqual(["t"]);
  });
});
