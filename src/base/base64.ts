/** Base64 on every platform: `Buffer` is not everywhere, and `Uint8Array.fromBase64` is too new. */

/** Arguments of one call. Engines have a limit that differs. */
const CALL_ARGUMENTS_MAX = 8192;

/** Encodes bytes as base64, with padding. */
export function encodeBase64(bytes: Uint8Array): string {
  const parts: string[] = [];
  for (let at = 0; at < bytes.length; at += CALL_ARGUMENTS_MAX) {
    parts.push(String.fromCharCode(...bytes.subarray(at, at + CALL_ARGUMENTS_MAX)));
  }
  return btoa(parts.join(""));
}

/** Decodes base64. Ignores white space, and throws what `atob` throws. */
export function decodeBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** Encodes bytes as base64 for URLs and tokens, without padding. RFC 4648, 5. */
export function encodeBase64url(bytes: Uint8Array): string {
  return encodeBase64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Decodes base64 for URLs strictly. Returns undefined for padding, other characters, and stray bits in the last one. */
export function decodeBase64url(text: string): Uint8Array | undefined {
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1) return undefined;
  const bytes = decodeBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  return encodeBase64url(bytes) === text ? bytes : undefined;
}
