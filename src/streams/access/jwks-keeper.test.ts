// Key sets of a provider that fails in every way, from real servers. PROTOCOL.md §21.6.
import { afterEach, describe, expect, test, vi } from "vitest";
import { LIMITS } from "../../protocol/all-limits.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import {
  bearing,
  type KeyServer,
  keySet,
  makeKey,
  makeToken,
  startKeyServer,
  type TokenKey,
} from "../../../test/kits/tokens.ts";
import type { Authorize, Identity } from "./identity.ts";
import { isKeySetUrl } from "./jwks-keeper.ts";
import { jwtAuthorize, type JwtOptions } from "./jwt.ts";

const NOW = 1_800_000_000;
const REFRESH_MS = 300_000;
/** Far above what it takes: a slow machine is no fault. */
const WAIT_MS = 15_000;
const one = makeKey("one");
const two = makeKey("two");
/** Another key under the same name. */
const otherOne = makeKey("one");

const CLAIMS = {
  iss: "https://login.example.com",
  aud: "streams",
  sub: "worker",
  exp: NOW + 86_400,
  hapax: { grants: [{ actions: ["read"] }] },
};
/** The same token for the same arguments, although each signature of ECDSA is another one. */
const made = new Map<string, string>();
function tokenOf({ kid, privateKey, jwk }: TokenKey, claims: object = CLAIMS): string {
  const id = JSON.stringify([kid, jwk, claims]);
  const token = made.get(id) ?? makeToken({ alg: "ES256", kid }, claims, privateKey, "ES256");
  made.set(id, token);
  return token;
}

interface Stage {
  readonly provider: KeyServer;
  readonly clock: VirtualClock;
  readonly authorize: Authorize;
  readonly notes: readonly string[];
  /** Lets the time of the next refresh and a request come, and waits until it has had its effect. */
  readonly refresh: (note: RegExp | undefined, afterMs?: number) => Promise<void>;
}

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

async function setUp(
  text: string,
  prepare: (provider: KeyServer) => unknown = () => undefined,
  changed: Partial<JwtOptions> = {},
): Promise<Stage> {
  const provider = await startKeyServer(text);
  await prepare(provider);
  const clock = createVirtualClock(NOW * 1000);
  const ending = new AbortController();
  const notes: string[] = [];
  ends.push(
    () => ending.abort(),
    () => provider.stop(),
  );
  const authorize = jwtAuthorize({
    jwks: provider.url,
    issuer: CLAIMS.iss,
    audience: CLAIMS.aud,
    clock,
    signal: ending.signal,
    onNote: (note) => notes.push(note),
    ...changed,
  });
  const refresh: Stage["refresh"] = async (note, afterMs = REFRESH_MS) => {
    const [before, calls] = [notes.length, provider.calls];
    clock.advance(afterMs);
    void authorize(bearing(tokenOf(one)));
    if (note === undefined) await vi.waitFor(() => expect(provider.calls).toBe(calls + 1), WAIT_MS);
    else await vi.waitFor(() => expect(notes.slice(before).join("\n")).toMatch(note), WAIT_MS);
  };
  return { provider, clock, authorize, notes, refresh };
}

const serving =
  (provider: KeyServer) =>
  (...keys: readonly TokenKey[]): void => {
    provider.answer = (_request, response) => response.end(keySet(...keys));
  };

const outcome = async (authorize: Authorize, token: string): Promise<string> => {
  const found = await authorize(bearing(token));
  return "refused" in found ? found.refused : found.name;
};

