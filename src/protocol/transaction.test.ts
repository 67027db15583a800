// Requests of transactions, from bytes to operations. PROTOCOL.md §19.1
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { StreamName } from "../streams/core/types.ts";
import { isHapaxError } from "../base/errors.ts";
import { encodeOperationRefusal } from "./transaction-answer.ts";
import {
  type OperationRequest,
  parseIdentity,
  parseTransaction,
  resolveOperations,
} from "./transaction.ts";
import { TRANSACTION_TYPE } from "./transaction-frame.ts";

const encoder = new TextEncoder();
const MAX = 1024;

function bytesOf(operations: unknown): Uint8Array {
  return encoder.encode(JSON.stringify({ operations }));
}

function frame(operations: unknown, ...bodies: readonly Uint8Array[]): Uint8Array {
  const head = bytesOf(operations);
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, head.length);
  return Uint8Array.from([length, head, ...bodies].flatMap((part) => [...part]));
}

function parse(body: Uint8Array, type: string, max = MAX): readonly OperationRequest[] {
  const parsed = parseTransaction(type, body, max);
  if (parsed.kind === "refused") throw new Error(parsed.refusal.detail);
  return parsed.operations;
}

function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (isHapaxError(error)) return error.code;
    throw error;
  }
  return "nothing thrown";
}

const append = (bytes: number): unknown => ({ append: { stream: "/a", bytes } });

test("the bodies of the framed form are views of the request, in their order", () => {
  const bodies = fc.array(fc.uint8Array({ minLength: 1, maxLength: 40 }), {
    minLength: 1,
    maxLength: 8,
  });
  fc.assert(
    fc.property(bodies, (wanted) => {
      const operations = wanted.map(({ length }) => append(length));
      const request = frame(operations, ...wanted);
      const parsed = parse(request, TRANSACTION_TYPE);
      const resolved = resolveOperations(parsed, new Map(), () => "application/octet-stream");
      for (const [index, operation] of resolved.entries()) {
        if (operation.kind !== "append") throw new Error(operation.kind);
        expect(operation.data).toEqual(wanted[index]);
        expect(operation.data.buffer).toBe(request.buffer);
      }
    }),
  );
});

describe("a refusal of an operation has its index", () => {
  test.for([
    ["a path that climbs", { append: { stream: "/a/../b", text: "a" } }],
    ["a path without its slash", { close: { stream: "a" } }],
    ["half of a surrogate pair", { append: { stream: "/a", text: "\ud800" } }],
    ["a null where an object is wanted", { append: null }],
    ["base64 of another alphabet", { append: { stream: "/a", base64: "_-8=" } }],
    ["more bytes than there are", append(7)],
    ["an expectation of two kinds", { expect: { stream: "/a", absent: true, offset: "-1" } }],
    ["an offset that no stream hands out", { expect: { stream: "/a", offset: "-1" } }],
    ["a TTL that is a fraction", { create: { stream: "/a", ttlSeconds: 0.5 } }],
    ["a member without a name", { expect: { group: "g", stream: "/a", token: 1 } }],
    ["an ack without a token", { ack: { subscription: "s", wakeId: "w", generation: 1 } }],
  ])("%s", ([, operation]) => {
    const request = frame([append(1), operation], encoder.encode("abc"));
    const parsed = parseTransaction(TRANSACTION_TYPE, request, MAX);
    if (parsed.kind !== "refused") throw new Error("it was accepted");
    expect(parsed.refusal).toMatchObject({ code: "invalid_request", facts: { operation: 1 } });
    expect(parsed.refusal.detail).toMatch(/^operation 1: /);
  });
});

test("a frame is accepted only with exactly its bodies, wherever it is cut", () => {
  const whole = frame([append(3), append(2)], encoder.encode("abcde"));
  expect(parse(whole, TRANSACTION_TYPE)).toHaveLength(2);
  for (let end = 0; end < whole.length; end += 1) {
    const cut = whole.subarray(0, end);
    const parsed = (): unknown => parse(cut, TRANSACTION_TYPE);
    expect(parsed).toThrow();
  }
  const longer = Uint8Array.from([...whole, 0]);
  expect(codeOf(() => parse(longer, TRANSACTION_TYPE))).toBe("invalid_request");
});

