/** Subscriptions over a store that is full: clients are refused, and what the server does by itself waits. */

import { describe, expect, test } from "vitest";
import type { SubscriptionSettings } from "../../core/subscription-state.ts";
import type { StreamName } from "../../core/types.ts";
import type { CourierAnswer } from "../../courier.ts";
import { systemRandom } from "../../../base/random.ts";
import type { Store } from "../../store.ts";
import { openMemoryStore } from "../../stores/memory.ts";
import { appendCommand, createCommand } from "../../../testing/commands.ts";
import { createVirtualClock } from "../../../testing/virtual-clock.ts";
import { turn } from "../../../../test/kits/watch.ts";
import { jsonRecordEnd } from "../../../protocol/json.ts";
import { subscriptionFormat } from "../../../protocol/subscription.ts";
import { WholeEngine } from "../whole-engine.ts";
import { Subscriptions } from "../subscriptions.ts";

const ORDERS = "/v1/stream/orders" as StreamName;
const WAKES = "/v1/stream/wakes" as StreamName;
const contentType = "application/json";

const PULL: SubscriptionSettings = {
  way: { kind: "pull_wake", wakeStream: WAKES },
  pattern: undefined,
  streams: [ORDERS],
  leaseMs: 5000,
  description: undefined,
};
const WEBHOOK: SubscriptionSettings = {
  ...PULL,
  way: { kind: "webhook", url: "https://receiver.example/hook" },
};
const REFUSED = { code: "store_full" };

async function openStage() {
  const memory = openMemoryStore();
  const room = { bytes: Number.MAX_SAFE_INTEGER };
  let commits = 0;
  const store: Store = {
    ...memory,
    room,
    commit: (changes) => {
      commits += 1;
      return memory.commit(changes);
    },
  };
  const clock = createVirtualClock(1_800_000_000_000);
  const answers: ((answer: CourierAnswer) => void)[] = [];
  const engine = new WholeEngine({
    store,
    clock,
    jsonRecordsEnd: jsonRecordEnd,
    random: { ...systemRandom, unit: () => 0.5 },
    createSubscriptions: (parts) =>
      new Subscriptions({
        ...parts,
        courier: { deliver: () => new Promise((resolve) => answers.push(resolve)) },
        format: subscriptionFormat,
        publicBaseUrl: () => "https://hapax.example",
      }),
  });
  const { subscriptions } = engine;
  await engine.create(createCommand(ORDERS, { contentType }));
  await engine.create(createCommand(WAKES, { contentType }));
  return {
    clock,
    engine,
    subscriptions,
    answers,
    commits: () => commits,
    setRoom: (bytes: number) => (room.bytes = bytes),
    append: () => engine.append(ORDERS, appendCommand("1,", { contentType })),
    phase: (id: string) => engine.world.subscriptions.byId.get(id)?.phase.kind,
    async pass(seconds: number): Promise<void> {
      for (let second = 0; second < seconds; second += 1) {
        for (let turns = 0; turns < 20; turns += 1) await turn();
        clock.advance(1000);
      }
      for (let turns = 0; turns < 20; turns += 1) await turn();
    },
    async delivered(count: number): Promise<void> {
      while (answers.length < count) await turn();
    },
  };
}

const taken: CourierAnswer = { kind: "answered", status: 200, body: new Uint8Array() };

