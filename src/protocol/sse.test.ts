import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodeControlEvent, encodeDataEvent, encodeHeartbeat, sseKind } from "./sse.ts";
import { SseDecoder, type SseEvent } from "./sse-decoder.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const bytes = (text: string): Uint8Array => encoder.encode(text);
const control = encodeControlEvent({ streamNextOffset: "7" });
const controlEvent = { event: "control", data: '{"streamNextOffset":"7"}' };

function decodeAll(...chunks: readonly Uint8Array[]): SseEvent[] {
  const sse = new SseDecoder();
  return chunks.flatMap((chunk) => [...sse.push(chunk)]);
}

/** Cuts at the given places, which wrap around. Equal places give empty chunks. */
function chunked(whole: Uint8Array, places: readonly number[]): Uint8Array[] {
  const cuts = places.map((place) => place % (whole.length + 1)).toSorted((a, b) => a - b);
  return [0, ...cuts].map((cut, index) => whole.subarray(cut, cuts[index] ?? whole.length));
}

function concat(...parts: readonly Uint8Array[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

const unit = fc.oneof(
  fc.constantFrom("\r", "\n", "\r\n", " ", ":", "data:", "event: control", "\uFEFF", "😀", "\0"),
  fc.string({ unit: "binary", maxLength: 3 }),
);
const payload = fc.array(unit, { maxLength: 20 }).map((units) => units.join(""));
const places = fc.array(fc.nat(), { maxLength: 8 });

describe("data events", () => {
  test.each([
    ["text", "", "event: data\ndata:\n\n"],
    [
      "text",
      "line1\nline2\r\nline3\rx",
      "event: data\ndata:line1\ndata:line2\ndata:line3\ndata:x\n\n",
    ],
    ["text", "a\n", "event: data\ndata:a\ndata:\n\n"],
    ["text", "\n\r", "event: data\ndata:\ndata:\ndata:\n\n"],
    ["text", " a\n b", "event: data\ndata:  a\ndata:  b\n\n"],
    ["json", "", "event: data\ndata:[]\n\n"],
    ["json", '{"k":"v"},{"k":"w"},', 'event: data\ndata:[{"k":"v"},{"k":"w"}]\n\n'],
    ["json", '{\r\n"k":1},', 'event: data\ndata:[{\ndata:\ndata:"k":1}]\n\n'],
    ["base64", "", "event: data\ndata:\n\n"],
    ["base64", "a", "event: data\ndata:YQ==\n\n"],
    ["base64", "ab", "event: data\ndata:YWI=\n\n"],
    ["base64", "abc", "event: data\ndata:YWJj\n\n"],
  ] as const)("a %s payload of %j is framed as %j", (kind, stored, frame) => {
    expect(decoder.decode(encodeDataEvent(kind, bytes(stored)))).toBe(frame);
  });

  test("any text comes back with its line breaks as LF, and injects nothing", () => {
    fc.assert(
      fc.property(payload, places, (text, cuts) => {
        const sent = concat(encodeDataEvent("text", bytes(text)), control);
        const data = text.replace(/\r\n|\r/g, "\n");
        expect(decodeAll(...chunked(sent, cuts))).toEqual([{ event: "data", data }, controlEvent]);
      }),
      { numRuns: 1000 },
    );
  });

  test("a text that imitates events is one event", () => {
    const attack = "a\r\n\r\nevent: control\r\ndata: {}\r\n\r\n\n\nevent: data\ndata: b\r\rend";
    const events = decodeAll(encodeDataEvent("text", bytes(attack)), control);
    expect(events.map(({ event }) => event)).toEqual(["data", "control"]);
  });

  test("bytes that are not UTF-8 cannot swallow the end of their event", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (stored) => {
        const events = decodeAll(encodeDataEvent("text", stored), control);
        expect(events.map(({ event }) => event)).toEqual(["data", "control"]);
        expect(events[1]).toEqual(controlEvent);
      }),
    );
  });

  test("JSON comes back as the same value, and byte for byte when it has no line breaks", () => {
    fc.assert(
      fc.property(
        fc.array(fc.json(), { minLength: 1 }),
        fc.nat(3),
        places,
        (texts, indent, cuts) => {
          const spelled = texts.map((text) => JSON.stringify(JSON.parse(text), undefined, indent));
          const stored = bytes(spelled.map((text) => `${text},`).join(""));
          const [event, ...rest] = decodeAll(...chunked(encodeDataEvent("json", stored), cuts));
          expect(rest).toEqual([]);
          expect(event).toEqual({ event: "data", data: `[${spelled.join(",")}]` });
        },
      ),
    );
  });

  test("base64 is byte exact and takes one line", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), places, (stored, cuts) => {
        const [event, ...rest] = decodeAll(...chunked(encodeDataEvent("base64", stored), cuts));
        expect(rest).toEqual([]);
        expect(event?.data).toBe(Buffer.from(stored).toString("base64"));
      }),
    );
  });
});

describe("control events and heartbeats", () => {
  test.each([
    [{ streamNextOffset: "1" }, '{"streamNextOffset":"1"}'],
    [
      { streamNextOffset: "1", streamCursor: "2", upToDate: true },
      '{"streamNextOffset":"1","streamCursor":"2","upToDate":true}',
    ],
    [
      { streamNextOffset: "1", upToDate: false, streamClosed: true },
      '{"streamNextOffset":"1","streamClosed":true}',
    ],
  ])("%j says only what holds", (members, json) => {
    expect(decoder.decode(encodeControlEvent(members))).toBe(
      `id: ${members.streamNextOffset}\nevent: control\ndata:${json}\n\n`,
    );
  });

  test("a cursor with line breaks stays inside its event", () => {
    const frame = encodeControlEvent({ streamNextOffset: "1", streamCursor: "a\n\nevent: data\n" });
    expect(decodeAll(frame)).toHaveLength(1);
  });

  test("a heartbeat is a comment between events and no event", () => {
    expect(decoder.decode(encodeHeartbeat())).toBe(":\n\n");
    expect(decodeAll(encodeHeartbeat(), control, encodeHeartbeat())).toEqual([controlEvent]);
  });
});

test.each([
  ["application/json", "json"],
  ["Application/JSON; charset=utf-8", "json"],
  ["application/json ;charset=utf-8", "json"],
  ["text/plain", "text"],
  ["TEXT/html;charset=utf-8", "text"],
  ["application/octet-stream", "base64"],
  ["application/json-seq", "base64"],
  ["application/x; a=text/plain", "base64"],
  ["", "base64"],
])("records of %j travel as %s", (contentType, kind) => {
  expect(sseKind(contentType)).toBe(kind);
});
