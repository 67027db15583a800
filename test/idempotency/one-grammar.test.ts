// The streams server and the middleware read the same headers: one grammar, one answer. PROTOCOL.md §16, §17
import { expect, test } from "vitest";
import { isHapaxError } from "../../src/base/errors.ts";
import { parseAppendHead } from "../../src/protocol/append.ts";
import { nodeDigest } from "../../src/streams/runtimes/node-digest.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { turn, watch } from "../kits/watch.ts";
import { createIdempotency, GLOBAL } from "../../src/toolkit/idempotency.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import type { FetchHandler } from "../../src/toolkit/idempotency/engine.ts";

/** A `Request` strips the spaces around a value, as HTTP does; what other callers hand over may have them. */
function requestOf(headers: Readonly<Record<string, string>>): Request {
  const request = new Request("http://localhost/pay", { method: "POST", body: "x" });
  const get = (name: string): string | null => headers[name.toLowerCase()] ?? null;
  return new Proxy(request, {
    get(target, member) {
      if (member === "headers") return new Proxy(target.headers, { get: headerMember(get) });
      const value: unknown = Reflect.get(target, member, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

const headerMember =
  (get: (name: string) => string | null) => (target: Headers, member: string | symbol) => {
    if (member === "get") return get;
    if (member === "has") return (name: string) => get(name) !== null;
    const value: unknown = Reflect.get(target, member, target);
    return typeof value === "function" ? value.bind(target) : value;
  };

function open() {
  const clock = createVirtualClock();
  const ledger = memoryLedger({ clock });
  const engine = createIdempotency(ledger, { scope: GLOBAL, clock, digest: nodeDigest, waitMs: 0 });
  const send = (
    headers: Readonly<Record<string, string>>,
    handler: FetchHandler<MemoryTransaction>,
  ): Promise<Response> => engine.handle(requestOf(headers), handler);
  return { clock, send };
}

const serverKey = (value: string): string => {
  try {
    return (
      parseAppendHead((name) => (name === "idempotency-key" ? value : undefined)).key?.text ?? ""
    );
  } catch (error) {
    if (isHapaxError(error, "invalid_request")) return "400";
    throw error;
  }
};

async function middlewareKey(value: string): Promise<string> {
  const answer = await open().send(
    { "idempotency-key": value },
    (_, { key }) => new Response(key ?? ""),
  );
  return answer.status === 400 ? "400" : answer.text();
}

test.each([
  ["abc", "abc"],
  ['"abc"', "abc"],
  [" abc ", "abc"],
  ['\t"abc" ', "abc"],
  ['"abc";a=1', "abc"],
  ['"abc"; a; b="x, \\"y\\""; c=?1; d=:aGk=:; e=-1.5', "abc"],
  [String.raw`"a\"\\b"`, String.raw`a"\b`],
  ['" a b "', " a b "],
  ["a=b/c:d", "a=b/c:d"],
  ["", "400"],
  ["  ", "400"],
  ['""', "400"],
  ['""; a=1', "400"],
  ["a b", "400"],
  ["a;b", "400"],
  ["abc;a=1", "400"],
  ["a, b", "400"],
  ['"a", "b"', "400"],
  ['"abc" x', "400"],
  ['"abc";', "400"],
  ['"abc";A=1', "400"],
  ['"abc" ;a=1', "400"],
  [String.raw`"a\b"`, "400"],
  ['"abc', "400"],
  ["\u00a0abc", "400"],
  ["é", "400"],
])("Idempotency-Key: %s is %s for the server and for the middleware", async (value, key) => {
  expect([serverKey(value), await middlewareKey(value)]).toEqual([key, key]);
});

test("a key of 255 characters is the longest for both", async () => {
  for (const [length, isKey] of [
    [255, true],
    [256, false],
  ] as const) {
    const key = "k".repeat(length);
    const expected = isKey ? key : "400";
    expect([serverKey(key), await middlewareKey(key)]).toEqual([expected, expected]);
  }
});

const PRODUCER: Readonly<Record<string, string>> = {
  "producer-id": "p",
  "producer-epoch": "0",
  "producer-seq": "1",
};

const serverWaitMs = (prefer: string): number =>
  parseAppendHead((name) => ({ ...PRODUCER, prefer })[name]).waitMs;

/** For how long a repetition waits for the first request, which does not end. */
async function middlewareWaitMs(prefer: string): Promise<number> {
  const { clock, send } = open();
  const working: FetchHandler<MemoryTransaction> = () => new Promise(() => undefined);
  void send({ "idempotency-key": "k" }, working);
  await turn();
  const startMs = clock.steadyMs();
  const waiting = watch(send({ "idempotency-key": "k", prefer }, working));
  await turn();
  while (waiting.isWaiting) {
    clock.advance(1_000);
    await turn();
  }
  expect(waiting.value?.status).toBe(409);
  return clock.steadyMs() - startMs;
}

test.each([
  ["wait=5", 5_000],
  ['Wait = "5"', 5_000],
  ["respond-async, wait=5", 5_000],
  ["wait=5; strict, respond-async", 5_000],
  [", wait=5", 5_000],
  ['note="a, b", wait=5', 5_000],
  ["wait=5, wait=9", 5_000],
  ["wait=0", 0],
  ["handling=lenient; wait=5", 0],
  ["respond-async; wait=5", 0],
  ['note="a, wait=5"', 0],
  ['note="a, wait=5', 0],
  ['wait="5', 0],
  ["wait=-5", 0],
  ["wait=1.5", 0],
  ["wait=soon", 0],
  ["waiting=5", 0],
  ["nowait=5", 0],
  [`wait=5, ${"a, ".repeat(400)}`, 0],
])("Prefer: %s waits %d ms at the server and in the middleware", async (prefer, waitMs) => {
  expect([serverWaitMs(prefer), await middlewareWaitMs(prefer)]).toEqual([waitMs, waitMs]);
});
