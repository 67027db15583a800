/**
 * One text for all JSON texts that say the same, close to RFC 8785.
 *
 *   HF1  neither the order of members, nor white space, nor the spelling of strings and numbers matters;
 *   HF2  texts that say something else differ, also in numbers that this language cannot tell apart.
 *
 * Of members with one name the last counts, as it does for JSON.parse. Pure.
 */

/** Deeper values are an attack: nobody sorts them. */
const DEPTH_MAX = 512;
/** Marks a number that would lose digits. No text that means something begins like this. */
const EXACT = "\u0000number:";
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/g;

/** What a JSON text says: to a parser of this language, and with every digit. */
export interface CanonicalForms {
  readonly plain: string;
  /** The same as `plain` if no number would be rounded. */
  readonly exact: string;
}

/** The canonical forms of a JSON text; undefined if it is none, or is too deep. */
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

/** The exact canonical form of a JSON text; undefined if it is none, or is too deep. */
export function canonicalText(text: string): string | undefined {
  return canonicalForms(text)?.exact;
}

/** The canonical form of a value that came from JSON; undefined if it is too deep, or did not come from there. */
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
  // In the order of UTF-16 units, as RFC 8785 wants it.
  const members = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1));
  let isFirst = true;
  for (const [name, member] of members) {
    // As JSON.stringify does with what a program has put in.
    if (member === undefined) continue;
    parts.push(isFirst ? "" : ",", JSON.stringify(name), ":");
    if (!append(parts, member, depth + 1)) return false;
    isFirst = false;
  }
  parts.push("}");
  return true;
}

/** HF2: numbers that would be rounded become strings that keep all their digits. */
function withExactNumbers(text: string): string {
  return text.replaceAll(TOKENS, (token) => {
    // The second costs most numbers of a large text the long way.
    if (token.startsWith('"') || String(Number(token)) === token) return token;
    const exact = decimalOf(token);
    return exact === decimalOf(String(Number(token))) ? token : JSON.stringify(EXACT + exact);
  });
}

/** Sign, digits without zeros at both ends, and the power of ten: the same for every spelling of a number. */
function decimalOf(token: string): string {
  const match = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:e([+-]?[0-9]+))?$/i.exec(token);
  if (match === null) return token; // Infinity
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match;
  const digits = (whole + fraction).replace(/^0+/, "");
  if (digits === "") return "0";
  // Not by an expression: it would look at every run of zeros anew.
  let { length } = digits;
  while (digits.charAt(length - 1) === "0") length -= 1;
  const power = Number(exponent) - fraction.length + (digits.length - length);
  return `${sign}${digits.slice(0, length)}e${power}`;
}
