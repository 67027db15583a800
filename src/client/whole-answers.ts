/** Answers that count only as a whole. */

import { nothing } from "./deferred.ts";
import type { Transport } from "./transport.ts";

/** A transport that answers when the body is there as a whole: one that is cut is no answer, and is asked for again. */
export function wholeAnswers(transport: Transport): Transport {
  return async (request) => {
    const answer = await transport(request);
    const { status } = answer;
    const bytes = await answer.bytes();
    return {
      status,
      header: (name) => answer.header(name),
      bytes: () => Promise.resolve(bytes),
      async *chunks() {
        yield await Promise.resolve(bytes);
      },
      discard: nothing,
    };
  };
}
