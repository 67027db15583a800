import { expect, test } from "vitest";
import { createSeededRandom } from "../testing/seeded-random.ts";
import { Backlog, type Item } from "./batching.ts";
import { codecOf, encode, join } from "./records.ts";

const JSON_TYPE = codecOf("application/json; charset=utf-8");

function item(data: unknown, conditions?: Record<string, string>): Item {
  return { data, piece: encode(data, JSON_TYPE), conditions, end: () => undefined };
}

const bodyOf = (items: readonly Item[]): Uint8Array =>
  join(
    items.flatMap(({ piece }) => (piece === undefined ? [] : [piece])),
    JSON_TYPE,
  );

test("BQ1 BQ2 whatever the sizes, batches keep the order and their limits, and fill them", () => {
  const random = createSeededRandom(4);
  for (let round = 0; round < 300; round += 1) {
    const limits = { bytesMax: 2 + random.below(200), recordsMax: 1 + random.below(10) };
    const given = Array.from({ length: random.below(60) }, (_, id) =>
      `${String(id)}é😀`.repeat(random.below(8)),
    );
    const backlog = new Backlog();
    for (const data of given) backlog.push(item(data));
    const taken: unknown[] = [];
    while (backlog.length > 0) {
      const batch = backlog.take(limits);
      const body = bodyOf(batch);
      expect(batch.length).toBeGreaterThan(0);
      expect(batch.length).toBeLessThanOrEqual(limits.recordsMax);
      if (batch.length > 1) expect(body.length).toBeLessThanOrEqual(limits.bytesMax);
      const { first } = backlog;
      if (first !== undefined && batch.length < limits.recordsMax) {
        // One more would not have fitted; the sum may count one comma too many.
        expect(bodyOf([...batch, first]).length).toBeGreaterThanOrEqual(limits.bytesMax);
      }
      if (random.below(4) === 0 && taken.length < 500) backlog.putBack(batch);
      else taken.push(...batch.map(({ data }) => data));
    }
    expect(taken).toEqual(given);
    expect(backlog.contentBytes).toBe(0);
  }
});

test("BQ1 a long line is taken from its front without copying it each time", () => {
  const backlog = new Backlog();
  for (let id = 0; id < 100_000; id += 1) backlog.push(item(id));
  let inOrder = 0;
  for (let id = 0; id < 100_000; id += 1) {
    if (backlog.take({ bytesMax: 1, recordsMax: 1 })[0]?.data === id) inOrder += 1;
  }
  expect(inOrder).toBe(100_000);
});

test("BQ3 a piece with conditions goes alone, and the others stay before and behind it", () => {
  const backlog = new Backlog();
  const close = { "Stream-Closed": "true" };
  for (const one of [item(1), item(2), item(3, close), item(4, close), item(5)]) backlog.push(one);
  const batches: unknown[][] = [];
  while (backlog.length > 0) {
    const batch = backlog.take({ bytesMax: 1_000, recordsMax: 10 });
    batches.push(batch.map(({ data }) => data));
  }
  expect(batches).toEqual([[1, 2], [3], [4], [5]]);
});

test("BQ1 a piece can be taken back while it waits", () => {
  const backlog = new Backlog();
  const [one, two, three] = [item(1), item(2), item(3)];
  for (const each of [one, two, three]) backlog.push(each);
  expect(backlog.remove(two)).toBe(true);
  expect(backlog.remove(two)).toBe(false);
  expect(backlog.takeAll()).toEqual([one, three]);
  expect(backlog.length).toBe(0);
});

test("sizes are those of UTF-8, also of lone surrogates", () => {
  const bytes = codecOf("text/plain");
  for (const text of ["a", "é", "€", "😀", "\ud83d", "\ude00x", "a\ud83d\ud83d\ude00", "\u0000"]) {
    const piece = encode(text, bytes);
    expect(piece.size, JSON.stringify(text)).toBe(new TextEncoder().encode(text).length);
    expect(join([piece], bytes).length).toBe(piece.size);
  }
});
