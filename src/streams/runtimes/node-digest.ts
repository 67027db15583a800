/** SHA-256 from Node: at once for small inputs, on another thread for large ones. */

import { hash } from "node:crypto";
import { type Digest, webDigest } from "../../base/digest.ts";

/** What takes longer than a fraction of a millisecond leaves the event loop to others. */
const AT_ONCE_BYTES_MAX = 64 * 1024;

export const nodeDigest: Digest = (bytes) =>
  bytes.length <= AT_ONCE_BYTES_MAX ? hash("sha256", bytes, "buffer") : webDigest(bytes);
