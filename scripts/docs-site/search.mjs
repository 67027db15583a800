/** The search: the same rules where the index is made and in the browser. */

import MiniSearch from "minisearch";

/** Words of questions that say nothing of what is asked for. */
const STOP_WORDS = new Set(
  (
    "a an the of to in on at by for with from and or is are was be been being do does did done can could may might must should " +
    "i my me you your it its this that these those what which when where how why who will would have has had if not no so as"
  ).split(" "),
);

/** A word without its ending, so that a question finds `retries` and `retrying` by `retry`. */
function stemOf(word) {
  if (word.length < 5) return word;
  return word
    .replace(/(?:ies|ied)$/, "y")
    .replace(/(?:ing|ed|es|s)$/, "")
    .replace(/([b-df-hj-np-tv-z])\1$/, "$1")
    .replace(/e$/, "");
}

const processTerm = (term) => {
  const word = term.toLowerCase();
  return STOP_WORDS.has(word) ? undefined : stemOf(word);
};

const OPTIONS = {
  fields: ["page", "heading", "text"],
  storeFields: ["page", "heading", "address", "start", "group"],
  processTerm,
};

/** Guides answer questions; decisions and the changelog speak of the past. */
const WEIGHTS = {
  Start: 1.4,
  Recipes: 1.5,
  Reference: 0.6,
  Decisions: 0.3,
  Project: 0.4,
  Specification: 0.8,
};

/** The index of the sections of all pages, as JSON. */
export function makeIndex(sections) {
  const search = new MiniSearch(OPTIONS);
  search.addAll(
    sections.map((section, id) => ({
      ...section,
      id,
      start: section.text.replaceAll(/\s+/g, " ").slice(0, 140),
    })),
  );
  return JSON.stringify(search);
}

/** A function from a question to the sections that answer it, best first. */
export function openSearch(index) {
  const search = MiniSearch.loadJSON(index, OPTIONS);
  return (question, count = 12) =>
    search
      .search(question, {
        boost: { page: 3, heading: 4 },
        prefix: (term) => term.length > 3,
        fuzzy: (term) => (term.length > 5 ? 0.15 : false),
        boostDocument: (_id, _term, stored) => WEIGHTS[stored?.group] ?? 1,
      })
      .slice(0, count);
}
