/** Single rules of subscriptions, each with the case that would break it. */

import { describe, expect, test } from "vitest";
import {
  createStage,
  EVENTS,
  LEASE_MS,
  ORDERS,
  PULL,
  WEBHOOK,
} from "../../../test/kits/subscription-stage.ts";
import {
  decideAck,
  decideSubscriptionClaim,
  decideDelivered,
  decideSubscriptionRelease,
} from "./subscription-decide.ts";
import { decideLink, decideUnlink } from "./subscription-link.ts";
import { assert } from "../../base/assert.ts";
import type { Offset } from "./types.ts";

const at = (offset: number): Offset => offset as Offset;

describe("acks", () => {
  test("a lease is over at its deadline, not after it", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS);
    const wake = stage.claim("s");
    stage.pass(LEASE_MS - 1);
    expect(decideAck(subscription, wake, [], false, stage.scene()).kind).toBe("settled");
    stage.pass(1);
    expect(decideAck(subscription, wake, [], false, stage.scene()).kind).toBe("fenced");
  });

  test("a valid ack extends the lease; one that is refused does not", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS);
    const wake = stage.claim("s");
    stage.pass(900);
    const beyond = [{ stream: ORDERS, offset: at(11) }];
    expect(decideAck(subscription, wake, beyond, false, stage.scene()).kind).toBe("invalid_ack");
    const decision = decideAck(subscription, wake, [], false, stage.scene());
    assert(decision.kind === "settled", decision.kind);
    stage.commit(decision.changes);
    expect(subscription.phase).toMatchObject({ kind: "held", leaseUntilMs: 1000 + 900 + LEASE_MS });
  });

  test("an offset inside a record is refused, and the acked one stays", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS);
    const wake = stage.claim("s");
    const scene = {
      ...stage.scene(),
      isBoundary: (_: unknown, offset: number) => offset % 10 === 0,
    };
    const inside = [{ stream: ORDERS, offset: at(4) }];
    expect(decideAck(subscription, wake, inside, true, scene).kind).toBe("invalid_ack");
    const end = [{ stream: ORDERS, offset: at(10) }];
    expect(decideAck(subscription, wake, end, true, scene).kind).toBe("settled");
  });

  test("the wake id counts as well as the generation", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS);
    const { generation, wakeId } = stage.claim("s");
    for (const said of [
      { generation, wakeId: "another" },
      { generation: generation + 1, wakeId },
    ]) {
      expect(decideAck(subscription, said, [], true, stage.scene()).kind).toBe("fenced");
      expect(decideSubscriptionRelease(subscription, said, stage.scene()).kind).toBe("fenced");
    }
  });

  test("the first request after a lease has run out ends it, and pending work wakes again", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS);
    const wake = stage.claim("s", "zombie");
    stage.pass(LEASE_MS);
    const acks = [{ stream: ORDERS, offset: at(10) }];
    const decision = decideAck(subscription, wake, acks, true, stage.scene());
    assert(decision.kind === "fenced", decision.kind);
    stage.commit(decision.changes);
    expect(subscription.phase.kind).toBe("waking");
    expect(subscription.generation).toBeGreaterThan(wake.generation);
    expect(subscription.links.get(ORDERS)?.acked).toBeUndefined();
  });

  test.each([
    ["beyond the tail", 11],
    ["before the acked one", 3],
    ["before the first record", -1],
  ])("an offset %s is refused, and with it the whole call", (_, offset) => {
    const stage = createStage();
    const subscription = stage.subscribe("s", { ...PULL, streams: [EVENTS, ORDERS] });
    stage.append(ORDERS, 4);
    stage.append(EVENTS, 4);
    const first = stage.claim("s");
    const done = decideAck(
      subscription,
      first,
      [{ stream: ORDERS, offset: at(4) }],
      true,
      stage.scene(),
    );
    assert(done.kind === "settled" && done.isWokenAgain, "the other stream is still pending");
    stage.commit(done.changes);
    stage.append(ORDERS, 6);
    const wake = stage.claim("s");
    const acks = [
      { stream: EVENTS, offset: at(4) },
      { stream: ORDERS, offset: at(offset) },
    ];
    const decision = decideAck(subscription, wake, acks, true, stage.scene());
    expect(decision).toMatchObject({ kind: "invalid_ack", stream: ORDERS });
  });

  test("of two acks of one stream in one call the further one counts", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS);
    const wake = stage.claim("s");
    const acks = [
      { stream: ORDERS, offset: at(10) },
      { stream: ORDERS, offset: at(5) },
    ];
    const decision = decideAck(subscription, wake, acks, true, stage.scene());
    assert(decision.kind === "settled", decision.kind);
    stage.commit(decision.changes);
    expect(subscription.links.get(ORDERS)?.acked).toBe(10);
    expect(subscription.phase.kind).toBe("idle");
  });

  test("a release wakes again with the next generation, and a second claim is refused", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS);
    const wake = stage.claim("s", "one");
    expect(decideSubscriptionClaim(subscription, "two", stage.scene())).toMatchObject({
      kind: "held",
      holder: "one",
      generation: wake.generation,
    });
    const decision = decideSubscriptionRelease(subscription, wake, stage.scene());
    assert(decision.kind === "settled", decision.kind);
    stage.commit(decision.changes);
    expect(decision.isWokenAgain).toBe(true);
    expect(stage.claim("s", "two").generation).toBe(wake.generation + 1);
  });

  test("a claim with nothing pending is refused, and an announced wake that lost its stream ends", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    expect(decideSubscriptionClaim(subscription, "one", stage.scene()).kind).toBe(
      "nothing_pending",
    );
    stage.append(ORDERS);
    stage.remove(ORDERS);
    const decision = decideSubscriptionClaim(subscription, "one", stage.scene());
    assert(decision.kind === "nothing_pending", decision.kind);
    stage.commit(decision.changes);
    expect(subscription.phase.kind).toBe("idle");
  });
});

