// Groups over a store whose commits wait at a gate: no answer leaves before its state is durable. PROTOCOL.md §20
import { afterEach, expect, test } from "vitest";
import type { GroupSettings } from "../core/group-state.ts";
import type { Offset, StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand } from "../testing/commands.ts";
import { openGatedStore } from "../testing/gated-store.ts";
import { createVirtualClock } from "../testing/virtual-clock.ts";
import { turn, watch } from "../testing/watch.ts";
import { Engine } from "./engine.ts";
import { GroupEngine } from "./groups.ts";

const A = "/a" as StreamName;
const SETTINGS: GroupSettings = {
  pattern: "/*",
  streams: [],
  start: { kind: "beginning" },
  leaseMs: 1000,
};

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

async function openGated() {
  const inner = openMemoryStore();
  const store = openGatedStore(inner);
  const clock = createVirtualClock(1_800_000_000_000);
  const engine = new Engine({ store, clock, jsonRecordsEnd: () => undefined });
  opened.push(engine);
  return { engine, groups: new GroupEngine(engine), store, clock };
}

test("G3 W2 every answer of a group waits for the state that it speaks of", async () => {
  const { engine, groups, store } = await openGated();
  const steps: (() => Promise<unknown>)[] = [
    () => groups.create("g", SETTINGS),
    () => groups.create("g", SETTINGS), // It exists: also that is only true once it is durable.
    () => groups.join("g", "m"),
    () => groups.claim("g", "m-1", 10),
    () => groups.claim("g", "nobody", 10),
    () => groups.commit("g", "m-1", []),
    () => groups.commit("g", "nobody", []),
    () => groups.describe("g", "", 10),
    () => groups.list("", 10),
    () => groups.reset("g", undefined, { kind: "beginning" }),
    () => groups.release("g", "m-1", []),
    () => groups.leave("g", "m-1"),
    () => groups.delete("g"),
    () => groups.describe("g", "", 10),
  ];
  const creating = engine.create(createCommand(A));
  for (const step of steps) {
    const answer = watch(step());
    await turn();
    expect(answer.isWaiting).toBe(true);
  }
  store.open();
  await creating;
});

test("GR3 GD4 a lease is claimed, committed and lost, and what is shown is what was committed", async () => {
  const { engine, groups, store, clock } = await openGated();
  store.open();
  await engine.create(createCommand(A));
  await engine.append(A, appendCommand("hello"));
  await groups.create("g", SETTINGS);
  const [one, other] = [await groups.join("g", "one"), await groups.join("g", "other")];
  if (one.kind !== "joined" || other.kind !== "joined") throw new Error("they did not join");
  const claimed = await groups.claim("g", one.member, 10);
  if (claimed.kind !== "claimed") throw new Error("it was not claimed");
  expect(claimed.leases).toEqual([{ stream: A, token: 3, offset: 0 }]);
  const commits = [{ stream: A, token: 3, offset: 5 as Offset }];
  expect(await groups.commit("g", one.member, commits)).toMatchObject({ kind: "committed" });
  clock.advance(1000);
  const taken = await groups.claim("g", other.member, 10);
  expect(taken).toMatchObject({ leases: [{ stream: A, token: 4, offset: 5 }] });
  expect(await groups.commit("g", one.member, commits)).toEqual({ kind: "member_lost" });
  const view = await groups.describe("g", "", 10);
  expect(view?.cursors).toMatchObject([{ stream: A, offset: 5, tail: 5, holder: other.member }]);
  expect(await groups.list("", 10)).toEqual([{ id: "g", members: 1, streams: 1, lag: 0 }]);
});
