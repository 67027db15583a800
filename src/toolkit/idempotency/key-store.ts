/**
 * PORT. Keeps the keys of a caller's operations, so that they outlive its process. Implementations: the two below, and
 * key-file.ts.
 *
 *   - when `put` has resolved, the key survives a crash, as far as the medium does;
 *   - of two keys that are put for one operation, the first stays, and both callers get that one;
 *   - an update of one key changes no other key of its operation, and brings no removed key back: an answer may come
 *        late, when another process has freed the name;
 *   - operations are kept apart, with any characters in their names.
 */

import type { KeyRecord } from "../rules/caller-key.ts";
import { HapaxError } from "../../base/errors.ts";

export type { KeyRecord } from "../rules/caller-key.ts";

/** Keeps the keys of operations. */
export interface KeyStore {
  /** Returns the record of the operation. The record is durable when the promise resolves, as after `put`. */
  get(operation: string): Promise<KeyRecord | undefined>;
  /** Stores the record if the operation has none, else leaves the old one. Returns the stored record. */
  put(operation: string, record: KeyRecord): Promise<KeyRecord>;
  /** Replaces the record with the same key. Does nothing if there is none, or one with another key. */
  update(operation: string, record: KeyRecord): Promise<void>;
  remove(operation: string): Promise<void>;
}

/**
 * Returns a store that keeps keys in memory. Use it if no operation goes on after a restart of the process.
 *
 * ```ts
 * import { memoryKeyStore } from "hapax/idempotency/fetch";
 *
 * const store = memoryKeyStore();
 * const kept = await store.put("charge 17", { key: "k1", digest: "d", madeAtMs: 0 });
 * const other = await store.put("charge 17", { key: "k2", digest: "d", madeAtMs: 0 });
 * console.assert(kept.key === "k1" && other.key === "k1");
 * ```
 */
export function memoryKeyStore(): KeyStore {
  const records = new Map<string, string>();
  return storageKeyStore(
    {
      getItem: (name) => records.get(name) ?? null,
      setItem: (name, text) => void records.set(name, text),
      removeItem: (name) => void records.delete(name),
    },
    { prefix: "" },
  );
}

/** The members of `localStorage` that are used. Any synchronous store of texts by name can have them. */
export interface StorageLike {
  getItem(name: string): string | null;
  setItem(name: string, text: string): void;
  removeItem(name: string): void;
}

/**
 * Returns a store that keeps keys in a `localStorage`, under names with a prefix (default `hapax-key:`). The keys are
 * still there after the page is closed. A power failure loses the keys that the browser has not written yet.
 *
 * ```ts
 * import { storageKeyStore } from "hapax/idempotency/fetch";
 *
 * // In a page: storageKeyStore(localStorage).
 * const texts = new Map<string, string>();
 * const store = storageKeyStore({
 *   getItem: (name) => texts.get(name) ?? null,
 *   setItem: (name, text) => texts.set(name, text),
 *   removeItem: (name) => texts.delete(name),
 * });
 * await store.put("charge 17", { key: "k1", digest: "d", madeAtMs: 0 });
 * console.assert(texts.has("hapax-key:charge 17"));
 * await store.remove("charge 17");
 * console.assert((await store.get("charge 17")) === undefined);
 * ```
 */
export function storageKeyStore(
  storage: StorageLike,
  options: { readonly prefix?: string } = {},
): KeyStore {
  const { prefix = "hapax-key:" } = options;
  const find = (operation: string): KeyRecord | undefined => {
    const text = storage.getItem(prefix + operation);
    return text === null ? undefined : parseKeyRecord(text, operation);
  };
  return {
    get: async (operation) => find(operation),
    // No other code runs between the look and the write.
    put: async (operation, record) => {
      const there = find(operation);
      if (there !== undefined) return there;
      storage.setItem(prefix + operation, encodeKeyRecord(operation, record));
      return record;
    },
    update: async (operation, record) => {
      if (find(operation)?.key !== record.key) return;
      storage.setItem(prefix + operation, encodeKeyRecord(operation, record));
    },
    remove: async (operation) => {
      storage.removeItem(prefix + operation);
    },
  };
}

/** Encodes a record as text, with the name of its operation for human readers. */
export function encodeKeyRecord(operation: string, record: KeyRecord): string {
  const { key, digest, madeAtMs, expiresAtMs } = record;
  return JSON.stringify({ version: 1, operation, key, digest, madeAtMs, expiresAtMs });
}

/** Parses a record. Throws `data_damaged` if it cannot: a key that cannot be read must not be replaced by a new one. */
export function parseKeyRecord(text: string, operation: string): KeyRecord {
  const { version, operation: named, key, digest, madeAtMs, expiresAtMs } = membersOf(text);
  const isWhole =
    version === 1 &&
    named === operation &&
    typeof key === "string" &&
    typeof digest === "string" &&
    typeof madeAtMs === "number" &&
    (expiresAtMs === undefined || typeof expiresAtMs === "number");
  if (!isWhole) {
    const text80 = text.slice(0, 80);
    throw new HapaxError("data_damaged", `not a kept key: operation=${operation} text=${text80}`);
  }
  return { key, digest, madeAtMs, ...(expiresAtMs === undefined ? {} : { expiresAtMs }) };
}

function membersOf(text: string): Readonly<Partial<Record<string, unknown>>> {
  try {
    // Cast: every value but null can be asked for members; each of them is unknown.
    return (JSON.parse(text) ?? {}) as Partial<Record<string, unknown>>;
  } catch {
    return {};
  }
}
