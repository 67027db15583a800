import { expect, test } from "vitest";
import { createSeededRandom, type SeededRandom } from "../testing/seeded-random.ts";
import { LIMITS } from "./limits.ts";
import { encodeControlEvent, encodeDataEvent, encodeHeartbeat } from "./sse.ts";
import { SseDecoder, type SseEvent } from "./sse-decoder.ts";

const utf8 = new TextEncoder();

/** The events of bytes that come in pieces. */
function parsed(pieces: readonly Uint8Array[]): SseEvent[] {
  const decoder = new SseDecoder();
  return pieces.flatMap((piece) => [...decoder.push(piece)]);
}

/** The same by the words of the HTML standard, line by line, of the whole text. */
function expected(bytes: Uint8Array): SseEvent[] {
  const events: SseEvent[] = [];
  const lines = new TextDecoder().decode(bytes).split(/\r\n|\r|\n/);
  lines.pop(); // The last line is not complete.
  let event = "";
  let data: string[] = [];
  for (const line of lines) {
    if (line === "") {
      if (data.length > 0) events.push({ event, data: data.join("\n") });
      event = "";
      data = [];
      continue;
    }
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    if (field === "data") data.push(value);
  }
  return events;
}

function cut(bytes: Uint8Array, random: SeededRandom): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + random.below(random.below(4) === 0 ? 40 : 4);
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return pieces;
}

const FIELDS = ["data", "event", "id", "retry", "", "dat", "data ", "é", "\ufeffdata"];
const COLONS = [":", ": ", ":  ", "", " :"];
const VALUES = ["", "x", "control", "data", "é€😀", " ", "a:b", "[1,2]"];
const ENDS = ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\r\r"];

test("the events are those of the HTML standard, for all lines and all cuts into chunks", () => {
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
    const wanted = expected(bytes);
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

test("chars counts the unfinished event, and nothing after it", () => {
  const decoder = new SseDecoder();
  expect([...decoder.push(utf8.encode(`data:${"x".repeat(1_000)}`))]).toEqual([]);
  expect(decoder.chars).toBeGreaterThanOrEqual(1_000);
  expect([...decoder.push(utf8.encode("\n\n"))]).toHaveLength(1);
  expect(decoder.chars).toBe(0);
});

test("chars counts an event however it is cut into lines and chunks", () => {
  const large: readonly (readonly string[])[] = [
    [`data:${"x".repeat(60)}`],
    ["data:", ...Array.from({ length: 60 }, () => "x")],
    Array.from({ length: 33 }, () => "data:x\n"),
    Array.from({ length: 65 }, () => "data:\n"),
    [`:${"x".repeat(64)}`],
    [`event:${"x".repeat(60)}\ndata:12345`],
  ];
  for (const chunks of large) {
    const decoder = new SseDecoder();
    for (const chunk of chunks) expect([...decoder.push(utf8.encode(chunk))]).toEqual([]);
    expect(decoder.chars, chunks[0]).toBeGreaterThan(64);
  }
});

test("comments, unknown fields, a byte order mark at the start, and an append of the largest size", () => {
  const stream =
    "\uFEFF: hello\r\nevent: a\r\ndata: 1\r\n\r\nevent:b\rdata:2\rdata\rdata:  3\r\rid: 9\nretry: 1\n" +
    "unknown\n:data: no\ndata:é😀\n\nevent: empty\n\ndata:\uFEFFx\n\nevent: cut\ndata: off\n";
  const events = [
    { event: "a", data: "1" },
    { event: "b", data: "2\n\n 3" },
    { event: "", data: "é😀" },
    { event: "", data: "\uFEFFx" },
  ];
  expect(parsed([utf8.encode(stream)])).toEqual(events);
  expect(parsed(Array.from(utf8.encode(stream), (byte) => Uint8Array.of(byte)))).toEqual(events);
  expect(parsed([encodeDataEvent("base64", new Uint8Array(LIMITS.bodyBytesMax))])).toHaveLength(1);
});

test("an event is reported with the byte that ends it, also when that is a CR", () => {
  const decoder = new SseDecoder();
  const push = (text: string): SseEvent[] => [...decoder.push(utf8.encode(text))];
  expect(push("data:1\r\n")).toEqual([]);
  expect(push("\r")).toEqual([{ event: "", data: "1" }]);
  expect(push("\ndata:2\n")).toEqual([]);
  expect(push("\n")).toEqual([{ event: "", data: "2" }]);
});
