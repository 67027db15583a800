/** SHA-256 for short texts: at once where the platform has Node's module, else by Web Crypto, which is much slower for them. */

import { type Digest, webDigest } from "./digest.ts";

/** The part of Node's module that is used. Deno and Bun have it too. */
interface Hashing {
  /** Takes half as long. Absent in older versions. */
  hash?(algorithm: "sha256", bytes: Uint8Array, encoding: "buffer"): Uint8Array;
  createHash(algorithm: "sha256"): {
    update(bytes: Uint8Array): { digest(): Uint8Array };
  };
}

/** The module is not imported: the toolkit must also load where there is none. */
function hashing(): Hashing | undefined {
  const { process: platform } = globalThis as {
    process?: { getBuiltinModule?: (name: string) => Hashing | undefined };
  };
  return platform?.getBuiltinModule?.("node:crypto");
}

/** More bytes take a part of a millisecond, and would hold the event loop. */
const AT_ONCE_BYTES_MAX = 64 * 1024;

export function platformDigest(): Digest {
  const found = hashing();
  return (bytes) => {
    if (found === undefined || bytes.length > AT_ONCE_BYTES_MAX) return webDigest(bytes);
    return (
      found.hash?.("sha256", bytes, "buffer") ?? found.createHash("sha256").update(bytes).digest()
    );
  };
}
