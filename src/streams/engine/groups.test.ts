// Groups over a store whose commits wait at a gate: no answer leaves before its state is durable. PROTOCOL.md §20
import { afterEach, describe, expect, test } from "vitest";
import type { GroupSettings } from "../core/group-state.ts";
import type { Offset, StreamName } from "../core/types.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand } from "../../testing/commands.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";

const A = "/a" as StreamName;
const SETTINGS: GroupSettings = {
  pattern: "/*",
  streams: [],
  start: { kind: "beginning" },
  leaseMs: 1000,
};

/** The first member that joins as "m": the first id is that of the run. */
const M = `m-${idAt(1)}`;

function idAt(index: number): string {
  const random = createSeededRandom(1);
  for (let at = 0; at < index; at += 1) random.id();
  return random.id();
}

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

async function openGated() {
  const inner = openMemoryStore();
  const store = openGatedStore(inner);
  const clock = createVirtualClock(1_800_000_000_000);
  const random = createSeededRandom(1);
  const engine = new WholeEngine({ store, clock, random, jsonRecordsEnd: () => undefined });
  opened.push(engine);
  return { engine, groups: engine.groups, store, clock };
}

test("G3 W2 every answer of a group waits for the state that it speaks of", async () => {
  const { engine, groups, store } = await openGated();
  const steps: (() => Promise<unknown>)[] = [
    () => groups.create("g", SETTINGS),
    () => groups.create("g", SETTINGS), // It exists: also that is only true once it is durable.
    () => groups.join("g", "m"),
    () => groups.claim("g", M, 10),
    () => groups.claim("g", "stranger", 10),
    () => groups.commit("g", M, []),
    () => groups.commit("g", "stranger", []),
    () => groups.describe("g", "", 10),
    () => groups.list("", 10, () => true),
    () => groups.reset("g", undefined, { kind: "beginning" }),
    () => groups.release("g", M, []),
    () => groups.leave("g", M),
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

test("GD4 a lease is claimed, committed and lost, and what is shown is what was committed", async () => {
  const { engine, groups, store, clock } = await openGated();
  store.open();
  await engine.create(createCommand(A));
  await engine.append(A, appendCommand("hello"));
  await groups.create("g", SETTINGS);
  const [one, other] = [await groups.join("g", "one"), await groups.join("g", "other")];
  if (one.kind !== "joined" || other.kind !== "joined") throw new Error("they did not join");
  const claimed = await groups.claim("g", one.member, 10);
  if (claimed.kind !== "claimed") throw new Error("it was not claimed");
  // One counter for members and tokens, which begins at the clock.
  const token = clock.nowMs() * 1000 + 2;
  expect(claimed.leases).toMatchObject([{ stream: A, token, offset: 0 }]);
  const commits = [{ stream: A, token, offset: 5 as Offset }];
  expect(await groups.commit("g", one.member, commits)).toMatchObject({ kind: "committed" });
  clock.advance(1000);
  const taken = await groups.claim("g", other.member, 10);
  expect(taken).toMatchObject({ leases: [{ stream: A, token: clock.nowMs() * 1000, offset: 5 }] });
  expect(await groups.commit("g", one.member, commits)).toEqual({ kind: "member_lost" });
  const view = await groups.describe("g", "", 10);
  expect(view?.cursors).toMatchObject([{ stream: A, offset: 5, tail: 5, holder: other.member }]);
  expect(await groups.list("", 10, () => true)).toEqual([
    { id: "g", members: 1, streams: 1, lag: 0 },
  ]);
});

describe("a group over very many streams", () => {
  const COUNT = 2 * LIMITS.turnStreamsMax + 100;

  async function openLarge(settings: GroupSettings, unfilled: boolean) {
    // Turns of the event loop come by themselves here.
    const after = (_: number, run: () => void) => {
      setImmediate(run);
      return () => undefined;
    };
    const clock = { ...createVirtualClock(1_800_000_000_000), after };
    const inner = openMemoryStore();
    const sizes: number[] = [];
    const store = {
      ...inner,
      commit: (changes: Parameters<typeof inner.commit>[0]) => {
        for (const change of changes) {
          if (change.kind === "group_created" || change.kind === "group_found") {
            sizes.push(change.cursors.length);
          }
          if (change.kind === "group_reset") sizes.push(change.offsets.length);
        }
        return inner.commit(changes);
      },
    };
    const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
    const { groups } = engine;
    await Promise.all(
      Array.from({ length: COUNT }, (_, index) =>
        engine.create(
          createCommand(`/${index % 2 === 0 ? "in" : "out"}/${index}`, { text: "abc" }),
        ),
      ),
    );
    if (unfilled) {
      const atMs = engine.nowMs();
      await engine.submit([{ kind: "group_created", atMs, group: "g", settings, cursors: [] }]);
    }
    return { engine, groups, sizes };
  }

  const settings: GroupSettings = { ...SETTINGS, pattern: "/in/*", start: { kind: "tail" } };

  test("is made in slices, and has every stream when the answer comes", async () => {
    const { engine, groups, sizes } = await openLarge(settings, false);
    expect((await groups.create("g", settings)).kind).toBe("created");
    const { cursors } = engine.world.groups.byId.get("g") ?? {};
    expect(cursors?.size).toBe(COUNT / 2);
    expect(new Set(Array.from(cursors?.values() ?? [], ({ offset }) => offset))).toEqual(
      new Set([3]),
    );
    expect(Math.max(...sizes)).toBeLessThanOrEqual(LIMITS.turnStreamsMax);
    await engine.create(createCommand("/in/late", { text: "abc" }));
    expect((await groups.create("g", settings)).kind).toBe("exists");
    expect(cursors?.get("/in/late" as StreamName)?.offset).toBe(0);
    await engine.close();
  });

  test("GD5 is reset in slices, all of it, and the leases of its streams are over", async () => {
    const { engine, groups, sizes } = await openLarge(settings, false);
    const all = { ...settings, pattern: "/**" };
    await groups.create("g", all);
    const joined = await groups.join("g", "m");
    if (joined.kind !== "joined") throw new Error("it did not join");
    await groups.claim("g", joined.member, 100);
    sizes.length = 0;
    const reset = await groups.reset("g", undefined, { kind: "beginning" });
    expect(reset.kind === "reset" && reset.change.offsets.length).toBe(COUNT);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(LIMITS.turnStreamsMax);
    const group = engine.world.groups.byId.get("g");
    for (const { offset, holder } of group?.cursors.values() ?? []) {
      expect([offset, holder]).toEqual([0, undefined]);
    }
    await engine.close();
  });

  test("GD5 that begins, or is reset, at the offset of every beginning goes in slices too", async () => {
    const start = { kind: "offset", offset: 0 as Offset } as const;
    const { engine, groups, sizes } = await openLarge(settings, false);
    expect((await groups.create("g", { ...settings, pattern: "/**", start })).kind).toBe("created");
    expect(engine.world.groups.byId.get("g")?.cursors.size).toBe(COUNT);
    expect((await groups.reset("g", undefined, start)).kind).toBe("reset");
    expect(Math.max(...sizes)).toBeLessThanOrEqual(LIMITS.turnStreamsMax);
    await engine.close();
  });

  test("GD5 is refused at the offset zero of a stream that was trimmed, and nothing is moved", async () => {
    const start = { kind: "offset", offset: 0 as Offset } as const;
    const { engine, groups, sizes } = await openLarge(settings, false);
    const trimmed = "/in/0" as StreamName;
    await engine.trim(trimmed, { before: 3 as Offset, dropsNeeded: false });
    const refusal = { kind: "trimmed", stream: trimmed, earliest: 3 };
    expect(await groups.create("g", { ...settings, start })).toEqual(refusal);
    expect(engine.world.groups.byId.has("g")).toBe(false);
    expect((await groups.create("others", { ...settings, pattern: "/out/*", start })).kind).toBe(
      "created",
    );
    const begin = { kind: "beginning" } as const;
    await groups.create("g", { ...settings, pattern: "/**", start: begin });
    expect(engine.world.groups.byId.get("g")?.cursors.get(trimmed)?.offset).toBe(3);
    sizes.length = 0;
    expect(await groups.reset("g", undefined, start)).toEqual(refusal);
    expect(sizes).toEqual([]);
    await engine.close();
  });

  test("whose making was cut short is completed by the request that comes again", async () => {
    const { engine, groups } = await openLarge(settings, true);
    expect((await groups.create("g", settings)).kind).toBe("exists");
    expect(engine.world.groups.byId.get("g")?.cursors.size).toBe(COUNT / 2);
    await engine.close();
  });
});
