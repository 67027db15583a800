/**
 * Parses the headers of a repeatable request: `Idempotency-Key`, and how long its client wants to wait.
 *
 *   HK1  a key in quotes and the same key without them are one key, and no two other keys are;
 *   HK2  a key is 1 to 255 visible ASCII characters, with spaces only inside quotes; two keys in one request are refused;
 *   HK3  `Prefer: wait=n` counts at any place among other preferences; unknown preferences are ignored.
 *
 * The draft requires a structured field string (RFC 8941, 3.3.3); most clients send it bare. Pure.
 */

/** Common services take keys of this length. */
export const KEY_CHARS_MAX = 255;

/** A key, or what is wrong with the header. */
export type ParsedKey =
  | { readonly kind: "key"; readonly key: string }
  | { readonly kind: "malformed"; readonly problem: string };

// Parameters behind a string have no meaning here, and are ignored as RFC 8941 requires.
const PARAMETER =
  '; *[a-z*][a-z0-9_.*-]*(?:=(?:[A-Za-z0-9!#$%&\'*+.^_`|~:/?-]+|"[ !#-\\[\\]-~]*"))?';
const QUOTED = new RegExp(`^"((?:[ !#-\\[\\]-~]|\\\\["\\\\])*)"(?:${PARAMETER})*$`);
// Without the characters that would begin a list, a string or parameters.
const BARE = /^[!#-+\--:<-~]+$/;

/** Parses the value of the header. */
export function parseIdempotencyKey(value: string): ParsedKey {
  const text = value.trim();
  const key = text.startsWith('"')
    ? QUOTED.exec(text)?.[1]?.replaceAll(/\\(["\\])/g, "$1")
    : BARE.exec(text)?.[0];
  if (text === "" || key === "") return malformed("is empty");
  if (key === undefined)
    return malformed('is not one string in quotes, nor bare text without space, ", and ;');
  if (key.length > KEY_CHARS_MAX) return malformed(`has more than ${KEY_CHARS_MAX} characters`);
  return { kind: "key", key };
}

function malformed(problem: string): ParsedKey {
  return { kind: "malformed", problem };
}

const WAIT = /(?:^|[,;])\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?=[;,]|$)/i;

/** Returns the milliseconds of `Prefer: wait=n` (RFC 7240, 4.3); undefined if the header has no `wait`. */
export function parseWaitMs(prefer: string | undefined): number | undefined {
  const seconds = prefer === undefined ? undefined : WAIT.exec(prefer)?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}
