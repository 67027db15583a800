/**
 * Parses JSON in which no object has a member twice. `JSON.parse` takes the last one and other parsers take the first one, so that
 * a text with both means two things.
 *
 * The scan is linear and does not recurse: hostile input costs its length.
 */

const SPACE = /[\t\n\r ]/;

/** Returns the value. Returns undefined for text that is not JSON, has a member twice, or nests deeper than `depthMax`. */
export function parseUniqueJson(text: string, depthMax: number): { value: unknown } | undefined {
  try {
    return hasUniqueMembers(text, depthMax) ? { value: JSON.parse(text) } : undefined;
  } catch {
    return undefined; // It is no JSON.
  }
}

/** Says nothing about text that is no JSON; throws for a name that is none. */
function hasUniqueMembers(text: string, depthMax: number): boolean {
  /** For each open bracket the names of its members; undefined for a list. */
  const open: (Set<string> | undefined)[] = [];
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === "{" || character === "[") {
      if (open.length >= depthMax) return false;
      open.push(character === "{" ? new Set() : undefined);
    } else if (character === "}" || character === "]") {
      open.pop();
    } else if (character === '"') {
      const start = at;
      at = endOfString(text, start);
      const names = open.at(-1);
      if (names === undefined || !isName(text, at)) continue;
      // By meaning and not by spelling: `"a"` and `"\u0061"` are one name.
      const name = JSON.parse(text.slice(start, at + 1)) as string;
      if (names.has(name)) return false;
      names.add(name);
    }
  }
  return true;
}

/** The place of the closing quote. */
function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at;
}

function isName(text: string, quote: number): boolean {
  let at = quote + 1;
  while (at < text.length && SPACE.test(text[at] ?? "")) at += 1;
  return text[at] === ":";
}
