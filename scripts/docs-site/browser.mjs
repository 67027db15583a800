/** What runs in the pages: the search, the menu of narrow screens, and buttons that copy code. Pages work without it. */

import { openSearch } from "./search.mjs";

const root = document.documentElement.dataset.root ?? "";
const form = document.querySelector(".search");
const input = form.querySelector("input");
const results = document.querySelector("#results");
const status = form.querySelector(".found");

/** The index is a script, so that it loads from a folder on disk as well as from a server; and only when it is needed. */
let opening;
function open() {
  opening ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${root}search-index.js`;
    script.onload = () => resolve(openSearch(globalThis.hapaxSearchIndex));
    script.onerror = () => reject(new Error("the search index did not load"));
    document.head.append(script);
  });
  return opening;
}

function show(found, question) {
  results.replaceChildren(
    ...found.map(({ page, heading, address, start }) => {
      const link = document.createElement("a");
      link.href = `${root}${address}`;
      const title = document.createElement("strong");
      title.textContent = heading === "" ? page : `${page}: ${heading}`;
      const text = document.createElement("small");
      text.textContent = start;
      link.append(title, text);
      const item = document.createElement("li");
      item.append(link);
      return item;
    }),
  );
  if (found.length === 0) {
    const item = document.createElement("li");
    item.className = "none";
    item.textContent = `Nothing found for “${question}”.`;
    results.append(item);
  }
  results.hidden = false;
  status.textContent = `${found.length} results`;
}

async function search() {
  const question = input.value.trim();
  if (question === "") {
    results.hidden = true;
    status.textContent = "";
    return;
  }
  try {
    const find = await open();
    if (input.value.trim() === question) show(find(question), question);
  } catch (error) {
    show([], question);
    status.textContent = error.message;
  }
}

const links = () => [...results.querySelectorAll("a")];

function move(by) {
  const all = links();
  const at = all.indexOf(document.activeElement);
  if (at + by < 0) input.focus();
  else all[Math.min(at + by, all.length - 1)]?.focus();
}

input.addEventListener("input", () => void search());
input.addEventListener("focus", () => void open().catch(() => undefined));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  links()[0]?.click();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    results.hidden = true;
    input.focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  }
});
document.addEventListener("click", (event) => {
  if (!form.contains(event.target)) results.hidden = true;
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  input.focus();
});

// A long navigation shows where the reader is. Only it is scrolled: the page begins at its beginning.
const navigation = document.querySelector("#navigation");
const current = navigation.querySelector("[aria-current]");
if (current !== null) {
  const above = current.getBoundingClientRect().top - navigation.getBoundingClientRect().top;
  navigation.scrollTop = above - navigation.clientHeight / 2;
}

const menu = document.querySelector(".menu");
menu.addEventListener("click", () => {
  const isOpen = navigation.classList.toggle("open");
  menu.setAttribute("aria-expanded", String(isOpen));
});

/** Of a console block the commands alone: what they print is no part of them. */
function copied(pre) {
  if (pre.dataset.language !== "console") return pre.textContent;
  return pre.textContent
    .split("\n")
    .filter((line) => line.startsWith("$ ") || line.startsWith("> "))
    .map((line) => line.slice(2))
    .join("\n");
}

for (const pre of document.querySelectorAll(".code pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", () => {
    void navigator.clipboard.writeText(copied(pre)).then(() => {
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1_500);
    });
  });
  pre.parentElement.append(button);
}
