/**
 * Who may import whom: the floor plan of src as a table. `npm run check` compares every import with it.
 *
 * A file belongs to the entry with the longest path that it starts with. It may import what is in its own entry, what
 * its entry names, and nothing else; `node:` must be named too. Tests may import anything.
 */

import { posix } from "node:path";

const PORTS = [
  "src/streams/store.ts",
  "src/streams/courier.ts",
  "src/streams/signer.ts",
  "src/streams/log.ts",
  "src/streams/tracer.ts",
];
/** What HTTP stands on. */
const UNDER_SERVER = [
  "src/base",
  "src/protocol",
  "src/streams/access",
  "src/streams/core",
  "src/streams/engine",
  ...PORTS,
];
const LIMITS = "src/protocol/limits.ts";
const ALL_LIMITS = "src/protocol/all-limits.ts";
/** What every store with a journal is made of. */
const JOURNAL = "src/streams/stores/journal";
// Time and randomness come in through their ports, also in files that may use Node.
const NODE_FILES = ["node:fs", "node:net", "node:os", "node:path", "node:zlib"];

/** Each entry: a folder or file of src, what it is, and what it may import besides itself. */
export const FLOOR_PLAN = [
  { at: "src/base", is: "what all stand on", may: [] },
  { at: "src/protocol", is: "the wire, without I/O", may: ["src/base", "src/streams/core"] },

  { at: "src/streams/core", is: "the rules of streams, pure", may: ["src/base"] },
  { at: "src/streams/store.ts", is: "a port", may: ["src/streams/core"] },
  { at: "src/streams/courier.ts", is: "a port", may: [] },
  { at: "src/streams/signer.ts", is: "a port", may: ["src/base"] },
  { at: "src/streams/log.ts", is: "a port", may: [] },
  { at: "src/streams/tracer.ts", is: "a port", may: [] },
  {
    at: "src/streams/opentelemetry-tracer.ts",
    is: "the tracer of OpenTelemetry",
    may: ["src/streams/tracer.ts"],
  },
  {
    at: "src/streams/engine",
    is: "the writer, the readers and what waits",
    may: ["src/base", "src/streams/core", LIMITS, ALL_LIMITS, ...PORTS],
  },
  {
    at: "src/streams/stores/memory.ts",
    is: "a store",
    may: ["src/base", "src/streams/core", "src/streams/store.ts"],
  },
  {
    at: "src/streams/stores/journal",
    is: "the journal: its bytes, its index, and what keeps it short",
    may: ["src/base", "src/streams/core", "src/streams/store.ts", "node:zlib"],
  },
  {
    at: "src/streams/stores/file",
    is: "the rooms of the file store",
    may: ["src/base", "src/streams/core", "src/streams/store.ts", JOURNAL, ...NODE_FILES],
  },
  {
    at: "src/streams/stores/file.ts",
    is: "a store",
    may: ["src/streams/stores/file", ...NODE_FILES],
  },
  {
    at: "src/streams/stores/postgres",
    is: "the rooms of the store in PostgreSQL",
    may: ["src/base", "src/streams/core", "src/streams/store.ts", JOURNAL, "node:crypto"],
  },
  {
    at: "src/streams/stores/postgres.ts",
    is: "a store",
    may: ["src/base", "src/streams/stores/postgres"],
  },
  {
    at: "src/streams/stores/copy",
    is: "moves a store between a directory and a database",
    may: [
      "src/base",
      JOURNAL,
      "src/streams/stores/file",
      "src/streams/stores/postgres",
      "node:crypto",
      ...NODE_FILES,
    ],
  },
  {
    at: "src/streams/stores/backup",
    is: "the form of backups, and how they are made and restored",
    may: [
      "src/base",
      "src/protocol/values.ts",
      JOURNAL,
      "src/streams/stores/file",
      "src/streams/core",
      "src/streams/store.ts",
      "node:crypto",
      "node:zlib",
    ],
  },
  {
    at: "src/streams/stores/durable-object",
    is: "the rooms of the store in an object",
    may: ["src/base", "src/streams/core", "src/streams/store.ts", JOURNAL, "node:zlib"],
  },
  {
    at: "src/streams/stores/durable-object.ts",
    is: "a store",
    may: ["src/streams/stores/durable-object"],
  },
  {
    at: "src/streams/access",
    is: "who may do what",
    may: ["src/base", "src/protocol", "src/streams/core/scoped-name.ts"],
  },
  {
    at: "src/streams/access/jwt.ts",
    is: "tokens, with the only library that users install",
    may: ["src/base", "src/protocol", "src/streams/access", "jose"],
  },
  {
    at: "src/streams/server",
    is: "HTTP for any runtime",
    may: UNDER_SERVER,
  },
  {
    at: "src/streams/server.ts",
    is: "the server's door",
    may: [...UNDER_SERVER, "src/streams/server", "src/streams/opentelemetry-tracer.ts"],
  },
  { at: "src/streams/cluster.ts", is: "a port", may: ["src/streams/core", "src/streams/store.ts"] },
  {
    at: "src/streams/cluster",
    is: "the nodes of a cluster",
    may: [
      ...UNDER_SERVER,
      "src/streams/cluster.ts",
      "src/streams/server",
      "src/streams/server.ts",
      "src/streams/stores/postgres",
    ],
  },
  {
    at: "src/streams/runtimes",
    is: "where a server runs",
    may: ["src/base", "src/protocol", "src/streams", "src/client/positions.ts", "node:"],
  },

  {
    at: "src/client",
    is: "the client",
    may: ["src/base", LIMITS, "src/protocol/sse.ts", "src/protocol/sse-decoder.ts"],
  },
  {
    at: "src/client/node.ts",
    is: "the client's transport on Node",
    may: ["src/base", "src/client", "node:http", "node:https"],
  },
  {
    at: "src/client/processing",
    is: "consumers, transactions, pipelines",
    may: ["src/base", "src/protocol", "src/client"],
  },
  {
    at: "src/client/processing.ts",
    is: "the door of processing",
    may: ["src/base", "src/client"],
  },

  { at: "src/toolkit/rules", is: "the rules of the toolkit, pure", may: ["src/base"] },
  {
    at: "src/toolkit/rules/delivery.ts",
    is: "events between objects, by the rule of producers",
    may: ["src/base", "src/streams/core"],
  },
  { at: "src/toolkit/databases", is: "the user's clients", may: ["src/base"] },
  { at: "src/toolkit/meters", is: "what is counted", may: ["src/base"] },
  {
    at: "src/toolkit/ledgers",
    is: "the ledgers and their port",
    may: ["src/base", "src/toolkit/rules", "src/toolkit/databases", "src/toolkit/outbox/log.ts"],
  },
  {
    at: "src/toolkit/outbox/log.ts",
    is: "a port",
    may: ["src/base"],
  },
  {
    at: "src/toolkit/once",
    is: "claims and what is done once",
    may: [
      "src/base",
      "src/toolkit/rules",
      "src/toolkit/ledgers/ledger.ts",
      "src/toolkit/meters/meter.ts",
    ],
  },
  {
    at: "src/toolkit/once/ledger-sink.ts",
    is: "pipelines into the user's database",
    may: [
      "src/base",
      "src/toolkit/rules",
      "src/toolkit/once",
      "src/toolkit/databases/outage.ts",
      "src/toolkit/ledgers/ledger.ts",
      "src/client/processing/sink.ts",
    ],
  },
  {
    at: "src/toolkit/outbox",
    is: "events in the user's transaction",
    may: [
      "src/base",
      "src/toolkit/rules",
      "src/toolkit/once",
      "src/toolkit/outbox/log.ts",
      "src/toolkit/ledgers/ledger.ts",
      "src/toolkit/meters/meter.ts",
    ],
  },
  {
    at: "src/toolkit/outbox/hapax-publisher.ts",
    is: "publishes to a server",
    may: ["src/base", "src/client", "src/toolkit/outbox"],
  },
  {
    at: "src/toolkit/files",
    is: "files that are written once",
    may: ["src/base", "node:fs", "node:path"],
  },
  {
    at: "src/toolkit/window",
    is: "the dedup window of logs",
    may: [
      "src/base",
      "src/protocol/key.ts",
      "src/protocol/slashes.ts",
      "src/toolkit/rules",
      "src/toolkit/files",
      "src/toolkit/once/check.ts",
      "src/toolkit/meters/meter.ts",
      "node:fs",
      "node:path",
    ],
  },
  {
    at: "src/toolkit/idempotency",
    is: "keys of HTTP APIs",
    may: [
      "src/base",
      "src/protocol",
      "src/toolkit/rules",
      "src/toolkit/files",
      "src/toolkit/once",
      "src/toolkit/ledgers/ledger.ts",
      "express",
      "node:crypto",
      "node:fs",
      "node:http",
      "node:os",
      "node:path",
    ],
  },
  {
    at: "src/toolkit/saga",
    is: "steps that all happen, or are all undone",
    may: [
      "src/base",
      "src/toolkit/rules",
      "src/toolkit/once",
      "src/toolkit/ledgers/ledger.ts",
      "src/toolkit/meters/meter.ts",
    ],
  },
  {
    at: "src/toolkit/console",
    is: "a page over the user's own database",
    may: [
      "src/base",
      "src/toolkit/rules",
      "src/toolkit/outbox",
      "src/toolkit/outbox/log.ts",
      "src/toolkit/saga",
      "src/toolkit/ledgers/ledger.ts",
      "src/toolkit/meters/meter.ts",
      "node:http",
    ],
  },
  {
    at: "src/toolkit/durable-object",
    is: "exactly once in a Durable Object",
    may: [
      "src/base",
      "src/toolkit/rules",
      "src/toolkit/once",
      "src/toolkit/ledgers/ledger.ts",
      "src/toolkit/ledgers/tokens.ts",
      "src/toolkit/ledgers/durable-object.ts",
      "src/toolkit/databases/quoting.ts",
      "src/toolkit/outbox",
      "src/toolkit/outbox/log.ts",
      "src/toolkit/saga/contract.ts",
    ],
  },
  { at: "src/toolkit", is: "the doors of the toolkit", may: ["src/base"] },

  {
    at: "src/dashboard",
    is: "the page for people, compiled into one file",
    may: ["src/base", "src/protocol/header-names.ts", "src/client", "preact", "uplot"],
  },
  {
    at: "src/dashboard/console",
    is: "the page of the console, compiled into one file",
    may: ["src/dashboard", "src/toolkit/console/views.ts", "preact"],
  },
  {
    at: "src/streams/dashboard-files.ts",
    is: "the compiled page, which the build writes",
    may: ["src/streams/server/dashboard.ts"],
  },

  { at: "src/cli", is: "the commands", may: ["src", "node:"] },
  { at: "src/testing", is: "what users may test with", may: ["src", "node:"] },
  {
    at: "src/index.ts",
    is: "works on every runtime",
    may: [
      "src/base",
      "src/protocol",
      "src/streams/core",
      "src/streams/store.ts",
      "src/streams/signer.ts",
      "src/client/client.ts",
      "src/toolkit/ledger.ts",
    ],
  },
  { at: "src/bin.ts", is: "the program", may: ["src", "node:"] },
];

