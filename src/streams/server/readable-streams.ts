/** The list of streams for callers that may not read all of them. */

import type { Access } from "../access/access.ts";
import type { Engine } from "../engine/engine.ts";
import type { StreamPage } from "../engine/listing.ts";
import type { Found } from "../engine/outcomes.ts";

/** The page has every readable stream and no name of another one: not even `next` tells that there are others. */
export async function listReadable(
  engine: Engine,
  access: Access,
  prefix: string,
  after: string,
  limit: number,
): Promise<StreamPage> {
  const beginning = access.beginningOf(prefix);
  if (beginning === undefined) return { found: [], next: undefined };
  const slices = engine.slices();
  const found: Found[] = [];
  const { namespace } = access;
  if (namespace !== undefined && after < namespace && namespace.startsWith(prefix)) {
    // The stream of the namespace's own path. Between it and those below it stand names of others.
    const [first] = engine.list(namespace, "", 1).found;
    if (first?.state.name === namespace && access.may("read", { stream: namespace })) {
      found.push(first);
    }
  }
  let from: string | undefined = after;
  // One more than asked for tells whether there is a next page.
  while (from !== undefined && found.length <= limit) {
    const page = engine.list(beginning, from, limit);
    for (const one of page.found) {
      if (!slices.take()) await slices.turn();
      const { name } = one.state;
      if (name.startsWith(prefix) && access.may("read", { stream: name })) found.push(one);
    }
    from = page.next;
    // A page may have looked at many names and have found none.
    if (page.found.length === 0 && from !== undefined) await slices.turn();
  }
  const shown = found.slice(0, limit);
  return { found: shown, next: found.length > limit ? shown.at(-1)?.state.name : undefined };
}
