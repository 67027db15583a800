/**
 * PORT. Objects by name, each written once: a bucket, or a folder of files. Adapters: file-objects.ts, s3-objects.ts.
 *
 *   - `create` writes all of an object or nothing, and never replaces one. Of several callers one gets `stored`;
 *   - an object is durable when `create` resolves, also with `occupied`: then the object that is there is durable;
 *   - if `create` rejects, the object may be there, or may still arrive;
 *   - `get` finds what `create` has confirmed. `list` may be late: it may leave out new names and show removed ones.
 */

/** The most names of a list. A segment of a log has fewer objects, and there are few snapshots. */
export const LISTED_MAX = 1_100_000;

/** A store of objects. Names consist of lower-case letters, digits, `-` and `/`. */
export interface WindowObjects {
  /** Writes an object, unless there is one of this name. */
  create(name: string, bytes: Uint8Array): Promise<"stored" | "occupied">;
  /** Returns the bytes of an object; undefined if there is none of this name. */
  get(name: string): Promise<Uint8Array | undefined>;
  /** Returns the names that begin with the prefix, in any order. */
  list(prefix: string): Promise<readonly string[]>;
  /** Removes an object, if there is one of this name. */
  remove(name: string): Promise<void>;
}
