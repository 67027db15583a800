// Positions of groups and subscriptions: between two records, and nowhere else. PROTOCOL.md §20.3, §11.6
import { afterEach, expect, test } from "vitest";
import type { GroupSettings } from "../core/group-state.ts";
import type { Offset, StreamName } from "../core/types.ts";
import type { Store } from "../store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand } from "../../testing/commands.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { isJsonRecordStart } from "../../protocol/json.ts";
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

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

function open(store: Store) {
  const clock = createVirtualClock(1_800_000_000_000);
  const jsonRecordsEnd = (_: Uint8Array, count: number): number => count;
  const random = createSeededRandom(1);
  const engine = new WholeEngine({ store, clock, random, jsonRecordsEnd, isJsonRecordStart });
  opened.push(engine);
  return { engine, groups: engine.groups };
}

/** Counts reads: what a commit of an offset that was just read must not need. */
function countReads(inner: Store): { readonly store: Store; reads: number } {
  const counted = {
    reads: 0,
    store: {
      ...inner,
      read: (...args: Parameters<Store["read"]>) => {
        counted.reads += 1;
        return inner.read(...args);
      },
    },
  };
  return counted;
}

async function hold(groups: Engine["groups"], stream = A) {
  await groups.create("g", SETTINGS);
  const joined = await groups.join("g", "m");
  if (joined.kind !== "joined") throw new Error("it did not join");
  const claimed = await groups.claim("g", joined.member, 10);
  if (claimed.kind !== "claimed") throw new Error("nothing was claimed");
  const lease = claimed.leases.find((one) => one.stream === stream);
  if (lease === undefined) throw new Error("the stream was not leased");
  return (offset: number) =>
    groups.commit("g", joined.member, [{ stream, token: lease.token, offset: offset as Offset }]);
}

test("GD6 a commit counts at the end of each append, and nowhere between", async () => {
  const { engine, groups } = open(openMemoryStore());
  await engine.create(createCommand(A));
  for (const text of ["abc", "d", "efg"]) await engine.append(A, appendCommand(text));
  const commit = await hold(groups);
  for (const inside of [1, 2, 5, 6]) {
    expect(await commit(inside)).toEqual({ kind: "inside_record", stream: A });
  }
  for (const end of [0, 3, 3, 4, 7, 7])
    expect(await commit(end)).toMatchObject({ kind: "committed" });
  expect(await commit(8)).toMatchObject({ kind: "beyond_tail" });
});

test("GD6 of JSON a commit counts at the end of each record, and nowhere between", async () => {
  const { engine, groups } = open(openMemoryStore());
  await engine.create(createCommand(A, { contentType: "application/json" }));
  const stored = ['["a,b",1],', '{"x":[1,2]},3,'];
  const contentType = "application/json";
  for (const text of stored) await engine.append(A, appendCommand(text, { contentType }));
  const commit = await hold(groups);
  const text = stored.join("");
  const ends = new Set([0, 10, 22, 24]);
  for (let offset = 0; offset <= text.length; offset += 1) {
    const kind = ends.has(offset) ? "committed" : "inside_record";
    expect([offset, await commit(offset)]).toMatchObject([offset, { kind }]);
  }
});

test("GD6 a start or a reset inside an append of one of the streams is refused", async () => {
  const { engine, groups } = open(openMemoryStore());
  await engine.create(createCommand(A));
  await engine.create(createCommand("/b" as StreamName));
  for (const text of ["abc", "d"]) await engine.append(A, appendCommand(text));
  for (const text of ["ab", "cd"]) await engine.append("/b" as StreamName, appendCommand(text));
  const at = (offset: number) => ({ kind: "offset", offset: offset as Offset }) as const;
  expect(await groups.create("g", { ...SETTINGS, start: at(3) })).toEqual({
    kind: "inside_record",
    stream: "/b",
  });
  expect(await groups.create("g", { ...SETTINGS, start: at(4) })).toMatchObject({
    kind: "created",
  });
  expect(await groups.reset("g", undefined, at(2))).toEqual({ kind: "inside_record", stream: A });
  expect(await groups.reset("g", A, at(3))).toMatchObject({ kind: "reset" });
  const view = await groups.describe("g", "", 10);
  expect(view?.cursors.map(({ offset }) => offset)).toEqual([3, 4]);
});

test("GD6 a fork has the ends of its source up to the fork point, and the fork point", async () => {
  const { engine, groups } = open(openMemoryStore());
  await engine.create(createCommand(A, { contentType: "text/plain" }));
  for (const text of ["abc", "defg"]) await engine.append(A, appendCommand(text));
  const fork = { sourceName: A, anchor: 3 as Offset, subOffset: 2 };
  const name = "/fork" as StreamName;
  expect(await engine.create(createCommand(name, { fork }))).toMatchObject({ kind: "created" });
  await engine.append(name, appendCommand("xy"));
  const commit = await hold(groups, name);
  for (const inside of [2, 4, 6]) {
    expect(await commit(inside)).toEqual({ kind: "inside_record", stream: name });
  }
  for (const end of [3, 5, 7]) expect(await commit(end)).toMatchObject({ kind: "committed" });
});

test("GD6 an end that is not durable yet was not handed out: the commit waits for it", async () => {
  const inner = openMemoryStore();
  const before = open(inner);
  await before.engine.create(createCommand(A));
  await hold(before.groups);
  opened.length = 0; // Only one engine closes the store.
  const store = openGatedStore(inner);
  const { engine, groups } = open(store);
  const [lease] = engine.world.groups.byId.get("g")?.cursors.values() ?? [];
  const { holder = "", token = 0 } = lease ?? {};
  const commit = (offset: number) =>
    groups.commit("g", holder, [{ stream: A, token, offset: offset as Offset }]);
  const appended = engine.append(A, appendCommand("abc"));
  const inside = watch(commit(2));
  await turn();
  expect(inside.isWaiting).toBe(true);
  expect(store.waiting.flat().map(({ kind }) => kind)).toEqual(["appended"]);
  store.open();
  await appended;
  await turn();
  expect(inside.value).toEqual({ kind: "inside_record", stream: A });
  expect(await commit(3)).toMatchObject({ kind: "committed" });
});

test("GD6 what a reader was just given is committed without a look at the store", async () => {
  const counted = countReads(openMemoryStore());
  const { engine, groups } = open(counted.store);
  await engine.create(createCommand(A));
  for (const text of ["abc", "def", "ghi"]) await engine.append(A, appendCommand(text));
  const look = await engine.look(A);
  if (look.kind !== "found") throw new Error("the stream is not there");
  const page = await engine.read(look.state, 0 as Offset, 1);
  const commit = await hold(groups);
  counted.reads = 0;
  expect(await commit(page.next)).toMatchObject({ kind: "committed" });
  expect(counted.reads).toBe(0);
  expect(await commit(6)).toMatchObject({ kind: "committed" });
  expect(counted.reads).toBe(1);
});
