/** Faults of tokens and signed URLs: what would let a stranger in. */

import type { Fault } from "./faults.ts";

const JWT = "src/streams/access/jwt.ts";
const JWT_TEST = "src/streams/access/jwt.test.ts";
const URLS = "src/streams/access/signed-url.ts";
const MEMBERS = "src/streams/access/signed-url-members.ts";
const URLS_TEST = "src/streams/access/signed-url.test.ts";
const KEYS_TEST = "src/streams/access/jwks-keeper.test.ts";

export const tokenFaults: readonly Fault[] = [
  {
    name: "tokens: an expired token is accepted from the memory",
    guarantee: "G45",
    file: JWT,
    find: "const isOver = nowMs >= known.expiresAtMs;",
    replace: "const isOver = nowMs < 0;",
    caughtBy: {
      file: JWT_TEST,
      test: "JWT > G45 a remembered token is the same object, and is refused when it has expired",
    },
  },
  {
    name: "tokens: a key that is gone from the set is still accepted",
    guarantee: "G45",
    file: JWT,
    find: "const hasKey = this.#keeper.keys?.holds(known.key) === true;",
    replace: "const hasKey = this.#keeper.keys !== undefined;",
    caughtBy: {
      file: KEYS_TEST,
      test: "a key set > G45 that is replaced: new keys are taken, and a remembered token of a key that is gone is refused",
    },
  },
  {
    name: "tokens: the audience is not checked",
    guarantee: "G45",
    file: JWT,
    find: 'audience: typeof audience === "string" ? audience : [...audience],',
    replace: "...(audience === issuer ? { audience: issuer } : {}),",
    caughtBy: { file: JWT_TEST, test: "JWT abuse > G45 a token is refused: another aud" },
  },
  {
    name: "tokens: an algorithm with a secret may be configured",
    guarantee: "G45",
    file: JWT,
    find: 'RS256: "RSA",',
    replace: 'RS256: "RSA",\n  HS256: "RSA",',
    caughtBy: {
      file: JWT_TEST,
      test: "JWT > only the algorithms of the options are allowed, and none that needs a secret",
    },
  },
  {
    name: "tokens: an object may have a member twice",
    guarantee: "G45",
    file: "src/base/unique-json.ts",
    find: "if (names.has(name)) return false;",
    replace: "",
    caughtBy: { file: JWT_TEST, test: "JWT abuse > G45 a token is refused: aud twice" },
  },
  {
    name: "tokens: a token may be spelled in two ways",
    guarantee: "G45",
    file: JWT,
    find: "return isSpelled ? header : undefined;",
    replace: "return isSpelled || header !== undefined ? header : undefined;",
    caughtBy: { file: JWT_TEST, test: "JWT abuse > G45 a token is refused: stray bits" },
  },
  {
    name: "tokens: a private key in the set is taken",
    guarantee: "G45",
    file: "src/streams/access/jwks.ts",
    find: 'if (kty === "oct" || SECRET_MEMBERS.some((name) => Object.hasOwn(jwk, name))) {',
    replace: 'if (kty === "oct") {',
    caughtBy: {
      file: KEYS_TEST,
      test: "a key set > G45 that is broken is refused, and the last one goes on: a private key",
    },
  },
  {
    name: "tokens: keys that were not read for long count without a look",
    guarantee: "G45",
    file: "src/streams/access/jwks-keeper.ts",
    find: "if (lateMs < refreshMs || this.#attempt === undefined) return undefined;",
    replace: "if (lateMs < Infinity || this.#attempt === undefined) return undefined;",
    caughtBy: {
      file: KEYS_TEST,
      test: "a key set > G45 that no request has asked for in long is read before a token counts, and no timer waits meanwhile",
    },
  },
  {
    name: "tokens: strangers make the server call the provider",
    guarantee: "G45",
    file: "src/streams/access/jwks-keeper.ts",
    find: "if (clock.steadyMs() - this.#askedAtMs < LIMITS.jwksCoolDownMs) return;",
    replace: "",
    caughtBy: {
      file: KEYS_TEST,
      test: "a key set > with a new key that a token names is fetched at once, but strangers cause one fetch per 30 seconds",
    },
  },
  {
    name: "signed URLs: the signature is not bound to the action",
    guarantee: "G46",
    file: MEMBERS,
    find: "return [VERSION, action, path,",
    replace: "return [VERSION, action.slice(0, 0), path,",
    caughtBy: {
      file: URLS_TEST,
      test: "a signed URL > G46 the action is signed: another one is refused",
    },
  },
  {
    name: "signed URLs: a member may be there twice",
    guarantee: "G46",
    file: MEMBERS,
    find: 'if (!isMember(name) || found.has(name) || !GRAMMARS[name].test(value)) return "invalid";',
    replace: 'if (!isMember(name) || !GRAMMARS[name].test(value)) return "invalid";',
    caughtBy: {
      file: URLS_TEST,
      test: "a signed URL > G46 is refused with the same signature twice",
    },
  },
  {
    name: "signed URLs: the lowest offset counts for the query alone",
    guarantee: "G46",
    file: URLS,
    find: 'if (lastEventId !== "") offsets.push(lastEventId);',
    replace: 'if (lastEventId === "-") offsets.push(lastEventId);',
    caughtBy: {
      file: URLS_TEST,
      test: 'a lowest offset > G46 with "offset=0000000000000000_0000000000000100&live=sse" and Last-Event-ID "0000000000000000_0000000000000099": false',
    },
  },
  {
    name: "signed URLs: a star in a name is a pattern",
    guarantee: "G46",
    file: URLS,
    find: 'stream.replaceAll("*", "%2A")',
    replace: 'stream.replaceAll("%", "%")',
    caughtBy: {
      file: URLS_TEST,
      test: "a stream with a star in its name > G46 is granted alone: its star is no pattern",
    },
  },
  {
    name: "signed URLs: any method may use them",
    guarantee: "G46",
    file: URLS,
    find: "if (!methods.includes(method)) return",
    replace: "if (methods.includes(`${method}?`)) return",
    caughtBy: {
      file: URLS_TEST,
      test: "a signed URL > G46 DELETE with a URL signed to read: false",
    },
  },
  {
    name: "tokens: the producer of a signed URL is not signed",
    guarantee: "G46",
    file: "src/streams/access/signed-url-members.ts",
    find: "from, keyId, name, producer].join",
    replace: "from, keyId, name, producer.slice(0, 0)].join",
    caughtBy: {
      file: "src/streams/access/signed-url.test.ts",
      test: "a signed URL > G46 for appends may be bound to a producer, which is signed too",
    },
  },
];
