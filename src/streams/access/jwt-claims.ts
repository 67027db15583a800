/** From the claims of a verified token to an identity. PROTOCOL.md §21.6. */

import type { Clock } from "../../base/clock.ts";
import type { Grant, Identity, IdentityRefusal } from "./identity.ts";
import { readRights, type Rights } from "./rights.ts";

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
  if ("refused" in rights) return rights;
  const { name = sub, ...rest } = rights;
  if (typeof name !== "string" || !NAME.test(name)) {
    return invalid("the token has no claim sub with 1 to 256 printable characters");
  }
  return { ...rest, name, expiresAtMs };
}

function rightsOf(
  claims: Claims,
  { claim, scopes }: ClaimRules,
): (Rights & { readonly name?: unknown }) | IdentityRefusal {
  if (!Object.hasOwn(claims, claim)) {
    const grants = scopeGrants(claims["scope"], scopes);
    return grants === undefined ? invalid(`the token has no claim ${claim}`) : { grants };
  }
  const found = claims[claim];
  const read = readRights(found, ["name"]);
  if ("problem" in read) return invalid(`the claim ${claim} of the token: ${read.problem}`);
  const { name } = found as Claims; // `readRights` takes only an object.
  return name === undefined ? read.value : { ...read.value, name };
}

/** Undefined: scopes give nothing here. RFC 8693, 4.2: texts with spaces between them. */
function scopeGrants(scope: unknown, scopes: ClaimRules["scopes"]): readonly Grant[] | undefined {
  if (typeof scope !== "string") return undefined;
  const known = scope.split(" ").filter((one) => Object.hasOwn(scopes, one));
  const grants = [...new Set(known)].flatMap((one) => scopes[one] ?? []);
  return grants.length === 0 ? undefined : grants;
}

function invalid(detail: string): IdentityRefusal {
  return { refused: "invalid", detail };
}
