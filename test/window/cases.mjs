/**
 * The eight edge cases of the design of the window, as programs. A test runs each to its end, and a process of its own runs each until it
 * is killed (writer.mjs). `verify` then looks at what is left.
 */

import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";

const START_MS = 1_800_000_000_000;
const NEVER = /^$/;
const encoder = new TextEncoder();

export function createWorld(api, objects, tell = () => undefined) {
  const world = {
    api,
    tell,
    ids: new Set(),
    acks: new Map(),
    nowMs: START_MS,
    /** The next `create` of such a name is stored, and its answer is lost. */
    losing: NEVER,
    /** Every `create` of such a name fails, and stores nothing. */
    failing: NEVER,
    windows: [],
  };
  world.objects = {
    ...Object.fromEntries(
      ["get", "list", "remove"].map((act) => [act, (name) => objects[act](name)]),
    ),
    async create(name, bytes) {
      if (world.failing.test(name)) throw new Error("planned: the store fails");
      const outcome = await objects.create(name, bytes);
      if (!world.losing.test(name)) return outcome;
      world.losing = NEVER;
      throw new Error("planned: the answer is lost");
    },
  };
  world.clock = {
    nowMs: () => world.nowMs,
    steadyMs: () => performance.now(),
    after(delayMs, run) {
      const timer = setTimeout(() => run(), delayMs);
      timer.unref();
      return () => clearTimeout(timer);
    },
  };
  return world;
}

const SMALL = {
  durationMs: 60_000,
  keysMax: 100,
  segmentEntriesMax: 3,
  timeoutMs: 20_000,
  // The cases say themselves when a snapshot is written.
  snapshotMs: 86_400_000,
};

async function open(world, options = {}) {
  const { segmentEntriesMax, ...bounds } = { ...SMALL, ...options };
  const log = world.api.objectLog(world.objects, { segmentEntriesMax });
  const { clock, objects: snapshots } = world;
  const window = await world.api.openWindow({ log, snapshots, clock, ...bounds });
  world.windows.push(window);
  return window;
}

/** Says that the id is about to be written: from now on a retry may find it or not. */
function announce(world, id) {
  world.ids.add(id);
  world.tell(JSON.stringify({ id }));
}

/** Writes an id. It must have the position that it had before. */
async function write(world, window, id, options) {
  announce(world, id);
  world.nowMs += 10;
  const result = await window.write(id, encoder.encode(`bytes of ${id}`), options);
  const told = world.acks.get(id);
  if (told !== undefined) deepStrictEqual(result, { position: told, isDuplicate: true });
  world.acks.set(id, result.position);
  world.tell(JSON.stringify({ id, position: result.position }));
  return result;
}

async function writeAll(world, window, ids, options) {
  for (const id of ids) await write(world, window, id, options);
}

const named = (word, count) => Array.from({ length: count }, (_, at) => `${word}${at + 1}`);

