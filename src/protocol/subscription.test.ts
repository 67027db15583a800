import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Offset, StreamName, TimeMs } from "../streams/core/types.ts";
import { ERRORS, type ErrorCode, isHapaxError } from "../base/errors.ts";
import { LIMITS } from "./limits.ts";
import { encodeClaim, encodeSubscription } from "./subscription-answer.ts";
import { formatRelativePath, parseRelativePath } from "./subscription-path.ts";
import {
  parseClaim,
  parseReport,
  parseStreams,
  parseSubscribe,
  protocolCode,
  subscriptionFormat,
} from "./subscription.ts";

const bytes = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const text = (body: Uint8Array): unknown => JSON.parse(new TextDecoder().decode(body));

function refusalOf(run: () => unknown): { code: string; message: string } {
  try {
    run();
  } catch (error) {
    if (isHapaxError(error)) return { code: error.code, message: error.message };
    throw error;
  }
  throw new Error("nothing was refused");
}

const HOOK = { type: "webhook", pattern: "events/*", webhook: { url: "https://a.example/hook" } };
const PULL = { type: "pull-wake", streams: ["b", "a", "b"], wake_stream: "/wake/pool/" };

describe("paths", () => {
  test.each([
    ["events/a", "/v1/stream/events/a"],
    ["/events/a/", "/v1/stream/events/a"],
    ["a b/ü", "/v1/stream/a b/ü"],
    ["a%2Fb", "/v1/stream/a%2Fb"],
  ])("%s names %s", (path, name) => {
    expect(parseRelativePath(path)).toBe(name);
  });

  test.each(["", "/", "a//b", "../a", "a/./b", "a\u0000b", "a\\b", "__ds", "__ds/x", "\ud800"])(
    "%j names nothing",
    (path) => {
      expect(parseRelativePath(path)).toBeUndefined();
    },
  );

  test("a name that was shown is read back as the same name", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", minLength: 1, maxLength: 40 }), (path) => {
        const name = parseRelativePath(path);
        if (name !== undefined) expect(parseRelativePath(formatRelativePath(name))).toBe(name);
      }),
    );
  });

  test("a path longer than a stream's path can be names nothing", () => {
    expect(parseRelativePath("a".repeat(LIMITS.pathBytesMax))).toBeUndefined();
  });
});

describe("creation", () => {
  test("a webhook has its defaults and ignores what it does not know", () => {
    expect(parseSubscribe(bytes({ ...HOOK, colour: "red", description: null }))).toEqual({
      way: { kind: "webhook", url: "https://a.example/hook" },
      pattern: "/v1/stream/events/*",
      streams: [],
      leaseMs: 30_000,
      description: undefined,
    });
  });

  test("streams are sorted and named once, so that their order says nothing", () => {
    expect(parseSubscribe(bytes({ ...PULL, lease_ttl_ms: 1000, description: "d" }))).toEqual({
      way: { kind: "pull_wake", wakeStream: "/v1/stream/wake/pool" },
      pattern: undefined,
      streams: ["/v1/stream/a", "/v1/stream/b"],
      leaseMs: 1000,
      description: "d",
    });
  });

  test("all that is wrong is named at once", () => {
    const body = bytes({
      type: "webhook",
      pattern: 7,
      streams: "a",
      lease_ttl_ms: 999,
      description: 1,
    });
    const { code, message } = refusalOf(() => parseSubscribe(body));
    expect(code).toBe("invalid_request");
    for (const field of ["pattern", "streams", "lease_ttl_ms", "description", "webhook"]) {
      expect(message).toContain(field);
    }
  });

  test.each([
    [{ ...HOOK, type: "push" }, "type"],
    [{ ...HOOK, type: undefined }, "type"],
    [{ ...HOOK, pattern: undefined }, "at least one"],
    [{ ...HOOK, pattern: "user-*" }, "%2A"],
    [{ ...HOOK, pattern: "a//b" }, "pattern"],
    [{ ...HOOK, webhook: { url: 1 } }, "webhook"],
    [{ ...HOOK, lease_ttl_ms: 600_001 }, "lease_ttl_ms"],
    [{ ...HOOK, description: "é".repeat(2049) }, "description"],
    [{ ...HOOK, lease_ttl_ms: 1000.5 }, "lease_ttl_ms"],
    [{ ...HOOK, lease_ttl_ms: "1000" }, "lease_ttl_ms"],
    [{ ...PULL, wake_stream: undefined }, "wake_stream"],
    [{ ...PULL, streams: ["wake/pool"] }, "wake_stream"],
    [{ ...PULL, streams: ["a", ".."] }, "streams"],
    [[HOOK], "object"],
    ["text", "object"],
    [null, "object"],
  ])("%j is refused for its %s", (body, field) => {
    const { code, message } = refusalOf(() => parseSubscribe(bytes(body)));
    expect(code).toBe("invalid_request");
    expect(message).toContain(field);
  });

  test.each(["http://10.0.0.1/hook", "http://a.example/hook", "https://169.254.169.254/"])(
    "the address %s is refused as such",
    (url) => {
      const body = bytes({ ...HOOK, webhook: { url } });
      expect(refusalOf(() => parseSubscribe(body)).code).toBe("webhook_url_rejected");
    },
  );

  test("what is not JSON in UTF-8 is refused as that", () => {
    for (const body of [new Uint8Array([0x7b]), new Uint8Array([0x22, 0xff, 0x22])]) {
      expect(refusalOf(() => parseSubscribe(body)).code).toBe("invalid_json");
    }
  });

  test("no member is taken from a prototype", () => {
    const body = new TextEncoder().encode('{"__proto__":{"type":"webhook"}}');
    expect(refusalOf(() => parseSubscribe(body)).message).toContain("type is required");
  });
});

