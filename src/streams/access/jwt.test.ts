// Tokens that a server must refuse, and those that it takes. PROTOCOL.md §21.6.
import { sign } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import {
  asking,
  bearing,
  type KeyServer,
  keySet,
  makeHmacToken,
  makeKey,
  makeToken,
  startKeyServer,
  unsigned,
} from "../../../test/kits/tokens.ts";
import type { Authorize, Identity, IdentityRefusal } from "./identity.ts";
import { jwtAuthorize, type JwtOptions } from "./jwt.ts";

const NOW = 1_800_000_000;
const ISSUER = "https://login.example.com/";
const AUDIENCE = "https://streams.example.com";
const GRANTS = [{ actions: ["read"], streams: ["/v1/stream/orders/**"] }];

const rsa = makeKey("rsa-1", "rsa");
const ec = makeKey("ec-1", "p256");
const ed = makeKey("ed-1", "ed25519");
const ed2 = makeKey("ed-2", "ed25519");
const foreign = makeKey("ec-1", "p256");

const HEADER = { alg: "ES256", kid: "ec-1" };
const CLAIMS = {
  iss: ISSUER,
  aud: AUDIENCE,
  sub: "worker-7",
  exp: NOW + 600,
  iat: NOW,
  hapax: { grants: GRANTS },
};
const es256 = (header: object | string, claims: object | string = CLAIMS): string =>
  makeToken(header, claims, ec.privateKey, "ES256");
const withClaims = (changed: object): string => es256(HEADER, { ...CLAIMS, ...changed });
/** Members as text, which an object could not have. */
const claimsText = (members: string): string =>
  es256(HEADER, `${JSON.stringify(CLAIMS).slice(0, -1)},${members}}`);

const GOOD = es256(HEADER);

const ending = new AbortController();
let provider: KeyServer;
let authorize: Authorize;

function setUp(changed: Partial<JwtOptions> = {}): Authorize {
  return jwtAuthorize({
    jwks: provider.url,
    issuer: ISSUER,
    audience: AUDIENCE,
    clock: createVirtualClock(NOW * 1000),
    signal: ending.signal,
    ...changed,
  });
}

beforeAll(async () => {
  provider = await startKeyServer(keySet(rsa, ec, ed, ed2));
  authorize = setUp();
});
afterAll(async () => {
  ending.abort();
  await provider.stop();
});

const outcome = async (
  token: string,
  by: Authorize = authorize,
): Promise<Identity | IdentityRefusal> => by(bearing(token));

const refused = async (token: string, by: Authorize = authorize): Promise<string> => {
  const found = await outcome(token, by);
  return "refused" in found ? found.refused : `let in as ${found.name}`;
};

const pem = rsa.publicKey.export({ type: "spki", format: "pem" });
const changedEnd = (token: string, end: string): string => token.slice(0, -end.length) + end;
const signatureOf = (token: string): string => token.split(".")[2] ?? "";
const inputOf = (token: string): string => token.split(".").slice(0, 2).join(".");
const derSignature = sign("sha256", Buffer.from(inputOf(GOOD)), ec.privateKey);

/** The last of 86 characters of a signature has four bits that mean nothing. */
function withStrayBits(token: string): string {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return changedEnd(token, letters[letters.indexOf(token.at(-1) ?? "") + 1] ?? "");
}

const ABUSE: Readonly<
  Record<string, readonly [token: string, refusal: IdentityRefusal["refused"]]>
