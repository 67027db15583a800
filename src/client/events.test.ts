import { expect, test } from "vitest";
import { createSeededRandom, type SeededRandom } from "../testing/seeded-random.ts";
import {
  createSseDecoder,
  encodeControlEvent,
  encodeDataEvent,
  encodeHeartbeat,
  type SseEvent,
} from "../protocol/sse.ts";
import { Events } from "./events.ts";

const utf8 = new TextEncoder();
const FLUSH = utf8.encode("\n:\n");

/** The events of bytes that come in pieces, by the client's parser. */
function parsed(pieces: readonly Uint8Array[]): SseEvent[] {
  const events = new Events();
  return pieces.flatMap((piece) => [...events.push(piece)]);
}

/** The same, by the general decoder; an event without a name is called `message` there. */
function expected(pieces: readonly Uint8Array[]): SseEvent[] {
  const decoder = createSseDecoder();
  return pieces
    .flatMap((piece) => decoder.push(piece))
    .map(({ event, data }) => ({ event: event === "message" ? "" : event, data }));
}

function cut(bytes: Uint8Array, random: SeededRandom): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + random.below(random.below(4) === 0 ? 40 : 4);
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return [...pieces, FLUSH];
}

const FIELDS = ["data", "event", "id", "retry", "", "dat", "data ", "é", "\ufeffdata"];
const COLONS = [":", ": ", ":  ", "", " :"];
const VALUES = ["", "x", "control", "data", "é€😀", " ", "a:b", "[1,2]"];
const ENDS = ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\r\r"];

test("for all lines and chunks, the events are those of the general decoder", () => {
  const random = createSeededRandom(7);
  const pick = (from: readonly string[]): string => from[random.below(from.length)] ?? "";
  let events = 0;
  for (let round = 0; round < 3_000; round += 1) {
    const lines = Array.from({ length: random.below(14) }, () => {
      const field = pick(random.below(3) > 0 ? FIELDS.slice(0, 2) : FIELDS);
      return field + pick(COLONS) + pick(VALUES) + pick(ENDS);
    });
    const bytes = utf8.encode((random.below(9) === 0 ? "\ufeff" : "") + lines.join(""));
    // Some bytes are not UTF-8.
    if (random.below(5) === 0 && bytes.length > 0) bytes[random.below(bytes.length)] = 0xff;
    const pieces = cut(bytes, random);
    const wanted = expected(pieces);
    expect(parsed(pieces)).toEqual(wanted);
    events += wanted.length;
  }
  expect(events).toBeGreaterThan(3_000);
});

test("what our server sends is taken apart, cut at every byte", () => {
  const stored = utf8.encode('{"a":"é\\n"},[1],"😀",');
  const sent = [
    encodeDataEvent("json", stored),
    encodeHeartbeat(),
    encodeControlEvent({ streamNextOffset: "1", upToDate: true }),
    encodeDataEvent("text", utf8.encode(" two\r\nlines\n")),
    encodeDataEvent("base64", new Uint8Array([0, 255, 10])),
    encodeControlEvent({ streamNextOffset: "2", streamClosed: true }),
  ];
  const bytes = new Uint8Array(sent.flatMap((event) => [...event]));
  const whole = parsed([bytes]);
  expect(whole.map(({ event }) => event)).toEqual(["data", "control", "data", "data", "control"]);
  for (let at = 0; at <= bytes.length; at += 1) {
    expect(parsed([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(whole);
  }
});

test("it counts the characters of an unfinished event, and none after its end", () => {
  const events = new Events();
  expect([...events.push(utf8.encode(`data:${"x".repeat(1_000)}`))]).toEqual([]);
  expect(events.chars).toBeGreaterThanOrEqual(1_000);
  expect([...events.push(utf8.encode("\n\n"))]).toHaveLength(1);
  expect(events.chars).toBe(0);
});
