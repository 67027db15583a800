/**
 * The functions of authorization that are part of this package. The gate shows them the request itself; a function from outside gets
 * a view of it that has nothing else, which costs every request two objects. Ours read the request, and never its body.
 */

import type { Authorize } from "./identity.ts";

const own = new WeakSet<Authorize>();

export function markOwn(authorize: Authorize): Authorize {
  own.add(authorize);
  return authorize;
}

export function isOwn(authorize: Authorize): boolean {
  return own.has(authorize);
}
