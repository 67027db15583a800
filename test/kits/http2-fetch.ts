/** `fetch` over HTTP/2, for suites that know nothing but `fetch`. */

import { type ClientHttp2Session, connect, type IncomingHttpHeaders } from "node:http2";

export interface Http2Client {
  readonly sessions: readonly ClientHttp2Session[];
  readonly fetch: typeof globalThis.fetch;
  close(): void;
}

/** `connections`: requests take turns on them. A server limits the requests of one. */
export function openHttp2(url: string, ca: string, connections: number): Http2Client {
  const sessions = Array.from({ length: connections }, () => {
    const session = connect(url, { ca });
    session.on("error", () => undefined);
    return session;
  });
  let turn = 0;
  return {
    sessions,
    fetch: async (input, init) => {
      const request = new Request(input, init);
      const session = sessions[(turn += 1) % sessions.length];
      if (session === undefined) throw new TypeError("fetch failed: there is no connection");
      return send(session, request);
    },
    close: () => {
      for (const session of sessions) session.destroy();
    },
  };
}

async function send(session: ClientHttp2Session, request: Request): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const body = Buffer.from(await request.arrayBuffer());
  const stream = session.request(
    {
      ":method": request.method,
      ":path": `${pathname}${search}`,
      ...Object.fromEntries(request.headers),
      ...(body.length > 0 ? { "content-length": body.length } : {}),
    },
    { endStream: body.length === 0, signal: request.signal },
  );
  if (body.length > 0) stream.end(body);
  const headers = await new Promise<IncomingHttpHeaders>((resolve, reject) => {
    stream.once("response", resolve);
    stream.once("error", reject);
    stream.once("close", () => {
      reject(new TypeError("fetch failed: the stream ended without an answer"));
    });
  });
  const status = Number(headers[":status"]);
  const fields = Object.entries(headers).filter(([name]) => !name.startsWith(":"));
  const content = new ReadableStream<Uint8Array>({
    start(controller) {
      stream.on("data", (piece: Buffer) => {
        controller.enqueue(piece);
      });
      stream.once("end", () => {
        controller.close();
      });
      stream.once("error", (error) => {
        controller.error(error);
      });
    },
    cancel() {
      stream.close(8);
    },
  });
  const isEmpty = status === 204 || status === 304 || request.method === "HEAD";
  if (isEmpty) stream.resume();
  return new Response(isEmpty ? null : content, { status, headers: fields as [string, string][] });
}