describe("clients on a full disk", () => {
  test("G33 are refused before anything is decided, and deletes are taken", async () => {
    const stage = await openStage();
    const { subscriptions } = stage;
    await subscriptions.start();
    await subscriptions.subscribe("s", PULL);
    await stage.append();
    const claim = await subscriptions.claim("s", "worker");
    if (claim.kind !== "claimed") throw new Error(`not claimed: ${claim.kind}`);
    const { wakeId, generation, token } = claim;
    const report = { wakeId, generation, acks: [], isDone: true };
    stage.setRoom(-1);
    const commits = stage.commits();
    await expect(subscriptions.report("s", "claim", token, report)).rejects.toMatchObject(REFUSED);
    await expect(subscriptions.release("s", token, report)).rejects.toMatchObject(REFUSED);
    await expect(subscriptions.subscribe("t", PULL)).rejects.toMatchObject(REFUSED);
    await expect(subscriptions.link("s", ["/v1/stream/more" as StreamName])).rejects.toMatchObject(
      REFUSED,
    );
    await expect(subscriptions.unlink("s", ORDERS)).rejects.toMatchObject(REFUSED);
    stage.clock.advance(6000);
    await expect(subscriptions.claim("s", "other")).rejects.toMatchObject(REFUSED);
    expect(stage.commits()).toBe(commits);
    expect(stage.phase("s")).toBe("held");
    expect(stage.phase("t")).toBeUndefined();
    stage.setRoom(-2);
    await expect(subscriptions.unsubscribe("s")).rejects.toMatchObject(REFUSED);
    stage.setRoom(-1);
    await subscriptions.unsubscribe("s");
    expect(stage.phase("s")).toBeUndefined();
  });

  test("G33 get no new signing key", async () => {
    const stage = await openStage();
    await stage.subscriptions.start();
    stage.setRoom(-1);
    await expect(stage.subscriptions.jwks()).rejects.toMatchObject(REFUSED);
    stage.setRoom(1000);
    expect((await stage.subscriptions.jwks()).keys).toHaveLength(1);
  });
});

describe("what the server does by itself on a full disk", () => {
  test("an answer waits for room, and the wake is not delivered again", async () => {
    const stage = await openStage();
    await stage.subscriptions.start();
    await stage.subscriptions.subscribe("s", WEBHOOK);
    await stage.append();
    await stage.delivered(1);
    stage.setRoom(-1);
    const commits = stage.commits();
    stage.answers[0]?.(taken);
    await stage.pass(3);
    expect([stage.phase("s"), stage.answers.length, stage.commits()]).toEqual([
      "waking",
      1,
      commits,
    ]);
    stage.setRoom(1000);
    await stage.pass(1);
    expect([stage.phase("s"), stage.answers.length]).toEqual(["held", 1]);
    stage.subscriptions.stop();
  });

  test("a lease that is over ends when there is room, and the wake is delivered again", async () => {
    const stage = await openStage();
    await stage.subscriptions.start();
    await stage.subscriptions.subscribe("s", WEBHOOK);
    await stage.append();
    await stage.delivered(1);
    stage.setRoom(-1);
    const commits = stage.commits();
    stage.answers[0]?.(taken);
    await stage.pass(60);
    expect([stage.phase("s"), stage.answers.length, stage.commits()]).toEqual([
      "waking",
      1,
      commits,
    ]);
    stage.setRoom(1000);
    await stage.pass(4);
    await stage.delivered(2);
    stage.answers[1]?.(taken);
    await stage.pass(1);
    expect(stage.phase("s")).toBe("held");
    stage.subscriptions.stop();
  });

  test("a start goes on, and wakes what is pending when there is room", async () => {
    const stage = await openStage();
    await stage.subscriptions.subscribe("s", PULL);
    await stage.append(); // Nothing follows appends yet.
    stage.setRoom(-1);
    await stage.subscriptions.start();
    await stage.pass(3);
    expect(stage.phase("s")).toBe("idle");
    stage.setRoom(1000);
    await stage.pass(2);
    expect(stage.phase("s")).toBe("waking");
    stage.subscriptions.stop();
  });

  test("the end of the server ends what waits for room", async () => {
    const stage = await openStage();
    await stage.subscriptions.start();
    await stage.subscriptions.subscribe("s", WEBHOOK);
    await stage.append();
    await stage.delivered(1);
    stage.setRoom(-1);
    stage.answers[0]?.(taken);
    await stage.pass(1);
    stage.subscriptions.stop();
    stage.setRoom(1000);
    const commits = stage.commits();
    await stage.pass(10);
    expect(stage.commits()).toBe(commits);
  });
});
