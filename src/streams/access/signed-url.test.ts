// Signed URLs: what is signed cannot be changed. PROTOCOL.md §21.7.
import { createHmac } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Glob } from "../../base/glob.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { Authorize, Credentials, Identity } from "./identity.ts";
import { signedUrlAuthorize, signUrl, type SignUrlOptions, type UrlKey } from "./signed-url.ts";

const NOW_MS = 1_800_000_000_000;
const DAY_MS = 86_400_000;
const OFFSET = "0000000000000000_0000000000000100";
const EARLIER = "0000000000000000_0000000000000099";
const LATER = "0000000000000000_0000000000000200";

const secretOf = (letter: string): string => Buffer.alloc(32, letter).toString("base64url");
const key: UrlKey = { id: "2026-11", secret: secretOf("a") };
const clock = createVirtualClock(NOW_MS);
const authorize = signedUrlAuthorize({ keys: [key], clock });

const sign = (url: string, changed: Partial<SignUrlOptions> = {}): Promise<string> =>
  signUrl(url, { key, action: "read", expiresAtMs: NOW_MS + 600_000, clock, ...changed });

/** As it is sent: nothing is made regular. */
function asking(
  target: string,
  method = "GET",
  headers: Readonly<Record<string, string>> = {},
): Credentials {
  const mark = target.indexOf("?");
  const path = mark === -1 ? target : target.slice(0, mark);
  const query = mark === -1 ? "" : target.slice(mark + 1);
  return { method, path, query, header: (name) => headers[name] };
}

async function outcome(
  target: string,
  { method = "GET", headers = {}, by = authorize as Authorize } = {},
): Promise<string> {
  const found = await by(asking(target, method, headers));
  return "refused" in found ? found.refused : found.name;
}

