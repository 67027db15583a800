/** Callers of the access matrix: what each has sent to prove who it is, and a small model of what it may do. */

import { createHash, randomBytes } from "node:crypto";
import { systemClock } from "../../src/base/clock.ts";
import { systemRandom } from "../../src/base/random.ts";
import { type ApiKey, apiKeyAuthorize } from "../../src/streams/access/api-keys.ts";
import { createApiKey } from "../../src/streams/access/api-key.ts";
import { nodeDigest } from "../../src/streams/runtimes/node-digest.ts";
import { jwtAuthorize } from "../../src/streams/access/jwt.ts";
import { anyOf } from "../../src/streams/access/any-of.ts";
import {
  type Action,
  ACTIONS,
  type Authorize,
  type Grant,
  type Identity,
} from "../../src/streams/access/identity.ts";
import type { Outcome, Sample } from "./access-samples.ts";
import {
  type SignUrlOptions,
  signedUrlAuthorize,
  signUrl,
  type UrlKey,
} from "../../src/streams/access/signed-url.ts";
import { keySet, makeKey, makeToken } from "./tokens.ts";

/** All streams of the samples are below it. */
export const HOME = "/v1/stream/acme";

export interface Caller {
  readonly name: string;
  /** The value of `Authorization`. */
  readonly authorization?: string;
  /** It sends no header: the certificate of its connection has this name. For runtimes that ask for one. */
  readonly certificate?: string;
  /** The code of the refusal of every credential of this kind. */
  readonly refused?: "unauthenticated" | "credential_expired";
  readonly actions?: readonly Action[];
  /** The streams of the samples are outside of what it reaches. */
  readonly isElsewhere?: boolean;
  readonly hasNamespace?: boolean;
  readonly hasOtherProducers?: boolean;
  /** Of groups and subscriptions. */
  readonly hasOtherNames?: boolean;
  /** Its grant names what the samples need. */
  readonly hasOwnNames?: boolean;
  /** Its credential is a signed URL for this action. */
  readonly signs?: "read" | "append";
}

/** A signed URL is for the methods of its action on one stream; for all else it is no credential. */
export function callerAt(caller: Caller, path: string, method: string): Caller {
  const { signs } = caller;
  if (signs === undefined) return caller;
  const methods = signs === "read" ? ["GET", "HEAD"] : ["POST"];
  const isFor = path === "/{stream...}" && methods.includes(method);
  return isFor ? { ...caller, actions: [signs] } : { ...caller, refused: "unauthenticated" };
}

export interface Expected {
  readonly outcome: Outcome;
  /** The action that a 403 names. */
  readonly missing?: Action;
  readonly isRight: boolean;
}

/** What the answer must be, by PROTOCOL.md §21. */
export function expectedOf(sample: Sample, caller: Caller): Expected {
  const { needs, also = [], names = [], right, apart = right } = sample;
  const { refused, actions = [], isElsewhere = false, hasNamespace = false } = caller;
  if (needs === "nothing") return { outcome: right, isRight: true };
  if (needs === "token") return { outcome: [401, "token_invalid"], isRight: false };
  if (refused !== undefined) return { outcome: [401, refused], isRight: false };
  const has = (name: (typeof names)[number]): boolean => names.includes(name);
  const isForbidden =
    !needs.some((action) => actions.includes(action)) ||
    (sample.needsWholeServer === true && isLimited(caller)) ||
    (isElsewhere && (has("stream") || has("follows"))) ||
    (caller.hasOtherNames === true && (has("group") || has("subscription"))) ||
    (caller.hasOtherProducers === true && has("producer"));
  const isUnreached = isElsewhere && has("inside");
  const missing = isForbidden
    ? needs[0]
    : also.find((action) => isUnreached || !actions.includes(action));
  if (missing !== undefined) return { outcome: [403, "not_allowed"], missing, isRight: false };
  const isApart = has("kept") && (isElsewhere || hasNamespace);
  return { outcome: isApart ? apart : right, isRight: !isApart };
}

function isLimited(caller: Caller): boolean {
  const { isElsewhere, hasNamespace, hasOtherProducers, hasOtherNames, hasOwnNames } = caller;
  return [isElsewhere, hasNamespace, hasOtherProducers, hasOtherNames, hasOwnNames].includes(true);
}

