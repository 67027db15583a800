/**
 * The API keys behind a function of authorization, as a page for the operator shows them: what each may do, and never a secret or
 * its digest. PROTOCOL.md §12.12.
 */

import type { Authorize } from "./identity.ts";
import type { ApiKeyRecord } from "./key-document.ts";

/** A key without what proves it. */
export type ShownKey = Omit<ApiKeyRecord, "sha256">;

const lists = new WeakMap<Authorize, () => readonly ShownKey[]>();

/** Remembers how to list the keys of a function. Returns the function. */
export function withShownKeys(authorize: Authorize, list: () => readonly ShownKey[]): Authorize {
  lists.set(authorize, list);
  return authorize;
}

/** The keys of a function of this package that has some, in the order of their creation. */
export function shownKeysOf(authorize: Authorize | undefined): readonly ShownKey[] {
  return (authorize === undefined ? undefined : lists.get(authorize))?.() ?? [];
}
