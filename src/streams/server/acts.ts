/** Acts of administration under a key: done once, and answered the same however often they are asked for. PROTOCOL.md §12.7. */

import type { Act, ActOutcome } from "../engine/acts.ts";
import { wingOf } from "../engine/wings.ts";
import { SENT } from "../../protocol/headers.ts";
import { parseKey, type KeyHead } from "../../protocol/key.ts";
import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import type { RouteCall } from "./route.ts";

type RunAct = (act: Act | undefined) => Promise<ServerAnswer>;
type EncodeAct = (outcome: ActOutcome) => WholeAnswer;

/** Runs an act that has a key. It comes with transactions, which remember the key. */
export type ActKeyed = (
  call: RouteCall,
  key: KeyHead,
  body: Uint8Array | undefined,
  run: RunAct,
  encode: EncodeAct,
) => Promise<ServerAnswer>;

/** Runs an act at once if it has no key. */
export async function actOnce(
  call: RouteCall,
  body: Uint8Array | undefined,
  run: RunAct,
  encode: EncodeAct,
): Promise<ServerAnswer> {
  const key = parseKey(call.exchange.header(SENT.idempotencyKey));
  if (key === undefined) return run(undefined);
  return wingOf(call.parts.actKeyed, "transactions")(call, key, body, run, encode);
}
