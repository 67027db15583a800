/** Paths that are no streams. */

import { CONTROL_ROOT } from "./subscription-path.ts";

export const SUBSCRIPTIONS_PREFIX = CONTROL_ROOT;
export const ADMIN_PREFIX = "/_hapax/";
export const TEST_PREFIX = "/_test/";

const RESERVED = [SUBSCRIPTIONS_PREFIX, ADMIN_PREFIX, TEST_PREFIX];
const RESERVED_ROOTS = [SUBSCRIPTIONS_PREFIX, ADMIN_PREFIX].map((prefix) => prefix.slice(0, -1));

/** Of a name, decoded: a reserved path in another spelling, such as %5F%5Fds, must not become a stream beside it. */
export function isReserved(name: string): boolean {
  for (const prefix of RESERVED) if (name.startsWith(prefix)) return true;
  return RESERVED_ROOTS.includes(name);
}