export const cases = [
  {
    name: "case 1: the writer crashes between a write and the snapshot",
    async run(world) {
      const window = await open(world);
      await writeAll(world, window, named("a", 3));
      await window.snapshot();
      await writeAll(world, window, named("b", 4));
      // It is left as a crash leaves it: without a snapshot of its end.
      const next = await open(world);
      strictEqual(next.stats.recovery.hasSnapshot, true);
      strictEqual(next.stats.keys, 7);
      await writeAll(world, next, [...named("a", 3), ...named("b", 4)]);
    },
  },
  {
    name: "case 2: a write is stored, and its answer is lost",
    async run(world) {
      const window = await open(world);
      await write(world, window, "before");
      world.losing = /^log\/\d+\/\d+$/;
      const [first, twin] = await Promise.all([
        write(world, window, "lost"),
        window.write("lost", encoder.encode("bytes of lost")),
      ]);
      // Either may have been faster.
      ok(first.isDuplicate !== twin.isDuplicate);
      deepStrictEqual(twin.position, first.position);
      // A caller that gave up comes again.
      await write(world, window, "lost");
      await write(world, window, "after");
    },
  },
  {
    name: "case 3: a writer is taken over while its writes are in flight",
    async run(world) {
      const old = await open(world);
      await writeAll(world, old, named("c", 2));
      // One batch arrives, and its answer does not; the next one never leaves.
      world.losing = /^log\/\d+\/\d+$/;
      announce(world, "arrived");
      const stored = old.write("arrived", encoder.encode("bytes of arrived"));
      while (world.losing !== NEVER) await new Promise((resolve) => setImmediate(resolve));
      const next = await open(world);
      await stored.then(
        ({ position }) => world.acks.set("arrived", position),
        ({ code }) => strictEqual(code, "lease_lost"),
      );
      announce(world, "c9");
      const left = await old.write("c9", encoder.encode("bytes of c9")).catch((error) => error);
      strictEqual(left.code, "lease_lost");
      const arrived = await write(world, next, "arrived");
      strictEqual(arrived.isDuplicate, true);
      strictEqual((await write(world, next, "c9")).isDuplicate, false);
      ok(next.epoch > old.epoch);
    },
  },
  {
    name: "case 4: a segment of the snapshot is finalized meanwhile",
    async run(world) {
      const window = await open(world);
      await writeAll(world, window, named("d", 2));
      await window.snapshot();
      await writeAll(world, window, named("e", 3));
      const next = await open(world);
      strictEqual(next.stats.keys, 5);
      await writeAll(world, next, [...named("d", 2), ...named("e", 3)]);
    },
  },
  {
    name: "case 5: a segment is truncated",
    async run(world) {
      const window = await open(world, { keysMax: 4 });
      await writeAll(world, window, named("f", 3));
      // The window remembers ids of the first segment: it stays.
      const refused = await window.truncate(1).catch((error) => error);
      strictEqual(refused.code, "invalid_request");
      // From here on the case writes only ids that stay in the window.
      for (const id of named("f", 3)) world.ids.delete(id);
      for (const id of named("f", 3)) world.acks.delete(id);
      await writeAll(world, window, named("g", 4));
      await window.snapshot();
      await window.truncate(1);
      const next = await open(world, { keysMax: 4 });
      strictEqual(next.stats.keys, 4);
      await writeAll(world, next, named("g", 4));
      await next.close();
      const again = await open(world, { keysMax: 4 });
      await writeAll(world, again, named("g", 4));
    },
  },
  {
    name: "case 6: new segments begin after the snapshot",
    async run(world) {
      const window = await open(world, { segmentEntriesMax: 1 });
      await write(world, window, "h1");
      await window.snapshot();
      await writeAll(world, window, named("i", 4));
      const next = await open(world, { segmentEntriesMax: 1 });
      strictEqual(next.stats.keys, 5);
      await writeAll(world, next, ["h1", ...named("i", 4)]);
    },
  },
  {
    name: "case 7: a snapshot cannot be written",
    async run(world) {
      const window = await open(world);
      await write(world, window, "j1");
      await window.snapshot();
      await write(world, window, "j2");
      world.failing = /^snapshots\//;
      const failed = await window.snapshot().catch((error) => error);
      ok(failed.message.startsWith("planned"));
      strictEqual(window.stats.snapshotFailures, 1);
      await write(world, window, "j3");
      const next = await open(world);
      strictEqual(next.stats.keys, 3);
      world.failing = NEVER;
      await next.snapshot();
      await writeAll(world, next, named("j", 3));
    },
  },
  {
    name: "case 8: a retry comes after its id has left the window",
    async run(world) {
      const window = await open(world, { clockSkewMs: 0 });
      const sentAtMs = world.nowMs;
      await write(world, window, "old", { sentAtMs });
      world.nowMs += 61_000;
      await writeAll(world, window, named("k", 2));
      // It says its time, so it is refused and not written twice.
      const refused = await write(world, window, "old", { sentAtMs }).catch((error) => error);
      strictEqual(refused.code, "key_expired");
      const fresh = { sentAtMs: world.nowMs };
      strictEqual((await write(world, window, "new", fresh)).isDuplicate, false);
      const next = await open(world, { clockSkewMs: 0 });
      const again = await write(world, next, "old", { sentAtMs }).catch((error) => error);
      strictEqual(again.code, "key_expired");
      // A full scan forgets no more than the snapshot did: `verify` must not write it again.
      world.ids.delete("old");
    },
  },
];

export async function verify(world) {
  const window = await open(world, { keysMax: 100_000, durationMs: 3_600_000 });
  const { ids, acks } = world;
  for (const id of ids) {
    const { position } = await window.write(id, encoder.encode(`bytes of ${id}`));
    const told = acks.get(id);
    if (told !== undefined) deepStrictEqual(position, told, `${id} has moved`);
    acks.set(id, position);
  }
  await window.close();
  const found = new Map();
  const log = world.api.objectLog(world.objects);
  for (const { segment } of (await log.extent()).segments) {
    for await (const { start, entries } of log.read(segment, 0)) {
      for (const [index, { id }] of entries.entries()) {
        const there = found.get(id);
        strictEqual(there, undefined, `${id} is in the log twice`);
        found.set(id, { segment, entry: start + index });
      }
    }
  }
  for (const id of ids) deepStrictEqual(found.get(id), acks.get(id), `${id} is elsewhere`);
  return { entries: found.size };
}
