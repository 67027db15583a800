/** The answer to a request that reaches no server: it has a name and the headers of every answer, all the same. */

import { systemRandom } from "../../base/random.ts";
import { FinishedAnswer } from "../server/finished-answer.ts";
import { ALWAYS_HEADERS } from "../server/policy.ts";
import { failureAnswer } from "../server/problem.ts";
import { RequestIds } from "../server/request-ids.ts";

export function fetchRefusal({ method, headers: sent }: Request, error: unknown): Response {
  // Made for each: they are few, and the platform gives out no random numbers before the first request.
  const requestId = new RequestIds(systemRandom).of({
    header: (name) => sent.get(name) ?? undefined,
  });
  const answer = new FinishedAnswer(failureAnswer(error), ALWAYS_HEADERS, requestId);
  const { status, headers, body } = answer;
  // A refusal is one piece of JSON.
  const content = method === "HEAD" ? null : (body as Uint8Array<ArrayBuffer>);
  return new Response(content, { status, headers: { ...headers } });
}
