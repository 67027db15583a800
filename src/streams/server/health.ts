/** Whether the server takes writes. PROTOCOL.md §12.2. */

import type { HapaxError } from "../../base/errors.ts";
import type { Exchange, ServerAnswer } from "./exchange.ts";
import type { Gate } from "./gate.ts";
import { incarnationHeader } from "./incarnations.ts";
import { json } from "./json.ts";
import type { RouteCall } from "./route.ts";

/** Everybody may ask. The reason why a server is stopped is for callers that may observe all of it. */
export async function showHealth(call: RouteCall): Promise<ServerAnswer> {
  const answer = await healthOf(call);
  return { ...answer, headers: { ...answer.headers, ...incarnationHeader(call.parts) } };
}

function healthOf(call: RouteCall): ServerAnswer | Promise<ServerAnswer> {
  const { stopped, isFull, durability } = call.parts.engine;
  if (stopped !== undefined) {
    return showStopped({ exchange: call.exchange, gate: call.parts.gate }, { durability }, stopped);
  }
  if (isFull) {
    return json(503, { live: true, ready: false, writes: "full", durability, code: "store_full" });
  }
  return json(200, { live: true, ready: true, writes: "open", durability });
}

/** Only here a credential is looked at: while all is well, the answer must not depend on who checks credentials. */
export async function showStopped(
  { exchange, gate }: { readonly exchange: Exchange; readonly gate: Gate },
  facts: { readonly durability: string },
  { code, message }: HapaxError,
): Promise<ServerAnswer> {
  let mayKnow = false;
  try {
    const access = await gate.admit(exchange);
    mayKnow = access.namespace === undefined && access.may("observe");
  } catch {
    // A refused credential gets what a stranger gets.
  }
  const detail = mayKnow ? message : undefined;
  return json(503, { live: true, ready: false, writes: "stopped", ...facts, code, detail });
}
