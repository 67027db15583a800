/**
 * Decides whether a request to the console is allowed.
 *
 *   - `authorize` of the program decides for each request; if it throws, or returns anything else, the request is
 *     refused;
 *   - a request that another site makes a browser send is refused: it has neither the header of the page nor its
 *     origin.
 */

import { tellSafely } from "../../base/error-words.ts";
import { HapaxError } from "../../base/errors.ts";
import type { ConsoleAct, ConsoleOptions, ConsoleVisitor } from "./contract.ts";

/** The header that the page sends with each act. Another site cannot send it: a browser would ask first, and is not answered. */
export const ACT_HEADER = "Hapax-Console";

export const ACTS: readonly ConsoleAct[] = [
  "saga.retry",
  "saga.skip",
  "saga.abort",
  "saga.finish",
  "letters.replay",
  "letters.discard",
];

/** Returns the visitor, or the answer that refuses the request. */
export async function admit(
  request: Request,
  { authorize, onError }: ConsoleOptions,
): Promise<ConsoleVisitor | Response> {
  let decided: unknown;
  try {
    decided = await authorize(request);
  } catch (error) {
    if (onError !== undefined) tellSafely(onError, error);
  }
  if (decided instanceof Response) return decided;
  if (!isVisitor(decided)) throw new HapaxError("not_allowed", "you may not see this console");
  return decided;
}

function isVisitor(value: unknown): value is ConsoleVisitor {
  if (typeof value !== "object" || value === null || !("by" in value)) return false;
  return typeof value.by === "string" && value.by !== "";
}

/** The acts that a visitor may do. Only `true` and a list allow any. */
export function actsOf({ mayAct }: ConsoleVisitor): readonly ConsoleAct[] {
  if (mayAct === true) return ACTS;
  return Array.isArray(mayAct) ? ACTS.filter((act) => mayAct.includes(act)) : [];
}

export function requireAct(visitor: ConsoleVisitor, act: ConsoleAct): void {
  if (!actsOf(visitor).includes(act))
    throw new HapaxError("not_allowed", `authorize() does not allow you this; act=${act}`);
}

export function requireValues(visitor: ConsoleVisitor): void {
  if (visitor.maySeeValues !== true)
    throw new HapaxError("not_allowed", "authorize() does not allow you to see values");
}

/** Refuses an act that does not come from the page of this console. */
export function requireOwnPage(request: Request, origin: string | undefined): void {
  const { headers } = request;
  const type = (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase();
  if (type !== "application/json" || headers.get(ACT_HEADER) !== "act")
    throw new HapaxError("not_allowed", `an act is JSON, with the header ${ACT_HEADER}: act`);
  if (!isOwnOrigin(request, origin))
    throw new HapaxError("not_allowed", "the request comes from another site");
}

/** Refuses a request that another site makes a browser send. A visit by a link is allowed. */
export function requireNoOtherSite(request: Request): void {
  const site = request.headers.get("sec-fetch-site");
  if (site !== null && site !== "same-origin" && site !== "none")
    throw new HapaxError("not_allowed", "the request comes from another site");
}

function isOwnOrigin(request: Request, origin: string | undefined): boolean {
  const sent = request.headers.get("origin");
  if (origin !== undefined) return sent === origin;
  // A browser says it itself, and knows it also behind a proxy. Without TLS it does not.
  const site = request.headers.get("sec-fetch-site");
  if (site !== null) return site === "same-origin";
  if (sent === null) return false;
  try {
    return new URL(sent).host === new URL(request.url).host;
  } catch {
    return false;
  }
}
