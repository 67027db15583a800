/** What a transaction can do. A refused one changes nothing. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createCommand, RUN } from "../../testing/commands.ts";
import { decideGroupClaim, decideGroup, decideJoin } from "./group-decide.ts";
import {
  decideAppendWake,
  decideSubscriptionClaim as decideWakeClaim,
} from "./subscription-decide.ts";
import { decideSubscribe } from "./subscription-link.ts";
import { decideOperations, type OperationsDecision } from "./transaction.ts";
import type { LeaseClaim, Operation } from "./transaction-state.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const A = "/a" as StreamName;
const B = "/b" as StreamName;
const C = "/c" as StreamName;
const AT_MS = 1000 as TimeMs;
const TEXT = "text/plain";

function scene(world: World) {
  const { streams } = world;
  const wakes = { wakeId: "wake", wakeStreamsMax: 10 };
  return { streams, run: RUN, atMs: AT_MS, ...wakes, isBoundary: () => true };
}

function decide(world: World, ...operations: readonly Operation[]): OperationsDecision {
  return decideOperations(world, operations, scene(world));
}

/** Applies the operations as the engine does. */
function commit(world: World, ...operations: readonly Operation[]): OperationsDecision {
  const decision = decide(world, ...operations);
  if (decision.kind === "refused") return decision;
  for (const step of decision.steps) {
    if (step.kind !== "nothing") for (const change of step.changes) applyChange(world, change);
  }
  return decision;
}

function refusalOf(decision: OperationsDecision): readonly [number, string] | "accepted" {
  return decision.kind === "refused" ? [decision.operation, decision.refusal.kind] : "accepted";
}

const append = (stream: StreamName, text = "x", more: object = {}): Operation => ({
  kind: "append",
  stream,
  contentType: TEXT,
  data: new TextEncoder().encode(text),
  closes: false,
  ...more,
});
const create = (name: StreamName, contentType = TEXT): Operation => {
  return { kind: "create", command: createCommand(name, { contentType }) };
};
const close = (stream: StreamName): Operation => ({ kind: "close", stream });
const expectTail = (stream: StreamName, offset: number): Operation => {
  return { kind: "expect_tail", stream, offset: offset as Offset };
};
const expectAbsent = (stream: StreamName): Operation => ({ kind: "expect_absent", stream });

/** Creates two streams, a and b, with 3 and 0 bytes. */
function twoStreams(): World {
  const world = createWorld();
  commit(world, create(A), create(B), append(A, "abc"));
  return world;
}

/** Returns the lease of stream a, in a group of all streams with one member. */
function leaseOf(world: World): LeaseClaim {
  const settings = {
    pattern: "/*",
    streams: [],
    start: { kind: "beginning" },
    leaseMs: 1000,
  } as const;
  const created = decideGroup(world, "g", settings, AT_MS, () => true);
  if (created.kind === "created") applyChange(world, created.change);
  const group = world.groups.byId.get("g");
  if (group === undefined) throw new Error("there is no group");
  const joined = decideJoin(world.groups, group, "m", "1", AT_MS);
  applyChange(world, joined);
  const claimed = decideGroupClaim(world.groups, group, joined.member, 99, AT_MS);
  if (claimed.kind === "claimed") applyChange(world, claimed.change);
  const token = group.cursors.get(A)?.token ?? 0;
  return { group: "g", member: joined.member, stream: A, token };
}

describe("operations", () => {
  test("TX3 see what those before them have done", () => {
    const world = createWorld();
    const decision = commit(world, create(A), append(A, "ab"), append(A, "c"), close(A), create(A));
    expect(decision.kind).toBe("accepted");
    expect(world.streams.get(A)).toMatchObject({ tail: 3, isClosed: true });
    expect(refusalOf(commit(world, append(A)))).toEqual([0, "stream_closed"]);
    expect(refusalOf(commit(createWorld(), create(A), close(A), append(A)))).toEqual([
      2,
      "stream_closed",
    ]);
    expect(refusalOf(commit(createWorld(), append(A), create(A)))).toEqual([0, "stream_missing"]);
    expect(refusalOf(commit(createWorld(), create(A), create(A, "a/b")))).toEqual([
      1,
      "create_conflict",
    ]);
  });

  test("TX1 are refused by the index of the first that cannot be done", () => {
    const world = twoStreams();
    expect(refusalOf(decide(world, append(A), append(C)))).toEqual([1, "stream_missing"]);
    expect(refusalOf(decide(world, append(A), append(B, "x", { contentType: "a/b" })))).toEqual([
      1,
      "content_type_mismatch",
    ]);
    expect(refusalOf(decide(world, create(A, "a/b")))).toEqual([0, "create_conflict"]);
    expect(refusalOf(decide(world, close(C)))).toEqual([0, "stream_missing"]);
    expect(refusalOf(decide(world, append(A, "x", { contentType: undefined })))).toBe("accepted");
  });

  test("TX3 of a close that was done before are fine", () => {
    const world = twoStreams();
    commit(world, close(A));
    expect(refusalOf(commit(world, close(A)))).toBe("accepted");
    expect(world.streams.get(A)?.tail).toBe(3);
  });

  test("TX1 name streams of distinct ids when several are created", () => {
    const world = twoStreams();
    commit(world, create(C), create("/d" as StreamName), append(C, "12"));
    const ids = [...world.streams.values()].map(({ id }) => id);
    expect(new Set(ids).size).toBe(4);
    expect(world.streams.get(C)?.tail).toBe(2);
    expect(world.streams.get("/d" as StreamName)?.tail).toBe(0);
  });
});

