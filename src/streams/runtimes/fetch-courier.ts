/**
 * The courier on the platform's `fetch`. It checks the URL, and cannot check which address a name resolves to: on Workers the platform
 * reaches the public internet alone, elsewhere the network must see to that.
 */

import { joinBytes } from "../../base/bytes.ts";
import { checkWebhookUrl, type WebhookAddressOptions } from "../../protocol/webhook-address.ts";
import type { Courier, CourierAnswer, CourierRequest } from "../courier.ts";

/** Options of a courier on `fetch`. */
export interface FetchCourierOptions extends WebhookAddressOptions {
  /** Sends the requests. Default: the platform's own. */
  readonly fetch?: typeof fetch;
}

/**
 * Creates a courier, which sends webhooks by `fetch`. It cannot see whether a host name resolves to an address of a private
 * network. So use it only where the platform or the network blocks such requests, as Workers do.
 *
 * ```ts
 * import { fetchCourier } from "hapax/fetch";
 *
 * const courier = fetchCourier({ allowLoopback: false });
 * const outcome = await courier.deliver({
 *   url: "http://127.0.0.1/hook",
 *   headers: {},
 *   body: new Uint8Array(0),
 *   timeoutMs: 1000,
 *   answerBytesMax: 1024,
 *   signal: new AbortController().signal,
 * });
 * console.assert(outcome.kind === "refused");
 * ```
 */
export function fetchCourier(options: FetchCourierOptions = {}): Courier {
  const send: typeof fetch = options.fetch ?? ((input, init) => fetch(input, init));
  return {
    async deliver(request) {
      const url = checkWebhookUrl(request.url, options);
      if (url.kind === "rejected") return { kind: "refused", reason: url.reason };
      const limit = new AbortController();
      const abort = (): void => {
        limit.abort(new Error("the delivery was aborted"));
      };
      const timer = setTimeout(() => {
        limit.abort(new Error(`no answer within ${request.timeoutMs} ms`));
      }, request.timeoutMs);
      if (request.signal.aborted) abort();
      request.signal.addEventListener("abort", abort, { once: true });
      try {
        return await exchange(send, request, limit.signal);
      } catch (error) {
        if (!limit.signal.aborted) return failed(codeOf(error));
        return failed((limit.signal.reason as Error).message);
      } finally {
        clearTimeout(timer);
        request.signal.removeEventListener("abort", abort);
      }
    },
  };
}

async function exchange(
  send: typeof fetch,
  { url, headers, body, answerBytesMax }: CourierRequest,
  signal: AbortSignal,
): Promise<CourierAnswer> {
  const answer = await send(url, {
    method: "POST",
    headers,
    body: body as Uint8Array<ArrayBuffer>,
    redirect: "manual",
    signal,
  });
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  const reader = answer.body?.getReader();
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done) break;
    bytes += value.length;
    if (bytes > answerBytesMax) {
      void reader?.cancel().catch(() => undefined);
      return failed(`the answer is larger than ${answerBytesMax} bytes`);
    }
    pieces.push(value);
  }
  return { kind: "answered", status: answer.status, body: joinBytes(pieces) };
}

function failed(reason: string): CourierAnswer {
  return { kind: "failed", reason };
}

/** No more than a code: the text of an error would name addresses of this network. */
function codeOf(error: unknown): string {
  const { code, cause } = Object(error) as { readonly code?: unknown; readonly cause?: unknown };
  const found = code ?? (Object(cause) as { readonly code?: unknown }).code;
  return typeof found === "string" ? found : "the request failed";
}
