/** A function on the web platform's `Request` and `Response`, behind a real socket of Node. */

import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";

export interface FetchListener {
  readonly url: string;
  stop(): Promise<void>;
}

/** The published suite compares 100,000 bytes in one step: on a busy machine it takes longer than the five seconds of Node. */
export const KEEP_ALIVE_MS = 60_000;

type Fetch = (request: Request, from: { readonly peer: string }) => Promise<Response>;

export async function listenWith(answer: Fetch): Promise<FetchListener> {
  const http = createServer((incoming, outgoing) => {
    const gone = new AbortController();
    outgoing.once("close", () => {
      gone.abort();
    });
    const { method = "GET", url = "/", headers, rawHeaders, socket } = incoming;
    const lines = new Headers();
    for (let at = 0; at < rawHeaders.length; at += 2) {
      lines.append(rawHeaders[at] ?? "", rawHeaders[at + 1] ?? "");
    }
    const hasBody = method !== "GET" && method !== "HEAD";
    const request = new Request(`http://${headers.host ?? "localhost"}${url}`, {
      method,
      headers: lines,
      signal: gone.signal,
      ...(hasBody ? { body: Readable.toWeb(incoming), duplex: "half" } : {}),
    } as RequestInit);
    answer(request, { peer: socket.remoteAddress ?? "" }).then(
      (response) => {
        outgoing.writeHead(response.status, [...response.headers].flat());
        outgoing.flushHeaders();
        if (response.body === null) {
          outgoing.end();
          return;
        }
        const body = Readable.fromWeb(response.body as ReadableStream);
        body.on("error", () => outgoing.destroy());
        outgoing.once("close", () => body.destroy());
        body.pipe(outgoing);
      },
      () => outgoing.destroy(),
    );
  });
  http.keepAliveTimeout = KEEP_ALIVE_MS;
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return {
    url: `http://127.0.0.1:${String((http.address() as AddressInfo).port)}`,
    async stop() {
      http.closeAllConnections();
      http.close();
      await once(http, "close");
    },
  };
}
