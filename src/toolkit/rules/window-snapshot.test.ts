import { describe, expect, test } from "vitest";
import { Unreadable } from "../../base/packed.ts";
import { WindowState } from "./window.ts";
import { decodeLogObject, encodeLogObject, type LogObject } from "./window-objects.ts";
import { decodeWindow, encodeWindow } from "./window-snapshot.ts";

const BOUNDS = { durationMs: 1_000, keysMax: 20 };

function sample(count: number): WindowState {
  const state = new WindowState(BOUNDS);
  for (let id = 0; id < count; id += 1) {
    const mark = new Uint32Array([id, id * 3, id * 5, id * 7, id * 11, 0xffff_ffff]);
    state.applyStored({ mark, segment: id >> 2, entry: (id * 5) % 97, atMs: 5_000 + id * 3 });
  }
  state.writer = "who began it";
  state.watermarks.set(0, { segment: 0, entry: 3, start: 2, isSealed: true });
  state.watermarks.set(7, { segment: 7, entry: -1, start: 0, isSealed: false });
  return state;
}

/** Everything that a window knows. */
function contentOf(state: WindowState | undefined): unknown {
  if (state === undefined) return undefined;
  const { keys, watermarks, newestMs, forgottenToMs, writer } = state;
  const ids = Array.from({ length: state.size }, (_, at) => {
    const ordinal = keys.first + at;
    return [keys.markOf(ordinal), state.positionOf(ordinal), keys.timeOf(ordinal)];
  });
  return { ids, watermarks: [...watermarks.values()], newestMs, forgottenToMs, writer };
}

describe("WD4 a snapshot", () => {
  test("WD4 has everything that the window knew", () => {
    for (const count of [0, 1, 20, 31]) {
      const state = sample(count);
      expect(contentOf(decodeWindow(encodeWindow(state), BOUNDS))).toEqual(contentOf(state));
    }
  });

  test("WD3 WD4 100,000 ids need at most 10 MB, in memory and in a snapshot, also after as many were forgotten", () => {
    const bounds = { durationMs: 3_600_000, keysMax: 100_000 };
    const state = new WindowState(bounds);
    for (let id = 0; id < 2 * bounds.keysMax; id += 1) {
      const mark = new Uint32Array([id, id * 3, id * 5, id * 7, id * 11, 0xffff_ffff]);
      state.applyStored({ mark, segment: id >> 16, entry: id & 0xffff, atMs: 5_000 + id });
    }
    expect(state.size).toBe(bounds.keysMax);
    expect(state.memoryBytes).toBeLessThan(10_000_000);
    const bytes = encodeWindow(state);
    expect(bytes.length).toBeLessThan(10_000_000);
    const read = decodeWindow(bytes, bounds);
    expect(read?.size).toBe(bounds.keysMax);
    expect(read?.memoryBytes).toBeLessThan(10_000_000);
  });

  test("WD4 that is torn at any byte is not used, nor is one with bytes behind its end", () => {
    const bytes = encodeWindow(sample(25));
    for (let length = 0; length < bytes.length; length += 1) {
      expect(decodeWindow(bytes.subarray(0, length), BOUNDS)).toBeUndefined();
    }
    expect(decodeWindow(new Uint8Array([...bytes, 0]), BOUNDS)).toBeUndefined();
    expect(decodeWindow(bytes, BOUNDS)).toBeDefined();
  });

  test("WD4 with any bit flipped is not used", () => {
    const bytes = encodeWindow(sample(25)).slice();
    for (let bit = 0; bit < bytes.length * 8; bit += 1) {
      bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(decodeWindow(bytes, BOUNDS)).toBeUndefined();
      bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    }
    expect(decodeWindow(bytes, BOUNDS)).toBeDefined();
  });

  test("WD4 of tighter bounds is not used if it has forgotten something that the window should have", () => {
    const wider = { ...BOUNDS, keysMax: 30 };
    expect(decodeWindow(encodeWindow(sample(25)), wider)).toBeUndefined();
    expect(decodeWindow(encodeWindow(sample(20)), wider)).toBeDefined();
    expect(decodeWindow(encodeWindow(sample(25)), { ...BOUNDS, keysMax: 3 })?.size).toBe(3);
  });
});

const bytes = (...numbers: number[]): Uint8Array => new Uint8Array(numbers);
const objects: LogObject[] = [
  {
    kind: "head",
    epoch: 3,
    token: -1,
    nonce: bytes(...Array(16).keys()),
    atMs: 5,
    entriesBefore: 9,
  },
  {
    kind: "batch",
    atMs: 7,
    entries: [
      { id: bytes(1), bytes: bytes(2, 3) },
      { id: undefined, bytes: bytes() },
    ],
  },
  { kind: "batch", atMs: 7, entries: [{ id: undefined, bytes: bytes(2, 3) }] },
  { kind: "seal", nonce: bytes(...Array(16).keys()) },
  { kind: "gone", toMs: 12 },
];

describe("an object of a log", () => {
  test.for(objects)("is read as it was written: $kind", (object) => {
    expect(decodeLogObject(encodeLogObject(object))).toEqual(object);
  });

  test.for(objects)("is refused with any byte missing or any bit flipped: $kind", (object) => {
    const whole = encodeLogObject(object).slice();
    for (let length = 0; length < whole.length; length += 1)
      expect(() => decodeLogObject(whole.subarray(0, length))).toThrow(Unreadable);
    for (let bit = 0; bit < whole.length * 8; bit += 1) {
      whole[bit >> 3] = (whole[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(() => decodeLogObject(whole)).toThrow(Unreadable);
      whole[bit >> 3] = (whole[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    }
  });

  test("has not one byte for ids if its entries have none", () => {
    const plain = encodeLogObject({
      kind: "batch",
      atMs: 0,
      entries: [{ id: undefined, bytes: bytes(1, 2, 3) }],
    });
    // Magic 4, kind 1, checksum 4, time 1, count 1, length 1.
    expect(plain.length).toBe(12 + 3);
  });
});
