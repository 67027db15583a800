/** Several ways to prove who one is, in order. */

import type { Authorize, Credentials, Identity, IdentityRefusal } from "./identity.ts";
import { isOwn, markOwn } from "./own-authorize.ts";
import { shownKeysOf, withShownKeys } from "./shown-keys.ts";

/** From the least to the most that is known of the request. */
const RANKS = ["missing", "unavailable", "invalid", "expired"] as const;

const MISSING: IdentityRefusal = { refused: "missing" };

/**
 * Asks each function in turn until one knows the client. A function returns `{ refused: "missing" }` for a request without a
 * credential of its kind. If none knows the client, the request gets the most specific of their refusals.
 *
 * ```ts
 * import { anyOf, type Authorize } from "hapax/server";
 *
 * const staff: Authorize = ({ header }) =>
 *   header("x-staff") === "yes"
 *     ? { name: "staff", grants: [{ actions: ["read"] }] }
 *     : { refused: "missing" };
 * const desk: Authorize = () => ({ refused: "missing", detail: "ask the desk" });
 * const authorize = anyOf(desk, staff);
 * const request = { method: "GET", path: "/v1/stream/a", query: "", header: () => "yes" };
 * const identity = await authorize(request);
 * console.assert("name" in identity && identity.name === "staff");
 * ```
 */
export function anyOf(...authorizers: readonly Authorize[]): Authorize {
  const authorize: Authorize = (credentials) => ask(authorizers, 0, credentials, MISSING);
  withShownKeys(authorize, () => authorizers.flatMap(shownKeysOf));
  return authorizers.every(isOwn) ? markOwn(authorize) : authorize;
}

type Answer = Identity | IdentityRefusal;

/** Does not wait where no function does: a promise costs more than most checks. */
function ask(
  authorizers: readonly Authorize[],
  from: number,
  credentials: Credentials,
  before: IdentityRefusal,
): Answer | Promise<Answer> {
  let refusal = before;
  for (let at = from; at < authorizers.length; at += 1) {
    const answer = authorizers[at]?.(credentials) ?? MISSING;
    if (answer instanceof Promise) {
      return answer.then((settled) => {
        if (!isRefusal(settled)) return settled;
        return ask(authorizers, at + 1, credentials, later(refusal, settled));
      });
    }
    if (!isRefusal(answer)) return answer;
    refusal = later(refusal, answer);
  }
  return refusal;
}

function isRefusal(answer: Answer): answer is IdentityRefusal {
  return "refused" in answer;
}

function later(one: IdentityRefusal, other: IdentityRefusal): IdentityRefusal {
  return RANKS.indexOf(other.refused) > RANKS.indexOf(one.refused) ? other : one;
}
