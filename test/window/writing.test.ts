// What callers of a window see: twins, limits, lost answers, writers that were fenced. GUARANTEES.md G60
import { afterEach, describe, expect, test } from "vitest";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import {
  objectLog,
  openWindow,
  s3Objects,
  type WindowObjects,
  type WindowOptions,
} from "../../src/toolkit/window.ts";
import { FakeS3, type Fate } from "./fake-s3.ts";
import { MemoryObjects } from "./memory-objects.ts";
import { PartitionedLog, type AppendFate } from "./server-log.ts";

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "no error",
    (error: { code?: string }) => error.code,
  );

function open(objects: MemoryObjects, options: Partial<WindowOptions> = {}) {
  return openWindow({ log: objectLog(objects), snapshots: objects, ...options });
}

/** The ids of a log, in order. */
async function idsOf(objects: MemoryObjects): Promise<(string | undefined)[]> {
  const log = objectLog(objects);
  const ids: (string | undefined)[] = [];
  for (const { segment } of (await log.extent()).segments)
    for await (const { entries } of log.read(segment, 0)) ids.push(...entries.map(({ id }) => id));
  return ids;
}

describe("WD1 G60 one id, one entry", () => {
  test("WD1 G60 many calls at once under one id are one entry, and all get its position", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects);
    const calls = Array.from({ length: 50 }, () => window.write("a", bytesOf("x")));
    const results = await Promise.all(calls);
    expect(new Set(results.map(({ position }) => JSON.stringify(position))).size).toBe(1);
    expect(results.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    expect(await idsOf(objects)).toEqual(["a"]);
  });

  test("WD1 the same id with other bytes is refused while it is written, after it, and by the next writer", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects);
    const first = window.write("a", bytesOf("x"));
    expect(await codeOf(window.write("a", bytesOf("y")))).toBe("key_reused");
    await first;
    expect(await codeOf(window.write("a", bytesOf("y")))).toBe("key_reused");
    const next = await open(objects);
    expect(await codeOf(next.write("a", bytesOf("y")))).toBe("key_reused");
    expect((await next.write("a", bytesOf("x"))).isDuplicate).toBe(true);
  });

  test("WD1 G60 a caller may give up, change its bytes and come again: the first write stands", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects, { timeoutMs: 30 });
    objects.before = () => {
      throw new Error("planned: the store is away");
    };
    const bytes = bytesOf("first");
    expect(await codeOf(window.write("a", bytes))).toBe("unreachable");
    bytes.fill(0);
    expect(await codeOf(window.write("a", bytesOf("first")))).toBe("unreachable");
    objects.before = () => undefined;
    await expect
      .poll(() => window.write("a", bytesOf("first")).catch(() => undefined))
      .toMatchObject({ isDuplicate: true, position: { segment: 0, entry: 0 } });
    expect(await idsOf(objects)).toEqual(["a"]);
    expect(window.stats.pending).toBe(0);
    for await (const { entries } of objectLog(objects).read(0, 0))
      expect(entries.map((entry) => entry.bytes)).toEqual([bytesOf("first")]);
  });

  test("WD1 G60 calls under one id that waited for room together are one entry", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects, { pendingMax: 1 });
    const release = objects.hold();
    const first = window.write("first", bytesOf("x"));
    await expect.poll(() => window.stats.pending).toBe(1);
    const waiting = Array.from({ length: 5 }, () => window.write("a", bytesOf("x")));
    // All of them have found no room.
    await new Promise((resolve) => setTimeout(resolve, 30));
    release();
    const results = await Promise.all([first, ...waiting]);
    expect(results.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(2);
    expect(await idsOf(objects)).toEqual(["first", "a"]);
  });

  test("G60 a write without an id is stored each time", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects);
    await Promise.all([
      window.write(undefined, bytesOf("x")),
      window.write(undefined, bytesOf("x")),
    ]);
    expect(await idsOf(objects)).toEqual([undefined, undefined]);
  });

  test("bad arguments are refused before anything is sent", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects);
    const calls = objects.calls.length;
    expect(await codeOf(window.write("", bytesOf("x")))).toBe("invalid_request");
    expect(await codeOf(window.write("a", "text" as never))).toBe("invalid_request");
    expect(await codeOf(window.write("a", bytesOf("x"), { sentAtMs: Number.NaN }))).toBe(
      "invalid_request",
    );
    expect(await codeOf(open(objects, { keysMax: 0, onFull: "drop" as never }))).toBe(
      "invalid_options",
    );
    expect(objects.calls).toHaveLength(calls);
  });
});

