/**
 * `npm run reference`: writes docs/reference, one page for each entry point of package.json, from the doc
 * comments of its public names. The pages are a function of the sources alone, formatted by oxfmt, their
 * examples too. Beside them docs/openapi.json, from the table of routes.
 *
 *   RF1  every name that an entry point exports is on its page, with its signature, its sentences, members
 *        and examples;
 *   RF2  a name without a sentence is an error, not a gap, and so is a sentence that begins in the middle;
 *   RF3  a type that a signature names and no entry point exports is on the page too: it is inferred, and never
 *        imported, but its members are read. Types that another entry point exports are links to its page.
 */

import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { exportsOf, headerOf, typesNamedBy } from "./reference-declarations.mjs";
import { buildIfNeeded, Failure, install, main } from "./prepare.mjs";
import { isMain, root, run, tool } from "./run.mjs";

const LINE_MAX = 100;
/** "Of the event.", "At once.": a reader of one member cannot know what is meant. */
const ELLIPSIS = /^(?:Of|At once|From \d|As above|The same\.)\b/;
const FOLDER = "docs/reference";
const OPEN_API = "openapi.json";
const GROUPS = [
  { title: "Functions", kinds: ["function"] },
  { title: "Classes", kinds: ["class"] },
  { title: "Values", kinds: ["const"] },
  { title: "Types", kinds: ["interface", "type"] },
];

/** Every entry point: the name to import, the page, the declarations. A pattern stands for its files. */
export function entriesOf(base = root) {
  const manifest = JSON.parse(readFileSync(join(base, "package.json"), "utf8"));
  return Object.entries(manifest.exports).flatMap(([entry, target]) => {
    if (typeof target === "string") return [];
    const [before, after] = target.types.split("*");
    const stems = after === undefined ? [""] : stemsIn(join(base, dirname(`${before}x`)), after);
    return stems.map((stem) => {
      const path = entry.replace("*", stem).slice(2);
      return {
        module: path === "" ? manifest.name : `${manifest.name}/${path}`,
        page: `${path === "" ? manifest.name : path.replaceAll("/", "-")}.md`,
        types: join(base, target.types.replace("*", stem)),
      };
    });
  });
}

function stemsIn(folder, end) {
  return readdirSync(folder)
    .filter((name) => name.endsWith(end))
    .map((name) => name.slice(0, -end.length))
    .toSorted((one, other) => (one < other ? -1 : 1));
}

/** The pages by file name, and what is missing in the sources (RF2). */
export function makeReference(base = root) {
  const pages = new Map();
  const problems = [];
  const entries = entriesOf(base);
  const homes = homesOf(entries);
  for (const { module, page, types } of entries) {
    const names = inOrder(exportsOf(types), types);
    for (const { name, comment, members } of names) {
      if (!/[.!?:](\s|$)/.test(comment)) problems.push(`${module}: ${name} has no sentence`);
      for (const one of [{ name, comment }, ...members])
        if (ELLIPSIS.test(one.comment))
          problems.push(`${module}: ${name}: "${one.comment}" does not name what it is about`);
    }
    pages.set(page, pageOf(module, headerOf(types), names, namedBy(names, homes)));
  }
  const list = entries.map(({ module, page, types }) => {
    const text = firstParagraph(headerOf(types)).replace(`\`${module}\`: `, "");
    return `- [\`${module}\`](${page}): ${text.charAt(0).toUpperCase()}${text.slice(1)}`;
  });
  const note =
    "One page for each entry point, written by `npm run reference` from the doc comments.";
  pages.set("README.md", `# Reference\n\n${note}\n\n${list.join("\n")}\n`);
  return { pages, problems };
}

/** The first entry point that exports a declaration, by the place of the declaration. */
function homesOf(entries) {
  const homes = new Map();
  for (const entry of entries) {
    for (const { path, name } of exportsOf(entry.types)) {
      const place = `${path} ${name}`;
      if (!homes.has(place)) homes.set(place, entry);
    }
  }
  return homes;
}

