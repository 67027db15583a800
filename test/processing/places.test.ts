// The offsets of records. PROTOCOL.md §1.3, §7.3, §7.4
import { afterEach, expect, test } from "vitest";
import type { Batch } from "../../src/client/batches.ts";
import { fromOffset, Places } from "../../src/client/processing/places.ts";
import { INPUT } from "./pipeline-kit.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

const stages: ProcessingStage[] = [];
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()));
});

const NASTY = [
  "1.0e999",
  '{"a":"],[\\\\\\",{"}',
  '{ "crlf" :\r\n  [ 1 ,\r 2\n ] }',
  '"é€😀"',
  "[[],{}]",
  "12345678901234567890",
];

async function open(): Promise<ProcessingStage> {
  const stage = await openStage();
  stages.push(stage);
  await stage.direct.stream(INPUT).create();
  // Appends of one, two and three records, byte by byte as given.
  for (const records of [NASTY.slice(0, 1), NASTY.slice(1, 3), NASTY.slice(3)]) {
    const response = await fetch(stage.server.url + INPUT, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: ` [ ${records.join(" ,\r\n ")} ] `,
    });
    expect(response.status).toBe(204);
  }
  return stage;
}

async function placesOf(
  batches: AsyncIterable<Batch<unknown>>,
): Promise<(readonly [string, string])[]> {
  const found: (readonly [string, string])[] = [];
  for await (const batch of batches) {
    const places = new Places(batch);
    for (const [index] of batch.records.entries()) {
      const text = new TextDecoder().decode(places.bytesAt(index));
      found.push([places.offsetAt(index), text.replace(/[\r\n]/g, " ")]);
    }
    if (found.length >= NASTY.length) break;
  }
  return found;
}

test("a page, a long-poll and an event give the same offset for a record, from wherever they are read", async () => {
  const stage = await open();
  const stream = stage.direct.stream(INPUT);
  const expected = await placesOf(stream.read().pages());
  const oneLine = (text: string): string => text.replace(/[\r\n]/g, " ");
  expect(expected.map(([, text]) => text)).toEqual(NASTY.map(oneLine));
  let at = 0;
  for (const [index, text] of NASTY.entries()) {
    expect(Number(expected[index]?.[0].slice(17))).toBe(at);
    at += new TextEncoder().encode(text).length + 1;
  }
  // Live from the beginning: the events and long-polls of one append each, and then all in one.
  for (const live of ["sse", "long-poll"] as const) {
    const stop = new AbortController();
    const fresh = stage.direct.stream(`${INPUT}-${live}`);
    await fresh.create();
    const following = fresh.follow({ live, signal: stop.signal }).batches();
    const seen = placesOf(following);
    for (const records of [NASTY.slice(0, 1), NASTY.slice(1, 3), NASTY.slice(3)]) {
      await fetch(`${stage.server.url}${INPUT}-${live}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: `[${records.join(",")}]`,
      });
    }
    expect(await seen).toEqual(expected);
    stop.abort();
  }
  // From every record on: the append comes whole, and what is before the offset is left out.
  for (const [index, [offset]] of expected.entries()) {
    const rest: (readonly [string, string])[] = [];
    let isFirst = true;
    for await (const page of stream.read({ from: offset }).pages()) {
      const batch = isFirst ? fromOffset(page, offset) : page;
      isFirst = false;
      rest.push(...(await placesOf(only(batch))));
    }
    expect(rest).toEqual(expected.slice(index));
  }
});

async function* only(batch: Batch<unknown>): AsyncGenerator<Batch<unknown>> {
  yield await Promise.resolve(batch);
}
