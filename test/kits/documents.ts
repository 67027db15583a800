/** The documents and doc comments of the repository: their code blocks, and the names that modules export. */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

export interface Block {
  /** Path and line, as an editor opens it. */
  readonly where: string;
  readonly language: string;
  readonly info: string;
  readonly body: string;
}

function blocksOf(path: string, text: string, firstLine = 1): readonly Block[] {
  const blocks: Block[] = [];
  for (const match of text.matchAll(/^```([^\n]*)\n([\s\S]*?)^```[ ]*$/gm)) {
    const [, info = "", body = ""] = match;
    const line = firstLine + text.slice(0, match.index).split("\n").length - 1;
    const language = info.split(/\s/)[0] ?? "";
    blocks.push({ where: `${path}:${line}`, language, info, body });
  }
  return blocks;
}

export function filesBelow(folder: string, end: string): readonly string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(end))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .toSorted();
}

export const read = (path: string): string => readFileSync(join(root, path), "utf8");

export const documents = [
  ...readdirSync(root).filter((name) => name.endsWith(".md")),
  ...filesBelow("docs", ".md"),
].map((path) => ({ path, text: read(path), blocks: blocksOf(path, read(path)) }));

export const sources = filesBelow("src", ".ts").filter((path) => !path.endsWith(".test.ts"));

const commentBlocks = sources.flatMap((path) => {
  const text = read(path);
  return [...text.matchAll(/^[ ]*\/\*\*[\s\S]*?\*\//gm)].flatMap((comment) => {
    const line = text.slice(0, comment.index).split("\n").length;
    return blocksOf(path, comment[0].replace(/^[ ]*(\/\*\*| \*\/| \* ?)/gm, ""), line);
  });
});

export const allBlocks = [...documents.flatMap(({ blocks }) => blocks), ...commentBlocks];

export interface Exported {
  readonly name: string;
  readonly path: string;
  readonly kind: string;
  /** The doc comment right above the declaration. */
  readonly comment: string | undefined;
}

/** The names that a module exports, each with the place where it is declared. */
export function exportsOf(path: string): readonly Exported[] {
  const text = read(path);
  const found: Exported[] = [];
  const declaration =
    /(\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n)?^export (?:declare |abstract |async )*(function\*?|const|class|interface|type) (\w+)/gm;
  for (const [, comment, kind = "", name = ""] of text.matchAll(declaration)) {
    found.push({ name, path, kind, comment });
  }
  const passedOn = /^export (?:type )?(\*|\{[^}]*\})(?: from "(\.[^"]+)")?/gm;
  for (const [statement, list = "", from] of text.matchAll(passedOn)) {
    if (from === undefined) throw new Error(`${path}: not understood: ${statement}`);
    const there = exportsOf(join(dirname(path), from));
    const names: readonly string[] = list.match(/\w+(?=\s*[,}])/g) ?? [];
    found.push(...there.filter(({ name }) => list === "*" || names.includes(name)));
  }
  return found;
}