describe("a key set", () => {
  test("G45 that is replaced: new keys are taken, and a remembered token of a key that is gone is refused", async () => {
    const { provider, authorize, refresh } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    serving(provider)(two);
    await refresh(/new key set with 1 usable keys/);
    expect(await outcome(authorize, tokenOf(one))).toBe("invalid");
    expect(await outcome(authorize, tokenOf(two))).toBe("worker");
  });

  test("G45 with another key under the same kid: a remembered token of the old key is refused", async () => {
    const { provider, authorize, refresh } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    serving(provider)(otherOne);
    await refresh(/new key set/);
    expect(await outcome(authorize, tokenOf(one))).toBe("invalid");
    expect(await outcome(authorize, tokenOf(otherOne))).toBe("worker");
  });

  test("that is the same after a refresh: a remembered token is the same object", async () => {
    const { authorize, provider, refresh } = await setUp(keySet(one));
    const first = (await authorize(bearing(tokenOf(one)))) as Identity;
    serving(provider)(two, one);
    await refresh(/new key set with 2/);
    expect(authorize(bearing(tokenOf(one)))).toBe(first);
  });

  test("with a new key that a token names is fetched at once, but strangers cause one fetch per 30 seconds", async () => {
    const { provider, clock, authorize } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    expect(provider.calls).toBe(1);
    serving(provider)(one, two);
    expect(await outcome(authorize, tokenOf(two))).toBe("worker");
    expect(provider.calls).toBe(2);
    for (let at = 0; at < 100; at++) {
      const stranger = tokenOf({ ...two, kid: `stranger-${at}` });
      expect(await outcome(authorize, stranger)).toBe("invalid");
    }
    expect(provider.calls).toBe(2);
    clock.advance(LIMITS.jwksCoolDownMs);
    await Promise.all(
      Array.from({ length: 50 }, (_, at) =>
        outcome(authorize, tokenOf({ ...two, kid: `late-${at}` })),
      ),
    );
    expect(provider.calls).toBe(3);
  });

  test("that is down at start: tokens are unavailable, and it is tried again by itself", async () => {
    const { provider, clock, authorize, notes } = await setUp(keySet(one), (server) =>
      server.stop(),
    );
    expect(await outcome(authorize, tokenOf(one))).toBe("unavailable");
    await vi.waitFor(
      () => expect(notes.join()).toMatch(/tokens are refused: ECONNREFUSED/),
      WAIT_MS,
    );
    await provider.start();
    await vi.waitFor(async () => {
      clock.advance(1000);
      expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    }, WAIT_MS);
    expect(notes.at(-1)).toBe("jwt: key set with 1 usable keys");
  });

  test("that is down later: its keys go on, new keys are unavailable, and it comes back", async () => {
    const { provider, clock, authorize, notes, refresh } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    await provider.stop();
    await refresh(/the last keys go on/);
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    expect(await outcome(authorize, tokenOf(one, { ...CLAIMS, sub: "new" }))).toBe("new");
    expect(await outcome(authorize, tokenOf(two))).toBe("unavailable");
    serving(provider)(one, two);
    await provider.start();
    await vi.waitFor(async () => {
      clock.advance(60_000);
      expect(await outcome(authorize, tokenOf(two))).toBe("worker");
    }, WAIT_MS);
    expect(notes.at(-1)).toMatch(/new key set with 2 usable keys/);
  });

  test("G45 that hangs holds no request with a known key, and those with an unknown one only a second", async () => {
    const { provider, clock, authorize, notes, refresh } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    provider.answer = () => undefined;
    await refresh(undefined);
    // Neither remembered nor new tokens of the known key wait: the clock stands still.
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    expect(await outcome(authorize, tokenOf(one, { ...CLAIMS, sub: "new" }))).toBe("new");
    const waiting = outcome(authorize, tokenOf(two));
    await vi.waitFor(() => expect(clock.pending).toBe(2), WAIT_MS);
    clock.advance(LIMITS.jwksWaitMs);
    expect(await waiting).toBe("invalid");
    clock.advance(LIMITS.jwksTimeoutMs);
    await vi.waitFor(() => expect(notes.at(-1)).toMatch(/did not arrive within 5000 ms/), WAIT_MS);
    const again = outcome(authorize, tokenOf(two));
    await vi.waitFor(() => expect(clock.pending).toBe(2), WAIT_MS);
    clock.advance(LIMITS.jwksWaitMs);
    expect(await again).toBe("unavailable");
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
  });

  test("that hangs at start: requests are unavailable after a second", async () => {
    const { clock, authorize } = await setUp(keySet(one), (server) => {
      server.answer = () => undefined;
    });
    const waiting = outcome(authorize, tokenOf(one));
    await vi.waitFor(() => expect(clock.pending).toBe(2), WAIT_MS);
    clock.advance(LIMITS.jwksWaitMs);
    expect(await waiting).toBe("unavailable");
  });

  test("whose function does not obey its signal is given up all the same", async () => {
    const never = (): Promise<string> => new Promise(() => undefined);
    const { clock, notes } = await setUp("", undefined, { jwks: never });
    clock.advance(LIMITS.jwksTimeoutMs);
    await vi.waitFor(() => expect(notes.at(-1)).toMatch(/did not arrive within/), WAIT_MS);
  });

  test("that redirects is refused, and the new place is not called", async () => {
    const evil = await startKeyServer(keySet(two));
    ends.push(() => evil.stop());
    const { authorize, notes } = await setUp(keySet(one), (server) => {
      server.answer = (_request, response) => {
        response.writeHead(302, { location: evil.url }).end(keySet(two));
      };
    });
    expect(await outcome(authorize, tokenOf(two))).toBe("unavailable");
    expect(notes.at(-1)).toMatch(/status 302/);
    expect(evil.calls).toBe(0);
  });

  test("of a gigabyte is cut at 64 KB", async () => {
    let sent = 0;
    const { authorize, notes } = await setUp(keySet(one), (server) => {
      server.answer = (_request, response) => {
        const chunk = Buffer.alloc(64 * 1024, " ");
        const push = (): void => {
          while (sent < 1024 ** 3 && !response.destroyed) {
            sent += chunk.length;
            if (!response.write(chunk)) return;
          }
        };
        response.on("drain", push);
        push();
      };
    });
    expect(await outcome(authorize, tokenOf(one))).toBe("unavailable");
    expect(notes.at(-1)).toMatch(/larger than 65536 bytes/);
    expect(sent).toBeLessThan(64 * 1024 * 1024);
  });

  const BROKEN: Readonly<Record<string, readonly [answer: string, note: RegExp]>> = {
    HTML: ["<!doctype html><title>Log in</title>", /it is no key set/],
    "an error in JSON": ['{"error":"not found"}', /it is no key set/],
    "a list": [JSON.stringify([one.jwk]), /it is no key set/],
    "a member twice": [`{"keys":[],"keys":[${JSON.stringify(one.jwk)}]}`, /it is no key set/],
    "an entry that is no key": ['{"keys":["one"]}', /keys\[0\] is no key/],
    "a kid that is a number": [
      JSON.stringify({ keys: [{ ...one.jwk, kid: 1 }] }),
      /kid is no text/,
    ],
    "a symmetric key": [
      JSON.stringify({ keys: [one.jwk, { kty: "oct", kid: "s", k: "c2VjcmV0" }] }),
      /keys\[1\] is a symmetric key: publish public keys only/,
    ],
    "a private key": [
      JSON.stringify({ keys: [{ ...one.privateKey.export({ format: "jwk" }), kid: "one" }] }),
      /keys\[0\] is a private key: publish public keys only/,
    ],
    "too many keys": [
      JSON.stringify({ keys: Array(101).fill({ kty: "EC" }) }),
      /more than 100 keys/,
    ],
  };

  test.each(Object.entries(BROKEN))(
    "G45 that is broken is refused, and the last one goes on: %s",
    async (_name, [text, note]) => {
      const { provider, authorize, notes, refresh } = await setUp(text);
      expect(await outcome(authorize, tokenOf(one))).toBe("unavailable");
      expect(notes.at(-1)).toMatch(note);
      for (const line of notes) expect(line).not.toContain(String(one.jwk.x));
      serving(provider)(one);
      await refresh(/key set with 1 usable/, LIMITS.jwksRetryMsMin);
      expect(await outcome(authorize, tokenOf(one))).toBe("worker");
      provider.answer = (_request, response) => response.end(text);
      await refresh(note);
      expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    },
  );

  test("has keys for other purposes and of other kinds, which are passed over", async () => {
    const text = JSON.stringify({
      keys: [
        { ...two.jwk, use: "enc" },
        { ...two.jwk, kid: "three", key_ops: ["encrypt"] },
        { ...two.jwk, kid: "four", key_ops: "verify" },
        { kty: "AKP", kid: "five", alg: "ML-DSA-44", pub: "AA" },
        { ...one.jwk, use: "sig", key_ops: ["verify"], alg: "ES256" },
        { ...otherOne.jwk, kid: "six", alg: "ES384" },
      ],
    });
    const { authorize } = await setUp(text);
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    for (const kid of ["two", "three", "four", "five"]) {
      expect(await outcome(authorize, tokenOf({ ...two, kid }))).toBe("invalid");
    }
    expect(await outcome(authorize, tokenOf({ ...otherOne, kid: "six" }))).toBe("invalid");
  });

  test("that has two keys with one kid decides nothing", async () => {
    const { authorize } = await setUp(keySet(one, otherOne));
    expect(await outcome(authorize, tokenOf(one))).toBe("invalid");
    expect(await outcome(authorize, tokenOf(otherOne))).toBe("invalid");
  });

  test("that is empty refuses all tokens: the provider has taken its keys back", async () => {
    const { provider, authorize, refresh } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    serving(provider)();
    await refresh(/new key set with 0 usable keys/);
    expect(await outcome(authorize, tokenOf(one))).toBe("invalid");
  });

  test("from a function is read again, and the same problem is noted once", async () => {
    let text = keySet(one);
    const jwks = async (): Promise<string> => text;
    const { authorize, clock, notes } = await setUp("", undefined, { jwks, refreshSeconds: 1 });
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    const later = async (): Promise<void> => {
      clock.advance(1000);
      void authorize(bearing(tokenOf(one)));
      await new Promise((resolve) => setImmediate(resolve));
    };
    text = "";
    for (let at = 0; at < 5; at++) await later();
    expect(notes.filter((note) => note.includes("cannot be used"))).toHaveLength(1);
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    text = keySet(two);
    await later();
    expect(await outcome(authorize, tokenOf(two))).toBe("worker");
    expect(await outcome(authorize, tokenOf(one))).toBe("invalid");
  });

  test("G45 that no request has asked for in long is read before a token counts, and no timer waits meanwhile", async () => {
    const { provider, clock, authorize } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    expect(clock.pending).toBe(0);
    serving(provider)(two);
    clock.advance(2 * REFRESH_MS);
    expect(provider.calls).toBe(1);
    expect(await outcome(authorize, tokenOf(one))).toBe("invalid");
    expect(await outcome(authorize, tokenOf(two))).toBe("worker");
    expect(clock.pending).toBe(0);
  });

  test("that no request has asked for in long, and that hangs now: its keys go on after a second", async () => {
    const { provider, clock, authorize } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    provider.answer = () => undefined;
    clock.advance(2 * REFRESH_MS);
    const waiting = outcome(authorize, tokenOf(one));
    await vi.waitFor(() => expect(clock.pending).toBe(2), WAIT_MS);
    clock.advance(LIMITS.jwksWaitMs);
    expect(await waiting).toBe("worker");
  });

  test("is not asked for by credentials of another kind", async () => {
    const { provider, clock, authorize } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    clock.advance(10 * REFRESH_MS);
    for (const credential of ["hpx_key", "opaque"]) {
      expect(authorize(bearing(credential))).toMatchObject({ refused: "missing" });
    }
    expect(provider.calls).toBe(1);
  });

  test("is not read any more when the signal has aborted", async () => {
    const { provider, clock, authorize } = await setUp(keySet(one));
    expect(await outcome(authorize, tokenOf(one))).toBe("worker");
    ends[0]?.();
    clock.advance(10 * REFRESH_MS);
    expect(await outcome(authorize, tokenOf(two))).toBe("invalid");
    expect(provider.calls).toBe(1);
    expect(clock.pending).toBe(0);
  });

  test.each([
    ["https://login.example.com/jwks", true],
    ["http://localhost:8080/jwks", true],
    ["http://[::1]:8080/jwks", true],
    ["http://127.0.0.1/jwks", true],
    ["http://login.example.com/jwks", false],
    ["http://127.0.0.1.example.com/jwks", false],
    ["https://a:b@login.example.com/jwks", false],
    ["file:///etc/jwks.json", false],
    ["jwks.json", false],
  ])("may come from %s: %s", (url, expected) => {
    expect(isKeySetUrl(url)).toBe(expected);
  });
});