> = {
  "alg none": [unsigned({ alg: "none" }, CLAIMS), "invalid"],
  "alg none with a kid": [unsigned({ ...HEADER, alg: "none" }, CLAIMS), "invalid"],
  "alg None": [unsigned({ ...HEADER, alg: "None" }, CLAIMS), "invalid"],
  "alg nOnE": [unsigned({ ...HEADER, alg: "nOnE" }, CLAIMS), "invalid"],
  "alg none with the signature of a good token": [
    `${unsigned({ ...HEADER, alg: "none" }, CLAIMS)}${signatureOf(GOOD)}`,
    "invalid",
  ],
  "no signature": [`${inputOf(GOOD)}.`, "invalid"],
  "no alg": [es256({ kid: "ec-1" }), "invalid"],
  "alg in lower case": [es256({ ...HEADER, alg: "es256" }), "invalid"],
  "alg as a list": [es256({ ...HEADER, alg: ["ES256"] }), "invalid"],
  "alg of a prototype": [es256({ ...HEADER, alg: "constructor" }), "invalid"],
  "HS256 with the RSA key in PEM": [
    makeHmacToken({ alg: "HS256", kid: "rsa-1" }, CLAIMS, pem),
    "invalid",
  ],
  "HS256 with the n of the RSA key": [
    makeHmacToken({ alg: "HS256", kid: "rsa-1" }, CLAIMS, String(rsa.jwk.n)),
    "invalid",
  ],
  "HS256 with the bytes of n": [
    makeHmacToken(
      { alg: "HS256", kid: "rsa-1" },
      CLAIMS,
      Buffer.from(String(rsa.jwk.n), "base64url"),
    ),
    "invalid",
  ],
  "RS256 in the header, HMAC in fact": [
    makeHmacToken({ alg: "RS256", kid: "rsa-1" }, CLAIMS, pem),
    "invalid",
  ],
  "ES256K, which is not in the list": [es256({ ...HEADER, alg: "ES256K" }), "invalid"],
  "RS1, which is not in the list": [
    makeToken({ alg: "RS1", kid: "rsa-1" }, CLAIMS, rsa.privateKey, "RS1"),
    "invalid",
  ],
  "the algorithm of another key": [
    makeToken({ alg: "RS256", kid: "ec-1" }, CLAIMS, rsa.privateKey, "RS256"),
    "invalid",
  ],
  "ES384 with a key for ES256": [
    makeToken({ alg: "ES384", kid: "ec-1" }, CLAIMS, ec.privateKey, "ES384"),
    "invalid",
  ],
  "an unknown kid": [es256({ ...HEADER, kid: "ec-2" }), "invalid"],
  "no kid, although there are several keys": [
    makeToken({ alg: "EdDSA" }, CLAIMS, ed.privateKey, "EdDSA"),
    "invalid",
  ],
  "a kid that is a path": [es256({ ...HEADER, kid: "../../../../dev/null" }), "invalid"],
  "a kid that is SQL": [es256({ ...HEADER, kid: "x' UNION SELECT 'key" }), "invalid"],
  "a kid of a prototype": [es256({ ...HEADER, kid: "__proto__" }), "invalid"],
  "a kid that is a number": [es256({ ...HEADER, kid: 1 }), "invalid"],
  "a kid that is null": [es256({ ...HEADER, kid: null }), "invalid"],
  "an empty kid": [es256({ ...HEADER, kid: "" }), "invalid"],
  "the sender's own key as jwk": [
    makeToken({ ...HEADER, jwk: foreign.jwk }, CLAIMS, foreign.privateKey, "ES256"),
    "invalid",
  ],
  "the sender's own key as jwk, without a kid": [
    makeToken({ alg: "ES256", jwk: foreign.jwk }, CLAIMS, foreign.privateKey, "ES256"),
    "invalid",
  ],
  "the sender's own key set as jku": [
    makeToken({ ...HEADER, jku: "http://127.0.0.1:1/jwks" }, CLAIMS, foreign.privateKey, "ES256"),
    "invalid",
  ],
  "the sender's own certificate as x5u": [
    makeToken({ ...HEADER, x5u: "http://127.0.0.1:1/x" }, CLAIMS, foreign.privateKey, "ES256"),
    "invalid",
  ],
  "the sender's own certificate as x5c": [
    makeToken({ ...HEADER, x5c: ["MIIB"] }, CLAIMS, foreign.privateKey, "ES256"),
    "invalid",
  ],
  "more than 8 KB": [withClaims({ filler: "x".repeat(8192) }), "invalid"],
  "a header that nests deeply": [
    es256(`{"alg":"ES256","kid":"ec-1","a":${"[".repeat(50)}${"]".repeat(50)}}`),
    "invalid",
  ],
  "claims that nest deeply": [claimsText(`"a":${"[".repeat(600)}${"]".repeat(600)}`), "invalid"],
  crit: [es256({ ...HEADER, crit: ["exp"], exp: NOW }), "invalid"],
  "crit with b64, which the library knows": [
    es256({ ...HEADER, crit: ["b64"], b64: true }),
    "invalid",
  ],
  "an empty crit": [es256({ ...HEADER, crit: [] }), "invalid"],
  "alg twice": [es256('{"alg":"none","alg":"ES256","kid":"ec-1"}'), "invalid"],
  "kid twice": [es256(String.raw`{"alg":"ES256","kid":"ec-1","\u006bid":"ec-1"}`), "invalid"],
  "aud twice": [claimsText(`"aud":"${AUDIENCE}"`), "invalid"],
  "exp twice": [claimsText(`"exp":${NOW + 60}`), "invalid"],
  "grants twice": [claimsText('"hapax":{"grants":[],"grants":[]}'), "invalid"],
  "expired long ago": [withClaims({ exp: NOW - 3600 }), "expired"],
  "expired, at the edge of the leeway": [withClaims({ exp: NOW - 30 }), "expired"],
  "not valid yet": [withClaims({ nbf: NOW + 31 }), "invalid"],
  "nbf as text": [withClaims({ nbf: String(NOW) }), "invalid"],
  "issued in the future": [withClaims({ iat: NOW + 31 }), "invalid"],
  "iat as text": [withClaims({ iat: String(NOW) }), "invalid"],
  "no exp": [withClaims({ exp: undefined }), "invalid"],
  "exp as text": [withClaims({ exp: String(NOW + 600) }), "invalid"],
  "exp as null": [withClaims({ exp: null }), "invalid"],
  "negative exp": [withClaims({ exp: -1 }), "expired"],
  "exp 1e300": [withClaims({ exp: 1e300 }), "invalid"],
  "exp 1e400, which is infinite": [
    es256(HEADER, JSON.stringify(CLAIMS).replace(String(CLAIMS.exp), "1e400")),
    "invalid",
  ],
  "no aud": [withClaims({ aud: undefined }), "invalid"],
  "another aud": [withClaims({ aud: `${AUDIENCE}/` }), "invalid"],
  "a list of other auds": [
    withClaims({ aud: ["https://a.example", "https://b.example"] }),
    "invalid",
  ],
  "aud as an object": [withClaims({ aud: { [AUDIENCE]: true } }), "invalid"],
  "no iss": [withClaims({ iss: undefined }), "invalid"],
  "iss without its slash": [withClaims({ iss: ISSUER.slice(0, -1) }), "invalid"],
  "iss in capitals": [withClaims({ iss: ISSUER.toUpperCase() }), "invalid"],
  "iss as a list": [withClaims({ iss: [ISSUER] }), "invalid"],
  "no sub": [withClaims({ sub: undefined }), "invalid"],
  "sub with a line break": [withClaims({ sub: "a\nhapax: forged" }), "invalid"],
  "no grants": [withClaims({ hapax: undefined }), "invalid"],
  "grants with an unknown member": [
    withClaims({ hapax: { grants: GRANTS, all: true } }),
    "invalid",
  ],
  "grants with an unknown action": [
    withClaims({ hapax: { grants: [{ actions: ["all"] }] } }),
    "invalid",
  ],
  "a claim that is a list": [withClaims({ hapax: [] }), "invalid"],
  "a claim that is null": [withClaims({ hapax: null }), "invalid"],
  "a claim without grants": [withClaims({ hapax: { namespace: "/v1/stream/a" } }), "invalid"],
  "a claim with an end of its own": [
    withClaims({ hapax: { grants: GRANTS, expiresAtMs: 9e15 } }),
    "invalid",
  ],
  "a claim with a prototype": [
    es256(
      HEADER,
      JSON.stringify(CLAIMS).replace('"hapax":{', '"hapax":{"__proto__":{"namespace":"/"},'),
    ),
    "invalid",
  ],
  "a namespace that is none": [
    withClaims({ hapax: { grants: GRANTS, namespace: "/v1/stream/a/" } }),
    "invalid",
  ],
  "a quota that is none": [
    withClaims({ hapax: { grants: GRANTS, quotas: { streamsMax: "7" } } }),
    "invalid",
  ],
  "claims that are a list": [es256(HEADER, "[]"), "invalid"],
  "claims that are no JSON": [es256(HEADER, "{"), "invalid"],
  "claims with a byte order mark": [es256(HEADER, `\uFEFF${JSON.stringify(CLAIMS)}`), "invalid"],
  padding: [`${inputOf(GOOD)}.${signatureOf(GOOD)}==`, "missing"],
  "a space inside": [GOOD.replace(".", ". "), "missing"],
  "four parts": [`${GOOD}.`, "missing"],
  "two parts": [inputOf(GOOD), "missing"],
  "an API key": ["hpx_a.b.c", "missing"],
  "stray bits": [withStrayBits(GOOD), "invalid"],
  "a signature that is cut": [GOOD.slice(0, -4), "invalid"],
  "a signature with more bytes": [`${GOOD}AAAA`, "invalid"],
  "the signature of another token": [
    `${inputOf(withClaims({ sub: "admin" }))}.${signatureOf(GOOD)}`,
    "invalid",
  ],
  "the signature in DER": [`${inputOf(GOOD)}.${derSignature.toString("base64url")}`, "invalid"],
  "a signature of zeros": [`${inputOf(GOOD)}.${"A".repeat(86)}`, "invalid"],
  "another key under the same kid": [
    makeToken(HEADER, CLAIMS, foreign.privateKey, "ES256"),
    "invalid",
  ],
};

