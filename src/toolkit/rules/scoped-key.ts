/**
 * The identity of everything that happens once: a call, a message, a lease, a version, the key of an HTTP request.
 *
 *   - the scope is required everywhere, and has no default: a key of one tenant never meets the same key of another one
 *     because a caller forgot to say whose it is.
 *
 * Pure.
 */

/**
 * The identity of a call, a message, a lease or a versioned thing. Both members are always required, and have 1 to 512
 * bytes. Anything else is refused with `invalid_request`.
 */
export interface ScopedKey {
  /**
   * What the key belongs to: a tenant, the sender of a message, a kind of data. The same key in two scopes is two keys.
   * Use `GLOBAL` when keys are not per tenant.
   */
  readonly scope: string;
  /**
   * Identifies one piece of work within its scope: the number of an order, the id of a message, the name of a
   * job.
   */
  readonly key: string;
}

/** The scope of keys that are not per tenant. */
export const GLOBAL = "*";

/** The end of every error about a scope. */
export const SCOPE_RULE = "every identity needs a scope: use GLOBAL when keys are not per tenant";
