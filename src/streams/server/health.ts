/** Whether the server takes writes. PROTOCOL.md §12.2. */

import type { ServerAnswer } from "./exchange.ts";
import { json } from "./json.ts";
import type { RouteCall } from "./route.ts";

/** Everybody may ask. The reason why a server is stopped is for callers that may observe it. */
export function showHealth({ parts, access }: RouteCall): ServerAnswer {
  const { stopped, isFull, durability } = parts.engine;
  if (stopped !== undefined) {
    const { code, message } = stopped;
    const detail = access.may("observe") ? message : undefined;
    return json(503, { live: true, ready: false, writes: "stopped", durability, code, detail });
  }
  if (isFull) {
    return json(503, { live: true, ready: false, writes: "full", durability, code: "store_full" });
  }
  return json(200, { live: true, ready: true, writes: "open", durability });
}