describe("JWT abuse", () => {
  test("a good token is let in, so that the table below means something", async () => {
    expect(await outcome(GOOD)).toEqual({
      name: "worker-7",
      grants: GRANTS,
      expiresAtMs: (NOW + 600 + 30) * 1000,
    });
  });

  test.each(Object.entries(ABUSE))(
    "G45 a token is refused: %s",
    async (_name, [token, refusal]) => {
      expect(await refused(token)).toBe(refusal);
      // And again, from any memory of it.
      expect(await refused(token)).toBe(refusal);
    },
  );

  test("no detail holds anything of the token", async () => {
    for (const [token] of Object.values(ABUSE)) {
      const found = await outcome(token);
      const detail = "refused" in found ? (found.detail ?? "") : "";
      for (const part of token.split(/[. ]/).filter((text) => text.length > 8)) {
        expect(detail).not.toContain(part);
      }
      expect(detail).not.toContain("forged");
    }
  });

  test("a request without a token, and one with another kind, are not refused as tokens", async () => {
    for (const authorization of [
      undefined,
      "",
      "Basic YTpi",
      "Bearer",
      "Bearer hpx_abc",
      "Bearer a",
    ]) {
      const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
      expect(await authorize(asking(headers))).toEqual({ refused: "missing" });
    }
    const long = { authorization: `Bearer hpx_${"a".repeat(9000)}` };
    expect(await authorize(asking(long))).toEqual({ refused: "missing" });
  });
});

