/**
 * The `Idempotency-Key` header, for the streams server and for HTTP APIs alike. PROTOCOL.md §16.
 *
 *   - a key in quotes and the same key without them are one key, and no two other keys are;
 *   - a key is 1 to 255 characters from space to ~, with spaces only inside quotes; two keys in one request are none.
 *
 * In quotes it is an Item of RFC 9651 whose value is a String: its parameters mean nothing here, and are ignored. Most
 * clients send it bare. Pure.
 */

/** Common services take as many. */
export const KEY_CHARS_MAX = 255;

const QUOTED =
  /^[ \t]*"((?:[ !#-[\]-~]|\\["\\])*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:[A-Za-z0-9!#$%&'*+./:=?^_`|~-]+|"(?:[ !#-[\]-~]|\\["\\])*"))?)*[ \t]*$/;
// Without the characters that would make it a list, a string or parameters.
const BARE = /^[ \t]*([!#-+\--:<-~]+)[ \t]*$/;

/** The key in the value of the header; undefined if there is none. */
export function parseIdempotencyKey(value: string): string | undefined {
  const key = textIn(value);
  return key === undefined || key === "" || key.length > KEY_CHARS_MAX ? undefined : key;
}

/** What is wrong with a value that has no key, to follow the name of the header. */
export function keyProblem(value: string): string {
  const text = textIn(value) ?? value.trim();
  if (text === "") return "is empty";
  if (textIn(value) !== undefined) return `has more than ${KEY_CHARS_MAX} characters`;
  return 'is not one string in quotes, nor bare text without space, ", and ;';
}

function textIn(value: string): string | undefined {
  const bare = BARE.exec(value)?.[1];
  if (bare !== undefined) return bare;
  const quoted = QUOTED.exec(value)?.[1];
  return quoted?.includes("\\") === true ? quoted.replaceAll(/\\(["\\])/g, "$1") : quoted;
}

/** The key as the value of a header, in quotes, which can hold every character of a key; undefined if it is none. */
export function encodeKey(key: string): string | undefined {
  return /^[ -~]{1,255}$/.test(key) ? `"${key.replace(/["\\]/g, "\\$&")}"` : undefined;
}