describe("a signed URL", () => {
  test("allows its action on its stream until it expires, and nothing else", async () => {
    const url = await sign("/v1/stream/orders?offset=-1&live=sse");
    expect(url).toMatch(
      /^\/v1\/stream\/orders\?offset=-1&live=sse&hapax-action=read&hapax-expires=1800000600&hapax-key=2026-11&hapax-signature=[\w-]{43}$/,
    );
    expect(await authorize(asking(url))).toEqual({
      name: "signed-url:2026-11",
      grants: [{ actions: ["read"], streams: ["/v1/stream/orders"] }],
      expiresAtMs: NOW_MS + 600_000,
    });
  });

  test("is made as the protocol says, so that other languages can make it", async () => {
    const options = { fromOffset: OFFSET, name: "alice" };
    const url = new URL(await sign("https://streams.example.com/v1/stream/a%20b", options));
    const text = [
      "hapax-url-1",
      "read",
      "/v1/stream/a%20b",
      "1800000600",
      OFFSET,
      "2026-11",
      "alice",
      "",
    ];
    const secret = Buffer.from(key.secret, "base64url");
    const expected = createHmac("sha256", secret).update(text.join("\n")).digest("base64url");
    expect(url.searchParams.get("hapax-signature")).toBe(expected);
    expect(url.origin + url.pathname).toBe("https://streams.example.com/v1/stream/a%20b");
    expect(url.searchParams.get("offset")).toBe(OFFSET);
    expect(await outcome(url.pathname + url.search)).toBe("alice");
  });

  test("is the same object when it is used again, and another one for another URL", async () => {
    const url = await sign("/v1/stream/orders");
    const first = await authorize(asking(url));
    expect(authorize(asking(`${url}&offset=now`))).toBe(first); // Not a promise: nothing was verified.
    expect(await authorize(asking(await sign("/v1/stream/others")))).not.toBe(first);
  });

  test("expires at its second, also if it was used before", async () => {
    const own = createVirtualClock(NOW_MS);
    const by = signedUrlAuthorize({ keys: [key], clock: own });
    const url = await sign("/v1/stream/orders");
    own.advance(599_999);
    expect(await outcome(url, { by })).toBe("signed-url:2026-11");
    own.advance(1);
    expect(await outcome(url, { by })).toBe("expired");
    // Only the owner of a good URL hears that it has expired.
    expect(await outcome(url.replace("orders", "others"), { by })).toBe("invalid");
  });

  test.each([
    ["GET", "read", true],
    ["HEAD", "read", true],
    ["POST", "read", false],
    ["PUT", "read", false],
    ["DELETE", "read", false],
    ["get", "read", false],
    ["POST", "append", true],
    ["GET", "append", false],
    ["PUT", "append", false],
    ["DELETE", "append", false],
  ] as const)("G46 %s with a URL signed to %s: %s", async (method, action, isAllowed) => {
    const url = await sign("/v1/stream/orders", { action });
    for (let at = 0; at < 2; at++) {
      expect(await outcome(url, { method })).toBe(isAllowed ? "signed-url:2026-11" : "invalid");
    }
  });

  test("G46 the action is signed: another one is refused", async () => {
    const read = await sign("/v1/stream/orders");
    const swapped = read.replace("hapax-action=read", "hapax-action=append");
    expect(await outcome(swapped, { method: "POST" })).toBe("invalid");
    expect(await outcome(swapped)).toBe("invalid");
  });

  test("G46 for appends may be bound to a producer, which is signed too", async () => {
    const url = await sign("/v1/stream/orders", { action: "append", producer: "till-7" });
    expect(url).toContain("&hapax-producer=till-7&hapax-signature=");
    expect(await authorize(asking(url, "POST"))).toMatchObject({
      grants: [{ actions: ["append"], streams: ["/v1/stream/orders"], producers: ["till-7"] }],
    });
    const forged = [
      url.replace("till-7", "till-8"),
      url.replace("&hapax-producer=till-7", ""),
      url.replace("till-7", "till-*"),
      `${url}&hapax-producer=till-8`,
    ];
    for (const one of forged) expect(await outcome(one, { method: "POST" })).toBe("invalid");
  });

  const CHANGES: Readonly<Record<string, (url: string) => string>> = {
    "a longer life": (url) => url.replace("expires=1800000600", "expires=1800000601"),
    "a life with a zero in front": (url) => url.replace("expires=", "expires=0"),
    "another path": (url) => url.replace("/orders", "/others"),
    "a path below": (url) => url.replace("/orders", "/orders/a"),
    "the path in another spelling": (url) => url.replace("/orders", "/%6Frders"),
    "the path in capitals": (url) => url.replace("/orders", "/Orders"),
    "dots in the path": (url) => url.replace("/orders", "/x/../orders"),
    "a dot in the path": (url) => url.replace("/orders", "/./orders"),
    "two slashes": (url) => url.replace("/orders", "//orders"),
    "a slash at the end": (url) => url.replace("/orders", "/orders/"),
    "a reserved path": (url) => url.replace("/v1/stream/orders", "/_hapax/streams"),
    "another key": (url) => url.replace("hapax-key=2026-11", "hapax-key=2026-12"),
    "another name": (url) => url.replace("hapax-name=alice", "hapax-name=bob"),
    "no name": (url) => url.replace("&hapax-name=alice", ""),
    "a lower offset": (url) => url.replace(`hapax-from=${OFFSET}`, `hapax-from=${EARLIER}`),
    "no lowest offset": (url) => url.replace(`&hapax-from=${OFFSET}`, ""),
    "no action": (url) => url.replace("hapax-action=read&", ""),
    "no end": (url) => url.replace("hapax-expires=1800000600&", ""),
    "no signature": (url) => url.replace(/&hapax-signature=.*/, ""),
    "an empty signature": (url) => url.replace(/hapax-signature=.*/, "hapax-signature="),
    "a signature without a value": (url) => url.replace(/hapax-signature=.*/, "hapax-signature"),
    "a signature that is cut": (url) => url.slice(0, -1),
    "a signature with padding": (url) => `${url}=`,
    "a signature twice": (url) => `${url}&hapax-signature=${"A".repeat(43)}`,
    "the same signature twice": (url) => `${url}&${/hapax-signature=.*/.exec(url)?.[0] ?? ""}`,
    "an action twice": (url) => `${url}&hapax-action=append`,
    "an action twice, percent-encoded": (url) => `${url}&hapax%2Daction=append`,
    "an action twice, in capitals": (url) => `${url}&Hapax-Action=append`,
    "a member in capitals": (url) => url.replace("hapax-key", "HAPAX-KEY"),
    "a member that does not exist": (url) => `${url}&hapax-admin=true`,
    "a value that is percent-encoded": (url) => url.replace("action=read", "action=%72ead"),
    "a line break in a value": (url) => url.replace("name=alice", "name=alice%0Aadmin"),
    "an offset below the lowest": (url) => url.replace(`&offset=${OFFSET}`, `&offset=${EARLIER}`),
  };

  test.each(Object.entries(CHANGES))("G46 is refused with %s", async (_name, change) => {
    const made = await sign("/v1/stream/orders", { fromOffset: OFFSET, name: "alice" });
    const url = made.replace(`offset=${OFFSET}&`, "") + `&offset=${OFFSET}`;
    const [, signature = ""] = /(hapax-signature=[\w-]+)/.exec(url) ?? [];
    // The signature last, as the changes expect it.
    const last = `${url.replace(`&${signature}`, "")}&${signature}`;
    expect(await outcome(last)).toBe("alice");
    expect(change(last)).not.toBe(last);
    expect(await outcome(change(last))).toBe("invalid");
  });

  test("G46 any single changed character of what is signed is refused", async () => {
    const path = "/v1/stream/caf%C3%A9/a*b";
    const url = await sign(path, { fromOffset: OFFSET, name: "al.ice" });
    const free = `offset=${OFFSET}`;
    const bound = url.replace(`${free}&`, "");
    expect(await outcome(`${bound}&${free}`)).toBe("al.ice");
    const characters = "ABab01.-_~%/&=?;+*@ \n\0é".split("");
    await fc.assert(
      fc.asyncProperty(
        fc.nat(bound.length - 1),
        fc.oneof(fc.constantFrom(...characters), fc.string({ minLength: 1, maxLength: 1 })),
        fc.constantFrom("replace", "insert", "remove"),
        async (at, character, way) => {
          const kept = bound.slice(at + (way === "insert" ? 0 : 1));
          const changed = bound.slice(0, at) + (way === "remove" ? "" : character) + kept;
          // A separator more between two members changes nothing that is signed.
          fc.pre(changed !== bound && changed.replaceAll("&&", "&").replace("?&", "?") !== bound);
          const found = await outcome(`${changed}&${free}`);
          expect(["invalid", "missing", "expired"]).toContain(found);
        },
      ),
      { numRuns: 3000 },
    );
  });

  test("of another server's key is refused, also under the same id", async () => {
    const other: UrlKey = { id: key.id, secret: secretOf("b") };
    expect(await outcome(await sign("/v1/stream/orders", { key: other }))).toBe("invalid");
  });

  test("G46 of a key that is gone is refused, also if it was used before; the new key signs meanwhile", async () => {
    const next: UrlKey = { id: "2026-12", secret: secretOf("c") };
    let keys: readonly UrlKey[] = [key];
    const by = signedUrlAuthorize({ keys: () => keys, clock });
    const url = await sign("/v1/stream/orders");
    expect(await outcome(url, { by })).toBe("signed-url:2026-11");
    keys = [next, key];
    expect(await outcome(url, { by })).toBe("signed-url:2026-11");
    expect(await outcome(await sign("/v1/stream/orders", { key: next }), { by })).toBe(
      "signed-url:2026-12",
    );
    keys = [next];
    expect(await outcome(url, { by })).toBe("invalid");
    // The same id with another secret is another key.
    keys = [{ id: key.id, secret: secretOf("d") }];
    expect(await outcome(url, { by })).toBe("invalid");
  });

  test("a life of more than 7 days is refused when it is signed, and when it is used", async () => {
    await expect(sign("/v1/stream/a", { expiresAtMs: NOW_MS + 7 * DAY_MS + 1 })).rejects.toThrow(
      /at most 7 days/,
    );
    const ahead = createVirtualClock(NOW_MS + DAY_MS);
    const long = { expiresAtMs: NOW_MS + 8 * DAY_MS, clock: ahead };
    expect(await outcome(await sign("/v1/stream/a", long))).toBe("invalid");
    // A clock that is a little ahead is no attack.
    const near = createVirtualClock(NOW_MS + 59_000);
    const week = { expiresAtMs: NOW_MS + 59_000 + 7 * DAY_MS, clock: near };
    expect(await outcome(await sign("/v1/stream/a", week))).toBe("signed-url:2026-11");
  });
});

