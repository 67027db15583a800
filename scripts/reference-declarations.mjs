/**
 * Reads the declarations that `tsc` writes (`dist/*.d.ts`): the names that a module exports, each with its
 * doc comment, its signature and its members. The compiler offers no program interface; what it prints is
 * regular enough to be read: every statement ends with `;`, or with the `}` of a class or an interface.
 */

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const KINDS = /^(?:export )?(?:declare )?(?:abstract )?(class|interface|function|const|type) (\w+)/;
const BLOCKS = /^(?:export )?(?:declare )?(?:abstract )?(?:class|interface)\b/;
/** An object that is put together of others, which have the comments of their members. */
const JOINED = /^const \w+: (typeof \w+(?: & typeof \w+)*);$/;
const IMPORTED = /^import (?:type )?\{([^}]*)\} from "([^"]+)"/;
const PASSED_ON = /^export (?:type )?(\*|\{[^}]*\}) from "([^"]+)"/;

/** The comment of a file, without the stars. */
export function headerOf(path) {
  return textOfComment(/^\s*(\/\*\*[\s\S]*?\*\/)/.exec(readFileSync(path, "utf8"))?.[1] ?? "");
}

/** The names that a module exports, in the order of the module, as their declarations. */
export function exportsOf(path) {
  const found = [];
  for (const { text, comment } of statementsOf(readFileSync(path, "utf8"))) {
    const passedOn = PASSED_ON.exec(text);
    if (passedOn !== null) {
      const [, list, from] = passedOn;
      const there = exportsOf(join(dirname(path), from.replace(/\.(ts|js)$/, ".d.ts")));
      const names = list.match(/\w+(?=\s*[,}])/g) ?? [];
      found.push(...there.filter(({ name }) => list === "*" || names.includes(name)));
    } else if (text.startsWith("export ") && text !== "export {};") {
      found.push(declarationOf(path, text, comment));
    }
  }
  return withOverloads(found);
}

/** The types that the signatures of a declaration name, as their declarations. Those of the platform are not found. */
export function typesNamedBy({ path, name: own, signatures, members }) {
  const text = [...signatures, ...members.map(({ signature }) => signature)].join("\n");
  const names = new Set(text.replaceAll(/"[^"]*"/g, "").match(/(?<![\w.])[A-Z]\w*/g) ?? []);
  names.delete(own);
  return [...names].map((name) => findType(path, name)).filter((found) => found !== undefined);
}

function findType(path, name) {
  const found = findDeclaration(path, name);
  return found?.kind === "const" ? undefined : found;
}

/** A name as the module sees it: declared there, or imported. */
function findDeclaration(path, name) {
  for (const { text, comment } of statementsOf(readFileSync(path, "utf8"))) {
    const declared = KINDS.exec(text);
    if (declared !== null && declared[2] === name) return declarationOf(path, text, comment);
    const [, list = "", from = ""] = IMPORTED.exec(text) ?? [];
    if (!from.startsWith(".")) continue;
    for (const part of list.split(",")) {
      const [there = "", here = there] = part
        .trim()
        .replace(/^type /, "")
        .split(" as ");
      const target = join(dirname(path), from.replace(/\.(ts|js)$/, ".d.ts"));
      if (here === name) return exportsOf(target).find((one) => one.name === there);
    }
  }
  return undefined;
}

function declarationOf(path, text, comment) {
  const match = KINDS.exec(text);
  if (match === null) throw new Error(`${path}: not understood: ${text.slice(0, 80)}`);
  const [, kind, name] = match;
  const signature = text.replace(/^(export )?(declare )?/, "");
  const parts = JOINED.exec(signature)?.[1].match(/(?<=typeof )\w+/g);
  if (parts !== undefined) {
    const members = parts.flatMap((part) => findDeclaration(path, part)?.members ?? []);
    return { path, name, kind, comment, signatures: [`const ${name}`], members };
  }
  const isBlock = BLOCKS.test(text) || /^const \w+: \{/.test(signature);
  if (!isBlock) return { path, name, kind, comment, signatures: [signature], members: [] };
  const open = bodyStart(signature);
  const head = signature.slice(0, open).replace(/:?\s*$/, "");
  const body = signature.slice(open + 1, signature.lastIndexOf("}"));
  return { path, name, kind, comment, signatures: [head], members: membersOf(body) };
}

/** Where the block of a class or an interface begins: the first brace outside of `<…>`. */
function bodyStart(signature) {
  let depth = 0;
  for (let at = 0; at < signature.length; at += 1) {
    if (signature[at] === "<") depth += 1;
    if (signature[at] === ">" && signature[at - 1] !== "=") depth -= 1;
    if (signature[at] === "{" && depth === 0) return at;
  }
  throw new Error(`no block: ${signature.slice(0, 80)}`);
}

/** What users can call: private members have no type, constructors without a comment are for the package. */
function membersOf(body) {
  return statementsOf(body)
    .filter(({ text }) => !/^(#private|private |protected )/.test(text))
    .filter(({ text, comment }) => !text.startsWith("constructor(") || comment !== "")
    .map(({ text, comment }) => ({
      name:
        /^(?:readonly |static |override |get |set |async )*(\[[^\]]+\]|[\w"-]+)/.exec(text)?.[1] ??
        text,
      signature: text.replace(/;$/, "").replaceAll(/\s+/g, " "),
      comment,
    }));
}

/** Functions that are declared more than once become one name with several signatures. */
function withOverloads(declarations) {
  const byName = new Map();
  for (const one of declarations) {
    const known = byName.get(one.name);
    if (known === undefined || known.kind !== "function") byName.set(one.name, one);
    else known.signatures.push(...one.signatures);
  }
  return [...byName.values()];
}

/** Statements, each with the doc comment right before it. */
function statementsOf(text) {
  const statements = [];
  let at = 0;
  let comment = "";
  for (;;) {
    at += /^\s*/.exec(text.slice(at))[0].length;
    if (at >= text.length) return statements;
    if (text.startsWith("/*", at)) {
      const end = text.indexOf("*/", at) + 2;
      comment = textOfComment(text.slice(at, end));
      at = end;
    } else if (text.startsWith("//", at)) {
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end;
    } else {
      const end = statementEnd(text, at);
      statements.push({ text: text.slice(at, end).trim(), comment });
      comment = "";
      at = end;
    }
  }
}

function statementEnd(text, start) {
  const endsWithBlock = BLOCKS.test(text.slice(start, start + 80));
  const first = endsWithBlock ? start + bodyStart(text.slice(start)) : start;
  let depth = 0;
  for (let at = first; at < text.length; at += 1) {
    const character = text[at];
    if (character === "/" && text[at + 1] === "*") at = text.indexOf("*/", at) + 1;
    else if (character === '"' || character === "'") at = text.indexOf(character, at + 1);
    else if ("([{".includes(character)) depth += 1;
    else if (")]}".includes(character)) {
      depth -= 1;
      if (depth === 0 && character === "}" && endsWithBlock) return at + 1;
    } else if (character === ";" && depth === 0) return at + 1;
  }
  return text.length;
}

/** Without the stars, and without the word that marks a port: it is for those who read the sources. */
function textOfComment(comment) {
  return comment
    .replace(/^\/\*\*?[ ]?/, "")
    .replace(/\s*\*\/$/, "")
    .split("\n")
    .map((line) => line.replace(/^\s*\*[ ]?/, ""))
    .join("\n")
    .trim()
    .replace(/^PORT\.\s+/, "");
}
