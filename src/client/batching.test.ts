import { expect, test } from "vitest";
import { createSeededRandom } from "../testing/seeded-random.ts";
import { Backlog } from "./batching.ts";
import { type Codec, codecOf, encode } from "./records.ts";
import { appendBodyOf, dataOf, type WaitingRecord, type Listener } from "./entries.ts";

const JSON_TYPE = codecOf("application/json; charset=utf-8");
const TEXT_TYPE = codecOf("text/plain");

const lengthOf = (entries: readonly WaitingRecord[]): number =>
  appendBodyOf(entries, JSON_TYPE)?.length ?? 0;
const allOf = (entries: readonly WaitingRecord[]): unknown[] => entries.map(dataOf);
const entryOf = (data: unknown, codec?: Codec): WaitingRecord => ({ encoded: encode(data, codec) });

function backlogOf(given: readonly unknown[]): Backlog {
  const backlog = new Backlog();
  for (const data of given) backlog.push(entryOf(data, JSON_TYPE));
  return backlog;
}

test("batches of all sizes keep the order and their limits, and fill them", () => {
  const random = createSeededRandom(4);
  for (let round = 0; round < 300; round += 1) {
    const limits = { bytesMax: 2 + random.below(200), recordsMax: 1 + random.below(10) };
    const given = Array.from({ length: random.below(60) }, (_, id) =>
      `${String(id)}xyz`.repeat(random.below(8)),
    );
    const backlog = backlogOf(given);
    const taken: unknown[] = [];
    while (backlog.length > 0) {
      const batch = backlog.take(limits);
      const records = allOf(batch);
      expect(JSON.parse(new TextDecoder().decode(appendBodyOf(batch, JSON_TYPE)))).toEqual(records);
      expect(records.length).toBeGreaterThan(0);
      expect(records.length).toBeLessThanOrEqual(limits.recordsMax);
      if (records.length > 1) expect(lengthOf(batch)).toBeLessThanOrEqual(limits.bytesMax);
      const next = given[taken.length + records.length];
      if (next !== undefined && records.length < limits.recordsMax) {
        const more = [...batch, entryOf(next, JSON_TYPE)];
        expect(lengthOf(more)).toBeGreaterThan(limits.bytesMax);
      }
      if (random.below(4) === 0) backlog.putBack(batch);
      else taken.push(...records);
    }
    expect(taken).toEqual(given);
    expect(backlog.contentBytes).toBe(0);
  }
});

test("a long line is taken from its front without copying it each time", () => {
  const backlog = backlogOf(Array.from({ length: 100_000 }, (_, id) => id));
  let inOrder = 0;
  for (let id = 0; id < 100_000; id += 1) {
    if (allOf(backlog.take({ bytesMax: 1, recordsMax: 1 }))[0] === id) inOrder += 1;
  }
  expect(inOrder).toBe(100_000);
});

test("a line of many buffers is cut where the limit is, and its size is exact", () => {
  const given = Array.from({ length: 5_000 }, (_, id) => `${String(id)}${"x".repeat(id % 90)}`);
  const backlog = backlogOf(given);
  expect(backlog.contentBytes).toBe(lengthOf(given.map((one) => entryOf(one, JSON_TYPE))) - 1);
  const taken: unknown[] = [];
  while (backlog.length > 0) {
    const batch = backlog.take({ bytesMax: 100_000, recordsMax: Infinity });
    if (backlog.length > 0) expect(lengthOf(batch)).toBeGreaterThan(100_000 - 100);
    taken.push(...allOf(batch));
  }
  expect(taken).toEqual(given);
});

test("a record with conditions goes alone, and the others stay before and behind it", () => {
  const backlog = backlogOf([1, 2]);
  const close = { "Stream-Closed": "true" };
  backlog.push({ ...entryOf(3, JSON_TYPE), conditions: close });
  backlog.push({ ...entryOf(4, JSON_TYPE), conditions: close });
  backlog.push(entryOf(5, JSON_TYPE));
  const batches: unknown[][] = [];
  while (backlog.length > 0) {
    batches.push(allOf(backlog.take({ bytesMax: 1_000, recordsMax: 10 })));
  }
  expect(batches).toEqual([[1, 2], [3], [4], [5]]);
});

test("a record can be taken back while it waits, from the front, the middle and the end", () => {
  for (const out of [0, 1, 2]) {
    const backlog = new Backlog();
    const listeners: Listener[] = [0, 1, 2].map(() => () => undefined);
    for (const [id, listener] of listeners.entries()) {
      backlog.push({ ...entryOf(`é${String(id)}`, JSON_TYPE), listener });
    }
    const listener = listeners[out] ?? (() => undefined);
    expect(backlog.remove(listener)).toBe(true);
    expect(backlog.remove(listener)).toBe(false);
    expect(backlog.length).toBe(2);
    backlog.push(entryOf("last", JSON_TYPE));
    const left = ["é0", "é1", "é2"].filter((_, id) => id !== out);
    expect(allOf(backlog.takeAll())).toEqual([...left, "last"]);
    expect([backlog.length, backlog.contentBytes]).toEqual([0, 0]);
  }
});

const TEXTS = [
  "a",
  "é",
  "€",
  "😀",
  "\ud83d",
  "\ude00x",
  "a\ud83d\ud83d\ude00",
  "\u0000",
  "\ufeffb",
];

test("the bytes of texts are those that each has alone, also of lone surrogates side by side", () => {
  for (const one of TEXTS) {
    for (const other of TEXTS) {
      const backlog = new Backlog();
      for (const text of [one, other]) backlog.push(entryOf(text, TEXT_TYPE));
      const utf8 = new TextEncoder();
      const expected = [...utf8.encode(one), ...utf8.encode(other)];
      const entries = backlog.takeAll();
      expect([...(appendBodyOf(entries, TEXT_TYPE) ?? [])]).toEqual(expected);
      expect(allOf(entries)).toEqual([one, other]);
    }
  }
});

test("what was given before the type was known fits both types, or is refused", () => {
  for (const text of TEXTS) {
    const entry = entryOf(text);
    const utf8 = new TextEncoder();
    expect(appendBodyOf([entry], JSON_TYPE)).toEqual(utf8.encode(JSON.stringify([text])));
    expect(appendBodyOf([entry], TEXT_TYPE)).toEqual(utf8.encode(text));
    expect(dataOf(entry)).toEqual(text);
  }
  const bytes = entryOf(new Uint8Array([1, 2]));
  expect(appendBodyOf([bytes], TEXT_TYPE)).toEqual(new Uint8Array([1, 2]));
  expect(() => appendBodyOf([bytes], JSON_TYPE)).toThrow("data must be a JSON value");
  for (const misfit of ["", 1, { a: 1 }]) {
    expect(() => appendBodyOf([entryOf(misfit)], TEXT_TYPE)).toThrow("not empty");
  }
});

test("data is copied when it is given, also of a Buffer", () => {
  for (const bytes of [new Uint8Array([1, 2]), Buffer.from([1, 2])]) {
    const entry = entryOf(bytes, TEXT_TYPE);
    bytes.fill(9);
    expect(dataOf(entry)).toEqual(new Uint8Array([1, 2]));
  }
});
