// WD2 WD4 G60: a window that was recovered, from any snapshot or from none, equals one that reads the whole log.
import fc from "fast-check";
import { expect, test } from "vitest";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { type DedupWindow, objectLog, openWindow } from "../../src/toolkit/window.ts";
import { MemoryObjects } from "./memory-objects.ts";

const isLong = process.env["HAPAX_LONG"] === "1";
const BOUNDS = { durationMs: 100, keysMax: 6, clockSkewMs: 0, timeoutMs: 1e9, snapshotMs: 1e9 };
const encoder = new TextEncoder();

type Step =
  | { readonly kind: "write"; readonly ids: readonly number[] }
  | { readonly kind: "wait"; readonly ms: number }
  | { readonly kind: "snapshot" }
  | { readonly kind: "take over" }
  | { readonly kind: "truncate" }
  | { readonly kind: "spoil"; readonly how: "newest" | "all" | "hide" }
  | { readonly kind: "lose"; readonly what: "request" | "answer" };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("write" as const),
      ids: fc.array(fc.nat(14), { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.nat(60) }) },
  { weight: 2, arbitrary: fc.constant({ kind: "snapshot" } as const) },
  { weight: 3, arbitrary: fc.constant({ kind: "take over" } as const) },
  { weight: 1, arbitrary: fc.constant({ kind: "truncate" } as const) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("spoil" as const),
      how: fc.constantFrom("newest" as const, "all" as const, "hide" as const),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("lose" as const),
      what: fc.constantFrom("request" as const, "answer" as const),
    }),
  },
);

/** The simplest window: a list of what the log has. */
class ScannedLog {
  readonly all: { readonly id: string; readonly place: string; readonly atMs: number }[] = [];

  /** The ids that a window must know, with their places. */
  get known(): Map<string, string> {
    const newestMs = this.all.at(-1)?.atMs ?? 0;
    const kept = this.all
      .slice(-BOUNDS.keysMax)
      .filter(({ atMs }) => atMs > newestMs - BOUNDS.durationMs);
    return new Map(kept.map(({ id, place }) => [id, place]));
  }
}

class Stage {
  readonly objects = new MemoryObjects();
  readonly clock = createVirtualClock(1_000_000);
  readonly scanned = new ScannedLog();
  readonly #random = createSeededRandom(1);
  #hasLost = false;

