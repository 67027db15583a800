/**
 * What a request says of its repetition: the `Idempotency-Key` header and how long its client wants to wait.
 *
 *   HK1  a key in quotes and the same key without them are one key, and no two other keys are;
 *   HK2  a key is 1 to 255 visible ASCII characters, with spaces only inside quotes; two keys in one request are none;
 *   HK3  `Prefer: wait=n` counts wherever it stands among other preferences; what is not understood is ignored.
 *
 * The draft wants a structured field string (RFC 8941, 3.3.3); most clients send it bare. Pure.
 */

/** Common services take as many. */
export const KEY_CHARS_MAX = 255;

/** A key, or what is wrong with the header. */
export type ParsedKey =
  | { readonly kind: "key"; readonly key: string }
  | { readonly kind: "malformed"; readonly problem: string };

// Parameters behind a string mean nothing here, and are ignored as RFC 8941 wants it.
const PARAMETER =
  '; *[a-z*][a-z0-9_.*-]*(?:=(?:[A-Za-z0-9!#$%&\'*+.^_`|~:/?-]+|"[ !#-\\[\\]-~]*"))?';
const QUOTED = new RegExp(`^"((?:[ !#-\\[\\]-~]|\\\\["\\\\])*)"(?:${PARAMETER})*$`);
// Without the characters that would make it a list, a string or parameters.
const BARE = /^[!#-+\--:<-~]+$/;

/** Reads the value of the header. */
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

/** The milliseconds of `Prefer: wait=n` (RFC 7240, 4.3); undefined: nothing is said. */
export function parseWaitMs(prefer: string | undefined): number | undefined {
  const seconds = prefer === undefined ? undefined : WAIT.exec(prefer)?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}