describe("WD3 limits", () => {
  test("WD3 unconfirmed writes have a limit: further ones wait, or are refused", async () => {
    const objects = new MemoryObjects();
    let isAway = false;
    objects.before = () => {
      if (isAway) throw new Error("planned: the store is away");
    };
    const refusing = await open(objects, { pendingMax: 2, onFull: "refuse", timeoutMs: 5_000 });
    isAway = true;
    const writes = [refusing.write("a", bytesOf("x")), refusing.write("b", bytesOf("x"))];
    await expect.poll(() => refusing.stats.pending).toBe(2);
    expect(await codeOf(refusing.write("c", bytesOf("x")))).toBe("too_many");
    // A twin needs no place.
    const twin = refusing.write("a", bytesOf("x"));
    isAway = false;
    await Promise.all([...writes, twin]);

    const waiting = await open(objects, { pendingMax: 1, timeoutMs: 5_000 });
    const all = ["d", "e", "f", "d"].map((id) => waiting.write(id, bytesOf("x")));
    const results = await Promise.all(all);
    expect(results.map(({ isDuplicate }) => isDuplicate)).toEqual([false, false, false, true]);
    expect(await idsOf(objects)).toEqual(["a", "b", "d", "e", "f"]);
  });

  test("WD3 unconfirmed bytes have a limit too, and a signal ends the wait", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects, { pendingBytesMax: 10 });
    const abort = new AbortController();
    const release = objects.hold();
    const large = window.write("large", new Uint8Array(100));
    await expect.poll(() => window.stats.pending).toBe(1);
    const second = window.write("second", new Uint8Array(100), { signal: abort.signal });
    abort.abort(new Error("enough"));
    await expect(second).rejects.toThrow("enough");
    release();
    await large;
    expect(await idsOf(objects)).toEqual(["large"]);
  });
});

describe("WD5 ids that may be forgotten", () => {
  test("WD5 a retry that says its time is refused, one that does not is counted, and a UUID of version 7 says it", async () => {
    const objects = new MemoryObjects();
    const clock = createVirtualClock(1_800_000_000_000);
    const window = await open(objects, { keysMax: 1, clock, clockSkewMs: 0, timeoutMs: 3_600_000 });
    const sentAtMs = clock.nowMs();
    await window.write("a", bytesOf("x"), { sentAtMs });
    clock.advance(10);
    await window.write("b", bytesOf("x"));
    expect(await codeOf(window.write("a", bytesOf("x"), { sentAtMs }))).toBe("key_expired");
    expect(await codeOf(window.write("01890a5d-ac96-774b-bcce-b302099a8057", bytesOf("x")))).toBe(
      "key_expired",
    );
    expect(window.stats.unproven).toBe(0);
    await window.write("a", bytesOf("x"));
    expect(window.stats.unproven).toBe(1);
    expect(await idsOf(objects)).toEqual(["a", "b", "a"]);
  });

  test("WD5 with `accept` it is written as a new one", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects, { keysMax: 1, onExpired: "accept" });
    for (const id of ["a", "b", "a"]) await window.write(id, bytesOf("x"), { sentAtMs: 1 });
    expect(await idsOf(objects)).toEqual(["a", "b", "a"]);
    expect(window.stats.unproven).toBe(1);
  });
});

test("WD2 G60 what the writer before has stored until it was fenced is in the window", async () => {
  const objects = new MemoryObjects();
  const old = await open(objects);
  await old.write("a", bytesOf("x"));
  const create = objects.create.bind(objects);
  objects.create = async (name, bytes) => {
    // The new writer has read the log, and has not sealed it.
    if (name === "probe") await old.write("between", bytesOf("x"));
    return await create(name, bytes);
  };
  const next = await open(objects);
  objects.create = create;
  expect((await next.write("between", bytesOf("x"))).isDuplicate).toBe(true);
  expect(await idsOf(objects)).toEqual(["a", "between"]);
});

