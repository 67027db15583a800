// The rules of the window against the simplest code that does the same: a list of everything that was stored.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decideWrite, NEVER_MS, WindowState } from "./window.ts";

const BOUNDS = { durationMs: 100, keysMax: 5 };

/** The mark of an id and its content. */
function markOf(id: number, body = 0): Uint32Array {
  return new Uint32Array([Math.imul(id + 1, 0x9e37_79b1), id, id * 7, 1, body, 2]);
}

const idOf = (id: number): string => `id ${id}`;

function decide(state: WindowState, id: number, sentAtMs?: number, body = 0) {
  return decideWrite(state, { id: idOf(id), mark: markOf(id, body), sentAtMs }, 0);
}

function store(state: WindowState, id: number, entry: number, atMs: number, segment = 0): void {
  state.applyStored({ mark: markOf(id), segment, entry, atMs });
}

describe("WD1 the same id has the same position", () => {
  test("WD1 while it is written, a second call joins the first, and other content is refused", () => {
    const state = new WindowState(BOUNDS);
    state.pending.set(idOf(1), { id: idOf(1), mark: markOf(1) });
    expect(decide(state, 1)).toEqual({ kind: "pending" });
    expect(decide(state, 1, undefined, 9)).toEqual({ kind: "mismatch" });
  });

  test("WD1 when it is stored, every call gets its position, and other content is refused", () => {
    const state = new WindowState(BOUNDS);
    store(state, 1, 17, 1000, 3);
    store(state, 2, 0, 1000, 4);
    expect(decide(state, 1)).toEqual({
      kind: "duplicate",
      position: { segment: 3, entry: 17 },
      atMs: 1000,
    });
    expect(decide(state, 2)).toMatchObject({ position: { segment: 4, entry: 0 } });
    expect(decide(state, 1, undefined, 9)).toEqual({ kind: "mismatch" });
  });

  test("WD1 if a log has an id twice, its first position stands", () => {
    const state = new WindowState(BOUNDS);
    store(state, 1, 17, 1000);
    store(state, 1, 18, 1001);
    expect(decide(state, 1)).toMatchObject({ position: { entry: 17 } });
  });
});

interface Stored {
  readonly id: number;
  readonly segment: number;
  readonly entry: number;
  readonly atMs: number;
}

/** Everything that was stored, in order. */
class FullList {
  readonly all: Stored[] = [];
  gone = 0;

  /** By time and by count, oldest first. */
  get kept(): readonly Stored[] {
    const newestMs = this.all.at(-1)?.atMs ?? 0;
    while (
      this.all.length - this.gone > BOUNDS.keysMax ||
      (this.all[this.gone]?.atMs ?? Infinity) <= newestMs - BOUNDS.durationMs
    )
      this.gone += 1;
    return this.all.slice(this.gone);
  }

  get forgottenToMs(): number {
    return this.gone === 0 ? NEVER_MS : (this.all[this.gone - 1]?.atMs ?? 0);
  }
}

const history = fc.array(
  fc.record({
    id: fc.integer({ min: 0, max: 12 }),
    afterMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 60 })),
    rolls: fc.boolean(),
  }),
  { maxLength: 40 },
);

test("WD3 ids leave by log time and by count, oldest first, and never before", () => {
  fc.assert(
    fc.property(history, (steps) => {
      const state = new WindowState(BOUNDS);
      const list = new FullList();
      let [atMs, segment, entry] = [1_000, 0, 0];
      for (const { id, afterMs, rolls } of steps) {
        atMs += afterMs;
        [segment, entry] = rolls ? [segment + 1, 0] : [segment, entry + 1];
        if (list.kept.some((one) => one.id === id)) continue;
        store(state, id, entry, atMs, segment);
        list.all.push({ id, segment, entry, atMs });
        const { kept } = list;
        expect(state.size).toBe(kept.length);
        expect(state.forgottenToMs).toBe(list.forgottenToMs);
        for (const one of kept) {
          const position = { segment: one.segment, entry: one.entry };
          expect(decide(state, one.id)).toEqual({ kind: "duplicate", position, atMs: one.atMs });
        }
      }
    }),
  );
});

test("WD3 an id that is being written stays in the window, no matter how much is stored meanwhile", () => {
  const state = new WindowState(BOUNDS);
  state.pending.set(idOf(99), { id: idOf(99), mark: markOf(99) });
  for (let id = 0; id < 50; id += 1) store(state, id, id, 1000 + id * 50);
  expect(decide(state, 99)).toEqual({ kind: "pending" });
});

test("WD3 an outage empties no window: log time stands still while nothing is written", () => {
  const state = new WindowState(BOUNDS);
  store(state, 1, 0, 1000);
  // However late it is, the log has not gone on.
  expect(decide(state, 1, 10_000_000)).toMatchObject({ kind: "duplicate" });
});

test("WD5 an id that says its time never counts as new if it may have been stored and forgotten", () => {
  fc.assert(
    fc.property(history, fc.integer({ min: 900, max: 2500 }), (steps, sentAtMs) => {
      const state = new WindowState(BOUNDS);
      const list = new FullList();
      let atMs = 1_000;
      for (const [entry, { id, afterMs }] of steps.entries()) {
        atMs += afterMs;
        if (list.kept.some((one) => one.id === id)) continue;
        store(state, id, entry, atMs);
        list.all.push({ id, segment: 0, entry, atMs });
      }
      const kept = list.kept.map(({ id }) => id);
      const forgotten = list.all.filter(({ id }) => !kept.includes(id));
      for (const { id, atMs: storedMs } of forgotten) {
        // It was sent before it was stored.
        const decided = decide(state, id, Math.min(sentAtMs, storedMs));
        expect(decided).toEqual({ kind: "expired" });
        expect(decide(state, id)).toEqual({ kind: "new", isProven: false });
      }
      // What is sent after everything that was forgotten is new.
      expect(decide(state, 1000, state.forgottenToMs + 1)).toEqual({ kind: "new", isProven: true });
    }),
  );
});

test("WD5 a sender's clock may be ahead by as much as the window allows", () => {
  const state = new WindowState({ durationMs: 100, keysMax: 1 });
  store(state, 1, 0, 1000);
  store(state, 2, 1, 1000);
  const request = { id: idOf(1), mark: markOf(1), sentAtMs: 1500 };
  expect(decideWrite(state, request, 0)).toEqual({ kind: "new", isProven: true });
  expect(decideWrite(state, request, 500)).toEqual({ kind: "expired" });
});
