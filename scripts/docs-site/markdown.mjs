/** From a document to the parts of its page: HTML, headings, sections for the search, and links that lead nowhere. */

import { posix } from "node:path";
import { renderMermaidSVG } from "beautiful-mermaid";
import MarkdownIt from "markdown-it";
import { highlight } from "sugar-high";

const HIGHLIGHTED = new Set(["ts", "tsx", "js", "mjs", "json"]);

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
export const escapeHtml = (text) => text.replaceAll(/[&<>"]/g, (letter) => escapes[letter]);

/** The id of a heading, as GitHub makes it, so that a link works in both places. */
export function slugOf(heading, taken = new Set()) {
  const plain = heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
    .trim()
    .replaceAll(/\s/g, "-");
  let slug = plain;
  for (let count = 1; taken.has(slug); count += 1) slug = `${plain}-${count}`;
  taken.add(slug);
  return slug;
}

const plainText = (inline) =>
  (inline.children ?? [])
    .filter(({ type }) => type === "text" || type === "code_inline" || type === "softbreak")
    .map(({ type, content }) => (type === "softbreak" ? " " : content))
    .join("");

/** The colours of a page, in the words of the renderer. */
const COLOURS = {
  bg: "var(--paper)",
  fg: "var(--ink)",
  line: "var(--quiet)",
  accent: "var(--accent)",
  muted: "var(--ink)",
  surface: "var(--shade)",
  border: "var(--quiet)",
  transparent: true,
};

/** A letter without ink, which no program trims. It is taken out of the picture again. */
const BLANK = "\u2800";

/**
 * The renderer puts life lines as far apart as their boxes are wide, and does not look at the texts between them. So each box of a
 * sequence gets a name that is as wide as the longest text.
 */
function widened(source) {
  if (!source.startsWith("sequenceDiagram")) return source;
  const messages = [...source.matchAll(/^\s*\w+\s*-[->x)]+\s*\w+:\s*(.+)$/gm)];
  const longest = Math.max(0, ...messages.map(([, text]) => text.length));
  return source.replaceAll(/^(\s*participant \w+ as )(.+)$/gm, (_line, start, name) => {
    const padding = BLANK.repeat(Math.max(0, Math.ceil((longest * 0.8 - 8 - name.length) / 2)));
    return `${start}${padding}${name}${padding}`;
  });
}

/** A diagram as SVG in the colours of the page. Its first comment says what it shows. */
export function renderDiagram(source) {
  const caption = /^\s*%%\s*(.+)$/m.exec(source)?.[1];
  if (caption === undefined) throw new Error(`a diagram has no caption (%% …):\n${source}`);
  const svg = renderMermaidSVG(widened(source), COLOURS)
    .replaceAll(BLANK, "")
    // The page has its own font, and asks no other host for one.
    .replace(/@import[^;]*;[^;]*;/, "")
    .replace(/ width="([\d.]+)" height="[\d.]+"/, (_size, width) => ` style-width="${width}"`)
    .replace(/ style-width="([\d.]+)" style="/, (_all, width) => ` style="max-width:${width}px;`)
    .replace("<svg ", `<svg role="img" aria-label="${escapeHtml(caption)}" `);
  if (/url\(\s*['"]?https?:/.test(svg)) throw new Error("a diagram asks another host");
  return `<figure class="diagram" tabindex="0">${svg}<figcaption>${escapeHtml(caption)}</figcaption></figure>\n`;
}

function renderConsole(body) {
  const lines = body.replace(/\n$/, "").split("\n");
  return lines
    .map((line) => {
      const isCommand = line.startsWith("$ ") || line.startsWith("> ");
      if (!isCommand) return `<span class="output">${escapeHtml(line)}</span>`;
      return `<span class="prompt">${escapeHtml(line.slice(0, 2))}</span>${escapeHtml(line.slice(2))}`;
    })
    .join("\n");
}

export function renderCode(language, body) {
  const isShell = language === "console" || language === "sh";
  const code = HIGHLIGHTED.has(language)
    ? highlight(body.replace(/\n$/, ""))
    : isShell
      ? renderConsole(body)
      : escapeHtml(body);
  // A long line is reached with the keyboard too.
  return `<div class="code"><pre tabindex="0" data-language="${escapeHtml(language)}"><code>${code}</code></pre></div>\n`;
}

/** The parser, and the ids of its headings: with them links can be compared before any page is written. */
export function createMarkdown() {
  const markdown = new MarkdownIt({ html: false, linkify: false, typographer: false });
  markdown.renderer.rules.fence = (tokens, at) => {
    const { info, content } = tokens[at];
    // A signature of the reference is no program, but it is TypeScript.
    const isSignature = info.startsWith("text (a signature");
    const language = isSignature ? "ts" : (info.trim().split(/\s/)[0] ?? "");
    return language === "mermaid" ? renderDiagram(content) : renderCode(language, content);
  };
  markdown.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>\n';
  markdown.renderer.rules.table_close = () => "</table></div>\n";
  markdown.renderer.rules.heading_close = (tokens, at, _options, env) => {
    const { tag } = tokens[at];
    const id = env.headingIds.get(tokens[at - 1]);
    const link =
      tag === "h1"
        ? ""
        : ` <a class="anchor" href="#${id}" aria-label="Link to this section">#</a>`;
    return `${link}</${tag}>\n`;
  };
  return markdown;
}

/** Parses a document once: its tokens, and its headings with their ids. */
export function parsePage(markdown, text) {
  const env = { headingIds: new Map() };
  const tokens = markdown.parse(text, env);
  const headings = [];
  const taken = new Set();
  for (const [at, token] of tokens.entries()) {
    if (token.type !== "heading_open") continue;
    const inline = tokens[at + 1];
    const heading = plainText(inline);
    const id = slugOf(heading, taken);
    token.attrSet("id", id);
    env.headingIds.set(inline, id);
    headings.push({ level: Number(token.tag.slice(1)), text: heading, id, at });
  }
  return { tokens, env, headings };
}

/** Makes the links of a page lead to pages, and returns what they lead to. `resolve` knows the other pages. */
export function rewriteLinks({ tokens }, resolve) {
  for (const token of tokens) {
    for (const child of token.children ?? []) {
      const name = child.type === "link_open" ? "href" : child.type === "image" ? "src" : undefined;
      if (name === undefined) continue;
      const link = child.attrGet(name) ?? "";
      if (/^[a-z]+:/i.test(link)) child.attrSet("rel", "noreferrer");
      else child.attrSet(name, resolve(link));
    }
  }
}

/** What the search knows of a page: one entry for each heading, with the text below it. */
export function sectionsOf({ tokens, headings }) {
  return headings.map(({ text, id, at, level }, index) => {
    const end = headings[index + 1]?.at ?? tokens.length;
    const words = tokens
      .slice(at + 3, end)
      .flatMap((token) =>
        token.type === "inline"
          ? [plainText(token)]
          : token.type === "fence"
            ? [token.content]
            : [],
      );
    return { heading: level === 1 ? "" : text, id: level === 1 ? "" : id, text: words.join("\n") };
  });
}

export const relativeTo = (from, to) =>
  posix.relative(posix.dirname(from), to) || posix.basename(to);
