// PROTOCOL.md §4, §5, §14, §15, §16, §17, §18
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { AppendCommand, AppendDecision } from "../streams/core/append.ts";
import type { Epoch, Offset, Sequence } from "../streams/core/types.ts";
import { ERRORS, isHapaxError } from "../base/errors.ts";
import { LIMITS } from "./limits.ts";
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
  test("a count is accepted exactly as it is written by the machine", () => {
    const property = fc.property(fc.maxSafeNat(), fc.maxSafeNat(), (epoch, sequence) => {
      const headers = { "producer-epoch": String(epoch), "producer-seq": String(sequence) };
      const { producer } = parse({ ...TEXT, ...PRODUCER, ...headers });
      expect(producer).toEqual({ id: "p", epoch, sequence, session: undefined });
    });
    fc.assert(property);
  });

  test("any other text for a count is refused", () => {
    const property = fc.property(fc.string(), (text) => {
      const isCount = /^(0|[1-9][0-9]*)$/.test(text) && Number(text) <= Number.MAX_SAFE_INTEGER;
      for (const name of ["producer-epoch", "producer-seq"]) {
        const outcome = refusal({ ...TEXT, ...PRODUCER, [name]: text });
        expect(outcome).toBe(isCount ? "accepted" : "invalid_request");
      }
    });
    fc.assert(property);
  });

  test("ids and Stream-Seq are taken as they stand, up to their limits", () => {
    const id = " i, d\u00ff".padEnd(LIMITS.producerIdBytesMax, "x");
    const streamSeq = "0, 1".padEnd(LIMITS.streamSeqBytesMax, "x");
    const command = parse({ ...TEXT, ...PRODUCER, "producer-id": id, "stream-seq": streamSeq });
    expect([command.producer?.id, command.streamSeq]).toEqual([id, streamSeq]);
    expect(refusal({ ...TEXT, ...PRODUCER, "producer-id": `${id}x` })).toBe("invalid_request");
    expect(refusal({ ...TEXT, "stream-seq": `${streamSeq}x` })).toBe("invalid_request");
    expect(refusal({ ...TEXT, ...PRODUCER, "producer-id": "" })).toBe("invalid_request");
    expect(refusal({ ...TEXT, "stream-seq": "" })).toBe("invalid_request");
  });

  test("the producer headers come together or not at all", () => {
    const names = Object.entries(PRODUCER);
    for (let mask = 0; mask < 8; mask += 1) {
      const part = Object.fromEntries(names.filter((_, index) => (mask & (1 << index)) !== 0));
      const expected = mask === 0 || mask === 7 ? "accepted" : "invalid_request";
      expect([mask, refusal({ ...TEXT, ...part })]).toEqual([mask, expected]);
    }
  });

  test("a session comes instead of an epoch, and together with the id and the sequence", () => {
    const headers = { "producer-id": "p", "producer-session": "n-1._~", "producer-seq": "2" };
    expect(parse({ ...TEXT, ...headers }).producer).toEqual({
      id: "p",
      epoch: undefined,
      sequence: 2,
      session: "n-1._~",
    });
    expect(refusal({ ...TEXT, ...headers, "producer-epoch": "0" })).toBe("invalid_request");
    const names = Object.entries(headers);
    for (let mask = 1; mask < 7; mask += 1) {
      const part = Object.fromEntries(names.filter((_, index) => (mask & (1 << index)) !== 0));
      expect([mask, refusal({ ...TEXT, ...part })]).toEqual([mask, "invalid_request"]);
    }
  });

  test("a nonce is of letters, digits and - . _ ~, up to its limit", () => {
    const session = (nonce: string): string =>
      refusal({ ...TEXT, "producer-id": "p", "producer-seq": "0", "producer-session": nonce });
    const property = fc.property(fc.string({ maxLength: LIMITS.sessionBytesMax + 2 }), (nonce) => {
      const isNonce = /^[A-Za-z0-9._~-]{1,64}$/.test(nonce);
      expect(session(nonce)).toBe(isNonce ? "accepted" : "invalid_request");
    });
    fc.assert(property);
    expect(session("n".repeat(LIMITS.sessionBytesMax))).toBe("accepted");
    expect(session("n".repeat(LIMITS.sessionBytesMax + 1))).toBe("invalid_request");
    expect(session("")).toBe("invalid_request");
  });

  test("an append has one identity: a key and producer headers exclude each other", () => {
    const key = { "idempotency-key": "k1" };
    const head = parseAppendHead((name) => ({ ...TEXT, ...key })[name]);
    expect([head.key?.text, head.producer]).toEqual(["k1", undefined]);
    expect(refusal({ ...TEXT, ...key, ...PRODUCER })).toBe("invalid_request");
    expect(refusal({ ...TEXT, ...key, "producer-id": "p" })).toBe("invalid_request");
  });

  test("a command has no key before it is hashed", () => {
    expect(parse({ ...TEXT, "idempotency-key": "k1" }).key).toBeUndefined();
  });

  test.each([
    [undefined, undefined],
    ['"0000000000000000_0000000000000007"', 7],
    ['"0000000000000000_0000000000000000"', 0],
    ["*", "none"],
    ["", "none"],
    ['""', "none"],
    ['"-1"', "none"],
    ['"now"', "none"],
    ['"7"', "none"],
    ["0000000000000000_0000000000000007", "none"],
    ['W/"0000000000000000_0000000000000007"', "none"],
    ['"0000000000000000_0000000000000007", "a"', "none"],
    ['"0000000000000000_0000000000000007" ', "none"],
  ] as const)("If-Match %s asks for the tail %s", (value, expected) => {
    const headers = value === undefined ? TEXT : { ...TEXT, "if-match": value };
    expect(parse(headers).expectedTail).toBe(expected);
    expect(parse({ ...headers, "stream-closed": "true" }, "").expectedTail).toBe(expected);
  });

  test("If-None-Match is refused on an append, with every value", () => {
    for (const value of ["*", '"a"', ""]) {
      expect([value, refusal({ ...TEXT, "if-none-match": value })]).toEqual([
        value,
        "invalid_request",
      ]);
    }
  });

  test.each([
    ["wait=5", 5000],
    ["WAIT=5", 5000],
    ['wait="5"', 5000],
    ["wait = 5", 5000],
    ["wait=5; foo", 5000],
    ["respond-async, wait=5", 5000],
    ["wait=5, respond-async", 5000],
    ["wait=0", 0],
    [`wait=${LIMITS.patienceSecondsMax}`, LIMITS.patienceSecondsMax * 1000],
    [`wait=${LIMITS.patienceSecondsMax + 1}`, LIMITS.patienceSecondsMax * 1000],
    ["wait=999999999", LIMITS.patienceSecondsMax * 1000],
    ["wait", 0],
    ["wait=", 0],
    ["wait=-5", 0],
    ["wait=1.5", 0],
    ["wait=5s", 0],
    ["waiting=5", 0],
    ["nowait=5", 0],
    ["", 0],
  ])("Prefer: %s is a wait of %d ms", (prefer, waitMs) => {
    const headers: Record<string, string> = { ...TEXT, ...PRODUCER, prefer };
    expect(parseAppendHead((name) => headers[name]).waitMs).toBe(waitMs);
    const plain: Record<string, string> = { ...TEXT, prefer };
    expect(parseAppendHead((name) => plain[name]).waitMs).toBe(0);
  });

  test("JSON is stored by its own bytes, one comma after each record", () => {
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
    key: undefined,
    streamSeq: undefined,
    expectedTail: undefined,
  };
  const claim = { id: "p", epoch: 1, sequence: 2 } as AppendCommand["producer"];
  const session = { id: "p", sequence: 2, session: "n1" } as AppendCommand["producer"];
  const mark = { id: "p", epoch: 1, sequence: 2, session: undefined, resets: 0, digest: 0 };
  // The tests look only at the mark of the change.
  const accepted = (producer?: typeof mark): AppendDecision =>
    ({ kind: "accepted", change: { producer }, tail, isClosed: false }) as AppendDecision;
  const END = "0000000000000000_0000000000000007";

  test("success is 204, with a producer 200, and 204 for its close without data", () => {
    const answered = (command: AppendCommand): unknown => {
      const answer = encodeAppend(accepted(command.producer && mark), command);
      return "status" in answer ? answer.status : answer.code;
    };
    expect(answered(plain)).toBe(204);
    expect(answered({ ...plain, producer: claim })).toBe(200);
    expect(answered({ ...plain, producer: claim, data: new Uint8Array(0) })).toBe(204);
  });

  test("a success tells the epoch that was given to its session", () => {
    expect(encodeAppend(accepted(mark), { ...plain, producer: session })).toEqual({
      status: 200,
      headers: { "Stream-Next-Offset": END, "Producer-Epoch": "1", "Producer-Seq": "2" },
    });
  });

  test("an answer has an ETag if the request has named a tail", () => {
    const command = { ...plain, expectedTail: 6 as Offset };
    const tagged = { "Stream-Next-Offset": END, ETag: `"${END}"` };
    expect(encodeAppend(accepted(), command)).toEqual({ status: 204, headers: tagged });
    const replayed = {
      kind: "replayed",
      end: tail,
      isClosed: false,
      ageMs: 1,
      windowMs: 2,
    } as const;
    expect(encodeAppend(replayed, command)).toEqual({
      status: 204,
      headers: { ...tagged, "Idempotency-Replayed": "true" },
    });
    expect(encodeAppend(accepted(), plain)).toEqual({
      status: 204,
      headers: { "Stream-Next-Offset": END },
    });
  });

  test("a replay tells where its original ended, and whether the stream is closed", () => {
    const replayed = {
      kind: "replayed",
      end: tail,
      isClosed: true,
      ageMs: 1,
      windowMs: 2,
    } as const;
    expect(encodeAppend(replayed, plain)).toEqual({
      status: 204,
      headers: {
        "Stream-Next-Offset": END,
        "Stream-Closed": "true",
        "Idempotency-Replayed": "true",
      },
    });
  });

  test("the answer to a close that was done before has the tail", () => {
    expect(encodeAppend({ kind: "already_closed", tail }, plain)).toEqual({
      status: 204,
      headers: { "Stream-Next-Offset": END, "Stream-Closed": "true" },
    });
  });

  test("a duplicate tells where its original ended and the highest sequence", () => {
    const outcome: AppendDecision = {
      kind: "duplicate",
      epoch: 1 as Epoch,
      lastSequence: 9 as Sequence,
      end: tail,
      isClosed: true,
      isOther: false,
    };
    const other = encodeAppend({ ...outcome, isOther: true }, { ...plain, producer: claim });
    expect(other).toMatchObject({ status: 204, headers: { "Producer-Seq-Reused": "true" } });
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
    [{ kind: "epoch_exhausted" }, 409, {}],
    [
      { kind: "tail_moved", tail },
      412,
      { ETag: '"0000000000000000_0000000000000007"', "Stream-Next-Offset": END },
    ],
    [{ kind: "key_reused" }, 422, {}],
    [{ kind: "key_expired", windowMs: 60_000 }, 422, {}],
    [{ kind: "key_window_full", retryAfterMs: 1001 }, 429, { "Retry-After": "2" }],
    [{ kind: "key_window_full", retryAfterMs: 0 }, 429, { "Retry-After": "1" }],
  ] as const)("the refusal %o has its status and its headers", (outcome, status, headers) => {
    const answer = encodeAppend(outcome, plain);
    if ("status" in answer) throw new Error("it was not refused");
    expect(ERRORS[answer.code].status).toBe(status);
    expect(answer.headers ?? {}).toMatchObject(headers);
  });
});