describe("a lowest offset", () => {
  test.each([
    [`offset=${OFFSET}`, "", true],
    [`offset=${LATER}`, "", true],
    [`offset=${EARLIER}`, "", false],
    ["offset=now", "", true],
    ["offset=-1", "", false],
    ["last=1", "", false],
    ["at=2026-01-31T08:00:00Z", "", false],
    ["", "", false],
    ["offset=", "", false],
    ["offset=abc", "", false],
    [`offset=${OFFSET}&offset=-1`, "", false],
    [`offset=${OFFSET}&offset=${OFFSET}`, "", false],
    [`off%73et=${OFFSET}`, "", false],
    [`offset=${OFFSET}&live=sse`, LATER, true],
    [`offset=${OFFSET}&live=sse`, EARLIER, false],
    [`offset=${OFFSET}&live=sse`, "-1", false],
    [`offset=${OFFSET}&live=sse`, "abc", false],
    ["offset=now&live=sse", LATER, true],
    [`offset=-1&live=sse`, LATER, false],
  ])("G46 with %j and Last-Event-ID %j: %s", async (query, lastEventId, isAllowed) => {
    const made = await sign("/v1/stream/a", { fromOffset: OFFSET });
    const url = made.replace(`offset=${OFFSET}&`, query === "" ? "" : `${query}&`);
    const headers: Record<string, string> =
      lastEventId === "" ? {} : { "last-event-id": lastEventId };
    expect(await outcome(url, { headers })).toBe(isAllowed ? "signed-url:2026-11" : "invalid");
  });

  test("a URL without one reads from anywhere, and resumes", async () => {
    const url = await sign("/v1/stream/a?live=sse&offset=-1");
    expect(await outcome(url, { headers: { "last-event-id": LATER } })).toBe("signed-url:2026-11");
    expect(await outcome(`${url}&cursor=7`)).toBe("signed-url:2026-11");
  });

  test("the head of a stream has no content, so no offset", async () => {
    const url = (await sign("/v1/stream/a", { fromOffset: OFFSET })).replace(
      `offset=${OFFSET}&`,
      "",
    );
    expect(await outcome(url, { method: "HEAD" })).toBe("signed-url:2026-11");
    expect(await outcome(url, { method: "GET" })).toBe("invalid");
  });
});