/** The types that the signatures name and the entry point does not export (RF3). */
function namedBy(names, homes) {
  const own = new Set(names.map(({ name }) => name));
  const found = new Map();
  for (const declaration of names) {
    for (const type of typesNamedBy(declaration)) {
      const isShown = type.comment !== "" && ["interface", "type"].includes(type.kind);
      const home = homes.get(`${type.path} ${type.name}`);
      if (!own.has(type.name) && (isShown || home !== undefined))
        found.set(type.name, { type, home });
    }
  }
  return [...found.values()].toSorted((one, other) => (one.type.name < other.type.name ? -1 : 1));
}

/** What the entry point declares itself stands first, then what it passes on, by name. */
function inOrder(names, types) {
  const key = ({ path, name }) => `${path === types ? 0 : 1} ${name.toLowerCase()}`;
  return names.toSorted((one, other) => (key(one) < key(other) ? -1 : 1));
}

function pageOf(module, header, names, named) {
  const parts = [`# ${module}`, firstParagraph(header)];
  const groups = GROUPS.map(({ title, kinds }) => ({
    title,
    members: names.filter(({ kind }) => kinds.includes(kind)),
  })).filter(({ members }) => members.length > 0);
  for (const { title, members } of groups) {
    const list = members.map(({ name, comment }) => {
      return `- [\`${name}\`](#${name.toLowerCase()}): ${firstSentence(comment)}`;
    });
    parts.push(`**${title}**`, list.join("\n"));
  }
  if (named.length > 0) {
    const list = named.map(({ type: { name, comment }, home }) => {
      if (home !== undefined)
        return `- [\`${name}\`](${home.page}#${name.toLowerCase()}) of \`${home.module}\``;
      return `- [\`${name}\`](#${name.toLowerCase()}): ${firstSentence(comment)}`;
    });
    parts.push("**Types in these signatures**, which you need not import", list.join("\n"));
  }
  for (const { members } of groups) {
    for (const member of members) parts.push(...sectionOf(module, names, member));
  }
  for (const { type, home } of named) {
    if (home === undefined) parts.push(...sectionOf(module, names, type));
  }
  return `${parts.join("\n\n")}\n`;
}

function sectionOf(module, names, { name, kind, comment, signatures, members }) {
  const parts = [`## ${name}`, signatureOf(signatures, members)];
  parts.push(...markdownOf(comment, module, names));
  // A table of values without a word on any of them is data, not a reference.
  const isTable = kind === "const" && members.every(({ comment: own }) => own === "");
  const list = (isTable ? [] : members).map((member) => {
    const { signature: text, comment: own } = member;
    const detail = hasExample(own) ? ` See [below](#${anchorOf(name, member.name)}).` : "";
    const sentences = paragraphsOf(own)
      .filter((paragraph) => !paragraph.startsWith("```"))
      .map((paragraph) => joined(paragraph));
    return `- \`${text}\`${sentences.length > 0 ? `: ${sentences.join(" ")}` : ""}${detail}`;
  });
  if (list.length > 0) parts.push(list.join("\n"));
  for (const member of members.filter(({ comment: own }) => hasExample(own))) {
    const examples = paragraphsOf(member.comment).filter((text) => text.startsWith("```"));
    parts.push(
      `### ${name}.${member.name}`,
      ...examples.map((text) => imported(text, module, names)),
    );
  }
  return parts;
}

/** Of what has members the head alone: they follow. */
function signatureOf(signatures, members) {
  if (members.length > 0) return `\`${signatures[0]}\``;
  const lines = signatures.map((text) => wrapped(text)).join("\n");
  return `\`\`\`text (a signature, not a program)\n${lines}\n\`\`\``;
}

const anchorOf = (name, member) => `${name}${member}`.toLowerCase();
const hasExample = (comment) => comment.includes("```");
const joined = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .join(" ");
/** The lines of a table or of a list mean something, those of a sentence do not. */
const laidOut = (text) => (/^(?:\||- )/.test(text) ? text : joined(text));
const firstParagraph = (text) => joined(text.split("\n\n")[0]);

