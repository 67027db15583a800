// Jobs over an engine: what many workers that wait cost. PROTOCOL.md §20.5
import { afterEach, expect, test } from "vitest";
import { jsonRecordEnd } from "../../protocol/json.ts";
import { appendCommand, createCommand } from "../../testing/commands.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { GroupId, GroupSettings } from "../core/group-state.ts";
import type { StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";

const A = "/a" as StreamName;
const G = "g" as GroupId;
const JSON_TYPE = { contentType: "application/json" };
const SETTINGS: GroupSettings = {
  streams: [A],
  pattern: undefined,
  start: { kind: "beginning" },
  leaseMs: 30_000,
  jobs: true,
};

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

test("G34 hundreds of workers that wait look at the open jobs of their group once", async () => {
  const store = openMemoryStore();
  const clock = createVirtualClock(1_000_000);
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: jsonRecordEnd });
  opened.push(engine);
  await engine.create(createCommand(A, JSON_TYPE));
  const stored = await engine.append(A, appendCommand("1,".repeat(200), JSON_TYPE));
  expect(stored.kind).toBe("accepted");
  await engine.groups.create(G, SETTINGS);
  const join = async () => {
    const joined = await engine.groups.join(G, "worker");
    if (joined.kind !== "joined") throw new Error(joined.kind);
    return joined.member;
  };
  const busy = await join();
  const taken = await engine.jobs.take(G, { member: busy, max: 100, seen: 0 });
  expect(taken).toMatchObject({ kind: "taken", jobs: { length: 100 } });
  const group = store.world.groups.byId.get(G);
  const open = group?.cursors.get(A)?.jobs?.open as Map<unknown, unknown> | undefined;
  if (open === undefined) throw new Error("no job is open");
  let looks = 0;
  open.values = function values() {
    looks += 1;
    return Map.prototype.values.call(this) as ReturnType<typeof open.values>;
  };
  const waiting = await Promise.all(Array.from({ length: 300 }, join));
  looks = 0;
  for (const member of waiting) {
    engine.jobs.watch(G, { member, max: 1, seen: 0 }, () => undefined)();
  }
  expect(looks).toBeLessThanOrEqual(1);
  // One that has jobs is given them again, and one that is late learns when they are due.
  const again = await engine.jobs.take(G, { member: busy, max: 100, seen: 0 });
  expect(again).toMatchObject({ jobs: { length: 100 } });
  clock.advance(30_000);
  const other = await engine.jobs.take(G, { member: await join(), max: 100, seen: 0 });
  expect(other).toMatchObject({ jobs: { length: 100, 0: { attempt: 2 } } });
});
