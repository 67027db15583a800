/** `fetch` over HTTP/2, for suites that know nothing but `fetch`. */

import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  type IncomingHttpHeaders,
} from "node:http2";

export interface Http2Client {
  readonly sessions: readonly ClientHttp2Session[];
  readonly fetch: typeof globalThis.fetch;
  close(): void;
}

/** `connections`: requests take turns on them. A server limits the requests of one. */
export function openHttp2(
  url: string,
  ca: string,
  connections: number,
  own: { readonly cert?: string; readonly key?: string } = {},
): Http2Client {
  const open = (): ClientHttp2Session => {
    const session = connect(url, { ca, ...own });
    session.on("error", () => undefined);
    return session;
  };
  const sessions = Array.from({ length: connections }, open);
  let turn = 0;
  return {
    sessions,
    fetch: async (input, init) => {
      const request = new Request(input, init);
      const at = (turn += 1) % sessions.length;
      let session = sessions[at];
      if (session === undefined) throw new TypeError("fetch failed: there is no connection");
      // On a busy machine a connection may wait so long for its first request that the server has closed it.
      if (session.closed) sessions[at] = session = open();
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
  // Before anything is waited for: a stream that has ended without a listener says so by `close` alone.
  const content = contentOf(stream);
  const headers = await new Promise<IncomingHttpHeaders>((resolve, reject) => {
    stream.once("response", resolve);
    stream.once("error", reject);
    stream.once("close", () => {
      reject(new TypeError("fetch failed: the stream ended without an answer"));
    });
  });
  const status = Number(headers[":status"]);
  const fields = Object.entries(headers).filter(([name]) => !name.startsWith(":"));
  const isEmpty = status === 204 || status === 304 || request.method === "HEAD";
  return new Response(isEmpty ? null : content, { status, headers: fields as [string, string][] });
}

function contentOf(stream: ClientHttp2Stream): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    start(controller) {
      let isOver = false;
      const once = (end: () => void) => () => {
        if (!isOver) end();
        isOver = true;
      };
      stream.on("data", (piece: Buffer) => {
        if (!isOver) controller.enqueue(piece);
      });
      const finish = once(() => {
        controller.close();
      });
      const fail = once(() => {
        controller.error(new TypeError(`the stream was reset: ${String(stream.rstCode)}`));
      });
      stream.once("end", () => {
        // A stream that was reset has an end too.
        if (stream.rstCode === 0 || stream.rstCode === undefined) finish();
      });
      stream.once("error", fail);
      stream.once("close", () => {
        if (stream.rstCode === 0) finish();
        else fail();
      });
    },
    cancel() {
      stream.close(8);
    },
  });
}
