/** Answers that no shard gives: with the same headers as all others, and the same words for refusals. */

import { OWNER_HEADER } from "../../protocol/cluster.ts";
import type { ServerComponents } from "../server.ts";
import { Doors } from "../server/doors.ts";
import type { AnswerHeaders, Exchange, ServerAnswer } from "../server/exchange.ts";
import { FinishedAnswer } from "../server/finished-answer.ts";
import type { ResolvedServerOptions } from "../server/options.ts";
import { finishAnswer } from "../server/policy.ts";
import { failureAnswer, isInside, isRefusal } from "../server/problem.ts";
import { RequestIds } from "../server/request-ids.ts";

export class NodeRefusals {
  readonly #parts: Pick<ServerComponents, "authorize" | "address" | "onFault">;
  readonly #options: () => ResolvedServerOptions;
  readonly #ids: RequestIds;
  #doors: { readonly options: ResolvedServerOptions; readonly doors: Doors } | undefined;

  constructor(
    parts: Pick<ServerComponents, "authorize" | "address" | "onFault" | "random">,
    options: () => ResolvedServerOptions,
  ) {
    this.#parts = parts;
    this.#options = options;
    this.#ids = new RequestIds(parts.random);
  }

  answer(exchange: Exchange, error: unknown): ServerAnswer | Promise<ServerAnswer> {
    if (!isRefusal(error) || isInside(error)) this.#parts.onFault(error);
    return this.finish(exchange, failureAnswer(error));
  }

  /** The answer with the headers of the policy. */
  finish(exchange: Exchange, answer: ServerAnswer): ServerAnswer | Promise<ServerAnswer> {
    return finishAnswer(exchange, answer, this.#ids.of(exchange), this.#doorsNow(), undefined);
  }

  #doorsNow(): Doors {
    const options = this.#options();
    if (this.#doors?.options !== options) {
      const { authorize, address } = this.#parts;
      const isGuarded = authorize !== undefined;
      const { corsOrigins, publicUrl } = options;
      const reach = { address: isGuarded ? undefined : address, takesOwnOrigin: isGuarded };
      this.#doors = { options, doors: new Doors({ corsOrigins, publicUrl, ...reach }) };
    }
    return this.#doors.doors;
  }
}

/** The policy's headers are shared by many answers, and so are those with the owner. */
const known = new WeakMap<
  AnswerHeaders,
  { readonly owner: string; readonly headers: AnswerHeaders }
>();

/** The answer with the address of the owner. */
export function withOwner(answer: ServerAnswer, owner: string): ServerAnswer {
  if (!(answer instanceof FinishedAnswer)) {
    return { ...answer, headers: { ...answer.headers, [OWNER_HEADER]: owner } };
  }
  let shared = known.get(answer.common);
  if (shared?.owner !== owner) {
    shared = { owner, headers: { ...answer.common, [OWNER_HEADER]: owner } };
    known.set(answer.common, shared);
  }
  const { status, own: headers, body, onSent, share, drop } = answer;
  const whole = { status, headers, body, onSent, share, drop };
  return new FinishedAnswer(whole, shared.headers, answer.requestId);
}
