import fc from "fast-check";
import { describe, expect, test } from "vitest";

import { chunks } from "../../test/kits/cli-harness.ts";
import { type InputBatch, batchBytes, batchLines } from "./batches.ts";

const text = (batch: InputBatch): string => new TextDecoder().decode(batch.body);

async function collect(batches: AsyncIterable<InputBatch>): Promise<InputBatch[]> {
  const all: InputBatch[] = [];
  for await (const batch of batches) all.push(batch);
  return all;
}

/** The text in pieces, as a pipe might deliver it. */
function pieces(input: string, size: number): string[] {
  return input.match(new RegExp(`[^]{1,${String(size)}}`, "g")) ?? [];
}

const lines = (input: readonly string[], batchBytesMax = 1000) =>
  collect(batchLines(chunks(input), { batchBytesMax, lineBytesMax: 1000 }));

describe("batches of lines", () => {
  test("no batch passes the limit unless it is one record", async () => {
    const record = fc.string({ maxLength: 60 }).map((value) => JSON.stringify(value));
    await fc.assert(
      fc.asyncProperty(fc.array(record), fc.integer({ min: 3, max: 120 }), async (records, max) => {
        const batches = await lines([records.join("\n")], max);
        for (const batch of batches) {
          expect(batch.records === 1 || batch.body.length <= max).toBe(true);
        }
        const found: unknown[] = batches.flatMap((batch) => JSON.parse(text(batch)) as unknown[]);
        expect(found).toEqual(records.map((value) => JSON.parse(value) as unknown));
      }),
    );
  });

  test("a batch is filled to the last byte", async () => {
    const [first, second] = await lines(['"a"\n"b"\n"c"\n'], '["a","b"]'.length);
    expect([text(first as InputBatch), text(second as InputBatch)]).toEqual(['["a","b"]', '["c"]']);
  });

  test("how the bytes arrive does not change the batches", async () => {
    const input = Array.from({ length: 40 }, (_, i) => `{"n":${String(i)},"t":"ä€"}`).join("\r\n");
    const whole = (await lines([input], 100)).map(text);
    for (const size of [1, 2, 7, 64]) {
      expect((await lines(pieces(input, size), 100)).map(text)).toEqual(whole);
    }
  });

  test("a pause sends what there is, and only a pause is marked so", async () => {
    let release = (): void => {};
    const later = new Promise<void>((resolve) => {
      release = resolve;
    });
    async function* slow(): AsyncGenerator<Uint8Array> {
      yield new TextEncoder().encode("1\n");
      await later;
      yield new TextEncoder().encode("2\n");
    }
    const batches = batchLines(slow(), {
      batchBytesMax: 1000,
      lineBytesMax: 1000,
      pause: () => new Promise((resolve) => setImmediate(resolve)),
    });
    const first = await batches.next();
    expect(first.value).toMatchObject({ records: 1, isCutByPause: true, lastLine: 1 });
    release();
    const second = await batches.next();
    expect(second.value).toMatchObject({ records: 1, lastLine: 2 });
    expect((await batches.next()).done).toBe(true);
  });

  test("a line that would close the array is refused by its number", async () => {
    await expect(lines(["1\n\n1],[2\n"])).rejects.toThrow("line 3 of the input is not JSON");
    await expect(lines(["1,2"])).rejects.toThrow("line 1 of the input is not JSON");
  });

  test("records keep their exact bytes; blank lines and a byte order mark are dropped", async () => {
    const [batch] = await lines(["\uFEFF 1.0 \n\n  \n1e400\n[1, 2]\r\n"]);
    expect(text(batch as InputBatch)).toBe("[1.0,1e400,[1, 2]]");
    expect(batch).toMatchObject({ records: 3, lastLine: 5 });
  });

  test("a line without end does not fill the memory", async () => {
    await expect(lines(pieces("x".repeat(5000), 500))).rejects.toThrow("longer than 1000 bytes");
  });
});

describe("batches of bytes", () => {
  test("chunks are cut at the limit wherever the input was cut", async () => {
    const input = "0123456789".repeat(10);
    for (const size of [1, 3, 30, 100]) {
      const batches = await collect(batchBytes(chunks(pieces(input, size)), { batchBytesMax: 32 }));
      expect(batches.map((batch) => batch.body.length)).toEqual([32, 32, 32, 4]);
      expect(batches.map(text).join("")).toBe(input);
    }
  });
});
