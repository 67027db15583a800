// PROTOCOL.md §3, §8, §15, §16
import { describe, expect, test } from "vitest";
import type { CreateCommand, CreateDecision } from "../streams/core/create.ts";
import type { Offset, StreamName } from "../streams/core/types.ts";
import { ERRORS, isHapaxError } from "../base/errors.ts";
import { LIMITS } from "./limits.ts";
import { encodeCreate, keyHeaders, parseCreate, parseCreateHead } from "./create.ts";
import { RULE_HEADERS } from "./rules.ts";

const NAME = "/v1/stream/a" as StreamName;
const ZERO = "0000000000000000_0000000000000000";
const utf8 = new TextEncoder();

function parse(
  headers: Readonly<Record<string, string>>,
  body = "",
  inherited?: string,
): CreateCommand {
  const head = parseCreateHead(NAME, (name) => headers[name], RULE_HEADERS);
  return parseCreate(head, utf8.encode(body), inherited);
}

function refusal(headers: Readonly<Record<string, string>>): string {
  try {
    parse(headers);
  } catch (error) {
    if (isHapaxError(error)) return error.code;
    throw error;
  }
  return "accepted";
}

describe("from headers and bytes", () => {
  test("a bare creation has nothing but its name", () => {
    expect(parse({})).toEqual({
      name: NAME,
      contentType: undefined,
      expiry: { kind: "never" },
      isClosed: false,
      data: new Uint8Array(0),
      fork: undefined,
      keys: undefined,
      isNew: false,
    });
  });

  test("an option of the keys that is given is kept, and one that is not is the server's", () => {
    const none = {
      windowSeconds: undefined,
      countMax: undefined,
      overflow: undefined,
      isFromContent: false,
    };
    expect(parse({ "stream-key-window": "60" }).keys).toEqual({ ...none, windowSeconds: 60 });
    expect(parse({ "stream-key-max": "7" }).keys).toEqual({ ...none, countMax: 7 });
    expect(parse({ "stream-key-overflow": "evict" }).keys).toEqual({ ...none, overflow: "evict" });
    expect(parse({ "stream-key-overflow": "reject" }).keys?.overflow).toBe("reject");
    expect(parse({ "stream-key-from": "content" }).keys).toEqual({ ...none, isFromContent: true });
  });

  test.each([
    ["stream-key-window", LIMITS.keyWindowSecondsMax],
    ["stream-key-max", LIMITS.keyCountMax],
  ])("%s is a whole number from 1 to %d", (name, max) => {
    for (const value of ["1", "10", String(max)]) {
      expect([value, refusal({ [name]: value })]).toEqual([value, "accepted"]);
    }
    for (const value of ["", "0", "01", "+1", "-1", "1.0", "1e3", " 1", "x", String(max + 1)]) {
      expect([value, refusal({ [name]: value })]).toEqual([value, "invalid_request"]);
    }
  });

  test("the words of the keys' options are taken as they are written", () => {
    for (const value of ["", "Evict", "drop", "evict, reject"]) {
      expect(refusal({ "stream-key-overflow": value })).toBe("invalid_request");
    }
    for (const value of ["", "Content", "header", "content, content"]) {
      expect(refusal({ "stream-key-from": value })).toBe("invalid_request");
    }
  });

  test("If-None-Match: * wants a free path, and any other condition is refused", () => {
    expect(parse({ "if-none-match": "*" }).isNew).toBe(true);
    for (const value of ["", '"*"', '"a"', "*, *", `"${ZERO}"`]) {
      expect([value, refusal({ "if-none-match": value })]).toEqual([value, "invalid_request"]);
    }
    for (const value of ["*", `"${ZERO}"`, ""]) {
      expect([value, refusal({ "if-match": value })]).toEqual([value, "invalid_request"]);
    }
  });

  test("a Content-Type that is none counts as absent, and one over the limit is refused", () => {
    expect(parse({ "content-type": "text/html" }).contentType).toBe("text/html");
    expect(parse({ "content-type": "not a type" }).contentType).toBeUndefined();
    expect(parse({ "content-type": "" }).contentType).toBeUndefined();
    const long = `a/${"b".repeat(LIMITS.contentTypeBytesMax)}`;
    expect(refusal({ "content-type": long })).toBe("invalid_request");
  });

  test("an expiry is a time to live, a time, or neither, and never both", () => {
    expect(parse({ "stream-ttl": "0" }).expiry).toEqual({ kind: "ttl", seconds: 0 });
    const timeMs = Date.UTC(2100, 0, 1);
    expect(parse({ "stream-expires-at": "2100-01-01T01:00:00+01:00" }).expiry).toEqual({
      kind: "at",
      timeMs,
    });
    expect(refusal({ "stream-ttl": "1", "stream-expires-at": "2100-01-01T00:00:00Z" })).toBe(
      "invalid_request",
    );
    for (const ttl of ["+1", "01", "1.0", "1e3", "-1", "", String(LIMITS.ttlSecondsMax + 1)]) {
      expect([ttl, refusal({ "stream-ttl": ttl })]).toEqual([ttl, "invalid_request"]);
    }
    expect(refusal({ "stream-expires-at": "tomorrow" })).toBe("invalid_request");
  });

  test("a fork has a source, an offset that was handed out, and a whole sub-offset", () => {
    const fork = {
      "stream-forked-from": "/v1/stream/%61",
      "stream-fork-offset": ZERO,
      "stream-fork-sub-offset": "3",
    };
    expect(parse(fork).fork).toEqual({ sourceName: NAME, anchor: 0, subOffset: 3 });
    expect(parse({ "stream-forked-from": "/b" }).fork).toEqual({
      sourceName: "/b",
      anchor: undefined,
      subOffset: 0,
    });
    for (const offset of ["-1", "now", "0", `${ZERO}0`, "9999999999999999_0000000000000000"]) {
      expect([offset, refusal({ ...fork, "stream-fork-offset": offset })]).toEqual([
        offset,
        "invalid_request",
      ]);
    }
    expect(refusal({ ...fork, "stream-fork-sub-offset": "01" })).toBe("invalid_request");
    expect(refusal({ ...fork, "stream-forked-from": "/../a" })).toBe("invalid_request");
    expect(refusal({ "stream-fork-offset": ZERO })).toBe("invalid_request");
    expect(refusal({ "stream-fork-sub-offset": "0" })).toBe("invalid_request");
  });

  test("a first body is stored by the stream's type, which a fork may inherit", () => {
    const stored = (command: CreateCommand): string => new TextDecoder().decode(command.data);
    expect(stored(parse({ "content-type": "application/json" }, "[1, 2]"))).toBe("1,2,");
    expect(stored(parse({}, "[1, 2]"))).toBe("[1, 2]");
    expect(stored(parse({}, "[1, 2]", "application/json"))).toBe("1,2,");
    expect(stored(parse({ "content-type": "text/plain" }, "[1, 2]", "application/json"))).toBe(
      "[1, 2]",
    );
  });
});