describe("expectations", () => {
  test("TX2 are about the state before, wherever they stand", () => {
    const world = twoStreams();
    expect(refusalOf(decide(world, append(A), expectTail(A, 3)))).toBe("accepted");
    expect(refusalOf(decide(world, expectTail(A, 2)))).toEqual([0, "tail_moved"]);
    expect(refusalOf(decide(world, append(A), expectTail(A, 4)))).toEqual([1, "tail_moved"]);
    expect(refusalOf(decide(world, expectTail(A, 3), expectTail(B, 1)))).toEqual([1, "tail_moved"]);
    expect(refusalOf(decide(world, create(C), expectAbsent(C)))).toBe("accepted");
    expect(refusalOf(decide(world, expectAbsent(A)))).toEqual([0, "stream_present"]);
    expect(refusalOf(decide(world, expectTail(C, 0)))).toEqual([0, "stream_missing"]);
  });

  test("TX2 come before operations, also before those that stand ahead of them", () => {
    expect(refusalOf(decide(twoStreams(), append(C), expectTail(A, 9)))).toEqual([1, "tail_moved"]);
  });

  test("TX4 of a lease hold while it is the newest one", () => {
    const world = twoStreams();
    const lease = leaseOf(world);
    expect(refusalOf(decide(world, { kind: "expect_lease", lease }))).toBe("accepted");
    const stale = { ...lease, token: lease.token - 1 };
    expect(refusalOf(decide(world, { kind: "expect_lease", lease: stale }))).toEqual([
      0,
      "lease_lost",
    ]);
    const other = { ...lease, member: "m-99" };
    expect(refusalOf(decide(world, { kind: "expect_lease", lease: other }))).toEqual([
      0,
      "member_lost",
    ]);
    const nowhere = { ...lease, group: "h" };
    expect(refusalOf(decide(world, { kind: "expect_lease", lease: nowhere }))).toEqual([
      0,
      "group_missing",
    ]);
  });
});