function firstSentence(comment) {
  const text = firstParagraph(comment);
  // A full stop inside of code or of an abbreviation is not the end of a sentence.
  return /^(?:`[^`]*`|[^`])*?[.!?](?=\s+[A-Z`]|$)/.exec(text)?.[0] ?? text;
}

/** Paragraphs and code blocks, which may have empty lines of their own. */
function paragraphsOf(comment) {
  return comment === ""
    ? []
    : (comment.match(/^```[\s\S]*?^```|^(?!```).+(?:\n(?!```).+)*/gm) ?? []);
}

function markdownOf(comment, module, names) {
  return paragraphsOf(comment).map((text) =>
    text.startsWith("```") ? imported(text, module, names) : laidOut(text),
  );
}

/** An example in a comment may use its own module without an import; on a page it needs one. */
function imported(block, module, names) {
  if (/^import /m.test(block) || !block.startsWith("```ts\n")) return block;
  const used = names
    .filter(({ kind }) => !["interface", "type"].includes(kind))
    .map(({ name }) => name)
    .filter((name) => new RegExp(`\\b${name}\\b`).test(block));
  return block.replace("```ts\n", `\`\`\`ts\nimport { ${used.join(", ")} } from "${module}";\n\n`);
}

/** A signature in lines: parameters, or the members of a union, each on its own if they are many. */
function wrapped(signature) {
  if (signature.length <= LINE_MAX || signature.includes("\n")) return signature;
  const union = splitOutside(signature, " | ");
  if (signature.startsWith("type ") && union.length > 1) {
    const [head, first] = union[0].split(/ = (.*)/s);
    return `${head} =\n${[first, ...union.slice(1)].map((part) => `  | ${part}`).join("\n")}`;
  }
  const open = signature.indexOf("(");
  const close = closingOf(signature, open);
  if (open < 0 || close < 0) return signature;
  const parameters = splitOutside(signature.slice(open + 1, close), ", ");
  const lines = parameters.map((parameter) => `  ${parameter},`);
  return `${signature.slice(0, open + 1)}\n${lines.join("\n")}\n${signature.slice(close)}`;
}

function closingOf(text, open) {
  let depth = 0;
  for (let at = open; at >= 0 && at < text.length; at += 1) {
    if ("([{".includes(text[at])) depth += 1;
    if (")]}".includes(text[at])) depth -= 1;
    if (depth === 0) return at;
  }
  return -1;
}

/** Splits where no bracket is open. */
function splitOutside(text, separator) {
  const parts = [""];
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if ("([{<".includes(character)) depth += 1;
    if (")]}".includes(character) || (character === ">" && text[at - 1] !== "=")) depth -= 1;
    if (depth === 0 && text.startsWith(separator, at)) {
      parts.push("");
      at += separator.length - 1;
    } else parts[parts.length - 1] += character;
  }
  return parts;
}

/** The description of the interface, from the table of routes of the built server. */
export async function makeOpenApi(base = root) {
  const built = (name) => import(pathToFileURL(join(base, "dist", "streams", "server", name)).href);
  const { describeRoutes } = await built("open-api.js");
  const { RESERVED_ROUTES, STREAM_ROUTE } = await built("routes.js");
  return JSON.stringify(describeRoutes([...RESERVED_ROUTES, STREAM_ROUTE]));
}

/** The pages as they are written: by file name, formatted. */
export async function formattedPages({ pages }) {
  const folder = mkdtempSync(join(tmpdir(), "hapax-reference-"));
  try {
    copyFileSync(join(root, ".oxfmtrc.json"), join(folder, ".oxfmtrc.json"));
    for (const [page, text] of pages) writeFileSync(join(folder, page), text);
    const { code, output } = await run(tool("oxfmt"), [...pages.keys()], { cwd: folder });
    if (code !== 0) throw new Failure(`the pages cannot be formatted\n${output}`);
    return new Map(
      [...pages.keys()].map((page) => [page, readFileSync(join(folder, page), "utf8")]),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await install();
    await buildIfNeeded();
    const reference = makeReference();
    if (reference.problems.length > 0) throw new Failure(reference.problems.join("\n"));
    const pages = await formattedPages(reference);
    const folder = join(root, FOLDER);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    for (const [page, text] of pages) writeFileSync(join(folder, page), text);
    console.log(`${FOLDER}: ${pages.size} pages`);
    const described = await formattedPages({ pages: new Map([[OPEN_API, await makeOpenApi()]]) });
    for (const [file, text] of described) writeFileSync(join(root, "docs", file), text);
    console.log(`docs/${OPEN_API}`);
  });
}
