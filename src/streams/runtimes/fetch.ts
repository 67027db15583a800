/**
 * The server on every platform with `fetch`: Workers, Bun, Deno, Hono, route handlers of Next.js, Node. The platform owns the
 * sockets: it limits the time for the headers of a request, and the number of connections.
 */

import { HapaxError } from "../../base/errors.ts";
import { decideReload } from "../server/reload.ts";
import { ALL_PARTS } from "../server/routes.ts";
import type { Store } from "../store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { loadDashboard } from "./dashboard.ts";
import { fetchDecompress } from "./fetch-decompress.ts";
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
  const store = storeOf(options);
  return createServerOnFetch(options, {
    store,
    parts: ALL_PARTS,
    dashboard: loadDashboard,
    decompress: fetchDecompress,
    decideReload,
  });
}

/** What streams in memory may take of the 128 MB. */
const MEMORY_BYTES_MAX = 32 * 1024 * 1024;

function storeOf({ store }: Partial<FetchServerOptions>): Store {
  if (store === "memory") return openMemoryStore({ bytesMax: MEMORY_BYTES_MAX });
  if (typeof store === "object") return store;
  throw new HapaxError(
    "invalid_options",
    'createFetchServer needs a store: give one, or "memory" for streams that end with the process',
  );
}