describe("WD6 fencing", () => {
  test("WD6 G60 a writer that was paused and continues stores nothing, and its snapshots change nothing", async () => {
    const objects = new MemoryObjects();
    const old = await open(objects);
    await old.write("a", bytesOf("x"));
    const next = await open(objects);
    await next.write("b", bytesOf("x"));
    await next.snapshot();
    await old.snapshot();
    expect(await codeOf(old.write("c", bytesOf("x")))).toBe("lease_lost");
    expect(await codeOf(old.write("a", bytesOf("x")))).toBe("lease_lost");
    expect((await next.write("c", bytesOf("x"))).isDuplicate).toBe(false);
    const third = await open(objects);
    for (const id of ["a", "b", "c"])
      expect((await third.write(id, bytesOf("x"))).isDuplicate).toBe(true);
    expect(await idsOf(objects)).toEqual(["a", "b", "c"]);
    expect([old.epoch, next.epoch, third.epoch]).toEqual([1, 2, 3]);
  });

  test("WD6 a batch that arrives after the log was sealed is not stored", async () => {
    const objects = new MemoryObjects();
    const old = await open(objects);
    await old.write("a", bytesOf("x"));
    const begun = objects.calls.length;
    const release = objects.hold();
    const late = codeOf(old.write("late", bytesOf("x")));
    await expect.poll(() => objects.calls.length).toBeGreaterThan(begun);
    // The request is on its way; those of the next writer are faster.
    objects.hold()();
    const next = await open(objects);
    release();
    expect(await late).toBe("lease_lost");
    expect((await next.write("late", bytesOf("x"))).isDuplicate).toBe(false);
    expect(await idsOf(objects)).toEqual(["a", "late"]);
  });

  test("WD6 of many that open a log at once, one can write", async () => {
    const objects = new MemoryObjects();
    const windows = await Promise.all(Array.from({ length: 5 }, () => open(objects)));
    const codes = await Promise.all(
      windows.map((window) => codeOf(window.write("a", bytesOf("x")))),
    );
    expect(codes.filter((code) => code === "no error")).toHaveLength(1);
    expect(new Set(windows.map(({ epoch }) => epoch)).size).toBe(5);
    expect(await idsOf(objects)).toEqual(["a"]);
  });

  test("WD6 an older lease does not open the log, and a lost one ends the window", async () => {
    const objects = new MemoryObjects();
    const lost = new AbortController();
    const window = await open(objects, { writer: { token: 7, signal: lost.signal } });
    const { signal } = new AbortController();
    expect(await codeOf(open(objects, { writer: { token: 6, signal } }))).toBe("lease_lost");
    await window.write("a", bytesOf("x"));
    lost.abort();
    expect(await codeOf(window.write("b", bytesOf("x")))).toBe("lease_lost");
  });
});

describe("WD6 an opening that is given up", () => {
  test("WD6 an opening that was given up does not fence the writer that works", async () => {
    const objects = new MemoryObjects();
    const window = await open(objects);
    await window.write(undefined, bytesOf("x"));
    // Given up during each of its calls, up to the first that writes: from there on it takes the log.
    let isTaking = false;
    let nth = 0;
    while (!isTaking) {
      nth += 1;
      const giveUp = new AbortController();
      const calls: string[] = [];
      const noted = <T>(call: string, result: () => Promise<T>): Promise<T> => {
        calls.push(call);
        if (calls.length === nth) giveUp.abort(new Error("given up"));
        return result();
      };
      const slow: WindowObjects = {
        create: (name, bytes) => noted("create", () => objects.create(name, bytes)),
        get: (name) => noted("get", () => objects.get(name)),
        list: (prefix) => noted("list", () => objects.list(prefix)),
        remove: (name) => noted("remove", () => objects.remove(name)),
      };
      const { signal } = giveUp;
      const opening = openWindow({ log: objectLog(slow), snapshots: slow, signal });
      await expect(opening).rejects.toThrow("given up");
      // This store needs no more than promises: what is still to come has come.
      await new Promise((resolve) => setImmediate(resolve));
      isTaking = calls[nth - 1] === "create";
      if (!isTaking) expect(calls).not.toContain("create");
    }
    expect(nth).toBeGreaterThan(5);
    expect(await codeOf(window.write(undefined, bytesOf("x")))).toBe("lease_lost");
  });
});

describe("WD7 a log that chooses positions", () => {
  const fates: AppendFate[] = ["request lost", "answer lost", "half", "late"];
  test.for(fates)(
    "WD7 an unknown outcome is looked up before anything is sent again: %s",
    async (fate) => {
      const log = new PartitionedLog(2);
      const snapshots = new MemoryObjects();
      const window = await openWindow({ log, snapshots });
      await window.write("before", bytesOf("x"));
      const planned: AppendFate[] = [fate, fate, "stored"];
      log.fate = () => planned.shift() ?? "stored";
      const results = await Promise.all(["a", "b", "c"].map((id) => window.write(id, bytesOf(id))));
      const stored = log.partitions.flat().map(({ id = "" }) => id);
      expect(stored.toSorted()).toEqual(["a", "b", "before", "c"]);
      for (const [index, { position }] of results.entries()) {
        const { segment, entry } = position;
        expect(log.partitions[segment]?.[entry]?.id).toBe(["a", "b", "c"][index]);
      }
      await window.snapshot();
      await window.write("d", bytesOf("x"));
      log.reads.length = 0;
      const next = await openWindow({ log, snapshots });
      for (const id of ["a", "b", "c"])
        expect(await next.write(id, bytesOf(id))).toEqual({
          position: results[["a", "b", "c"].indexOf(id)]?.position,
          isDuplicate: true,
        });
      // From the watermarks on, not from the beginning.
      expect(log.reads.filter((read) => read.endsWith(" 0"))).toEqual([]);
      expect(await codeOf(window.write("e", bytesOf("x")))).toBe("lease_lost");
    },
  );

  test("WD7 entries of several partitions are remembered in the order of their time", async () => {
    const log = new PartitionedLog(2);
    log.partitions[0]?.push(
      { id: "old", bytes: bytesOf("x"), atMs: 10 },
      { id: "new", bytes: bytesOf("x"), atMs: 40 },
    );
    log.partitions[1]?.push({ id: "middle", bytes: bytesOf("x"), atMs: 20 });
    const window = await openWindow({ log, snapshots: new MemoryObjects(), keysMax: 2 });
    expect((await window.write("middle", bytesOf("x"))).isDuplicate).toBe(true);
    expect((await window.write("new", bytesOf("x"))).isDuplicate).toBe(true);
    expect(window.stats.forgottenToMs).toBe(10);
  });
});

