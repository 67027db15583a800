/** SHA-256 of Node: at once for small inputs, on another thread for large ones. */

import { hash } from "node:crypto";
import { type Digest, webDigest } from "../../base/digest.ts";

/** Larger inputs take more than a fraction of a millisecond, and would hold the event loop. */
const AT_ONCE_BYTES_MAX = 64 * 1024;

export const nodeDigest: Digest = (bytes) =>
  bytes.length <= AT_ONCE_BYTES_MAX ? hash("sha256", bytes, "buffer") : webDigest(bytes);
