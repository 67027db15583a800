/**
 * The store in a Durable Object: streams in the SQLite database of the object.
 *
 * Its parts are in durable-object/: object-store (commits), frame-rows, tail and pages (data), snapshot-parts and recovery (wakes),
 * manifest, object-room. The bytes are those of the file store.
 */

import type { DurableObjectStore, DurableObjectStoreOptions } from "./durable-object/contract.ts";
import { openWhole } from "./durable-object/whole.ts";
import type { SqliteObjectStorage } from "./durable-object/storage.ts";

export type { DurableObjectStore, DurableObjectStoreOptions } from "./durable-object/contract.ts";

/**
 * Opens the store of an object. Open it once in the life of an object, in `blockConcurrencyWhile` of its constructor, and give it
 * `ctx.storage` of a class with SQLite. `durableStreams` of `hapax/workers` does that for you.
 *
 * ```ts
 * import { createFetchServer, type FetchServer } from "hapax/fetch";
 * import { openDurableObjectStore } from "hapax/stores/durable-object";
 *
 * interface Context {
 *   readonly storage: Parameters<typeof openDurableObjectStore>[0]; // `ctx.storage` of the platform fits.
 *   blockConcurrencyWhile(work: () => Promise<void>): void;
 * }
 *
 * class Streams {
 *   server?: FetchServer;
 *   constructor(ctx: Context) {
 *     ctx.blockConcurrencyWhile(async () => {
 *       const store = await openDurableObjectStore(ctx.storage, { snapshotCommits: 500 });
 *       this.server = createFetchServer({ store, insecurePublic: true });
 *     });
 *   }
 * }
 * console.assert(Streams.name === "Streams");
 * ```
 */
export function openDurableObjectStore(
  storage: SqliteObjectStorage,
  options: DurableObjectStoreOptions = {},
): Promise<DurableObjectStore> {
  return openWhole(storage, options);
}