export interface Door {
  readonly callers: readonly Caller[];
  /** The target with the credential of a caller that signs URLs. It ends in an hour, if it is not said otherwise. */
  sign(caller: Caller, target: string, endsAtMs?: number): Promise<string>;
  readonly authorize: Authorize;
  /** Values of `Authorization`: of one that may do everything, of an unknown key, and of one that will be revoked. */
  readonly owner: string;
  readonly stranger: string;
  readonly revoked: string;
  /** From now on the key of the caller `revoked` is refused. */
  revoke(): void;
  /** What another process needs to know the same callers, but for those with certificates. */
  settings(): DoorSettings;
  close(): void;
}

export interface DoorSettings {
  readonly keys: readonly (Omit<ApiKey, "digest"> & {
    readonly id: string;
    readonly sha256: string;
  })[];
  readonly jwks: string;
  readonly issuer: string;
  readonly audience: string;
  readonly urlKey: UrlKey;
}

const ISSUER = "https://login.example.com/";
const AUDIENCE = "https://streams.example.com";
const DAY_S = 86_400;

/** Functions of authorization as a server has them, and one caller of every kind. */
export function openDoor(nowS: number): Door {
  const key = makeKey("one");
  const otherKey = makeKey("one");
  const ending = new AbortController();
  const keys = new Map<string, ApiKey>();
  const certificates = new Map<string, ApiKey>();
  const all: Grant = { actions: ACTIONS };
  const urlKey = { id: "one", secret: randomBytes(32).toString("base64url") };

  const byKey = apiKeyAuthorize(
    {
      find: (id) => keys.get(id),
      findByCertificate: ({ commonName = "" }) => certificates.get(commonName),
    },
    { digest: nodeDigest, nowMs: () => systemClock.nowMs() },
  );
  /** The value of `Authorization` of a new key. */
  const addKey = (identity: Identity): string => {
    const { id, secret, key: text } = createApiKey(systemRandom);
    const digest = createHash("sha256").update(secret).digest();
    keys.set(id, { digest, identity, isRevoked: false });
    return `Bearer ${text}`;
  };
  const byToken = jwtAuthorize({
    jwks: () => Promise.resolve(keySet(key)),
    issuer: ISSUER,
    audience: AUDIENCE,
    signal: ending.signal,
  });

  const token = (claims: object, by = key): string => {
    const usual = { iss: ISSUER, aud: AUDIENCE, sub: "token", exp: nowS + DAY_S };
    const payload = { ...usual, hapax: { grants: [all] }, ...claims };
    const jwt = makeToken({ alg: "ES256", kid: "one" }, payload, by.privateKey, "ES256");
    return `Bearer ${jwt}`;
  };
  const withKey = (
    name: string,
    identity: Omit<Identity, "name">,
    more: Omit<Caller, "name">,
  ): Caller => {
    return { name, authorization: addKey({ name, ...identity }), ...more };
  };

  const withCertificate = (
    name: string,
    identity: Omit<Identity, "name">,
    more: Omit<Caller, "name">,
  ): Caller => {
    const isRevoked = more.refused === "unauthenticated";
    const digest = new Uint8Array(32);
    certificates.set(name, { digest, identity: { name, ...identity }, isRevoked });
    return { name, certificate: name, ...more };
  };

  const owner = addKey({ name: "owner", grants: [all] });
  const revoked = addKey({ name: "revoked", grants: [all] });
  const stranger = `Bearer ${createApiKey(systemRandom).key}`;
  const actions = ACTIONS;
  const refused = "unauthenticated";
  const callers: Caller[] = [
    { name: "no credential", refused },
    { name: "a malformed header", authorization: "Bearer", refused },
    { name: "another scheme", authorization: "Basic aHB4X293bmVyOg==", refused },
    { name: "an unknown key", authorization: stranger, refused },
    { name: "a revoked key", authorization: revoked, refused },
    {
      name: "an expired token",
      authorization: token({ exp: nowS - DAY_S }),
      refused: "credential_expired",
    },
    { name: "a wrong signature", authorization: token({}, otherKey), refused },
    { name: "a wrong audience", authorization: token({ aud: "https://example.com" }), refused },
    withKey(
      "an expired key",
      { grants: [all], expiresAtMs: (nowS - 1) * 1000 },
      { refused: "credential_expired" },
    ),
    withKey("no grant", { grants: [] }, { actions: [] }),
    ...ACTIONS.map((action) =>
      withKey(`${action} alone`, { grants: [{ actions: [action] }] }, { actions: [action] }),
    ),
    withKey(
      "another namespace",
      { grants: [all], namespace: "/v1/stream/other" },
      { actions, isElsewhere: true, hasNamespace: true },
    ),
    withKey(
      "a namespace whose name begins alike",
      { grants: [all], namespace: HOME.slice(0, -1) },
      { actions, isElsewhere: true, hasNamespace: true },
    ),
    withKey(
      "other streams",
      { grants: [{ ...all, streams: ["/v1/stream/other/**"] }] },
      { actions, isElsewhere: true },
    ),
    withKey(
      "another producer",
      { grants: [{ ...all, producers: ["other-*"] }] },
      { actions, hasOtherProducers: true },
    ),
    withKey(
      "other groups and subscriptions",
      { grants: [{ ...all, groups: ["other-*"], subscriptions: ["other-*"] }] },
      { actions, hasOtherNames: true },
    ),
    withKey("its namespace", { grants: [all], namespace: HOME }, { actions, hasNamespace: true }),
    withKey("the right key", { grants: [all] }, { actions }),
    withKey(
      "the right names",
      {
        grants: [
          {
            ...all,
            streams: [`${HOME}/**`],
            groups: ["g-*"],
            subscriptions: ["s-*"],
            producers: ["p-*"],
          },
        ],
      },
      { actions, hasOwnNames: true },
    ),
    { name: "the right token", authorization: token({}), actions },
    withCertificate("the right certificate", { grants: [all] }, { actions }),
    withCertificate(
      "a certificate to read",
      { grants: [{ actions: ["read"] }] },
      { actions: ["read"] },
    ),
    withCertificate(
      "a certificate of another namespace",
      { grants: [all], namespace: "/v1/stream/other" },
      { actions, isElsewhere: true, hasNamespace: true },
    ),
    withCertificate("a certificate that was revoked", { grants: [all] }, { refused }),
    { name: "a signed URL to read", signs: "read" },
    { name: "a signed URL to append", signs: "append" },
    { name: "a signed URL that has expired", signs: "read", refused: "credential_expired" },
  ];
  return {
    callers,
    sign: (caller, target, endsAtMs) => signTarget(caller, target, urlKey, nowS, endsAtMs),
    authorize: anyOf(byKey, byToken, signedUrlAuthorize({ keys: [urlKey] })),
    owner,
    stranger,
    revoked,
    revoke: () => {
      for (const [id, kept] of keys) {
        if (kept.identity.name === "revoked") keys.set(id, { ...kept, isRevoked: true });
      }
    },
    settings: () => ({
      keys: Array.from(keys, ([id, { digest, ...rest }]) => {
        return { id, sha256: Buffer.from(digest).toString("hex"), ...rest };
      }),
      jwks: keySet(key),
      issuer: ISSUER,
      audience: AUDIENCE,
      urlKey,
    }),
    close: () => {
      ending.abort();
    },
  };
}

/** What cannot be signed gets the members of a URL that can. */
async function signTarget(
  { signs, refused }: Caller,
  target: string,
  key: SignUrlOptions["key"],
  nowS: number,
  endsAtMs = (nowS + 3600) * 1000,
): Promise<string> {
  if (signs === undefined) return target;
  const isStream = target.startsWith(`${HOME}/`);
  const isOver = refused === "credential_expired";
  const signed = await signUrl(isStream ? target : HOME, {
    key,
    action: signs,
    expiresAtMs: isOver ? (nowS - 60) * 1000 : endsAtMs,
    // The past, for a URL that was good then.
    ...(isOver ? { clock: { ...systemClock, nowMs: () => (nowS - 120) * 1000 } } : {}),
  });
  if (isStream) return signed;
  return `${target}${target.includes("?") ? "&" : "?"}${signed.split("?")[1] ?? ""}`;
}
