// Readers whose connections are cut at any byte, over a real server and time that the test moves. PROTOCOL.md §7
import { describe, expect, test } from "vitest";
import type { Batch } from "../../src/client/batches.ts";
import { type FollowOptions, startFollowing } from "../../src/client/follow.ts";
import { startReading } from "../../src/client/reading.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { type Asked, type Fate, openStage, type Stage, STREAM } from "./reads-stage.ts";

const CUTS = 200;
const SEEDS = process.env["HAPAX_LONG"] === undefined ? [1] : [1, 2, 3];
const CLOSE = { "stream-closed": "true" };

interface Kind {
  readonly name: string;
  readonly contentType: string;
  /** One append. */
  append(random: SeededRandom, index: number): Uint8Array;
  /** All appends as a reader should have them in the end. */
  whole(appends: readonly Uint8Array[]): string;
  /** All records of a reader, in the same form. */
  read(records: readonly unknown[]): string;
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const hex = (pieces: readonly Uint8Array[]): string => Buffer.concat(pieces).toString("hex");
const WORDS = ["ärger", "a\nb", "", " two", "data:", "\n\n", "event: control\n", "€", "{}", "]"];
const words = (random: SeededRandom): string =>
  Array.from({ length: random.below(6) }, () => WORDS[random.below(WORDS.length)]).join("");

const json: Kind = {
  name: "JSON",
  contentType: "application/json",
  append: (random, index) =>
    utf8(
      JSON.stringify(
        Array.from({ length: 1 + random.below(3) }, (_, at) => ({
          index,
          at,
          text: words(random),
        })),
      ),
    ),
  whole: (appends) =>
    JSON.stringify(
      appends.flatMap((bytes) => JSON.parse(new TextDecoder().decode(bytes)) as unknown[]),
    ),
  read: (records) => JSON.stringify(records),
};

const text: Kind = {
  name: "text",
  contentType: "text/plain; charset=utf-8",
  append: (random, index) => utf8(`${String(index)} ${words(random)};`),
  whole: (appends) => appends.map((bytes) => new TextDecoder().decode(bytes)).join(""),
  read: (records) => records.join(""),
};

/** Line breaks that events cannot carry: only pages give them back. */
const crText: Kind = {
  ...text,
  name: "text with CR",
  append: (random, index) => utf8(`${String(index)}\r\n${words(random)}\r;`),
};

const binary: Kind = {
  name: "binary",
  contentType: "application/octet-stream",
  append: (random, index) =>
    Uint8Array.from({ length: 1 + random.below(80) }, (_, at) =>
      at === 0 ? index : random.below(256),
    ),
  whole: hex,
  read: (records) => hex(records as readonly Uint8Array[]),
};

/** Every answer is cut or ended somewhere, until there were enough. */
function stormy(stage: Stage, random: SeededRandom): (asked: Asked) => Fate {
  return ({ query }) => {
    const pieceBytes = 1 + random.below(200);
    if (stage.cuts >= CUTS || random.below(10) === 0) return { pieceBytes };
    if (random.below(20) === 0) return { isLost: true };
    const bytes = random.below(random.below(3) === 0 ? 40 : 400);
    // Only an answer without a length can end early and look whole.
    const isLive = query.get("live") === "sse" && random.below(2) === 0;
    return isLive ? { pieceBytes, endAfterBytes: bytes } : { pieceBytes, cutAfterBytes: bytes };
  };
}

async function followAll(
  stage: Stage,
  options: FollowOptions,
): Promise<{ records: unknown[]; offsets: [string, string][] }> {
  const records: unknown[] = [];
  const offsets: [string, string][] = [];
  const follow = startFollowing(stage.caller, STREAM, { patienceMs: Infinity, ...options });
  for await (const batch of follow.batches()) {
    records.push(...batch.records);
    offsets.push([batch.offset, batch.nextOffset]);
  }
  return { records, offsets };
}

/** Appends until the reader was cut often enough, then closes. */
async function write(stage: Stage, kind: Kind, random: SeededRandom): Promise<Uint8Array[]> {
  const appends: Uint8Array[] = [];
  const headers = { "content-type": kind.contentType };
  await stage.send("PUT", headers);
  for (let index = 0; stage.cuts < CUTS || appends.length < 50; index += 1) {
    const body = kind.append(random, index);
    appends.push(body);
    expect(await stage.send("POST", headers, body)).toBe(204);
    await stage.pass(random.below(8) * 100);
  }
  await stage.send("POST", CLOSE);
  return appends;
}

describe("G20 across 200 cuts at random bytes each record comes once and in order", () => {
  const cases = [
    [json, "sse"],
    [json, "long-poll"],
    [json, "auto"],
    [text, "sse"],
    [text, "long-poll"],
    [crText, "auto"],
    [binary, "sse"],
    [binary, "long-poll"],
    [binary, "auto"],
  ] as const;
  test.each(cases.map(([kind, live]) => ({ kind, live, title: `${kind.name} by ${live}` })))(
    "$title",
    async ({ kind, live }) => {
      for (const seed of SEEDS) {
        const random = createSeededRandom(seed);
        const stage = openStage();
        await stage.send("PUT", { "content-type": kind.contentType });
        stage.fate = stormy(stage, createSeededRandom(seed + 1000));
        const reader = followAll(stage, { live });
        const appends = await write(stage, kind, random);
        const { records, offsets } = await stage.drive(reader);
        expect(kind.read(records)).toBe(kind.whole(appends));
        expect(stage.cuts).toBeGreaterThanOrEqual(CUTS);
        // Each batch begins where the one before it ended.
        for (const [index, [offset]] of offsets.entries()) {
          expect(offset).toBe(index === 0 ? "-1" : offsets[index - 1]?.[1]);
        }
      }
    },
  );
});

test("pages that are cut at every byte are read once and in order", async () => {
  for (const kind of [json, crText, binary]) {
    const random = createSeededRandom(5);
    const stage = openStage();
    const headers = { "content-type": kind.contentType };
    await stage.send("PUT", headers);
    const appends = Array.from({ length: 3 }, (_, index) => kind.append(random, index));
    for (const body of appends) await stage.send("POST", headers, body);
    const length = (await stage.drive(startReading(stage.caller, STREAM).bytes())).length;
    for (let cut = 0; cut < length; cut += 1) {
      stage.fate = () => {
        stage.fate = () => ({});
        return { cutAfterBytes: cut };
      };
      const values = await stage.drive(startReading(stage.caller, STREAM).values());
      expect(kind.read(values)).toBe(kind.whole(appends));
    }
    expect(stage.cuts).toBe(length);
  }
});

test("an answer that is cut or ended at every byte gives each record once", async () => {
  let cuts = 0;
  for (const how of ["cutAfterBytes", "endAfterBytes"] as const) {
    for (let at = 0; at < 420; at += 1) {
      const stage = openStage();
      const headers = { "content-type": "application/json" };
      await stage.send("PUT", headers);
      stage.fate = ({ query }) => {
        if (query.get("live") !== "sse" || stage.cuts > 0) return {};
        return { [how]: at, pieceBytes: 1 + (at % 7) };
      };
      const reader = followAll(stage, { live: "sse" });
      await stage.pass(50);
      await stage.send("POST", headers, '[{"n":0},{"n":1}]');
      await stage.send("POST", headers, '{"n":2}');
      await stage.pass(50);
      await stage.send("POST", { ...headers, ...CLOSE }, '{"n":3}');
      const { records } = await stage.drive(reader);
      expect([how, at, records]).toEqual([how, at, [{ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }]]);
      cuts += stage.cuts;
    }
  }
  expect(cuts).toBe(2 * 420);
});

test("a reader that stops holds little, is cut, and then catches up by pages", async () => {
  const stage = openStage({}, { readerBufferBytes: 10_000, readerStallMs: 5_000 });
  const headers = { "content-type": "application/octet-stream" };
  await stage.send("PUT", headers);
  const batches = startFollowing<Uint8Array>(stage.caller, STREAM, { live: "sse" }).batches();
  await stage.drive(batches.next()); // The empty one that says: up to date.
  const first = batches.next();
  await stage.pass(100);
  const piece = new Uint8Array(5_000).fill(7);
  for (let index = 0; index < 400; index += 1) await stage.send("POST", headers, piece);
  const bytes = [(await stage.drive(first)).value as Batch<Uint8Array>];
  const heldBytes = stage.takenBytes;
  expect(heldBytes).toBeLessThan(20_000); // Of 2,000,000 that are there.
  await stage.pass(60_000);
  expect(stage.takenBytes).toBe(heldBytes);
  await stage.send("POST", CLOSE);
  const requests = stage.asked.length;
  const rest = (async () => {
    for await (const batch of batches) bytes.push(batch);
  })();
  await stage.drive(rest);
  expect(bytes.reduce((sum, batch) => sum + batch.bytes.length, 0)).toBe(2_000_000);
  expect(stage.asked.slice(requests).map(({ query }) => query.get("live"))).toEqual([null, null]);
});

test("a reader that pauses now and then has each record once, with any cut connections", async () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    const random = createSeededRandom(seed);
    const stage = openStage(
      {},
      { readerBufferBytes: 1_024, readerStallMs: 1_000, sseSecondsMax: 7 },
    );
    const headers = { "content-type": "application/octet-stream" };
    await stage.send("PUT", headers);
    const pieces: Uint8Array[] = [];
    const reader = (async () => {
      const follow = startFollowing<Uint8Array>(stage.caller, STREAM, { live: "sse" });
      for await (const { value } of follow) {
        pieces.push(value);
        if (random.below(8) > 0) continue;
        await new Promise<void>((resolve) => {
          stage.clock.after(random.below(6_000), resolve);
        });
      }
    })();
    const appends: Uint8Array[] = [];
    for (let index = 0; index < 400; index += 1) {
      const body = new Uint8Array(1 + random.below(600)).fill(index);
      appends.push(body);
      await stage.send("POST", headers, body);
      await stage.pass(random.below(4) * 50);
    }
    await stage.send("POST", CLOSE);
    await stage.drive(reader);
    expect(hex(pieces)).toBe(hex(appends));
    const ways = stage.asked.map(({ query }) => query.get("live"));
    // It was cut, and not only recycled: pages came between the connections.
    expect(ways.filter((way) => way === null).length).toBeGreaterThan(2);
    expect(ways.filter((way) => way === "sse").length).toBeGreaterThan(2);
  }
});

test("recycled connections leave nothing out and give nothing twice", async () => {
  const stage = openStage();
  const headers = { "content-type": "application/json" };
  await stage.send("PUT", headers);
  const reader = followAll(stage, {});
  for (let index = 0; index < 300; index += 1) {
    await stage.send("POST", headers, String(index));
    await stage.pass(1_000);
  }
  await stage.send("POST", CLOSE);
  const { records } = await stage.drive(reader);
  expect(records).toEqual(Array.from({ length: 300 }, (_, index) => index));
  // 300 seconds: one page, and connections of about 60 seconds without anything between them.
  const ways = stage.asked.map(({ query }) => query.get("live"));
  expect(ways[0]).toBe(null);
  expect(ways.slice(1)).toEqual(Array.from({ length: ways.length - 1 }, () => "sse"));
  expect(ways.length).toBeGreaterThanOrEqual(5);
  expect(ways.length).toBeLessThanOrEqual(8);
});
