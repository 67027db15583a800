const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
const CODES = Array.from("0123456789abcdef", (digit) => digit.charCodeAt(0));
/** As many as a digest has. */
const AT_ONCE_BYTES_MAX = 64;

/** Encodes bytes as hexadecimal digits, in lower case. */
export function hexOf(bytes: Uint8Array): string {
  if (bytes.length <= AT_ONCE_BYTES_MAX) return shortHexOf(bytes);
  let text = "";
  for (const byte of bytes) text += DIGITS[byte] ?? "";
  return text;
}

/** One text: to join it of its digits would make one for each. */
function shortHexOf(bytes: Uint8Array): string {
  const codes: number[] = [];
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    codes.push(CODES[byte >> 4] ?? 0, CODES[byte & 15] ?? 0);
  }
  return String.fromCharCode(...codes);
}
