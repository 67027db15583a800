/** From the claims of a verified token to an identity. PROTOCOL.md §21.6. */

import type { Clock } from "../../base/clock.ts";
import { checkIdentity } from "./check-identity.ts";
import type { Grant, Identity, IdentityRefusal } from "./identity.ts";

export interface TokenIdentity extends Identity {
  readonly expiresAtMs: number;
}

export interface ClaimRules {
  readonly leewaySeconds: number;
  readonly claim: string;
  readonly scopes: Readonly<Record<string, readonly Grant[]>>;
  readonly clock: Clock;
}

type Claims = Readonly<Record<string, unknown>>;

/** Names stand in logs: no control characters, and not longer than a line. */
const NAME = /^[^\p{Cc}\p{Cs}]{1,256}$/u;
/** The last second that a date can have. */
const SECONDS_MAX = 8_640_000_000_000;

/** `claims`: verified, and no member is there twice. */
export function identityOf(claims: object, rules: ClaimRules): TokenIdentity | IdentityRefusal {
  const { exp, iat, sub } = claims as Claims; // An object of JSON.
  const { leewaySeconds, clock } = rules;
  if (typeof exp !== "number" || !(exp <= SECONDS_MAX)) {
    return invalid("the claim exp of the token is no time");
  }
  const nowMs = clock.nowMs();
  if (iat !== undefined && !(typeof iat === "number" && iat <= nowMs / 1000 + leewaySeconds)) {
    return invalid("the token says that it was issued later than now");
  }
  const expiresAtMs = Math.floor((exp + leewaySeconds) * 1000);
  if (nowMs >= expiresAtMs) return { refused: "expired", detail: "the token has expired" };
  const rights = rightsOf(claims as Claims, rules);
  if (rights === undefined) return invalid(`the token has no claim ${rules.claim}`);
  const { name = sub, ...rest } = rights;
  if (typeof name !== "string" || !NAME.test(name)) {
    return invalid("the token has no claim sub with 1 to 256 printable characters");
  }
  const identity = { ...rest, name };
  const problems: string[] = [];
  // The end is that of the token alone: a claim that has one is refused.
  if (Object.hasOwn(rest, "expiresAtMs")) problems.push("expiresAtMs is not known");
  if (checkIdentity(identity, (text) => problems.push(text)) && problems.length === 0) {
    return { ...identity, expiresAtMs };
  }
  return invalid(`the claim ${rules.claim} of the token: ${plain(problems[0] ?? "")}`);
}

/** As they are in the token, and not checked yet. Undefined: it has none. */
function rightsOf(claims: Claims, { claim, scopes }: ClaimRules): Claims | undefined {
  if (Object.hasOwn(claims, claim)) {
    const found = claims[claim];
    const isObject = typeof found === "object" && found !== null && !Array.isArray(found);
    return isObject ? (found as Claims) : undefined;
  }
  const grants = scopeGrants(claims["scope"], scopes);
  return grants === undefined ? undefined : { grants };
}

/** Undefined: scopes give nothing here. RFC 8693, 4.2: texts with spaces between them. */
function scopeGrants(scope: unknown, scopes: ClaimRules["scopes"]): readonly Grant[] | undefined {
  if (typeof scope !== "string") return undefined;
  const known = scope.split(" ").filter((one) => Object.hasOwn(scopes, one));
  const grants = [...new Set(known)].flatMap((one) => scopes[one] ?? []);
  return grants.length === 0 ? undefined : grants;
}

/** A problem may name a member, and members have any name. */
function plain(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, "?").slice(0, 200);
}

function invalid(detail: string): IdentityRefusal {
  return { refused: "invalid", detail };
}