describe("over HTTP", () => {
  let fake: FakeS3 | undefined;
  afterEach(() => fake?.close());

  async function openFake() {
    fake = await FakeS3.start();
    return { fake, objects: s3Objects({ url: fake.url, timeoutMs: 10_000 }) };
  }

  test("G60 requests and answers are lost, the store is busy, lists are late: each id is stored once", async () => {
    const { fake: store, objects } = await openFake();
    const fates: Fate[] = ["answer lost", "served", "request lost", "busy", "conflict", "served"];
    let calls = 0;
    store.hiddenMax = 4;
    const expected = new Map<string, string>();
    for (let round = 0; round < 3; round += 1) {
      store.fate = () => "served";
      const log = objectLog(objects, { segmentEntriesMax: 7 });
      const window = await openWindow({ log, snapshots: objects, timeoutMs: 60_000 });
      store.fate = (method) => {
        calls += 1;
        return method === "PUT" ? (fates[calls % fates.length] ?? "served") : "served";
      };
      const ids = Array.from({ length: 12 }, (_, at) => `id ${(round * 5 + at) % 20}`);
      for (let at = 0; at < ids.length; at += 3) {
        const some = ids.slice(at, at + 3);
        const results = await Promise.all(some.map((id) => window.write(id, bytesOf(id))));
        for (const [index, { position }] of results.entries()) {
          const [id = "", place] = [some[index], JSON.stringify(position)];
          expect(expected.get(id) ?? place).toBe(place);
          expected.set(id, place);
        }
      }
      await window.snapshot().catch(() => undefined);
    }
    store.fate = () => "served";
    const found = new Map<string, number>();
    const log = objectLog(objects);
    for (const { segment } of (await log.extent()).segments)
      for await (const { entries } of log.read(segment, 0))
        for (const { id = "" } of entries) found.set(id, (found.get(id) ?? 0) + 1);
    expect([...found.values()]).toEqual(Array(20).fill(1));
  });

  test("WD6 G60 a store that ignores conditions is refused before anything is written to the log", async () => {
    const { fake: store, objects } = await openFake();
    store.isIgnoringConditions = true;
    expect(await codeOf(openWindow({ log: objectLog(objects), snapshots: objects }))).toBe(
      "unsupported",
    );
    expect([...store.objects.keys()]).toEqual(["probe"]);
    const memory = new MemoryObjects();
    memory.isIgnoringConditions = true;
    expect(await codeOf(open(memory))).toBe("unsupported");
  });
});

test("G60 where ids are not used, they cost no byte and no call", async () => {
  const count = async (hasIds: boolean) => {
    const objects = new MemoryObjects();
    const clock = createVirtualClock();
    const window = await open(objects, { clock, timeoutMs: 3_600_000, snapshotMs: 10 });
    const from = objects.calls.length;
    for (let at = 0; at < 20; at += 1)
      await window.write(hasIds ? `i${at}` : undefined, bytesOf("abc"));
    clock.advance(60_000);
    await window.close();
    const batches = [...objects.all].filter(([name]) => /^log\/\d+\/\d+$/.test(name));
    const bytes = batches.reduce((sum, [, { length }]) => sum + length, 0);
    return { calls: objects.calls.slice(from), bytes };
  };
  const plain = await count(false);
  // One call for each entry, and nothing else: no snapshot, no list.
  expect(plain.calls.filter((call) => !call.startsWith("create log/"))).toEqual([]);
  expect(plain.calls).toHaveLength(20);
  // 9 bytes of frame, 6 of time, count, length, and the three bytes themselves.
  expect(plain.bytes / 20).toBeLessThanOrEqual(9 + 6 + 2 + 3);
  expect((await count(true)).calls.length).toBeGreaterThan(20);
});
