/**
 * Sends a token with every request to the server of the connection. PROTOCOL.md §21.1
 *
 *   - a token goes to the origin of the connection's own URL, and to no other;
 *   - a function is called when no token is known. After a 401 it is called again and the request is sent again, once. All
 *     requests that the same token failed share one call;
 *   - a 401 stores nothing, so the request that is sent again is the same one;
 *   - a function that throws is a refusal and not a lost request: nothing was sent, and the call is not repeated;
 *   - no error has the token in its text, also not one that cannot be sent.
 */

import { errorOf } from "./deferred.ts";
import type { Dynamic } from "./options.ts";
import { fetchTransport, type Transport } from "./transport.ts";

/** Returns the transport of a connection to `url`, with a token. */
export function withToken(transport: Transport, token: Dynamic, url: string): Transport {
  const { origin } = new URL(url);
  // Held here and in no object, so that no handle shows it.
  let known: Promise<string> | undefined;
  return async (request) => {
    if (!request.url.startsWith(`${origin}/`)) return transport(request);
    let isLast = typeof token === "string";
    for (;;) {
      const used = (known ??= secretOf(token));
      const secret = await used.catch(errorOf);
      const isKnown = typeof secret === "string";
      const headers = { ...request.headers, Authorization: `Bearer ${String(secret)}` };
      const send = isKnown ? transport : refusal(secret);
      const answer = await send({ ...request, headers });
      if (answer.status !== 401) return answer;
      // Another request may have asked for a new one already.
      if (known === used) known = undefined;
      if (isLast || !isKnown) return answer;
      isLast = true;
      answer.discard();
    }
  };
}

/** Whether a text can be sent behind `Bearer`: visible ASCII characters. A platform that refuses others has the value in its error. */
export function isBearerToken(text: string): boolean {
  return /^[!-~]+$/.test(text);
}

async function secretOf(token: Dynamic): Promise<string> {
  const secret = typeof token === "string" ? token : await token();
  if (isBearerToken(secret)) return secret;
  throw new Error("not visible ASCII characters");
}

/** Returns the transport of requests without a token: it sends nothing, and answers as a server that misses one. */
function refusal({ message }: Error): Transport {
  return fetchTransport(async () => new Response(`no token: ${message}`, { status: 401 }));
}
