import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  createSseDecoder,
  encodeControlEvent,
  encodeDataEvent,
  encodeHeartbeat,
  type SseEvent,
  sseKind,
} from "./sse.ts";
import { LIMITS } from "./limits.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const bytes = (text: string): Uint8Array => encoder.encode(text);
const control = encodeControlEvent({ streamNextOffset: "7" });
const controlEvent = { event: "control", data: '{"streamNextOffset":"7"}' };

function decodeAll(...chunks: readonly Uint8Array[]): SseEvent[] {
  const sse = createSseDecoder();
  return chunks.flatMap((chunk) => sse.push(chunk));
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

describe("the decoder", () => {
  const stream =
    "\uFEFF: hello\r\nevent: a\r\ndata: 1\r\n\r\nevent:b\rdata:2\rdata\rdata:  3\r\rid: 9\nretry: 1\n" +
    "unknown\n:data: no\ndata:é😀\n\nevent: empty\n\ndata:\uFEFFx\n\nevent: cut\ndata: off\n";
  const events = [
    { event: "a", data: "1" },
    { event: "b", data: "2\n\n 3" },
    { event: "message", data: "é😀" },
    { event: "message", data: "\uFEFFx" },
  ];

  test("reads every line ending, comments, unknown fields, and a byte order mark at the start", () => {
    expect(decodeAll(bytes(stream))).toEqual(events);
  });

  test("no cut into chunks changes the events", () => {
    expect(decodeAll(...Array.from(bytes(stream), (byte) => Uint8Array.of(byte)))).toEqual(events);
    fc.assert(
      fc.property(places, (cuts) => {
        expect(decodeAll(...chunked(bytes(stream), cuts))).toEqual(events);
      }),
    );
  });

  test("an event beyond the limit is refused for good, however it is cut into lines and chunks", () => {
    const large: readonly (readonly string[])[] = [
      [`data:${"x".repeat(60)}`],
      [`data:${"x".repeat(60)}\n\n`],
      ["data:", ...Array.from({ length: 60 }, () => "x")],
      Array.from({ length: 33 }, () => "data:x\n"),
      Array.from({ length: 65 }, () => "data:\n"),
      [`:${"x".repeat(64)}`],
      [`event:${"x".repeat(60)}\ndata:12345`],
    ];
    for (const chunks of large) {
      const sse = createSseDecoder(64);
      expect(() => chunks.map((chunk) => sse.push(bytes(chunk))), chunks[0]).toThrow(
        expect.objectContaining({ code: "body_too_large" }),
      );
      expect(() => sse.push(bytes("\n\ndata:1\n\n"))).toThrow(/64/);
    }
  });

  test("the limit is for one event, not for all, and an append of the largest size fits", () => {
    const sse = createSseDecoder(64);
    const event = `data:${"x".repeat(40)}\n\n`;
    for (let count = 0; count < 10; count += 1) expect(sse.push(bytes(event))).toHaveLength(1);
    expect(sse.push(bytes("data:\n".repeat(60)))).toEqual([]);
    expect(sse.push(bytes("\n"))).toEqual([{ event: "message", data: "\n".repeat(59) }]);
    const base64 = encodeDataEvent("base64", new Uint8Array(LIMITS.bodyBytesMax));
    expect(createSseDecoder().push(base64)).toHaveLength(1);
  });

  test("an event is reported with the byte that ends it, also when that is a CR", () => {
    const sse = createSseDecoder();
    expect(sse.push(bytes("data:1\r\n"))).toEqual([]);
    expect(sse.push(bytes("\r"))).toEqual([{ event: "message", data: "1" }]);
    expect(sse.push(bytes("\ndata:2\n"))).toEqual([]);
    expect(sse.push(bytes("\n"))).toEqual([{ event: "message", data: "2" }]);
  });
});
