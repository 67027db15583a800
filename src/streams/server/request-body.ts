/**
 * Reads the body of a request. A body may take minutes, and the caller's credential may end meanwhile: so the sender is looked at
 * again before the handler goes on. Every handler reads its body here.
 */

import type { RouteCall } from "./route.ts";

/** The whole body, or the refusal of one that is too large or whose sender may no longer send it. */
export async function readRequestBody(
  { exchange, parts, access }: Pick<RouteCall, "exchange" | "parts" | "access">,
  bytesMax: number,
): Promise<Uint8Array> {
  const body = await exchange.body(bytesMax);
  access.requireCurrent(parts.clock.nowMs());
  return body;
}
