// Heads, byte by byte. The judge is a pattern written after the grammar in the header of the parser.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LIMITS } from "../../protocol/all-limits.ts";
import { LaneMemory } from "./node-lane-memory.ts";
import { HeadParser, type HeadVerdict } from "./node-lane-parser.ts";

const GOOD =
  "POST /v1/stream/a?x=1 HTTP/1.1\r\nHost: t:1\r\ncontent-TYPE: text/plain; charset=utf-8\r\n" +
  "Content-Length: 12\r\nProducer-Id:p\r\nConnection: Keep-Alive\r\n\r\n";

const HEAD =
  /^POST (\/(?:(?<!\/)_|[A-Za-z0-9\-.~%!$&'()*+,;=:@/?])*) HTTP\/1\.1\r\n((?:[A-Za-z0-9!#$%&'*+\-.^_`|~]+: ?[!-~]+(?: [!-~]+)*\r\n)+)\r\n/;
const FOREIGN = ["transfer-encoding", "expect", "upgrade", "proxy-connection", "trailer", "te"];

const PLAIN_HOST = /^[A-Za-z0-9._-]+(:[0-9]{1,5})?$/;

/** Whether the text begins with a head that the lane may take. */
function isStrict(text: string): boolean {
  const match = HEAD.exec(text);
  if (match === null) return false;
  const lines = (match[2] ?? "").trimEnd().split("\r\n");
  const fields = new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  return (
    fields.size === lines.length &&
    lines.length <= 31 &&
    PLAIN_HOST.test(fields.get("host") ?? "") &&
    ![...FOREIGN, "origin"].some((name) => fields.has(name)) &&
    /^(0|[1-9][0-9]{0,14})$/.test(fields.get("content-length") ?? "0") &&
    (fields.get("connection") ?? "keep-alive").toLowerCase() === "keep-alive"
  );
}

function verdictOn(text: string): HeadVerdict {
  return new HeadParser().parse(Buffer.from(text, "latin1"), 0);
}

/** A field of the head that was parsed last. */
function findField({ fields }: HeadParser, name: string): string | undefined {
  const place = fields.find(name);
  if (place < 0) return undefined;
  return fields.bytes.toString("latin1", fields.startOf(place), fields.endOf(place));
}

function withField(field: string): string {
  return GOOD.replace("Producer-Id:p", field);
}

test("a whole head says where its parts are, also behind other bytes", () => {
  const parser = new HeadParser();
  const bytes = Buffer.from(`before${GOOD}after`, "latin1");
  expect(parser.parse(bytes, 6)).toBe("whole");
  expect(bytes.toString("latin1", parser.end)).toBe("after");
  expect(bytes.toString("latin1", parser.targetStart, parser.queryMark)).toBe("/v1/stream/a");
  expect(bytes.toString("latin1", parser.queryMark, parser.targetEnd)).toBe("?x=1");
  expect(parser.contentLength).toBe(12);
  const names = [
    "host",
    "content-type",
    "producer-id",
    "connection",
    "content-typ",
    "producer-id2",
  ];
  expect(names.map((name) => findField(parser, name))).toEqual([
    "t:1",
    "text/plain; charset=utf-8",
    "p",
    "Keep-Alive",
    undefined,
    undefined,
  ]);
});

test("a credential that was seen before changes neither the verdict on a head nor what is found in it", () => {
  const value = fc
    .array(fc.constantFrom("a", "b", " ", "\t", "\x7f", "Bearer a", "c".repeat(300)), {
      maxLength: 6,
    })
    .map((parts) => parts.join(""));
  const name = fc.constantFrom("Authorization", "authorization", "Authorizatiom");
  const cut = fc.integer({ min: 0, max: 3 });
  const found = (parser: HeadParser): unknown[] => [parser.end, findField(parser, "authorization")];
  fc.assert(
    fc.property(value, value, name, cut, (last, sent, field, missing) => {
      const memory = new LaneMemory();
      const kept = Buffer.from(last.trim().replaceAll(/ {2,}|[\t\x7f]/g, ""), "latin1");
      memory.keepCredential(kept, 0, kept.length);
      const text = withField(`${field}: ${sent}`);
      const head = Buffer.from(text.slice(0, text.length - missing), "latin1");
      const [knowing, plain] = [new HeadParser(), new HeadParser()];
      const verdict = knowing.parse(head, 0, memory);
      expect(verdict).toBe(plain.parse(head, 0));
      if (verdict !== "whole") return;
      expect(found(knowing)).toEqual(found(plain));
      const isSame = field !== "Authorizatiom" && sent === memory.credential && sent !== "";
      expect(knowing.repeatsCredential).toBe(isSame);
    }),
  );
});

describe("what says where a request ends is plain, or the request is unusual", () => {
  test.each([
    ["a second Content-Length", "Content-Length: 12"],
    ["a second Content-Length that differs", "CONTENT-LENGTH: 13"],
    ["a Transfer-Encoding", "Transfer-Encoding: chunked"],
    ["a Transfer-Encoding in another case", "tRANSFER-eNCODING: identity"],
    ["an expectation", "Expect: 100-continue"],
    ["an upgrade", "Upgrade: h2c"],
    ["a connection that a proxy asks for", "Proxy-Connection: close"],
    ["a second Host", "Host: u"],
    ["a trailer", "Trailer: X"],
    ["an origin, whose answer has more headers", "Origin: http://a"],
    ["a field twice", "Content-Type: text/plain"],
  ])("%s", (_name, field) => {
    expect(verdictOn(withField(field))).toBe("unusual");
  });

  test.each(["", "+1", "-1", "0x1", "1 2", "1,1", "01", "1e3", "1.", "1234567890123456", "\u00b2"])(
    "Content-Length: %s",
    (length) => {
      expect(verdictOn(GOOD.replace("12", length))).toBe("unusual");
    },
  );

  test.each(["close", "keep-alive, close", "upgrade", "keep-alive2"])("Connection: %s", (value) => {
    expect(verdictOn(GOOD.replace("Keep-Alive", value))).toBe("unusual");
  });

  test("a name that shares the number of another is neither found nor taken for it", () => {
    const parser = new HeadParser();
    const bytes = Buffer.from(withField("q1oducer-id: p"), "latin1");
    expect(parser.parse(bytes, 0)).toBe("whole");
    expect(findField(parser, "producer-id")).toBeUndefined();
    expect(verdictOn(GOOD.replace("Host", "j1st"))).toBe("unusual");
    expect(verdictOn(GOOD.replace("Content-Length", "e1ntent-length"))).toBe("unusual");
  });
});

describe("every byte of a whole head is in the grammar", () => {
  test("any byte at any place of a good head gets the verdict of the grammar", () => {
    const wrong: string[] = [];
    for (let at = 0; at < GOOD.length; at += 1) {
      for (let byte = 0; byte < 256; byte += 1) {
        const text = GOOD.slice(0, at) + String.fromCharCode(byte) + GOOD.slice(at + 1);
        if ((verdictOn(text) === "whole") !== isStrict(text)) wrong.push(JSON.stringify(text));
      }
    }
    expect(wrong).toEqual([]);
  });

  test("heads of arbitrary pieces get the verdict of the grammar", () => {
    const pieces = ["POST", " ", "/", "/_", "a_b", "HTTP/1.1", "HTTP/1.0", "\r\n", "\n", "\r"];
    pieces.push("Host: t", "Content-Length: 5", "X:", "X: y", "y: z", " ", "\t", ":", GOOD);
    pieces.push("POST /a HTTP/1.1\r\nHost: t\r\n");
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...pieces), { maxLength: 12 }), (parts) => {
        const text = parts.join("");
        expect(verdictOn(text) === "whole").toBe(isStrict(text));
      }),
      { numRuns: 20_000 },
    );
  });

  test.each([
    ["another method", GOOD.replace("POST", "PUT")],
    ["a reserved path", GOOD.replace("/v1/stream/a", "/v1/stream/__ds/a")],
    ["a whole address", GOOD.replace("/v1", "http://t/v1")],
    ["no Host", GOOD.replace("Host", "Hose")],
    ["no fields", "POST /a HTTP/1.1\r\n\r\n"],
    ["more fields than anybody needs", withField(manyFields(31))],
    ["a field without a value", withField("X:")],
    ["a folded field", withField("X: a\r\n b")],
  ])("%s is unusual", (_name, text) => {
    expect(verdictOn(text)).toBe("unusual");
  });
});

function manyFields(count: number): string {
  return Array.from({ length: count }, (_, index) => `X-${index}: y`).join("\r\n");
}

describe("a verdict does not depend on what follows, and a cut head is never whole", () => {
  test("a good head is partial at every cut, and its end does not depend on what follows", () => {
    for (let at = 0; at < GOOD.length; at += 1) {
      expect([at, verdictOn(GOOD.slice(0, at))]).toEqual([at, "partial"]);
    }
    const parser = new HeadParser();
    for (const after of ["\r\n", "POST", "\0", GOOD]) {
      expect(parser.parse(Buffer.from(GOOD + after, "latin1"), 0)).toBe("whole");
      expect(parser.end).toBe(GOOD.length);
    }
  });

  test("what is unusual stays so with every byte more", () => {
    fc.assert(
      fc.property(fc.nat(GOOD.length - 1), fc.nat(255), fc.nat(GOOD.length), (at, byte, cut) => {
        const text = GOOD.slice(0, at) + String.fromCharCode(byte) + GOOD.slice(at + 1);
        const before = verdictOn(text.slice(0, cut));
        if (cut < text.length) expect(before).not.toBe("whole");
        if (before === "unusual") expect(verdictOn(text)).toBe("unusual");
      }),
      { numRuns: 5000 },
    );
  });

  test("a head that does not end within its limit is unusual", () => {
    const start = "POST /a HTTP/1.1\r\nHost: t\r\nX: ";
    const room = LIMITS.laneHeadBytesMax - start.length;
    expect(verdictOn(start + "y".repeat(room - 1))).toBe("partial");
    expect(verdictOn(start + "y".repeat(room))).toBe("unusual");
    expect(verdictOn(`${start}${"y".repeat(room - 4)}\r\n\r\n`)).toBe("whole");
    expect(verdictOn(`${start}${"y".repeat(room - 3)}\r\n\r\n`)).toBe("unusual");
  });
});
