// Acts of administration under a key: what they change and their key are one commit. PROTOCOL.md §12.7
import { afterEach, describe, expect, test } from "vitest";
import { LIMITS } from "../../protocol/limits.ts";
import { appendCommand, createCommand, keyClaim, producerClaim } from "../../testing/commands.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { Change } from "../core/change.ts";
import type { ProducerId, StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { type Act, ActRepeated } from "./acts.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";

const A = "/a" as StreamName;
const B = "/b" as StreamName;
const P = "p" as ProducerId;
const BEGINNING = { kind: "beginning" } as const;

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

function open() {
  const inner = openMemoryStore();
  const commits: Change["kind"][][] = [];
  const room = { bytes: Number.MAX_SAFE_INTEGER };
  const store = {
    ...inner,
    room,
    commit: (changes: readonly Change[]) => {
      commits.push(changes.map(({ kind }) => kind));
      return inner.commit(changes);
    },
  };
  // Turns of the event loop come by themselves here.
  const after = (_: number, run: () => void) => {
    setImmediate(run);
    return () => undefined;
  };
  const clock = { ...createVirtualClock(1_800_000_000_000), after };
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  opened.push(engine);
  const act = (key = "k"): Act => engine.transactions.act(keyClaim(key, "content"));
  return { engine, groups: engine.groups, commits, room, act };
}

describe("G35 an act that is decided when a batch is full", () => {
  const acts = {
    "a deletion of a stream": ({ engine }: ReturnType<typeof open>, act: Act) =>
      engine.delete(A, act),
    "a reset of a producer": ({ engine }: ReturnType<typeof open>, act: Act) =>
      engine.resetProducer(A, P, act),
    "a reset of a group": ({ groups }: ReturnType<typeof open>, act: Act) =>
      groups.reset("g", undefined, BEGINNING, act),
    "a deletion of a group": ({ groups }: ReturnType<typeof open>, act: Act) =>
      groups.delete("g", act),
  };

  test.each(Object.entries(acts))("is one commit with its key: %s", async (_, run) => {
    const made = open();
    const { engine, groups, commits, act } = made;
    await engine.create(createCommand(A));
    await engine.create(createCommand(B));
    await engine.append(A, appendCommand("x", { producer: producerClaim("p", 0, 0) }));
    const settings = { pattern: "/*", streams: [], start: BEGINNING, leaseMs: 1000 };
    await groups.create("g", settings);
    act("other").look(); // The log of the keys is there.
    await engine.settled();
    commits.length = 0;
    // One more change fills the batch.
    const fill = Array.from({ length: LIMITS.batchChangesMax - 1 }, () =>
      engine.append(B, appendCommand("x")),
    );
    await run(made, act());
    await Promise.all(fill);
    expect(commits.map((kinds) => kinds.length)).toEqual([LIMITS.batchChangesMax + 1]);
    expect(act().look().kind).toBe("done");
  });
});

test("G35 a reset of a group over very many streams is done once", async () => {
  const { engine, groups, act } = open();
  const names = Array.from({ length: 2 * LIMITS.turnStreamsMax }, (_, at) => `/in/${at}`);
  await Promise.all(names.map((name) => engine.create(createCommand(name, { text: "abc" }))));
  const settings = {
    pattern: "/in/*",
    streams: [],
    start: { kind: "tail" },
    leaseMs: 1000,
  } as const;
  await groups.create("g", settings);
  await groups.reset("g", undefined, BEGINNING, act());
  const look = act().look();
  expect(look.kind === "done" && (await look.outcome())).toEqual({ streams: names.length });
  // What was committed since stays.
  await groups.reset("g", undefined, { kind: "tail" });
  const again = groups.reset("g", undefined, BEGINNING, act());
  await expect(again).rejects.toBeInstanceOf(ActRepeated);
  const cursors = engine.world.groups.byId.get("g")?.cursors.values() ?? [];
  expect(new Set([...cursors].map(({ offset }) => offset))).toEqual(new Set([3]));
});

test("G35 two resets under one key at once move nothing after the first of them is done", async () => {
  const { engine, groups, act } = open();
  const names = Array.from({ length: 2 * LIMITS.turnStreamsMax }, (_, at) => `/in/${at}`);
  await Promise.all(names.map((name) => engine.create(createCommand(name, { text: "abc" }))));
  const settings = {
    pattern: "/in/*",
    streams: [],
    start: { kind: "tail" },
    leaseMs: 1000,
  } as const;
  await groups.create("g", settings);
  const both = await Promise.allSettled([
    groups.reset("g", undefined, BEGINNING, act()),
    groups.reset("g", undefined, BEGINNING, act()),
  ]);
  expect(both.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
});

test("G33 G35 a full store takes a deletion under a key, also if it is the first act of all", async () => {
  const { engine, room, act } = open();
  await engine.create(createCommand(A, { text: "abc" }));
  room.bytes = -1;
  expect(act().look().kind).toBe("new");
  expect((await engine.delete(A, act())).kind).toBe("deleted");
  expect(act().look().kind).toBe("done");
  expect(() => engine.append(B, appendCommand("x"))).toThrow("no room");
});
