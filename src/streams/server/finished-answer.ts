/**
 * An answer with the headers of the policy. Those are the same for nearly every request, so they stay in an object that all
 * such answers share: copying them into each answer cost a tenth of an append, and a runtime can encode them once.
 */

import { HEADER } from "../../protocol/headers.ts";
import type { AnswerHeaders, WholeAnswer } from "./exchange.ts";

export class FinishedAnswer implements WholeAnswer {
  readonly status: number;
  /** Shared with other answers. No name of it is in `own`. */
  readonly common: AnswerHeaders;
  readonly own: AnswerHeaders;
  /** The value of `X-Request-Id`, which neither of the two has. */
  readonly requestId: string;
  readonly body: WholeAnswer["body"];
  readonly onSent: WholeAnswer["onSent"];
  readonly share: WholeAnswer["share"];
  readonly drop: boolean;

  constructor(answer: WholeAnswer, common: AnswerHeaders, requestId: string) {
    this.status = answer.status;
    this.common = common;
    this.own = answer.headers;
    this.requestId = requestId;
    this.body = answer.body;
    this.onSent = answer.onSent;
    this.share = answer.share;
    this.drop = answer.drop === true;
  }

  /** All of them, those of the policy first. */
  get headers(): AnswerHeaders {
    return { ...this.common, [HEADER.requestId]: this.requestId, ...this.own };
  }
}
