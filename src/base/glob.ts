/**
 * Patterns of stream names: `*` is one segment, `**` is any number of segments, also none; everything
 * else is literal, and `%2A` in a literal segment is a star.
 *
 *   - matching takes time in proportion to the length of the pattern times that of the name, so no pattern is an
 *     attack.
 */

export class Glob {
  readonly pattern: string;
  readonly #segments: readonly string[];
  /** The literal beginning. Most names fail on it, and need not be split. */
  readonly prefix: string;
  /** Whether only `**` follows the literal beginning: most patterns are so, and their names need not be split either. */
  readonly #isSubtree: boolean;

  constructor(pattern: string) {
    this.pattern = pattern;
    this.#segments = splitSegments(pattern);
    const wild = this.#segments.findIndex((segment) => segment === "*" || segment === "**");
    const literal = wild === -1 ? this.#segments : this.#segments.slice(0, wild);
    this.prefix = literal.map((segment) => `/${decodeStars(segment)}`).join("");
    this.#isSubtree = wild === this.#segments.length - 1 && this.#segments[wild] === "**";
  }

  /** Whether the pattern matches a name. Names are absolute: they begin with a slash. */
  matches(name: string): boolean {
    const { prefix } = this;
    if (!name.startsWith(prefix)) return false;
    if (this.#isSubtree) return name.length === prefix.length || name[prefix.length] === "/";
    return matchSegments(this.#segments, splitSegments(name));
  }

  /**
   * Whether every name that the other pattern matches is one of this pattern. It may say no to two patterns that only
   * a comparison of all names would show to be within each other, and never says yes wrongly.
   */
  covers(pattern: string): boolean {
    return matchSegments(this.#segments, splitSegments(pattern).map(asName));
  }
}

/** A segment of a pattern as one of a name: its stars keep their meaning, and its literals are decoded. */
function asName(segment: string): string {
  if (segment === "*") return ONE;
  return segment === "**" ? MANY : decodeStars(segment);
}

// No name has these segments, because a segment has no slash.
const ONE = "/one";
const MANY = "/many";

function splitSegments(path: string): readonly string[] {
  return path.split("/").filter((segment) => segment !== "");
}

function decodeStars(segment: string): string {
  return segment.includes("%") ? segment.replaceAll(/%2a/gi, "*") : segment;
}

// Only the last `**` is tried again: an earlier one that took fewer segments cannot help a later one.
function matchSegments(pattern: readonly string[], name: readonly string[]): boolean {
  let at = 0;
  let inName = 0;
  let retryPattern = -1;
  let retryName = -1;
  while (inName < name.length) {
    const expected = pattern[at];
    if (expected === "**") {
      retryPattern = at;
      retryName = inName;
      at += 1;
    } else if (
      expected !== undefined &&
      (expected === "*" ? name[inName] !== MANY : decodeStars(expected) === name[inName])
    ) {
      at += 1;
      inName += 1;
    } else if (retryPattern !== -1) {
      retryName += 1;
      at = retryPattern + 1;
      inName = retryName;
    } else {
      return false;
    }
  }
  while (pattern[at] === "**") at += 1;
  return at === pattern.length;
}
