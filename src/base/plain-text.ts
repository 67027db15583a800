/** A quick look at short texts: most names, keys and results have nothing in them that needs a closer one. */

/** Longer texts are left to regular expressions and to the platform, which read them faster. */
const CHARS_MAX = 160;

/** Returns whether a text is short and has only characters from space to `~`. So it has no NUL, and each character is one byte. */
export function isPlainText(text: string): boolean {
  if (text.length > CHARS_MAX) return false;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x20 || unit > 0x7e) return false;
  }
  return true;
}

/** Returns a plain text (`isPlainText`) in UTF-8. */
export function plainBytes(text: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}