describe("to status and headers", () => {
  test("only the first creation has a Location", () => {
    const created = encodeCreate(
      {
        kind: "created",
        changes: [] as never,
        contentType: "a/b",
        tail: 3 as Offset,
        isClosed: true,
        keys: undefined,
      },
      "http://test/a",
      RULE_HEADERS,
    );
    const headers = {
      "Content-Type": "a/b",
      "Stream-Next-Offset": "0000000000000000_0000000000000003",
      "Stream-Closed": "true",
    };
    expect(created).toEqual({ status: 201, headers: { Location: "http://test/a", ...headers } });
    const exists = { contentType: "a/b", tail: 3 as Offset, isClosed: true, keys: undefined };
    expect(encodeCreate({ kind: "exists", ...exists }, "http://test/a", RULE_HEADERS)).toEqual({
      status: 200,
      headers,
    });
  });

  test("both successes carry the options of the keys that were given, and no others", () => {
    const state = { contentType: "a/b", tail: 0 as Offset, isClosed: false };
    const policy = {
      windowSeconds: 60,
      countMax: undefined,
      overflow: "reject",
      isFromContent: true,
    } as const;
    const given = {
      "Stream-Key-Window": "60",
      "Stream-Key-Overflow": "reject",
      "Stream-Key-From": "content",
    };
    const shared = { "Content-Type": "a/b", "Stream-Next-Offset": ZERO, ...given };
    expect(encodeCreate({ kind: "exists", ...state, keys: policy }, "", RULE_HEADERS)).toEqual({
      status: 200,
      headers: shared,
    });
    const created = { kind: "created", changes: [] as never, ...state, keys: policy } as const;
    expect(encodeCreate(created, "http://test/a", RULE_HEADERS)).toEqual({
      status: 201,
      headers: { Location: "http://test/a", ...shared },
    });
    const count = { ...policy, windowSeconds: undefined, overflow: undefined, countMax: 5 };
    expect(keyHeaders({ ...count, isFromContent: false })).toEqual({ "Stream-Key-Max": "5" });
    expect(keyHeaders(undefined)).toEqual({});
  });

  test("the answer for a path that is not free has the tail of the stream there", () => {
    const outcome = { kind: "present", tail: 3 as Offset, isClosed: true } as const;
    const answer = encodeCreate(outcome, "", RULE_HEADERS);
    expect("code" in answer && [answer.code, answer.headers]).toEqual([
      "stream_present",
      {
        ETag: '"0000000000000000_0000000000000003"',
        "Stream-Next-Offset": "0000000000000000_0000000000000003",
        "Stream-Closed": "true",
      },
    ]);
  });

  test.each([
    [{ kind: "conflict", reason: "content type" }, 409],
    [{ kind: "present", tail: 3 as Offset, isClosed: false }, 412],
    [{ kind: "in_use" }, 409],
    [{ kind: "source_missing" }, 404],
    [{ kind: "source_deleted" }, 409],
    [{ kind: "content_type_mismatch", expected: "a/b" }, 409],
    [{ kind: "invalid_fork", reason: "beyond the tail" }, 400],
  ] as const satisfies readonly (readonly [CreateDecision, number])[])(
    "the refusal %o has its status",
    (outcome, status) => {
      const answer = encodeCreate(outcome, "", RULE_HEADERS);
      expect("code" in answer && ERRORS[answer.code].status).toBe(status);
    },
  );
});
