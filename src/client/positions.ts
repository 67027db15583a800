/**
 * PORT. Keeps the position of a consumer in a stream, so that a restart goes on there.
 *
 *   - a position is saved when the consumer asks for more after a batch, and not before: a batch that a crash
 *     interrupts comes again. So effects happen at least once;
 *   - an effect happens exactly once only if it and the position are stored together, in one transaction of
 *     the consumer's own database. `batch.position` is the value to store there, and no store is needed here;
 *   - a position names the life of its stream: one that was created anew at the path refuses it, and the reader ends
 *     with `stream_replaced` instead of going on in the middle of another stream;
 *   - a reader that begins at `now` saves that place before anything arrives: a restart leaves nothing out.
 */

/**
 * Keeps one position, for `stream.follow({ position })`. Each reader needs one of its own. Effects happen at least
 * once: after a crash the reader gets the last batch again.
 *
 * ```ts
 * import { connect, memoryPosition } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/mails`);
 * await stream.create();
 * await stream.append("first");
 *
 * const position = memoryPosition(); // Or `filePosition` of "hapax/node", or one of your own.
 * const seen: string[] = [];
 * const runUntil = async (last: string) => {
 *   for await (const { value } of stream.follow<string>({ position })) {
 *     seen.push(value);
 *     if (value === last) break; // Not asked for more: the position stays before this batch.
 *   }
 * };
 * await runUntil("first");
 * await stream.append("second");
 * await runUntil("second");
 * console.assert(seen.join() === "first,first,second");
 * await server.stop();
 * ```
 */
export interface PositionStore {
  /** Returns the position that was saved last; `undefined` if there is none. */
  load(): Promise<string | undefined>;
  /** Saves the position: up to 300 printable characters. Resolves when the position is durable. */
  save(position: string): Promise<void>;
}

/**
 * Returns a position store in memory, which ends with the process.
 *
 * ```ts
 * import { memoryPosition } from "hapax/client";
 *
 * const position = memoryPosition();
 * await position.save("0000000000000000_0000000000000042");
 * console.assert((await position.load())?.endsWith("42"));
 * ```
 */
export function memoryPosition(offset?: string): PositionStore {
  let saved = offset;
  return {
    load: () => Promise.resolve(saved),
    save(next) {
      saved = next;
      return Promise.resolve();
    },
  };
}

/** The two members of the web's `localStorage` that are used. */
export interface PositionStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

/**
 * Returns a position store in the browser, under the key that you pass: `storagePosition(localStorage,
 * "orders")`.
 *
 * ```ts
 * import { storagePosition } from "hapax/client";
 *
 * const items = new Map<string, string>();
 * const storage = {
 *   getItem: (key: string) => items.get(key) ?? null,
 *   setItem: (key: string, value: string) => void items.set(key, value),
 * };
 * const position = storagePosition(storage, "orders");
 * console.assert((await position.load()) === undefined);
 * await position.save("0000000000000000_0000000000000042");
 * console.assert(items.size === 1);
 * ```
 */
export function storagePosition(storage: PositionStorage, key: string): PositionStore {
  return {
    // Storages throw when they are full or forbidden. `async` turns that into a rejection, which the reader gets.
    load: async () => Promise.resolve(storage.getItem(key) ?? undefined),
    save: async (offset) => {
      storage.setItem(key, offset);
      return Promise.resolve();
    },
  };
}