describe("reports", () => {
  test("offsets beyond every stream pass the parser and are left to the rules", () => {
    const acks = [
      { stream: "a", offset: "0000000000000000_0000000000000007" },
      { path: "b", offset: "-1" },
      { stream: "c", offset: "9999999999999999_9999999999999999" },
    ];
    expect(parseReport(bytes({ wake_id: "w", generation: 3, acks, done: true }))).toEqual({
      wakeId: "w",
      generation: 3,
      acks: [
        { stream: "/v1/stream/a", offset: 7 },
        { stream: "/v1/stream/b", offset: -1 },
        { stream: "/v1/stream/c", offset: Number.MAX_SAFE_INTEGER },
      ],
      isDone: true,
    });
  });

  test.each([
    [{ generation: 1 }, "wake_id"],
    [{ wake_id: "w" }, "generation"],
    [{ wake_id: "w", generation: "1" }, "generation"],
    [{ wake_id: "w", generation: 1, done: "true" }, "done"],
    [{ wake_id: "w", generation: 1, acks: {} }, "acks"],
    [{ wake_id: "w", generation: 1, acks: [{ stream: "a", offset: "now" }] }, "acks"],
    [{ wake_id: "w", generation: 1, acks: [{ stream: "a", offset: 7 }] }, "acks"],
    [{ wake_id: "w", generation: 1, acks: [{ offset: "-1" }] }, "acks"],
  ])("%j is refused for its %s", (body, field) => {
    expect(refusalOf(() => parseReport(bytes(body))).message).toContain(field);
  });

  test("a worker has a name, and streams are a list", () => {
    expect(parseClaim(bytes({ worker: "one" }))).toBe("one");
    expect(refusalOf(() => parseClaim(bytes({ worker: "" }))).message).toContain("worker");
    expect(parseStreams(bytes({ streams: ["x"] }))).toEqual(["/v1/stream/x"]);
    expect(refusalOf(() => parseStreams(bytes({}))).message).toContain("streams is required");
  });
});

describe("answers", () => {
  const stream = "/v1/stream/a" as StreamName;
  const settings = parseSubscribe(bytes(HOOK));
  const shown = {
    id: "s",
    settings,
    createdAtMs: 0 as TimeMs,
    isFailed: true,
    links: [{ stream, isExplicit: true, acked: undefined }],
    baseUrl: "https://h.example",
    keyId: "ds_key",
  };

  test("a subscription is shown with its key's name and nothing secret", () => {
    expect(text(encodeSubscription(shown))).toEqual({
      id: "s",
      subscription_id: "s",
      type: "webhook",
      pattern: "events/*",
      streams: [{ path: "a", link_type: "explicit", acked_offset: "-1" }],
      webhook: {
        url: "https://a.example/hook",
        signing: {
          alg: "ed25519",
          kid: "ds_key",
          jwks_url: "https://h.example/v1/stream/__ds/jwks.json",
        },
      },
      lease_ttl_ms: 30_000,
      created_at: "1970-01-01T00:00:00.000Z",
      status: "failed",
    });
  });

  test("a claim holds its token and the streams with their tails", () => {
    const [acked, tail] = [5 as Offset, 7 as Offset];
    const streams = [{ stream, isExplicit: false, acked, tail, hasPending: true }];
    const claim = { wakeId: "w", generation: 1, token: "t", streams, leaseMs: 1000 };
    expect(text(encodeClaim(claim))).toEqual({
      wake_id: "w",
      generation: 1,
      token: "t",
      streams: [
        {
          path: "a",
          link_type: "glob",
          acked_offset: "0000000000000000_0000000000000005",
          tail_offset: "0000000000000000_0000000000000007",
          has_pending: true,
        },
      ],
      lease_ttl_ms: 1000,
    });
  });

  test("a wake event is one record as a JSON stream keeps it", () => {
    const event = { subscription: 's"1', stream, generation: 2, atMs: 3 as TimeMs };
    expect(new TextDecoder().decode(subscriptionFormat.wakeEvent(event))).toBe(
      '{"type":"wake","subscription_id":"s\\"1","stream":"a","generation":2,"ts":3},',
    );
  });

  test("the id in a callback address is encoded", () => {
    const wake = { wakeId: "w", generation: 1, streams: [], baseUrl: "https://h", token: "t" };
    expect(text(subscriptionFormat.notification({ subscription: "a/b", ...wake }))).toMatchObject({
      callback_url: "https://h/v1/stream/__ds/subscriptions/a%2Fb/callback",
    });
  });

  test.each([
    ['{"done":true}', true],
    ['{"done":"true"}', false],
    ['{"done":false}', false],
    ["[]", false],
    ["null", false],
    ["", false],
    ["<html>", false],
  ])("a webhook's answer %j means done: %s", (body, isDone) => {
    expect(subscriptionFormat.parseAnswer(new TextEncoder().encode(body))).toBe(isDone);
  });

  test("every code of ours has a name in the protocol's manner", () => {
    for (const code of Object.keys(ERRORS)) {
      expect(protocolCode(code as ErrorCode)).toMatch(/^[A-Z_]+$/);
    }
    expect(protocolCode("subscription_fenced")).toBe("FENCED");
    expect(protocolCode("not_found")).toBe("SUBSCRIPTION_NOT_FOUND");
  });
});
