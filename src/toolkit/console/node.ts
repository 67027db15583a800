/** `hapax/console/node`: the console for `node:http` and Express. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { LedgerConsole } from "./contract.ts";
import { BODY_BYTES_MAX } from "./limits.ts";

/** Express shortens `url` by the path of the mount, and parsers put their result into `body`. */
type Incoming = IncomingMessage & { readonly originalUrl?: string; readonly body?: unknown };

/**
 * Turns a console into a listener of `node:http`, which is also a handler of Express: `app.use("/admin/hapax",
 * consoleListener(admin))`.
 *
 * ```ts
 * import { createServer } from "node:http";
 * import { createConsole } from "hapax/console";
 * import { consoleListener } from "hapax/console/node";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const admin = createConsole(memoryLedger(), { authorize: () => ({ by: "me" }) });
 * const show = consoleListener(admin);
 * const server = createServer((request, response) => {
 *   if (request.url?.startsWith("/admin/hapax")) show(request, response);
 *   else response.end("the app itself");
 * });
 * await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
 * const address = server.address();
 * const port = typeof address === "object" ? address?.port : 0;
 * const answer = await fetch(`http://127.0.0.1:${port}/admin/hapax/api/overview`);
 * console.assert((await answer.json()).ledger === "memory");
 * server.close();
 * ```
 */
export function consoleListener(
  admin: LedgerConsole,
): (request: IncomingMessage, response: ServerResponse) => void {
  return (incoming, outgoing) => {
    answer(admin, incoming, outgoing).catch(() => {
      // The client has gone, or its request was cut off.
      outgoing.destroy();
    });
  };
}

async function answer(
  admin: LedgerConsole,
  incoming: Incoming,
  outgoing: ServerResponse,
): Promise<void> {
  const request = await requestOf(incoming);
  if (request === undefined) {
    outgoing.writeHead(400).end();
    return;
  }
  const response = await admin.fetch(request);
  const body = new Uint8Array(await response.arrayBuffer());
  for (const [name, value] of response.headers)
    if (name !== "set-cookie") outgoing.setHeader(name, value);
  const cookies = response.headers.getSetCookie();
  if (cookies.length > 0) outgoing.setHeader("set-cookie", cookies);
  // What was not read of a body that is too large would be taken for the next request.
  if (!incoming.complete) outgoing.setHeader("connection", "close");
  outgoing.writeHead(response.status).end(body);
}

/** Undefined: no browser sends such a request. */
async function requestOf(incoming: Incoming): Promise<Request | undefined> {
  const { headers, method = "GET", originalUrl, url = "/" } = incoming;
  const all = new Headers();
  try {
    for (const [name, value] of Object.entries(headers))
      for (const one of [value ?? []].flat()) if (!name.startsWith(":")) all.append(name, one);
    // Put together as text: `//evil.example/` is a path here, and must not become another host.
    const at = new URL(`http://${headers.host ?? "localhost"}${originalUrl ?? url}`);
    if (method === "GET" || method === "HEAD") return new Request(at, { method, headers: all });
    return new Request(at, { method, headers: all, body: await bodyOf(incoming) });
  } catch {
    return undefined;
  }
}

/** One byte more than an act may have is enough to refuse it. */
async function bodyOf(incoming: Incoming): Promise<string> {
  if (incoming.readableEnded || incoming.body !== undefined)
    return typeof incoming.body === "string" ? incoming.body : JSON.stringify(incoming.body ?? {});
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  // The connection stays: the refusal is its answer.
  const rest: AsyncIterable<Uint8Array> = incoming.iterator({ destroyOnReturn: false });
  for await (const piece of rest) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes > BODY_BYTES_MAX) break;
  }
  return Buffer.concat(pieces).toString("utf8");
}
