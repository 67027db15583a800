/**
 * Removes slashes at the ends of paths. It uses a loop: a regular expression such as `/\/+$/` would scan a run of
 * slashes once from each of them.
 */

const SLASH = 0x2f;

/** Returns the text without the slashes at its end. */
export function withoutLastSlashes(text: string): string {
  let end = text.length;
  while (end > 0 && text.charCodeAt(end - 1) === SLASH) end -= 1;
  return text.slice(0, end);
}

/** Returns the text without the slashes at both ends. */
export function withoutSlashes(text: string): string {
  let start = 0;
  while (start < text.length && text.charCodeAt(start) === SLASH) start += 1;
  return withoutLastSlashes(text.slice(start));
}
