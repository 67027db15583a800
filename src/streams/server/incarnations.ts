/** What a server says of its incarnation, and what it refuses who knows another one. PROTOCOL.md §27.2. */

import { HapaxError } from "../../base/errors.ts";
import { formatIncarnation, parseIncarnation } from "../../base/incarnation.ts";
import { HEADER, SENT } from "../../protocol/headers.ts";
import { invalid } from "../../protocol/refusal.ts";
import type { ServerParts } from "./parts.ts";
import type { RouteCall } from "./route.ts";

/** Stands on answers to those who keep it: it never changes while a server runs. */
export function incarnationHeader({ engine }: ServerParts): Readonly<Record<string, string>> {
  return { [HEADER.incarnation]: formatIncarnation(engine.world.incarnation) };
}

/** Refuses a request that names another incarnation, before anything of it is done. */
export function requireIncarnation({ exchange, parts }: RouteCall): void {
  const known = exchange.header(SENT.incarnation);
  if (known === undefined) return;
  if (parseIncarnation(known) === undefined) throw invalid(HEADER.incarnation, "is none");
  const own = formatIncarnation(parts.engine.world.incarnation);
  if (known !== own) throw restored(own, known);
}

/** The refusal of one who knows the server from before a restore, or from after one that was undone. */
export function restored(own: string, known: string): HapaxError {
  return new HapaxError(
    "server_restored",
    `the server is in incarnation ${own}, and this was in ${known}: its data went back in time in between`,
  );
}