  open(snapshots = this.objects): Promise<DedupWindow> {
    const log = objectLog(this.objects, { segmentEntriesMax: 4, random: this.#random });
    return openWindow({ log, snapshots, clock: this.clock, random: this.#random, ...BOUNDS });
  }

  /** Loses the next write of a batch, once. The window tries again after a pause. */
  lose(what: "request" | "answer"): void {
    const fail = (name: string): void => {
      if (!/^log\/\d+\/\d+$/.test(name)) return;
      this.objects[what === "request" ? "before" : "after"] = () => undefined;
      this.#hasLost = true;
      throw new Error("planned");
    };
    this.objects[what === "request" ? "before" : "after"] = fail;
  }

  /** Writes ids: first those that are known, then the new ones together. */
  async write(window: DedupWindow, numbers: readonly number[]): Promise<void> {
    const ids = [...new Set(numbers)].map((number) => `id ${number}`);
    const { known } = this.scanned;
    for (const id of ids.filter((one) => known.has(one))) await this.#expectKnown(window, id);
    const fresh = ids.filter((one) => !known.has(one));
    let isDone = false;
    const writes = Promise.all(fresh.map((id) => window.write(id, encoder.encode(id))));
    const done = writes.finally(() => (isDone = true));
    while (!isDone) {
      await new Promise((resolve) => setImmediate(resolve));
      // A lost batch is sent again after a pause, which only this clock ends.
      if (this.#hasLost) this.clock.advance(1);
    }
    this.#hasLost = false;
    for (const { isDuplicate } of await done) expect(isDuplicate).toBe(false);
    await this.scan();
  }

  async #expectKnown(window: DedupWindow, id: string): Promise<void> {
    const { position, isDuplicate } = await window.write(id, encoder.encode(id));
    expect([JSON.stringify(position), isDuplicate]).toEqual([this.scanned.known.get(id), true]);
  }

  /** Reads what the log has more than before. Truncated entries are remembered here. */
  async scan(): Promise<void> {
    const log = objectLog(this.objects);
    const places = new Set(this.scanned.all.map(({ place }) => place));
    for (const { segment } of (await log.extent()).segments) {
      for await (const { start, atMs, entries } of log.read(segment, 0)) {
        for (const [index, { id = "" }] of entries.entries()) {
          const place = JSON.stringify({ segment, entry: start + index });
          if (!places.has(place)) this.scanned.all.push({ id, place, atMs });
        }
      }
    }
  }

  spoil(how: "newest" | "all" | "hide"): void {
    const names = [...this.objects.all.keys()]
      .filter((name) => name.startsWith("snapshots/"))
      .toSorted();
    if (how === "hide") this.objects.hiddenMax = 1000;
    for (const name of how === "newest" ? names.slice(-1) : how === "all" ? names : []) {
      const bytes = this.objects.all.get(name);
      if (bytes !== undefined) bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 4;
    }
  }

  /** Every id that could be known, asked of the window without writing: an unknown one would be written. */
  async expectWhole(window: DedupWindow): Promise<void> {
    const { known } = this.scanned;
    expect(window.stats.keys).toBe(known.size);
    for (const id of known.keys()) await this.#expectKnown(window, id);
  }
}

test(
  "WD2 WD4 G60 after writes, losses, takeovers, truncation and spoilt snapshots the window is that of a full scan",
  { timeout: 600_000 },
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
        const stage = new Stage();
        let window = await stage.open();
        for (const one of steps) {
          if (one.kind === "write") await stage.write(window, one.ids);
          else if (one.kind === "wait") stage.clock.advance(one.ms);
          else if (one.kind === "snapshot") await window.snapshot();
          else if (one.kind === "lose") stage.lose(one.what);
          else if (one.kind === "spoil") stage.spoil(one.how);
          else if (one.kind === "truncate") {
            const segments = (await objectLog(stage.objects).extent()).segments.map(
              ({ segment }) => segment,
            );
            await window.truncate(segments[1] ?? 0).catch((error: { code?: string }) => {
              expect(error.code).toBe("invalid_request");
            });
          } else {
            stage.objects.before = () => undefined;
            stage.objects.after = () => undefined;
            window = await stage.open();
            stage.objects.hiddenMax = 0;
          }
          await stage.expectWhole(window);
        }
        stage.objects.before = () => undefined;
        stage.objects.after = () => undefined;
        await stage.expectWhole(await stage.open());
        await stage.expectWhole(await stage.open(new MemoryObjects()));
      }),
      { numRuns: isLong ? 5_000 : 150 },
    );
  },
);

test("WD2 a segment that the snapshot does not know is read from its beginning, a known one from its watermark", async () => {
  const stage = new Stage();
  const window = await stage.open();
  for (const id of [1, 2, 3]) await stage.write(window, [id]);
  await window.snapshot();
  for (const id of [4, 5, 6]) await stage.write(window, [id]);
  stage.objects.calls.length = 0;
  const next = await stage.open();
  const read = stage.objects.calls.filter((call) => /^get log\/0+\/0+[0-2]$/.test(call));
  // Entry 2 proves that the log is still the one of the snapshot.
  expect(new Set(read)).toEqual(new Set(["get log/000000000000/000000000002"]));
  await stage.expectWhole(next);
});

test("WD4 G60 a log that ends before its snapshot is refused: it has lost entries", async () => {
  const stage = new Stage();
  const window = await stage.open();
  for (const id of [1, 2, 3]) await stage.write(window, [id]);
  await window.snapshot();
  stage.objects.all.delete("log/000000000000/000000000002");
  await expect(stage.open()).rejects.toMatchObject({ code: "data_damaged" });
  // Without snapshots it goes on with what is there.
  expect((await stage.open(new MemoryObjects())).stats.keys).toBe(2);
});

test("WD4 two snapshots are kept, and the older one makes the same window", async () => {
  const stage = new Stage();
  const window = await stage.open();
  for (const id of [1, 2, 3, 4, 5]) {
    await stage.write(window, [id]);
    await window.snapshot();
  }
  const names = [...stage.objects.all.keys()].filter((name) => name.startsWith("snapshots/"));
  expect(names).toHaveLength(2);
  stage.spoil("newest");
  const next = await stage.open();
  expect(next.stats.recovery.hasSnapshot).toBe(true);
  await stage.expectWhole(next);
});

test("an object in the middle that is missing is damage, and not an end", async () => {
  const stage = new Stage();
  const window = await stage.open();
  for (const id of [1, 2, 3, 4, 5, 6]) await stage.write(window, [id]);
  stage.objects.all.delete("log/000000000000/000000000001");
  await expect(stage.open(new MemoryObjects())).rejects.toMatchObject({ code: "data_damaged" });
});