describe("one credential decides", () => {
  test("a request with Authorization is judged by it alone, also if its URL is signed", async () => {
    const url = await sign("/v1/stream/orders");
    for (const authorization of ["Bearer hpx_x", "Basic YTpi", ""]) {
      expect(await outcome(url, { headers: { authorization } })).toBe("missing");
    }
  });

  test("a request without any member of a signed URL is not one", async () => {
    for (const target of ["/v1/stream/a", "/v1/stream/a?offset=-1", "/v1/stream/a?xhapax-key=1"]) {
      expect(await outcome(target)).toBe("missing");
    }
  });
});

describe("a stream with a star in its name", () => {
  test("G46 is granted alone: its star is no pattern", async () => {
    for (const [path, name] of [
      ["/v1/stream/a/*", "/v1/stream/a/*"],
      ["/v1/stream/**", "/v1/stream/**"],
      ["/v1/stream/a%2Ab", "/v1/stream/a*b"],
    ] as const) {
      const identity = (await authorize(asking(await sign(path)))) as Identity;
      const [pattern = ""] = identity.grants[0]?.streams ?? [];
      expect(new Glob(pattern).matches(name)).toBe(true);
      expect(new Glob(pattern).matches("/v1/stream/a/b")).toBe(false);
      expect(new Glob(pattern).matches("/v1/stream/axb")).toBe(false);
    }
    await expect(sign("/v1/stream/a%252Ab")).rejects.toThrow(/not the URL of a stream/);
  });
});

describe("what cannot be signed", () => {
  test.each([
    ["a reserved path", "/_hapax/streams", {}, /not the URL of a stream/],
    ["the front page", "https://streams.example.com", {}, /not the URL of a stream/],
    ["no URL", "http://[", {}, /not the URL of a stream/],
    ["a URL that is signed", "/v1/stream/a?hapax-key=x", {}, /signed already/],
    ["a time that is over", "/v1/stream/a", { expiresAtMs: NOW_MS }, /later than now/],
    ["a time that is none", "/v1/stream/a", { expiresAtMs: Number.NaN }, /later than now/],
    ["an offset that is none", "/v1/stream/a", { fromOffset: "now" }, /fromOffset/],
    [
      "an offset for appends",
      "/v1/stream/a",
      { fromOffset: OFFSET, action: "append" },
      /fromOffset/,
    ],
    ["a name with a space", "/v1/stream/a", { name: "a b" }, /name must/],
    ["a producer for reads", "/v1/stream/a", { producer: "p" }, /producer must/],
    [
      "a pattern of producers",
      "/v1/stream/a",
      { action: "append", producer: "p*" },
      /producer must/,
    ],
    [
      "a short secret",
      "/v1/stream/a",
      { key: { id: "a", secret: "c2hvcnQ" } },
      /at least 32 bytes/,
    ],
    ["a key id with a slash", "/v1/stream/a", { key: { ...key, id: "a/b" } }, /id of 1 to 64/],
    // Cast: the compiler refuses it as well.
    ["another action", "/v1/stream/a", { action: "delete" as "read" }, /read or append/],
  ] as const)("%s", async (_name, url, changed, problem) => {
    await expect(sign(url, changed)).rejects.toThrow(problem);
  });

  test("a key that is too short is refused by the server too, without its secret in the words", () => {
    const keys = [{ id: "a", secret: "c2hvcnQtc2VjcmV0" }];
    expect(() => signedUrlAuthorize({ keys })).toThrow(/at least 32 bytes/);
    expect(() => signedUrlAuthorize({ keys })).not.toThrow(/c2hvcnQ/);
  });
});
