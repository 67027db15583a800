/**
 * Streams on Workers: a class of Durable Objects that is a whole server, and the Worker in front of it.
 *
 * One object has the streams that `objectOf` sends to it, with their groups, transactions and forks. It sleeps when nothing
 * happens, also while readers wait.
 */

import { Decoding } from "../server/decoding.ts";
import type { ServerPart } from "../server/server-part.ts";
import { fetchDecompress } from "./fetch-decompress.ts";
import type { ObjectContext } from "./object-platform.ts";
import {
  type DurableStreams,
  type DurableStreamsOptions,
  StreamsObject,
} from "./streams-object.ts";

export type { DurableStreams, DurableStreamsOptions } from "./streams-object.ts";
export type { ServerPart } from "../server/server-part.ts";
export {
  access,
  description,
  groups,
  logs,
  observation,
  registries,
  retention,
  subscriptions,
  testFaults,
  transactions,
} from "../server/optional-parts.ts";
export { streamsDoor, type StreamsDoor, type StreamsDoorOptions } from "./streams-door.ts";

/**
 * A part for `durableStreams`: bodies of requests may be compressed.
 *
 * ```ts
 * import { compression, durableStreams } from "hapax/workers";
 *
 * export class Streams extends durableStreams({ insecurePublic: true, parts: [compression] }) {}
 * ```
 */
export const compression: ServerPart = {
  name: "compression",
  routes: [],
  createDecoding: () => new Decoding(fetchDecompress),
};

/**
 * Makes a class of Durable Objects. Export it, and bind it with SQLite (`new_sqlite_classes`). The options, or a function that
 * makes them from the environment, are those of a server on `fetch`: it needs `authorize`, or `insecurePublic: true` if the
 * Worker in front (`streamsDoor`) refuses the wrong callers.
 *
 * ```ts
 * import { durableStreams, streamsDoor, type StreamsDoorOptions } from "hapax/workers";
 *
 * interface Env {
 *   readonly STREAMS: ReturnType<StreamsDoorOptions<Env>["namespace"]>; // DurableObjectNamespace of the platform fits.
 * }
 * export class Streams extends durableStreams({ insecurePublic: true }) {}
 * const door = streamsDoor({
 *   namespace: (env: Env) => env.STREAMS,
 *   objectOf: (path) => path.split("/")[3],
 * });
 * export default door;
 *
 * // A path of no object is refused before any object is reached.
 * const none = { idFromName: (name: string) => name, get: () => ({ fetch: () => Promise.reject(new Error("no object")) }) };
 * const refused = await door.fetch(new Request("http://localhost/"), { STREAMS: none });
 * console.assert(refused.status === 400);
 * ```
 */
export function durableStreams<Env = unknown>(
  options: DurableStreamsOptions | ((env: Env) => DurableStreamsOptions),
): new (context: ObjectContext, env: Env) => DurableStreams {
  return class extends StreamsObject {
    constructor(context: ObjectContext, env: Env) {
      super(context, typeof options === "function" ? options(env) : options);
    }
  };
}
