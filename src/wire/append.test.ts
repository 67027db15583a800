// PROTOCOL.md §4, §5
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { AppendCommand, AppendDecision } from "../core/append.ts";
import type { Epoch, Offset, Sequence } from "../core/types.ts";
import { ERRORS, isHapaxError } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { encodeAppend, parseAppend, parseAppendHead } from "./append.ts";

const utf8 = new TextEncoder();

function parse(headers: Readonly<Record<string, string>>, body = "a"): AppendCommand {
  const head = parseAppendHead((name) => headers[name]);
  return parseAppend(head, utf8.encode(body));
}

function refusal(headers: Readonly<Record<string, string>>, body = "a"): string {
  try {
    parse(headers, body);
  } catch (error) {
    if (isHapaxError(error)) return error.code;
    throw error;
  }
  return "accepted";
}

const TEXT = { "content-type": "text/plain" };
const PRODUCER = { "producer-id": "p", "producer-epoch": "1", "producer-seq": "2" };

describe("from headers and bytes", () => {
  test("H1 a count is accepted exactly as it is written by the machine", () => {
    const property = fc.property(fc.maxSafeNat(), fc.maxSafeNat(), (epoch, sequence) => {
      const headers = { "producer-epoch": String(epoch), "producer-seq": String(sequence) };
      const { producer } = parse({ ...TEXT, ...PRODUCER, ...headers });
      expect(producer).toEqual({ id: "p", epoch, sequence });
    });
    fc.assert(property);
  });

  test("H1 any other text for a count is refused", () => {
    const property = fc.property(fc.string(), (text) => {
      const isCount = /^(0|[1-9][0-9]*)$/.test(text) && Number(text) <= Number.MAX_SAFE_INTEGER;
      for (const name of ["producer-epoch", "producer-seq"]) {
        const outcome = refusal({ ...TEXT, ...PRODUCER, [name]: text });
        expect(outcome).toBe(isCount ? "accepted" : "invalid_request");
      }
    });
    fc.assert(property);
  });

  test("H1 ids and Stream-Seq are taken as they stand, up to their limits", () => {
    const id = " i, d\u00ff".padEnd(LIMITS.producerIdBytesMax, "x");
    const streamSeq = "0, 1".padEnd(LIMITS.streamSeqBytesMax, "x");
    const command = parse({ ...TEXT, ...PRODUCER, "producer-id": id, "stream-seq": streamSeq });
    expect([command.producer?.id, command.streamSeq]).toEqual([id, streamSeq]);
    expect(refusal({ ...TEXT, ...PRODUCER, "producer-id": `${id}x` })).toBe("invalid_request");
    expect(refusal({ ...TEXT, "stream-seq": `${streamSeq}x` })).toBe("invalid_request");
    expect(refusal({ ...TEXT, ...PRODUCER, "producer-id": "" })).toBe("invalid_request");
    expect(refusal({ ...TEXT, "stream-seq": "" })).toBe("invalid_request");
  });

  test("H2 the producer headers come together or not at all", () => {
    const names = Object.entries(PRODUCER);
    for (let mask = 0; mask < 8; mask += 1) {
      const part = Object.fromEntries(names.filter((_, index) => (mask & (1 << index)) !== 0));
      const expected = mask === 0 || mask === 7 ? "accepted" : "invalid_request";
      expect([mask, refusal({ ...TEXT, ...part })]).toEqual([mask, expected]);
    }
  });

  test("H3 JSON is stored by its own bytes, one comma after each record", () => {
    const json = { "content-type": "application/json; charset=utf-8" };
    const { data } = parse(json, ' [ 1.0 , {"a" : 1e400} ] ');
    expect(new TextDecoder().decode(data)).toBe('1.0,{"a" : 1e400},');
    expect(refusal(json, "[]")).toBe("invalid_json");
    expect(refusal(json, "{")).toBe("invalid_json");
  });

  test("other bytes are stored as they are, without a copy", () => {
    const body = utf8.encode("{");
    const head = parseAppendHead((name) => (name === "content-type" ? "text/json" : undefined));
    expect(parseAppend(head, body).data).toBe(body);
  });

  test("a body needs a Content-Type, and only a close may have none", () => {
    expect(refusal({})).toBe("invalid_request");
    expect(refusal({ "content-type": "text" })).toBe("invalid_request");
    expect(refusal(TEXT, "")).toBe("invalid_request");
    const close = parse({ "stream-closed": "True", "content-type": "not judged" }, "");
    expect([close.closes, close.data.length]).toEqual([true, 0]);
  });
});

describe("to status and headers", () => {
  const tail = 7 as Offset;
  const plain: AppendCommand = {
    data: utf8.encode("a"),
    contentType: "text/plain",
    closes: false,
    producer: undefined,
    streamSeq: undefined,
  };
  const claim = { id: "p", epoch: 1, sequence: 2 } as AppendCommand["producer"];
  const accepted = { kind: "accepted", change: {}, tail, isClosed: false } as AppendDecision;

  test("success is 204, with a producer 200, and 204 for its close without data", () => {
    const answered = (command: AppendCommand): unknown => {
      const answer = encodeAppend(accepted, command);
      return "status" in answer ? answer.status : answer.code;
    };
    expect(answered(plain)).toBe(204);
    expect(answered({ ...plain, producer: claim })).toBe(200);
    expect(answered({ ...plain, producer: claim, data: new Uint8Array(0) })).toBe(204);
  });

  test("a duplicate tells the tail and the highest sequence", () => {
    const outcome: AppendDecision = {
      kind: "duplicate",
      epoch: 1 as Epoch,
      lastSequence: 9 as Sequence,
      tail,
      isClosed: true,
    };
    expect(encodeAppend(outcome, { ...plain, producer: claim })).toEqual({
      status: 204,
      headers: {
        "Stream-Next-Offset": "0000000000000000_0000000000000007",
        "Producer-Epoch": "1",
        "Producer-Seq": "9",
        "Stream-Closed": "true",
      },
    });
  });

  test.each([
    [{ kind: "closed", tail }, 409, { "Stream-Closed": "true" }],
    [{ kind: "content_type_mismatch", expected: "text/plain" }, 409, {}],
    [{ kind: "fenced", currentEpoch: 4 as Epoch }, 403, { "Producer-Epoch": "4" }],
    [
      { kind: "gap", expected: 1 as Sequence, received: 5 as Sequence },
      409,
      { "Producer-Expected-Seq": "1", "Producer-Received-Seq": "5" },
    ],
    [{ kind: "epoch_start", received: 3 as Sequence }, 400, {}],
    [{ kind: "sequence_regression", last: "z" }, 409, {}],
  ] as const)("the refusal %o has its status and its headers", (outcome, status, headers) => {
    const answer = encodeAppend(outcome, plain);
    if ("status" in answer) throw new Error("it was not refused");
    expect(ERRORS[answer.code].status).toBe(status);
    expect(answer.headers ?? {}).toMatchObject(headers);
  });
});
