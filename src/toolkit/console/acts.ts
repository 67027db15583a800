/** Does the acts of a visitor, with the same primitives that programs and the command line use. */

import { noMeter } from "../meters/meter.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { createDeadLetters } from "../outbox/dead-letters.ts";
import { createSagas } from "../saga/sagas.ts";
import type { ConsoleAct, ConsoleDeed } from "./contract.ts";
import { LETTERS_MAX } from "./limits.ts";
import { type ActBody, invalidAsk } from "./query.ts";

/** Does the act. Returns a description of what was done. Throws the errors of the primitives. */
export async function doAct<Tx>(
  ledger: Ledger<Tx>,
  act: ConsoleAct,
  by: string,
  body: ActBody,
): Promise<ConsoleDeed & { readonly count: number }> {
  switch (act) {
    case "letters.replay":
    case "letters.discard":
      return await changeLetters(ledger, act, by, body);
    case "saga.retry":
    case "saga.skip":
    case "saga.abort":
    case "saga.finish":
      return await changeSaga(ledger, act, by, body);
  }
}

async function changeSaga<Tx>(
  ledger: Ledger<Tx>,
  act: Extract<ConsoleAct, `saga.${string}`>,
  by: string,
  body: ActBody,
): Promise<ConsoleDeed & { readonly count: number }> {
  // Acts need no definition.
  const sagas = createSagas(ledger, [], { meter: noMeter });
  const ref = { saga: body.need("saga"), scope: body.need("scope"), key: body.need("key") };
  const note = body.find("note");
  const actor = { by, ...(note === undefined ? {} : { note }) };
  if (act === "saga.retry") await sagas.retry(ref, actor);
  else if (act === "saga.abort") await sagas.abort(ref, actor);
  else if (act === "saga.finish") await sagas.finish(ref, actor);
  else {
    const json = body.find("result");
    const result = json === undefined ? {} : { result: parsedJson(json) };
    await sagas.skip(ref, body.need("step"), { ...actor, ...result });
  }
  const target = `saga=${ref.saga} scope=${ref.scope} key=${ref.key}`;
  return { by, act, target, count: 1 };
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw invalidAsk("the result must be JSON");
  }
}

async function changeLetters<Tx>(
  ledger: Ledger<Tx>,
  act: "letters.replay" | "letters.discard",
  by: string,
  body: ActBody,
): Promise<ConsoleDeed & { readonly count: number }> {
  const relay = body.need("relay");
  const ids = body.list("ids", LETTERS_MAX);
  if (ids === undefined) throw invalidAsk("ids is missing");
  const letters = createDeadLetters(ledger, { relay });
  const count = await (act === "letters.replay" ? letters.replay(ids) : letters.discard(ids));
  return { by, act, target: `relay=${relay} ids=${ids.join(",")}`, count };
}