describe("lives of streams", () => {
  test("a holder cannot ack a stream that was deleted and created again since its wake", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS, 10);
    const wake = stage.claim("s");
    stage.remove(ORDERS);
    stage.append(ORDERS, 30);
    const acks = [{ stream: ORDERS, offset: at(10) }];
    expect(decideAck(subscription, wake, acks, false, stage.scene()).kind).toBe("invalid_ack");
    const done = decideAck(subscription, wake, [], true, stage.scene());
    assert(done.kind === "settled", done.kind);
    stage.commit(done.changes);
    expect(subscription.links.get(ORDERS)?.acked).toBeUndefined();
    const again = decideAck(subscription, stage.claim("s"), acks, false, stage.scene());
    expect(again.kind).toBe("settled");
  });

  test("a webhook's done does not ack a stream that was created again since its wake", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", WEBHOOK);
    stage.append(ORDERS, 10);
    const { phase } = subscription;
    assert(phase.kind === "waking", phase.kind);
    stage.remove(ORDERS);
    stage.append(ORDERS, 30);
    const decision = decideDelivered(subscription, phase.wake, true, stage.scene());
    assert(decision.kind === "settled", decision.kind);
    stage.commit(decision.changes);
    expect(decision.isWokenAgain).toBe(true);
    expect(subscription.links.get(ORDERS)?.acked).toBeUndefined();
  });

  test("a link that was removed and added again since the wake cannot be acked in it", () => {
    const stage = createStage();
    const subscription = stage.subscribe("s", PULL);
    stage.append(ORDERS, 10);
    const wake = stage.claim("s");
    stage.commit(decideUnlink(subscription, ORDERS, stage.atMs));
    stage.remove(ORDERS);
    stage.commit(decideLink(stage.book, stage.world.streams, subscription, [ORDERS], stage.atMs));
    stage.append(ORDERS, 30);
    const acks = [{ stream: ORDERS, offset: at(10) }];
    expect(decideAck(subscription, wake, acks, false, stage.scene()).kind).toBe("invalid_ack");
  });
});
