/** PORT. SHA-256, from the platform: what idempotency keys and their contents are compared by. */

/** The 32 bytes of a SHA-256, at once where the platform can, else soon. */
export type Digest = (bytes: Uint8Array) => Uint8Array | Promise<Uint8Array>;

/** The one that every platform has. */
export const webDigest: Digest = async (bytes) =>
  // The type wants bytes that no other thread can change; ours are never shared.
  new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
