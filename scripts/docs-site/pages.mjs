/** The pages of the site: which documents there are, in which group of the navigation, and under which address. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join, posix } from "node:path";

/** The order in which a newcomer reads. A folder stands for the pages in it that no line above names. */
const GROUPS = [
  {
    title: "Start",
    paths: [
      "README.md",
      "docs/guides/getting-started.md",
      "docs/guides/with-curl.md",
      "docs/guides/exactly-once-in-five-minutes.md",
      "docs/concepts.md",
      "docs/guides/which-path.md",
      "docs/not-for-you.md",
      "docs/faq.md",
      "docs/glossary.md",
      "docs/comparison.md",
    ],
  },
  { title: "Recipes", paths: ["docs/recipes/README.md", "docs/recipes/"] },
  {
    title: "Streams",
    paths: [
      "docs/guides/exactly-once-processing.md",
      "docs/guides/command-line.md",
      "docs/guides/fetch.md",
      "docs/guides/workers.md",
      "docs/guides/from-durable-streams-client.md",
      "docs/guides/write-a-store.md",
      "docs/guides/conformance.md",
    ],
  },
  {
    title: "Toolkit",
    paths: [
      "docs/guides/process-once.md",
      "docs/guides/idempotency-keys.md",
      "docs/guides/inbox.md",
      "docs/guides/outbox.md",
      "docs/guides/sagas.md",
      "docs/guides/leases.md",
      "docs/guides/versioned-updates.md",
      "docs/guides/query-builders.md",
      "docs/guides/redis.md",
      "docs/guides/durable-objects.md",
      "docs/guides/object-storage.md",
      "docs/guides/check-your-system.md",
      "docs/guides/console.md",
      "docs/guides/toolkit-metrics.md",
    ],
  },
  {
    title: "Production",
    paths: [
      "docs/guides/production.md",
      "docs/guides/operations.md",
      "docs/guides/runbook.md",
      "docs/guides/runtimes.md",
      "docs/security.md",
      "docs/guides/api-keys.md",
      "docs/guides/tokens-and-signed-urls.md",
      "docs/guides/logs.md",
      "docs/guides/metrics.md",
      "docs/guides/performance.md",
      "docs/guides/",
    ],
  },
  {
    title: "Specification",
    paths: ["PROTOCOL.md", "GUARANTEES.md", "docs/errors.md", "docs/formats/", "docs/decisions"],
  },
  { title: "Reference", isFolded: true, paths: ["docs/reference/README.md", "docs/reference/"] },
  {
    title: "Project",
    isFolded: true,
    paths: ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/"],
  },
];

/** Shorter words for the navigation, where a title is a whole sentence. */
const LABELS = new Map([
  ["README.md", "Home"],
  ["docs/guides/exactly-once-in-five-minutes.md", "Exactly once in five minutes"],
  ["docs/comparison.md", "Comparison"],
  ["docs/recipes/README.md", "All recipes"],
  ["docs/guides/exactly-once-processing.md", "Processing"],
  ["docs/guides/from-durable-streams-client.md", "From @durable-streams/client"],
  ["docs/guides/process-once.md", "processOnce"],
  ["docs/guides/idempotency-keys.md", "Idempotency keys"],
  ["docs/guides/inbox.md", "Inbox"],
  ["docs/guides/outbox.md", "Outbox"],
  ["docs/guides/sagas.md", "Sagas"],
  ["docs/guides/leases.md", "Leases"],
  ["docs/guides/versioned-updates.md", "Versioned updates"],
  ["docs/guides/query-builders.md", "Query builders"],
  ["docs/guides/redis.md", "Redis"],
  ["docs/guides/durable-objects.md", "Durable Objects"],
  ["docs/guides/object-storage.md", "Object storage"],
  ["docs/guides/toolkit-metrics.md", "Metrics of the toolkit"],
  ["docs/security.md", "Security"],
  ["docs/guides/metrics.md", "Metrics"],
  ["docs/guides/performance.md", "Performance"],
  ["docs/guides/logs.md", "Logs, audit and traces"],
  ["PROTOCOL.md", "Protocol"],
  ["GUARANTEES.md", "Guarantees"],
  ["docs/reference/README.md", "All entry points"],
  ["SECURITY.md", "Report a vulnerability"],
]);

/** Pages that are not in the navigation, because their list is. */
const DECISIONS = "docs/decisions";

const ADDRESSES = new Map([
  ["README.md", "index.html"],
  ["PROTOCOL.md", "protocol.html"],
  ["GUARANTEES.md", "guarantees.html"],
  [DECISIONS, "decisions/index.html"],
]);

function addressOf(path) {
  const known = ADDRESSES.get(path);
  if (known !== undefined) return known;
  const page = path.replace(/(README)?\.md$/, (_end, readme) => (readme ? "index.html" : ".html"));
  return page.startsWith("docs/") ? page.slice("docs/".length) : `project/${page.toLowerCase()}`;
}

/** The words of the first heading, without marks. */
function titleOf(text, path) {
  const title = /^# (.+)$/m.exec(text)?.[1] ?? basename(path, ".md");
  return title.replaceAll("`", "").trim();
}

function markdownBelow(base, folder) {
  return readdirSync(join(base, folder), { recursive: true, encoding: "utf8" })
    .map((path) => posix.join(folder, path.replaceAll("\\", "/")))
    .filter((path) => path.endsWith(".md"))
    .toSorted();
}

/** The pages of a tree in the order of the navigation. A document that is new has a place without being named. */
export function collectPages(base) {
  const all = [
    ...["README.md", "PROTOCOL.md", "GUARANTEES.md", "ARCHITECTURE.md"],
    ...["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"],
    ...markdownBelow(base, "docs"),
  ].filter((path) => existsSync(join(base, path)));
  const read = (path) => readFileSync(join(base, path), "utf8");
  const decisions = all.filter((path) => path.startsWith(`${DECISIONS}/`));
  const named = new Set([...GROUPS.flatMap(({ paths }) => paths), ...decisions]);
  const pageOf = (path, group, text = read(path)) => ({
    path,
    group,
    text,
    title: titleOf(text, path),
    label: LABELS.get(path) ?? titleOf(text, path),
    address: addressOf(path),
  });
  const groups = GROUPS.map(({ title, isFolded = false, paths }) => {
    const pages = paths.flatMap((path) => {
      if (path === DECISIONS) return [pageOf(path, title, listOf(decisions, read))];
      if (!path.endsWith("/")) return all.includes(path) ? [pageOf(path, title)] : [];
      const rest = all.filter((other) => other.startsWith(path) && !named.has(other));
      for (const other of rest) named.add(other);
      const pages = rest.map((other) => pageOf(other, title));
      return pages.toSorted((one, other) => (one.title < other.title ? -1 : 1));
    });
    return { title, isFolded, pages };
  }).filter(({ pages }) => pages.length > 0);
  return { groups, beside: decisions.map((path) => pageOf(path, "Decisions")) };
}

function listOf(paths, read) {
  const lines = paths.map((path) => `- [${titleOf(read(path), path)}](${basename(path)})`);
  return [
    "# Decisions",
    "",
    "One page for each decision that is hard to take back: its context, what was decided, and what follows from it.",
    "",
    ...lines,
    "",
  ].join("\n");
}

/** The document that a link from `path` leads to: its path from the root of the repository. */
export function targetOf(path, link) {
  const folder = path === DECISIONS ? DECISIONS : posix.dirname(path);
  return posix.normalize(posix.join(folder, link)).replace(/\/$/, "");
}
