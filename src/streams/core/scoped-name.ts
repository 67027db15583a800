/**
 * Names of groups, subscriptions and identities as the server keeps them: with the namespace that they belong to, if they belong to
 * one. Clients never see this form. PROTOCOL.md §21.3.
 */

/** Stands between a namespace and a name of it. No name and no namespace holds this character. */
export const BETWEEN = "\u0000";

/** A kept name that nothing has. */
export const NO_NAME = BETWEEN + BETWEEN;

/** A kept name in two parts: its namespace, if it has one, and what its clients call it. */
export function splitScoped(kept: string): {
  readonly namespace: string | undefined;
  readonly name: string;
} {
  const at = kept.indexOf(BETWEEN);
  return at === -1
    ? { namespace: undefined, name: kept }
    : { namespace: kept.slice(0, at), name: kept.slice(at + 1) };
}

export function joinScoped(namespace: string | undefined, name: string): string {
  return namespace === undefined ? name : namespace + BETWEEN + name;
}
