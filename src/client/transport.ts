/**
 * PORT. Sends one request and returns its answer. All requests of the client go through this port, so that
 * a test can lose requests and answers, and a runtime can use something faster than `fetch`.
 *
 * Contract: a transport rejects only when no answer came. The outcome of the request is then unknown: it may
 * have been done. It never repeats a request and never turns a write into a read by following a redirect.
 */

import { nothing } from "./deferred.ts";

/** One complete request: a transport adds nothing to it. */
export interface ClientRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | undefined;
  /** Cancels the request, also while the body of its answer is still arriving. */
  readonly signal?: AbortSignal | undefined;
}

/** An answer whose head has arrived. Take its body once, by one of the three methods. */
export interface ClientAnswer {
  readonly status: number;
  /** Returns the value of a header. `name` is in lower case. */
  header(name: string): string | undefined;
  /** Returns the whole body. Rejects if it is cut. */
  bytes(): Promise<Uint8Array>;
  /** Yields the body as it comes, for live reads. */
  chunks(): AsyncIterable<Uint8Array>;
  /** Drops the rest of the body. */
  discard(): void;
}

/** Sends one request. Rejects only when no answer came. */
export type Transport = (request: ClientRequest) => Promise<ClientAnswer>;

/**
 * Creates a transport for every runtime that has `fetch`.
 *
 * ```ts
 * import { connect, fetchTransport } from "hapax/client";
 *
 * const seen: string[] = [];
 * const watched = fetchTransport((_url, init) => {
 *   seen.push(String(init?.method));
 *   return Promise.resolve(new Response(null, { status: 204 }));
 * });
 * await connect("http://127.0.0.1:4437/v1/stream/orders", { transport: watched }).delete();
 * console.assert(seen.join() === "DELETE");
 * ```
 */
export function fetchTransport(fetcher: typeof fetch): Transport {
  return async ({ method, url, headers, body, signal }) => {
    const response = await fetcher(url, {
      method,
      headers,
      // A redirected POST may become a GET, and the write would be lost.
      redirect: method === "GET" || method === "HEAD" ? "follow" : "manual",
      // Cast: our bodies are never views of shared memory.
      body: (body as Uint8Array<ArrayBuffer> | undefined) ?? null,
      signal: signal ?? null,
    });
    return {
      status: response.status,
      header: (name) => response.headers.get(name) ?? undefined,
      bytes: async () => new Uint8Array(await response.arrayBuffer()),
      chunks: () => chunksOf(response),
      discard() {
        // The body is not needed any more, so a failure of `cancel` does not matter.
        response.body?.cancel().catch(nothing);
      },
    };
  };
}

async function* chunksOf(response: Response): AsyncGenerator<Uint8Array> {
  if (response.body === null) return;
  // Not every runtime can iterate over a body; all of them have readers.
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(nothing);
  }
}
