/** The frame of a page: header with version and search, navigation, the document, its headings, and its neighbours. */

import { escapeHtml, relativeTo } from "./markdown.mjs";

/** One picture for the tab, so that a browser asks for no other. */
const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='4' fill='%230f766e'/%3E%3Cpath d='M5 3v10M11 3v10M5 8h6' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

function linkTo(from, page) {
  const current = from.path === page.path ? ' aria-current="page"' : "";
  return `<li><a href="${relativeTo(from.address, page.address)}"${current}>${escapeHtml(page.label)}</a></li>`;
}

function navigation(page, groups) {
  return groups
    .map(({ title, isFolded, pages }) => {
      const list = `<ul>${pages.map((other) => linkTo(page, other)).join("")}</ul>`;
      if (!isFolded) return `<h2>${title}</h2>${list}`;
      const isOpen = pages.some(({ path }) => path === page.path);
      return `<details${isOpen ? " open" : ""}><summary>${title}</summary>${list}</details>`;
    })
    .join("\n");
}

function headingsOf(headings) {
  const items = headings.filter(({ level }) => level === 2 || level === 3);
  if (items.length < 2) return "";
  const lines = items.map(
    ({ level, id, text }) =>
      `<li class="level-${level}"><a href="#${id}">${escapeHtml(text)}</a></li>`,
  );
  return `<nav class="headings" aria-label="On this page"><h2>On this page</h2><ul>${lines.join("")}</ul></nav>`;
}

function neighbours(page, order) {
  const at = order.findIndex(({ path }) => path === page.path);
  if (at < 0) return "";
  const link = (other, label) =>
    other === undefined
      ? "<span></span>"
      : `<a href="${relativeTo(page.address, other.address)}"><small>${label}</small>${escapeHtml(other.label)}</a>`;
  return `<nav class="neighbours" aria-label="Next and previous">${link(order[at - 1], "Before")}${link(order[at + 1], "Next")}</nav>`;
}

export function layout({ page, html, headings, groups, version, description }) {
  const order = groups.flatMap(({ pages }) => pages);
  const to = (address) => relativeTo(page.address, address);
  const root = "../".repeat(page.address.split("/").length - 1);
  const title = page.path === "README.md" ? `Hapax: ${description}` : `${page.title} · Hapax`;
  return `<!doctype html>
<html lang="en" data-root="${root}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="${escapeHtml(description)}">
<title>${escapeHtml(title)}</title>
<link rel="icon" href="${ICON}">
<link rel="stylesheet" href="${to("site.css")}">
<script src="${to("site.js")}" defer></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<button class="menu" aria-expanded="false" aria-controls="navigation">Menu</button>
<a class="brand" href="${to("index.html")}">Hapax</a>
<span class="version" title="These pages describe this version">${escapeHtml(version)}</span>
<form class="search" role="search">
<input type="search" name="q" placeholder="Search" aria-label="Search the documentation" autocomplete="off" spellcheck="false" aria-controls="results">
<kbd aria-hidden="true">/</kbd>
<ol id="results" hidden></ol>
<p class="found" role="status"></p>
</form>
</header>
<div class="frame">
<nav id="navigation" aria-label="Documentation">
${navigation(page, groups)}
</nav>
<main id="content" tabindex="-1">
<article>
${html}</article>
${neighbours(page, order)}
</main>
${headingsOf(headings)}
</div>
</body>
</html>
`;
}
