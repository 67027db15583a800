/** PORT. SHA-256 of the platform. Idempotency keys and their contents are compared by it. */

/** Returns the 32 bytes of a SHA-256: at once where the platform can, else as a promise. */
export type Digest = (bytes: Uint8Array) => Uint8Array | Promise<Uint8Array>;

/** Computes SHA-1, for programs that name things by it, such as Redis its scripts. Nothing may depend on its strength. */
export async function webSha1(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-1", bytes as Uint8Array<ArrayBuffer>));
}

/** The digest of WebCrypto, which every platform has. */
export const webDigest: Digest = async (bytes) =>
  // The type wants bytes that no other thread can change; ours are never shared.
  new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