describe("commits and acks", () => {
  test("TX4 an offset is committed with its lease only, and with the rest", () => {
    const world = twoStreams();
    const lease = leaseOf(world);
    const commitTo = (offset: number, more = lease): Operation => {
      return { kind: "commit", lease: more, offset: offset as Offset };
    };
    const stale = { ...lease, token: lease.token - 1 };
    expect(refusalOf(commit(world, append(B), commitTo(3, stale)))).toEqual([1, "lease_lost"]);
    expect(refusalOf(commit(world, append(B), commitTo(4)))).toEqual([1, "beyond_tail"]);
    expect(refusalOf(commit(world, append(B), commitTo(3)))).toBe("accepted");
    expect(world.groups.byId.get("g")?.cursors.get(A)?.offset).toBe(3);
    expect(world.streams.get(B)?.tail).toBe(1);
    expect(refusalOf(commit(world, append(B), commitTo(2)))).toEqual([1, "offset_regressed"]);
    expect(world.streams.get(B)?.tail).toBe(1);
  });

  test("TX5 a cursor is moved by one operation only", () => {
    const world = twoStreams();
    const lease = leaseOf(world);
    const commitTo = (offset: number): Operation => ({
      kind: "commit",
      lease,
      offset: offset as Offset,
    });
    expect(refusalOf(decide(world, commitTo(3), commitTo(1)))).toEqual([1, "named_twice"]);
  });

  test("TX4 TX5 an ack counts with its wake only, and once", () => {
    const world = twoStreams();
    const way = { kind: "pull_wake", wakeStream: C } as const;
    const settings = {
      way,
      pattern: undefined,
      streams: [A],
      leaseMs: 1000,
      description: undefined,
    };
    const subscribed = decideSubscribe(
      world.subscriptions,
      world.streams,
      "s",
      settings,
      10,
      AT_MS,
    );
    if (subscribed.kind === "created")
      for (const change of subscribed.changes) applyChange(world, change);
    commit(world, append(A, "d"));
    const subscription = world.subscriptions.byId.get("s");
    if (subscription === undefined) throw new Error("there is no subscription");
    const woken = decideAppendWake(subscription, A, scene(world));
    if (woken !== undefined) applyChange(world, woken);
    const claimed = decideWakeClaim(subscription, "w", scene(world));
    if (claimed.kind !== "claimed") throw new Error("it was not claimed");
    for (const change of claimed.changes) applyChange(world, change);
    const ack = (generation: number, offset: number): Operation => {
      const wake = { wakeId: claimed.wake.wakeId, generation };
      const acks = [{ stream: A, offset: offset as Offset }];
      return { kind: "ack", subscription: "s", wake, acks, isDone: false };
    };
    const { generation } = claimed.wake;
    expect(refusalOf(commit(world, append(B), ack(generation - 1, 4)))).toEqual([
      1,
      "subscription_fenced",
    ]);
    expect(refusalOf(commit(world, append(B), ack(generation, 5)))).toEqual([1, "invalid_ack"]);
    expect(refusalOf(commit(world, ack(generation, 4), ack(generation, 4)))).toEqual([
      1,
      "named_twice",
    ]);
    expect(world.streams.get(B)?.tail).toBe(0);
    expect(refusalOf(commit(world, append(B), ack(generation, 4)))).toBe("accepted");
    expect(subscription.links.get(A)?.acked).toBe(4);
  });
});

describe("every transaction", () => {
  const names = fc.constantFrom(A, B, C);
  const operations = fc.array(
    fc.oneof(
      names.map((name) => append(name)),
      names.map((name) => create(name)),
      names.map((name) => close(name)),
      names.map((name) => expectAbsent(name)),
      fc.tuple(names, fc.nat(5)).map(([name, offset]) => expectTail(name, offset)),
    ),
    { maxLength: 3 },
  );

  test("TX1 is applied whole, or refused with nothing changed and for a reason that holds one by one", () => {
    fc.assert(
      fc.property(fc.array(operations, { maxLength: 20 }), (all) => {
        const world = createWorld();
        const model = new Model();
        for (const list of all) {
          const { version } = world;
          const decision = commit(world, ...list);
          const after = model.run(list);
          expect(decision.kind).toBe(after === undefined ? "refused" : "accepted");
          if (after === undefined) expect(world.version).toBe(version);
          else model.streams = after;
          const states = [...world.streams].map(([name, { tail, isClosed }]) => [
            name,
            { tail, isClosed },
          ]);
          expect(Object.fromEntries(states)).toEqual(Object.fromEntries(model.streams));
        }
      }),
      { numRuns: 500 },
    );
  });
});

/** Does the same naively: on a copy, which it drops if something fails. */
class Model {
  streams = new Map<StreamName, { tail: number; isClosed: boolean }>();

  run(operations: readonly Operation[]): typeof this.streams | undefined {
    for (const operation of operations) {
      if (operation.kind === "expect_absent" && this.streams.has(operation.stream))
        return undefined;
      if (operation.kind !== "expect_tail") continue;
      if (this.streams.get(operation.stream)?.tail !== operation.offset) return undefined;
    }
    const copy = new Map([...this.streams].map(([name, state]) => [name, { ...state }]));
    for (const operation of operations) {
      if (operation.kind === "create" && !copy.has(operation.command.name)) {
        copy.set(operation.command.name, { tail: 0, isClosed: false });
      }
      // To create again a stream that was closed is another configuration.
      if (operation.kind === "create" && this.#isOther(operation.command.name)) return undefined;
      if (operation.kind !== "append" && operation.kind !== "close") continue;
      const state = copy.get(operation.stream);
      if (state === undefined) return undefined;
      if (operation.kind === "close") state.isClosed = true;
      else if (state.isClosed) return undefined;
      else state.tail += operation.data.length;
    }
    return copy;
  }

  #isOther(name: StreamName): boolean {
    return this.streams.get(name)?.isClosed === true;
  }
}
