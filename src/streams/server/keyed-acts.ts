/** Acts of administration under a key: it is remembered with the outcome, as transactions are. PROTOCOL.md §12.7. */

import { type ActLook, type ActOutcome, ActRepeated } from "../engine/acts.ts";
import { encodeAppendRefusal } from "../../protocol/append-refusal.ts";
import { HEADER } from "../../protocol/headers.ts";
import { keyBytes, markOf } from "../../protocol/key.ts";
import type { ActKeyed } from "./acts.ts";
import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import { refuse } from "./problem.ts";

/** The content of a key is the whole request: its method, its target and its body. */
export const actKeyed: ActKeyed = async (
  { exchange, parts, access },
  key,
  body,
  run,
  encode,
): Promise<ServerAnswer> => {
  const head = new TextEncoder().encode(`${exchange.method} ${exchange.path}?${exchange.query}\n`);
  const content = new Uint8Array([...head, ...(body ?? [])]);
  const [keyDigest, contentDigest] = await Promise.all([
    parts.digest(keyBytes(key.text)),
    parts.digest(content),
  ]);
  const mark = markOf(keyDigest, contentDigest, false);
  const claim = { mark, isContent: false, timeMs: key.timeMs };
  const act = parts.engine.transactions.act(claim, access.namespace);
  const look = act.look();
  if (look.kind !== "new") return answerKnown(parts, look, encode);
  try {
    return await run(act);
  } catch (error) {
    if (!(error instanceof ActRepeated)) throw error;
    return answerKnown(parts, act.look(), encode);
  }
};

async function answerKnown(
  parts: ServerParts,
  look: ActLook,
  encode: (outcome: ActOutcome) => WholeAnswer,
): Promise<ServerAnswer> {
  if (look.kind === "done") {
    const answer = encode(await look.outcome());
    return { ...answer, headers: { ...answer.headers, [HEADER.keyReplayed]: "true" } };
  }
  await parts.engine.settled();
  if (look.kind === "new") throw new Error("an act is neither done nor refused");
  return refuse(encodeAppendRefusal(look));
}