/** Reached by nothing outside themselves but the entries named. */
const CLOSED = [
  { at: "src/testing", to: [] },
  { at: "src/cli", to: ["src/bin.ts"] },
  { at: "src/bin.ts", to: [] },
  { at: "src/dashboard", to: [] },
  { at: "src/streams/runtimes", to: ["src/bin.ts"] },
];

const isIn = (path, at) => path === at || path.startsWith(at.endsWith(":") ? at : `${at}/`);

function entryOf(path) {
  return FLOOR_PLAN.filter(({ at }) => isIn(path, at)).toSorted(
    (one, other) => other.at.length - one.at.length,
  )[0];
}

/** Code only: examples in comments import the package by its name. */
function importsOf(text) {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
  const specifiers =
    /^(?:import|export)\b[^"'=(]*?\bfrom\s+"([^"]+)";|^import\s+"([^"]+)";|\bimport\(\s*"([^"]+)"\s*\)/gm;
  return [...code.matchAll(specifiers)].map(([, named, bare, late]) => named ?? bare ?? late);
}

/** The imports of a tree that its floor plan does not allow. */
export function boundaryProblems(tree) {
  const problems = [];
  const sources = tree.paths.filter(
    (path) => /^src\/.*\.tsx?$/.test(path) && !path.endsWith(".test.ts"),
  );
  for (const path of sources) {
    const entry = entryOf(path);
    if (entry === undefined) {
      problems.push(`${path} has no place in the floor plan`);
      continue;
    }
    for (const specifier of importsOf(tree.read(path))) {
      const target = specifier.startsWith(".")
        ? posix.normalize(posix.join(posix.dirname(path), specifier))
        : specifier;
      const isAllowed =
        entryOf(target) === entry ||
        entry.may.some((at) => isIn(target, at)) ||
        isDoor(entry, target);
      const closed = CLOSED.find(({ at }) => isIn(target, at) && !isIn(path, at));
      if (!isAllowed) problems.push(`${path} (${entry.is}) imports ${target}`);
      else if (closed !== undefined && !closed.to.some((at) => isIn(path, at))) {
        problems.push(`${path} imports ${target}, which is not for it`);
      }
    }
  }
  return problems;
}

/** A door (`toolkit/ledger.ts`) may import the rooms behind it. */
function isDoor(entry, target) {
  return entry.at === "src/toolkit" && isIn(target, "src/toolkit");
}
