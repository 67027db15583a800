// A directory is put back to an earlier copy: what the server names from then on was never named before.
import { cpSync, rmSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import type { GroupSettings } from "../src/streams/core/group-state.ts";
import type { SubscriptionSettings } from "../src/streams/core/subscription-state.ts";
import type { Offset, StreamName } from "../src/streams/core/types.ts";
import { WholeEngine } from "../src/streams/engine/whole-engine.ts";
import { Subscriptions } from "../src/streams/engine/subscriptions.ts";
import { systemRandom } from "../src/base/random.ts";
import { openFileStore } from "../src/streams/stores/file.ts";
import { appendCommand, createCommand } from "../src/testing/commands.ts";
import { createVirtualClock } from "../src/testing/virtual-clock.ts";
import { jsonRecordEnd } from "../src/protocol/json.ts";
import { subscriptionFormat } from "../src/protocol/subscription.ts";
import { freshDirectory } from "./kits/directory-kit.ts";

const A = "/v1/stream/a" as StreamName;
const WAKES = "/v1/stream/wakes" as StreamName;
const START_MS = 1_800_000_000_000;
const GROUP: GroupSettings = {
  pattern: undefined,
  streams: [A],
  start: { kind: "beginning" },
  leaseMs: 1000,
};
const SUBSCRIPTION: SubscriptionSettings = {
  way: { kind: "pull_wake", wakeStream: WAKES },
  pattern: undefined,
  streams: [A],
  leaseMs: 1000,
  description: undefined,
};

const directories: string[] = [];
afterEach(() => {
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true });
});

async function open(directory: string, atMs: number) {
  const store = await openFileStore(directory, { durability: "os", segmentBytes: 65_536 });
  const clock = createVirtualClock(atMs);
  const engine = new WholeEngine({
    store,
    clock,
    jsonRecordsEnd: jsonRecordEnd,
    random: systemRandom,
    createSubscriptions: (parts) =>
      new Subscriptions({
        ...parts,
        courier: {
          deliver: () => Promise.resolve({ kind: "refused", reason: "no webhooks here" }),
        },
        format: subscriptionFormat,
        publicBaseUrl: () => "https://hapax.example",
      }),
  });
  const { subscriptions } = engine;
  await subscriptions.start();
  const { groups } = engine;
  return {
    engine,
    groups,
    clock,
    /** A member joins the group and claims all of it. */
    async claim(): Promise<{ readonly member: string; readonly token: number }> {
      clock.advance(1000);
      const joined = await groups.join("g", "worker");
      if (joined.kind !== "joined") throw new Error("it did not join");
      const claimed = await groups.claim("g", joined.member, 10);
      const token = claimed.kind === "claimed" ? claimed.leases[0]?.token : undefined;
      if (token === undefined) throw new Error("nothing was leased");
      return { member: joined.member, token };
    },
    /** Another worker holds the subscription. */
    async wake(): Promise<number> {
      clock.advance(1000);
      await engine.append(A, appendCommand("x"));
      const claimed = await subscriptions.claim("s", "worker");
      if (claimed.kind !== "claimed") throw new Error(claimed.kind);
      return claimed.generation;
    },
    async close(): Promise<void> {
      subscriptions.stop();
      await engine.close();
    },
    subscribe: () => subscriptions.subscribe("s", SUBSCRIPTION),
  };
}

async function copied(): Promise<{ readonly directory: string; readonly copy: string }> {
  const [directory, copy] = [freshDirectory(), freshDirectory()];
  directories.push(directory, copy);
  const before = await open(directory, START_MS);
  await before.engine.create(createCommand(A));
  await before.engine.create(createCommand(WAKES, { contentType: "application/json" }));
  await before.engine.append(A, appendCommand("abc"));
  await before.groups.create("g", GROUP);
  await before.subscribe();
  await before.close();
  cpSync(directory, copy, { recursive: true });
  return { directory, copy };
}

test("G22 after a restore no member and no token is given that was given before it", async () => {
  const { directory, copy } = await copied();
  const lost = await open(directory, START_MS + 10_000);
  const [one, other] = [await lost.claim(), await lost.claim()];
  await lost.close();
  const restored = await open(copy, START_MS + 20_000);
  const [heir, next] = [await restored.claim(), await restored.claim()];
  expect(heir.token).toBeGreaterThan(other.token);
  expect(new Set([one, other, heir, next].map(({ member }) => member)).size).toBe(4);
  // Who was given a token after the copy was made commits nothing in the restored server.
  for (const { member, token } of [one, other]) {
    const commits = [{ stream: A, token, offset: 3 as Offset }];
    expect(await restored.groups.commit("g", member, commits)).toEqual({ kind: "member_lost" });
    const under = await restored.groups.commit("g", next.member, commits);
    expect(under).toEqual({ kind: "lease_lost", streams: [A] });
  }
  await restored.close();
});

test("G22 a clock that is behind after the restore gives no member a second time", async () => {
  const { directory, copy } = await copied();
  const lost = await open(directory, START_MS + 10_000);
  const taken = await lost.claim();
  await lost.close();
  const restored = await open(copy, START_MS - 10_000);
  const heir = await restored.claim();
  expect(heir.member).not.toBe(taken.member);
  const commits = [{ stream: A, token: heir.token, offset: 3 as Offset }];
  expect(await restored.groups.commit("g", taken.member, commits)).toEqual({ kind: "member_lost" });
  await restored.close();
});

test("after a restore no generation is given that was given before it", async () => {
  const { directory, copy } = await copied();
  const lost = await open(directory, START_MS + 10_000);
  const given = await lost.wake();
  await lost.close();
  const restored = await open(copy, START_MS + 20_000);
  expect(await restored.wake()).toBeGreaterThan(given);
  await restored.close();
});
