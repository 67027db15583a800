/** Keys that other services get: the same for the same work, in every attempt and every process. */

import { hexOf } from "../../base/hex.ts";
import { webDigest } from "../../base/digest.ts";
import { REMOTE_KEY_CHARS_MAX } from "./limits.ts";

/** Returns a key of the parts: readable if it is short enough, else a digest. No two lists of parts have the same one. */
export async function remoteKey(parts: readonly string[]): Promise<string> {
  const readable = parts.map((part) => encodeURIComponent(part)).join("/");
  if (readable.length <= REMOTE_KEY_CHARS_MAX) return readable;
  const digest = await webDigest(new TextEncoder().encode(readable));
  return `sha256:${hexOf(digest)}`;
}
