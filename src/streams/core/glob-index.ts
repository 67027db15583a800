/**
 * Many patterns, and those among them that match a name. A pattern can only match a name that begins with its literal
 * part, so the patterns are kept by that: a name asks once for each of its segments, however many patterns there are.
 */

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
    ids?.delete(id);
    if (ids?.size === 0) this.#byPrefix.delete(glob.prefix);
    return super.delete(id);
  }

  override clear(): void {
    this.#byPrefix.clear();
    super.clear();
  }

  /** Those whose pattern matches the name, which is absolute. */
  *matching(name: string): Generator<Id, void, undefined> {
    // "/a/b" begins with "", "/a" and "/a/b".
    for (let end = 0; end !== -1; end = nextEnd(name, end)) {
      for (const id of this.#byPrefix.get(name.slice(0, end)) ?? []) {
        if (this.get(id)?.matches(name) === true) yield id;
      }
    }
  }
}

/** Where the next segment ends; -1 behind the last. */
function nextEnd(name: string, end: number): number {
  if (end >= name.length) return -1;
  const next = name.indexOf("/", end + 1);
  return next === -1 ? name.length : next;
}
