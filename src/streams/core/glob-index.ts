/**
 * An index of many patterns. It finds those that match a name. A pattern can only match a name that begins with the
 * pattern's literal part, so the index is keyed by that part. One lookup costs one step for each segment of the name,
 * for any number of patterns.
 */

import { assert } from "../../base/assert.ts";
import type { Glob } from "../../base/glob.ts";

export class GlobIndex<Id> extends Map<Id, Glob> {
  readonly #byPrefix = new Map<string, Set<Id>>();

  override set(id: Id, glob: Glob): this {
    this.delete(id);
    const ids = this.#byPrefix.get(glob.prefix);
    if (ids === undefined) this.#byPrefix.set(glob.prefix, new Set([id]));
    else ids.add(id);
    return super.set(id, glob);
  }

  override delete(id: Id): boolean {
    const glob = this.get(id);
    if (glob === undefined) return false;
    const ids = this.#byPrefix.get(glob.prefix);
    assert(ids?.has(id) === true, "a pattern is not under its prefix");
    ids.delete(id);
    if (ids.size === 0) this.#byPrefix.delete(glob.prefix);
    return super.delete(id);
  }

  override clear(): void {
    this.#byPrefix.clear();
    super.clear();
  }

  /** Yields the ids whose pattern matches the name. The name is absolute. */
  *matching(name: string): Generator<Id, void, undefined> {
    // "/a/b" begins with "", "/a" and "/a/b".
    for (let end = 0; end !== -1; end = nextEnd(name, end)) {
      for (const id of this.#byPrefix.get(name.slice(0, end)) ?? []) {
        if (this.get(id)?.matches(name) === true) yield id;
      }
    }
  }
}

/** Returns where the next segment ends, or -1 behind the last one. */
function nextEnd(name: string, end: number): number {
  if (end >= name.length) return -1;
  const next = name.indexOf("/", end + 1);
  return next === -1 ? name.length : next;
}
