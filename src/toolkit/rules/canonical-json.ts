/**
 * Turns all JSON texts with the same meaning into one text, close to RFC 8785.
 *
 *   - neither the order of members, nor white space, nor the spelling of strings and numbers matters;
 *   - texts with different meanings differ, also in numbers that JavaScript cannot tell apart.
 *
 * If two members have the same name, the last one counts, as in JSON.parse. Pure.
 */

/** Deeper values are an attack: they are refused. */
const DEPTH_MAX = 512;
/** Marks a number that would lose digits. No string with a meaning begins like this. */
const EXACT = "\u0000number:";
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/g;

/** The meaning of a JSON text: as JSON.parse reads it, and with every digit. */
export interface CanonicalForms {
  readonly plain: string;
  /** The same as `plain` if no number would be rounded. */
  readonly exact: string;
}

/** Returns the canonical forms of a JSON text; undefined if it is not JSON, or is too deep. */
export function canonicalForms(text: string): CanonicalForms | undefined {
  try {
    const plain = canonicalValue(JSON.parse(text));
    if (plain === undefined) return undefined;
    // Only a text with long numbers is read twice.
    if (!/[0-9.]{16}|[0-9][eE]/.test(text)) return { plain, exact: plain };
    const exact = canonicalValue(JSON.parse(withExactNumbers(text)));
    return exact === undefined ? undefined : { plain, exact };
  } catch {
    return undefined;
  }
}

/** Returns the exact canonical form of a JSON text; undefined if it is not JSON, or is too deep. */
export function canonicalText(text: string): string | undefined {
  return canonicalForms(text)?.exact;
}

/** Returns the canonical form of a JSON value; undefined if it is too deep, or is not a JSON value. */
export function canonicalValue(value: unknown): string | undefined {
  const parts: string[] = [];
  return append(parts, value, 0) ? parts.join("") : undefined;
}

function append(parts: string[], value: unknown, depth: number): boolean {
  if (typeof value !== "object" || value === null) {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined) return false;
    parts.push(text);
    return true;
  }
  if (depth === DEPTH_MAX) return false;
  return Array.isArray(value)
    ? appendArray(parts, value, depth)
    : appendObject(parts, value, depth);
}

function appendArray(parts: string[], items: readonly unknown[], depth: number): boolean {
  parts.push("[");
  for (const [index, item] of items.entries()) {
    if (index > 0) parts.push(",");
    if (!append(parts, item, depth + 1)) return false;
  }
  parts.push("]");
  return true;
}

function appendObject(parts: string[], value: object, depth: number): boolean {
  parts.push("{");
  // In the order of UTF-16 units, as RFC 8785 requires.
  const members = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1));
  let isFirst = true;
  for (const [name, member] of members) {
    // JSON.stringify also leaves out members that are undefined.
    if (member === undefined) continue;
    parts.push(isFirst ? "" : ",", JSON.stringify(name), ":");
    if (!append(parts, member, depth + 1)) return false;
    isFirst = false;
  }
  parts.push("}");
  return true;
}

/** Numbers that would be rounded become strings that keep all their digits. */
function withExactNumbers(text: string): string {
  return text.replaceAll(TOKENS, (token) => {
    // The second test spares most numbers of a large text the slow comparison.
    if (token.startsWith('"') || String(Number(token)) === token) return token;
    const exact = decimalOf(token);
    return exact === decimalOf(String(Number(token))) ? token : JSON.stringify(EXACT + exact);
  });
}

/** Returns sign, digits without zeros at both ends, and the power of ten: the same for every spelling of a number. */
function decimalOf(token: string): string {
  const match = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:e([+-]?[0-9]+))?$/i.exec(token);
  if (match === null) return token; // Infinity
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match;
  const digits = (whole + fraction).replace(/^0+/, "");
  if (digits === "") return "0";
  // A loop, because a regular expression would scan every run of zeros again.
  let { length } = digits;
  while (digits.charAt(length - 1) === "0") length -= 1;
  const power = Number(exponent) - fraction.length + (digits.length - length);
  return `${sign}${digits.slice(0, length)}e${power}`;
}
