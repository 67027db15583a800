/**
 * The server wherever `fetch` runs: Workers, Bun, Deno, Hono, route handlers of Next.js, Node. The platform owns the sockets: it
 * decides how long a head may take, and how many connections there are.
 */

import { loadDashboard } from "./dashboard.ts";
import { createServerOnFetch, type FetchServer, type FetchServerOptions } from "./fetch-server.ts";

export { fetchCourier, type FetchCourierOptions } from "./fetch-courier.ts";
export type { FetchServer, FetchServerOptions } from "./fetch-server.ts";

/**
 * Creates a server for requests of the web platform.
 *
 * ```ts
 * import { createFetchServer } from "hapax/fetch";
 *
 * const server = createFetchServer({ store: "memory", address: "127.0.0.1" });
 * const answer = await server.fetch(
 *   new Request("http://127.0.0.1/v1/stream/orders", { method: "PUT" }),
 * );
 * console.assert(answer.status === 201);
 * await server.stop();
 * ```
 */
export function createFetchServer(options: FetchServerOptions): FetchServer {
  return createServerOnFetch(options, loadDashboard);
}
