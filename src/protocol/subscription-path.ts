/** Paths in the bodies and routes of subscriptions: relative to the root, and not percent-encoded. */

import { withoutSlashes } from "./slashes.ts";
import { LIMITS } from "./limits.ts";
import type { StreamName } from "../streams/core/types.ts";
import { parseStreamPath } from "./values.ts";

export const STREAM_ROOT = "/v1/stream/";
export const CONTROL_ROOT = "/v1/stream/__ds/";

/** Parses the name of a stream that a body or a route gives relative to the root. */
export function parseRelativePath(path: string): StreamName | undefined {
  if (path.length > LIMITS.pathBytesMax) return undefined;
  const trimmed = withoutSlashes(path);
  if (trimmed === "" || trimmed === "__ds" || trimmed.startsWith("__ds/")) return undefined;
  // Half of a surrogate pair is no character, and cannot be encoded.
  if (/\p{Surrogate}/u.test(trimmed)) return undefined;
  const encoded = trimmed.split("/").map(encodeURIComponent).join("/");
  const parsed = parseStreamPath(STREAM_ROOT + encoded);
  return parsed.kind === "path" ? parsed.name : undefined;
}

export function formatRelativePath(name: string): string {
  return name.startsWith(STREAM_ROOT) ? name.slice(STREAM_ROOT.length) : name;
}
