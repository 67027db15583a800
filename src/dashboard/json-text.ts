/**
 * JSON as text: the records of a page with the offset of each, and a record over several lines. Numbers are never parsed, so that
 * every digit is shown as it is stored.
 */

export interface RecordText {
  readonly text: string;
  /** Where the record begins, in bytes of the page from its `[` on. */
  readonly at: number;
}

const utf8 = new TextEncoder();

/** The end of a string that begins at the quote `from`. */
function endOfString(text: string, from: number): number {
  let at = from + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

/** The records of a page: the elements of its array. */
export function recordsIn(page: string): readonly RecordText[] {
  const records: RecordText[] = [];
  let [depth, start, bytes, counted] = [0, 1, 0, 0];
  for (let at = 0; at < page.length; at += 1) {
    const letter = page[at];
    if (letter === '"') {
      at = endOfString(page, at) - 1;
      continue;
    }
    const isEnd = depth === 1 && (letter === "," || letter === "]");
    if (isEnd && page.slice(start, at).trim() !== "") {
      bytes += utf8.encode(page.slice(counted, start)).length;
      counted = start;
      records.push({ text: page.slice(start, at).trim(), at: bytes });
    }
    if (isEnd) start = at + 1;
    if (letter === "[" || letter === "{") depth += 1;
    else if (letter === "]" || letter === "}") depth -= 1;
  }
  return records;
}

const INDENT = "  ";
const SPACE = /\s/;

/** The same JSON with a line for each member. */
export function prettyJson(text: string): string {
  let [out, depth] = ["", 0];
  const line = (): string => `\n${INDENT.repeat(Math.max(0, depth))}`;
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at] ?? "";
    if (SPACE.test(letter)) continue;
    if (letter === '"') {
      const end = endOfString(text, at);
      out += text.slice(at, end);
      at = end - 1;
    } else if (letter === "{" || letter === "[") {
      const closing = letter === "{" ? "}" : "]";
      let next = at + 1;
      while (SPACE.test(text[next] ?? "")) next += 1;
      if (text[next] === closing) {
        out += letter + closing;
        at = next;
      } else {
        depth += 1;
        out += letter + line();
      }
    } else if (letter === "}" || letter === "]") {
      depth -= 1;
      out += line() + letter;
    } else if (letter === ",") out += letter + line();
    else if (letter === ":") out += ": ";
    else out += letter;
  }
  return out;
}

/** Bytes in lines of 16, as numbers and as letters. */
export function hexLines(bytes: Uint8Array, bytesMax: number): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, bytesMax); at += 16) {
    const row = bytes.subarray(at, Math.min(at + 16, bytesMax));
    const hex = Array.from(row, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = Array.from(row, (byte) =>
      byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·",
    ).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${letters}`);
  }
  if (bytes.length > bytesMax) lines.push(`… ${bytes.length - bytesMax} bytes more`);
  return lines.join("\n");
}
