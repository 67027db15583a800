/** Paths that are not streams. */

import { HapaxError } from "../base/errors.ts";
import type { StreamName } from "../streams/core/types.ts";
import { CONTROL_ROOT } from "./subscription-path.ts";
import { parseStreamPath } from "./values.ts";

export const SUBSCRIPTIONS_PREFIX = CONTROL_ROOT;
export const OWN_PREFIX = "/_hapax/";
export const TEST_PREFIX = "/_test/";

/** The paths that people and tools try first. Each is one exact path; a path below it may be a stream. */
export const FRONT_PATH = "/";
export const HEALTH_PATH = "/healthz";
export const LIVE_PATH = "/livez";
export const READY_PATH = "/readyz";
export const METRICS_PATH = "/metrics";
export const CLUSTER_PATH = `${OWN_PREFIX}cluster`;
export const FOLLOW_PATH = `${OWN_PREFIX}follow`;
export const ICON_PATH = "/favicon.ico";

const RESERVED = [SUBSCRIPTIONS_PREFIX, OWN_PREFIX, TEST_PREFIX];
const RESERVED_NAMES = [
  ...[SUBSCRIPTIONS_PREFIX, OWN_PREFIX].map((prefix) => prefix.slice(0, -1)),
  HEALTH_PATH,
  LIVE_PATH,
  READY_PATH,
  METRICS_PATH,
  ICON_PATH,
];

/**
 * Whether a decoded name is reserved. A reserved path in another spelling, such as %5F%5Fds, must not become a
 * stream.
 */
export function isReserved(name: string): boolean {
  for (const prefix of RESERVED) if (name.startsWith(prefix)) return true;
  return RESERVED_NAMES.includes(name);
}

/** The last path that named a stream: a request asks for its stream more than once, and clients stay with a stream. */
let last: { readonly target: string; readonly name: StreamName } | undefined;

/** The stream that the path of a request names. A path that is reserved, or is no path, is refused. */
export function requireStreamName(target: string): StreamName {
  if (last !== undefined && last.target === target) return last.name;
  const path = parseStreamPath(target);
  if (path.kind === "invalid") throw new HapaxError(path.code, path.reason);
  if (isReserved(path.name)) throw new HapaxError("not_found", "the path is reserved");
  last = { target, name: path.name };
  return path.name;
}
