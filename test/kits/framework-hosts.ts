/** The server on `fetch` behind frameworks of Node, each on a real socket. */

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import {
  createFetchServer,
  fetchCourier,
  type FetchServer,
} from "../../src/streams/runtimes/fetch.ts";
import type { FetchHost } from "./fetch-hosts.ts";
import { KEEP_ALIVE_MS, listenWith } from "./fetch-listener.ts";

function serverAt(url: string, longPollMs: number): FetchServer {
  return createFetchServer({
    store: "memory",
    address: "127.0.0.1",
    publicUrl: url,
    courier: fetchCourier(),
    longPollMs,
  });
}

/** All paths of an application of Hono, on the adapter that Hono has for Node. */
export async function startOnHono(longPollMs: number): Promise<FetchHost> {
  let server: FetchServer | undefined;
  const app = new Hono();
  app.all("*", (context) => {
    if (server === undefined) throw new Error("a request came before the server");
    return server.fetch(context.req.raw);
  });
  const http = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
  if ("keepAliveTimeout" in http) http.keepAliveTimeout = KEEP_ALIVE_MS;
  if (!http.listening) await once(http, "listening");
  const url = `http://127.0.0.1:${String((http.address() as AddressInfo).port)}`;
  const started = serverAt(url, longPollMs);
  server = started;
  return {
    url,
    async stop() {
      await started.stop();
      if ("closeAllConnections" in http) http.closeAllConnections();
      http.close();
      await once(http, "close");
    },
  };
}

/** What Next.js gives a route handler beside the request. */
interface RouteContext {
  readonly params: Promise<{ readonly path: readonly string[] }>;
}

type RouteHandler = (request: Request, context: RouteContext) => Promise<Response>;

/** What `app/[...path]/route.ts` exports: one function for each method. */
function routeModule({ fetch: answer }: FetchServer): Readonly<Record<string, RouteHandler>> {
  const handler: RouteHandler = (request) => answer(request);
  const methods = ["GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE"];
  return Object.fromEntries(methods.map((method) => [method, handler]));
}

/**
 * The exports of a route handler, called as Next.js calls them: the one of the method, with the request and the parameters of the
 * path as a promise, and with the headers that it lets through. Next.js itself is not installed: it is 250 times the size of this package's tarball.
 */
export async function startAsRouteHandler(longPollMs: number): Promise<FetchHost> {
  let module: Readonly<Record<string, RouteHandler>> | undefined;
  const listener = await listenWith(async (request) => {
    const handler = module?.[request.method];
    // As Next.js answers: it knows the methods from the names of the exports.
    if (handler === undefined) return new Response(null, { status: 405 });
    const url = new URL(request.url);
    const path = url.pathname.split("/").slice(1);
    // It hands over a NextRequest, and takes the framing of answers for its own.
    Object.defineProperty(request, "nextUrl", { value: url });
    const { status, headers, body } = await handler(request, { params: Promise.resolve({ path }) });
    const kept = new Headers(headers);
    for (const name of ["content-length", "content-encoding", "transfer-encoding"]) {
      kept.delete(name);
    }
    return new Response(body, { status, headers: kept });
  });
  const server = serverAt(listener.url, longPollMs);
  module = routeModule(server);
  return {
    url: listener.url,
    async stop() {
      await server.stop();
      await listener.stop();
    },
  };
}