test("what does not fit its stream now is refused in its place", () => {
  const requests = parse(
    bytesOf([
      { append: { stream: "/json", text: "{" } },
      { append: { stream: "/json", text: " [ ] " } },
      { append: { stream: "/text", data: [1] } },
      { append: { stream: "/none", data: [1] } },
      { append: { stream: "/json", data: [1, "a"] } },
      { append: { stream: "/json", text: "{", contentType: "text/plain" } },
    ]),
    "application/json; charset=utf-8",
  );
  const types = new Map([
    ["/json", "application/json"],
    ["/text", "text/plain"],
  ]);
  const resolved = resolveOperations(requests, new Map(), (stream) => types.get(stream));
  const reasons = resolved.map((operation) =>
    operation.kind === "unfit" ? operation.reason.kind : operation.kind,
  );
  // The decision refuses the append to no stream, and the one of another type.
  expect(reasons).toEqual([
    "invalid_json",
    "invalid_json",
    "not_json",
    "append",
    "append",
    "append",
  ]);
  const [, , , , records] = resolved;
  expect(records).toMatchObject({ data: encoder.encode('1,"a",') });
});

test("an append takes the type that an earlier creation of the request gives its stream", () => {
  const requests = parse(
    bytesOf([
      { append: { stream: "/a", text: "[1 ]" } },
      { create: { stream: "/a", contentType: "application/json" } },
      { append: { stream: "/a", text: "[1 ]" } },
      { create: { stream: "/b" } },
      { append: { stream: "/b", text: "[1 ]" } },
    ]),
    "application/json",
  );
  const resolved = resolveOperations(requests, new Map(), () => undefined);
  const texts = resolved.map((operation) =>
    operation.kind === "append" ? new TextDecoder().decode(operation.data) : operation.kind,
  );
  expect(texts).toEqual(["[1 ]", "create", "1,", "create", "[1 ]"]);
});

test("streams of acks are absolute, or relative as their wake has named them", () => {
  const offset = "0000000000000000_0000000000000001";
  const acks = ["/v1/stream/a", "a"].map((stream) => ({ stream, offset }));
  const wake = { wakeId: "w", generation: 1, token: "t" };
  const [operation] = parse(
    bytesOf([{ ack: { subscription: "s", ...wake, acks } }]),
    "application/json",
  );
  if (operation?.kind !== "ack") throw new Error("it is no ack");
  const name = "/v1/stream/a" as StreamName;
  expect(operation.acks).toEqual([
    { stream: name, offset: 1 },
    { stream: name, offset: 1 },
  ]);
});

test("the bodies of all appends have a limit together, however they are written", () => {
  const text = "a".repeat(MAX / 2);
  const appends = [text, text, "b"].map((each) => ({ append: { stream: "/a", text: each } }));
  const send = (operations: unknown): unknown => parse(bytesOf(operations), "application/json");
  expect(send(appends.slice(0, 2))).toHaveLength(2);
  expect(codeOf(() => send(appends))).toBe("body_too_large");
  // A number that is written again can be longer than before.
  const numbers = [{ append: { stream: "/a", data: Array.from({ length: 60 }, () => 1e20) } }];
  const body = encoder.encode(
    JSON.stringify({ operations: numbers }).replaceAll("100000000000000000000", "1e20"),
  );
  expect(codeOf(() => parse(body, "application/json"))).toBe("body_too_large");
});

test("deep nesting is refused before anything recurses", () => {
  const deep = "[".repeat(100_000) + "]".repeat(100_000);
  const body = encoder.encode(`{"operations":[{"append":{"stream":"/a","data":${deep}}}]}`);
  expect(codeOf(() => parse(body, "application/json"))).toBe("invalid_json");
});

describe("an identity", () => {
  const identity = (headers: Readonly<Record<string, string>>): unknown =>
    parseIdentity((name) => headers[name]);
  const key = { "idempotency-key": "k" };

  test("is a key or a producer, and nothing else is looked at", () => {
    expect(identity(key)).toEqual({ kind: "key", key: { text: "k", timeMs: undefined } });
    const producer = { "producer-id": "p", "producer-seq": "0", "producer-session": "n" };
    expect(identity(producer)).toMatchObject({ kind: "producer", claim: { id: "p" } });
    expect(codeOf(() => identity({}))).toBe("identity_missing");
  });

  test.for(["if-match", "if-none-match", "stream-seq", "stream-closed"])(
    "is not one with %s, which would not be looked at",
    (name) => {
      expect(codeOf(() => identity({ ...key, [name]: "true" }))).toBe("invalid_request");
    },
  );
});

test("a refusal has the code of its cause, the index and the facts", () => {
  const stream = "/a" as StreamName;
  expect(encodeOperationRefusal(3, { kind: "lease_lost", streams: [stream] })).toMatchObject({
    code: "lease_lost",
    facts: { operation: 3, streams: ["/a"] },
  });
  expect(encodeOperationRefusal(0, { kind: "stream_gone", stream })).toMatchObject({
    code: "stream_gone",
    detail: "operation 0: the stream was deleted",
    facts: { operation: 0, stream: "/a" },
  });
});