describe("JWT", () => {
  test("every algorithm is verified with its key", async () => {
    const p384 = makeKey("p384", "p384");
    const p521 = makeKey("p521", "p521");
    const keys = { RS: rsa, PS: rsa, ES256: ec, ES384: p384, ES512: p521, Ed: ed };
    const by = setUp({ jwks: async () => keySet(rsa, ec, p384, p521, ed) });
    const algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384"];
    for (const alg of [...algorithms, "ES512", "EdDSA", "Ed25519"]) {
      const found = Object.entries(keys).find(([start]) => alg.startsWith(start));
      const key = found?.[1] ?? ec;
      const token = makeToken({ alg, kid: key.kid }, CLAIMS, key.privateKey, alg);
      expect([alg, await refused(token, by)]).toEqual([alg, "let in as worker-7"]);
    }
  });

  test("only the algorithms of the options are allowed, and none that needs a secret", async () => {
    expect(await refused(GOOD, setUp({ algorithms: ["RS256"] }))).toBe("invalid");
    for (const algorithms of [["HS256"], ["none"], []]) {
      // Cast: the compiler refuses them as well.
      const wrong = { algorithms } as unknown as Partial<JwtOptions>;
      expect(() => setUp(wrong)).toThrow(/algorithms must be some of/);
    }
  });

  test("the edges of exp, nbf and iat are at the second, with the leeway", async () => {
    for (const [claims, expected] of [
      [{ exp: NOW - 29 }, "let in as worker-7"],
      [{ exp: NOW - 30 }, "expired"],
      [{ nbf: NOW + 30 }, "let in as worker-7"],
      [{ nbf: NOW + 31 }, "invalid"],
      [{ iat: NOW + 30 }, "let in as worker-7"],
      [{ iat: NOW + 31 }, "invalid"],
    ] as const) {
      expect([claims, await refused(withClaims(claims))]).toEqual([claims, expected]);
    }
    const strict = setUp({ leewaySeconds: 0 });
    expect(await refused(withClaims({ exp: NOW }), strict)).toBe("expired");
    expect(await refused(withClaims({ exp: NOW + 1 }), strict)).toBe("let in as worker-7");
  });

  test("G45 a remembered token is the same object, and is refused when it has expired", async () => {
    const clock = createVirtualClock(NOW * 1000);
    const by = setUp({ clock });
    const first = await outcome(GOOD, by);
    const second = by(bearing(GOOD));
    expect(second).toBe(first); // Not a promise: it was not verified again.
    clock.advance(629_999);
    expect(await by(bearing(GOOD))).toBe(first); // It waits for the keys, which were not read for long.
    clock.advance(1);
    expect(await refused(GOOD, by)).toBe("expired");
    expect(await refused(GOOD, by)).toBe("expired");
  });

  test("many requests with one new token are one verification", async () => {
    const by = setUp();
    const found = await Promise.all(Array.from({ length: 50 }, () => outcome(GOOD, by)));
    expect(new Set(found).size).toBe(1);
  });

  test("aud may be a list that has the server's, and the server may have several", async () => {
    expect(await refused(withClaims({ aud: ["https://a.example", AUDIENCE] }))).toMatch(/let in/);
    const by = setUp({ audience: ["https://b.example", AUDIENCE] });
    expect(await refused(GOOD, by)).toMatch(/let in/);
    expect(await refused(withClaims({ aud: "https://c.example" }), by)).toBe("invalid");
  });

  test("the claim has grants, namespace, quotas and name; its own name wins over sub", async () => {
    const rights = { grants: GRANTS, namespace: "/v1/stream/acme", quotas: { streamsMax: 3 } };
    const token = withClaims({ hapax: { ...rights, name: "acme/worker" }, rights });
    expect(await outcome(token)).toMatchObject({ ...rights, name: "acme/worker" });
    expect(await outcome(token, setUp({ claim: "rights" }))).toMatchObject({
      ...rights,
      name: "worker-7",
    });
    expect(await refused(withClaims({ hapax: { grants: [], name: 7 } }))).toBe("invalid");
  });

  test("scopes give the grants of the options, if the token has no claim", async () => {
    const read = { actions: ["read"], streams: ["/v1/stream/a"] } as const;
    const append = { actions: ["append"] } as const;
    const by = setUp({ scopes: { "streams:read": [read], "streams:append": [append] } });
    const scoped = (scope: unknown, hapax?: object): string => withClaims({ hapax, scope });
    const found = await outcome(scoped("openid streams:append streams:read streams:read"), by);
    expect(found).toMatchObject({ grants: [append, read] });
    expect(await refused(scoped("openid"), by)).toBe("invalid");
    expect(await refused(scoped("__proto__ constructor"), by)).toBe("invalid");
    expect(await refused(scoped(["streams:read"]), by)).toBe("invalid");
    expect(await refused(scoped("streams:read"))).toBe("invalid");
    expect(await outcome(scoped("streams:read", { grants: [] }), by)).toMatchObject({ grants: [] });
    // Cast: the compiler refuses it as well.
    const wrong = { scopes: { a: [{ actions: ["all"] }] } } as unknown as Partial<JwtOptions>;
    expect(() => setUp(wrong)).toThrow(/scopes\["a"\]\[0\]\.actions/);
  });

  test("a token without kid is verified if there is one key of its kind", async () => {
    expect(await refused(es256({ alg: "ES256" }))).toMatch(/let in/);
    const other = makeKey("ec-2");
    const by = setUp({ jwks: async () => keySet(ec, other) });
    expect(await refused(es256({ alg: "ES256" }), by)).toBe("invalid");
    expect(await refused(GOOD, by)).toMatch(/let in/);
  });

  test("options that are not safe are refused", () => {
    const wrong: readonly (readonly [Partial<JwtOptions>, RegExp])[] = [
      [{ jwks: "http://login.example.com/jwks" }, /jwks must be an https URL/],
      [{ jwks: "https://user:password@login.example.com/jwks" }, /jwks must be/],
      [{ jwks: "jwks.json" }, /jwks must be/],
      [{ issuer: "" }, /issuer must be a text/],
      [{ audience: [] }, /audience must be/],
      [{ audience: "" }, /audience must be/],
      [{ leewaySeconds: 601 }, /leewaySeconds/],
      [{ leewaySeconds: -1 }, /leewaySeconds/],
      [{ claim: "" }, /claim must be/],
      [{ refreshSeconds: 0 }, /refreshSeconds/],
    ];
    for (const [options, problem] of wrong) expect(() => setUp(options)).toThrow(problem);
  });
});
