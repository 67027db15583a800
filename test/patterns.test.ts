// Every regular expression of src/, against texts that are made to keep it busy: four times the text may take about four times as
// long, and no text is too long for its stack. A new one is found by itself; it needs a line here if its own letters do not lead into it.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAst } from "rolldown/parseAst";
import { describe, expect, test } from "vitest";
import { canonicalText } from "../src/toolkit/rules/canonical-json.ts";
import { parseIdempotencyKey } from "../src/protocol/idempotency-key.ts";
import { parseWaitMs } from "../src/protocol/prefer.ts";
import { withoutLastSlashes, withoutSlashes } from "../src/protocol/slashes.ts";
import { LIMITS } from "../src/protocol/limits.ts";
import { acceptsGzip } from "../src/protocol/accept-encoding.ts";
import { parseAppendHead } from "../src/protocol/append.ts";
import { checkPath } from "../src/protocol/members.ts";
import { parseRelativePath } from "../src/protocol/subscription-path.ts";
import { parseReport, parseStreams, parseSubscribe } from "../src/protocol/subscription.ts";
import { normaliseContentType, parseQuery, parseStreamPath } from "../src/protocol/values.ts";

interface Pattern {
  readonly file: string;
  readonly source: string;
  readonly flags: string;
}

interface Note {
  /** Words that it matches, for one whose own letters do not lead far into it. */
  readonly words?: readonly string[];
  /** The longest text that it sees: its length is checked before, or the text is that of a program and not from outside. */
  readonly lengthMax?: number;
  /** It sees only what has been parsed before; a reader below stands for it. */
  readonly isParsed?: boolean;
}

/** What the text of a pattern does not say. */
const NOTES: Readonly<Record<string, Note>> = {
  "src/cli/arguments.ts <[^>]+>": { lengthMax: 200 },
  'src/toolkit/rules/canonical-json.ts "[^"\\\\]*(?:\\\\.[^"\\\\]*)*"|-?[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?':
    {
      isParsed: true,
    },
  "src/protocol/values.ts ^(?:\\/(?!\\.\\.?(?:\\/|$))[A-Za-z0-9\\-._~!$&'()*+,;=:@]+)+$": {
    words: ["/a/b"],
    lengthMax: LIMITS.pathBytesMax,
  },
  'src/protocol/prefer.ts ^(?:[^",]*(?:"[^"\\\\]*(?:\\\\.[^"\\\\]*)*"[^",]*)*,)*?[ \\t]*wait[ \\t]*=[ \\t]*("?)([0-9]{1,9})\\1[ \\t]*(?=[;,]|$)':
    { words: ['a="b", wait = 5'], lengthMax: 1000 },
  "src/base/dead-letter.ts \\b[0-9a-f-]*[0-9][0-9a-f-]*\\b": {
    words: ["a-1 b"],
    lengthMax: 1000,
  },
};

function* filesOf(folder: string): Generator<string> {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesOf(path);
    else if (path.endsWith(".ts") && !path.endsWith(".test.ts")) yield path;
  }
}

interface Found {
  readonly patterns: readonly Pattern[];
  /** Files that make patterns out of strings. */
  readonly composers: readonly string[];
}

function findPatterns(): Found {
  const patterns: Pattern[] = [];
  const composers: string[] = [];
  for (const file of filesOf("src")) {
    const look = (node: unknown): void => {
      if (typeof node !== "object" || node === null) return;
      const { type, regex, callee } = node as {
        type?: string;
        regex?: { pattern: string; flags: string };
        callee?: { name?: string };
      }; // The members that are looked at; others are followed.
      if (type === "Literal" && regex !== undefined) {
        patterns.push({ file, source: regex.pattern, flags: regex.flags });
      } else if (callee?.name === "RegExp") composers.push(file);
      for (const value of Object.values(node)) look(value);
    };
    look(parseAst(readFileSync(file, "utf8"), { lang: "ts" }, file));
  }
  return { patterns, composers };
}

const { patterns, composers } = findPatterns();
const nameOf = ({ file, source }: Pattern): string => `${file} ${source}`;

/** What a pattern may begin with: its own letters, one after the other, and all that stand in one run. */
function wordsOf(pattern: Pattern): readonly string[] {
  const runs = pattern.source.match(/(?:\\[/.+*$()[\]{}|"'-]|[A-Za-z0-9/:;=,"'@_ -])+/g) ?? [];
  const words = runs.map((run) => run.replaceAll("\\", "")).filter((run) => run.length > 1);
  return [...new Set([...(NOTES[nameOf(pattern)]?.words ?? []), ...words.slice(0, 6)])];
}

const COMMON = [
  "/",
  " ",
  "\t",
  "0",
  "a",
  "A",
  "-",
  '"',
  "\\",
  ",",
  ";",
  "=",
  "'",
  "$",
  ".",
  "*",
  "\n",
  '\\"',
  "/*",
  "''",
];

/** How to make a text of any length: something is repeated, and the end may break the match. */
interface Attack {
  readonly before: string;
  readonly pump: string;
  readonly after: string;
}

function* attacksOn(words: readonly string[]): Generator<Attack> {
  const starts = ["", "x", ...words, ...words.map((word) => word.slice(0, -1))];
  for (const before of new Set(starts)) {
    for (const pump of new Set([...COMMON, ...words])) {
      yield { before, pump, after: "" };
      yield { before, pump, after: "\0" };
      yield { before, pump, after: `x${before}` };
    }
  }
}

const textOf = ({ before, pump, after }: Attack, length: number): string =>
  before + pump.repeat(Math.ceil(length / pump.length)) + after;

function bestMs(run: (text: string) => unknown, text: string, times: number): number {
  let best = Infinity;
  for (let time = 0; time < times; time += 1) {
    const before = performance.now();
    run(text);
    best = Math.min(best, performance.now() - before);
  }
  return best;
}

/** The first ones are for patterns that would never end with the last. */
const LENGTHS = [20, 30, 400, 6400];
/** Below it there is nothing to compare. A plain look at the longest text takes a tenth of it. */
const NOTICEABLE_MS = 1;
/** What is linear takes 4 times as long for 4 times the length; what is quadratic, 16 times. */
const GROWTH_MAX = 9;

interface Slow {
  readonly attack: Attack;
  readonly length: number;
  readonly ms: number;
  readonly growth: number;
}

/** Measured again and again, since a busy machine is slow for a while; what is not linear is slow each time. */
const ATTEMPTS = [5, 10, 20];

/** The attack that takes more than its share of time, or undefined. */
function worstOf(run: (text: string) => unknown, attacks: Iterable<Attack>, lengthMax = Infinity) {
  for (const attack of attacks) {
    for (const length of LENGTHS) {
      if (length > lengthMax) break;
      const text = textOf(attack, length);
      if (bestMs(run, text, 1) <= NOTICEABLE_MS) continue;
      const quarter = textOf(attack, length / 4);
      let found: Slow | undefined;
      for (const times of ATTEMPTS) {
        const ms = bestMs(run, text, times);
        const growth = ms / bestMs(run, quarter, times);
        const isSlow = ms > NOTICEABLE_MS && growth > GROWTH_MAX;
        found = isSlow ? { attack, length, ms, growth } : undefined;
        if (!isSlow) break;
      }
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

test("the patterns of src/ are found", () => {
  expect(patterns.length).toBeGreaterThan(100);
  const names = new Set(patterns.map(nameOf));
  expect(Object.keys(NOTES).filter((name) => !names.has(name))).toEqual([]);
  // What these make of strings is in the table of functions below, or belongs to a kit for tests.
  expect([...new Set(composers)].toSorted()).toEqual([
    "src/protocol/values.ts",
    "src/testing/extension-cases-groups.ts",
  ]);
});

describe("a pattern takes time in proportion to its text", () => {
  test.each([
    ["slashes at the end", /\/+$/],
    [
      "blanks before a comma",
      /(?:^|[,\s])gzip\s*(?:;\s*q=(?:1(?:\.0*)?|0?\.0*[1-9][0-9]*))?\s*(?:,|$)/i,
    ],
    ["one of two ways for each letter", /^(?:a|[a-z])*$/],
  ])("or else it is found: %s", (_name, regex) => {
    const words = wordsOf({ file: "", source: regex.source, flags: regex.flags });
    expect(worstOf((text) => regex.test(text), attacksOn(words))).toBeDefined();
  });

  test.each(patterns.map((pattern) => [nameOf(pattern), pattern] as const))(
    "%s",
    (name, pattern) => {
      if (NOTES[name]?.isParsed === true) return;
      const regex = new RegExp(pattern.source, pattern.flags);
      const run = pattern.flags.includes("g")
        ? (text: string) => text.replace(regex, "")
        : (text: string) => regex.test(text);
      expect(worstOf(run, attacksOn(wordsOf(pattern)), NOTES[name]?.lengthMax)).toBeUndefined();
    },
  );
});

const encoder = new TextEncoder();
const quiet = (run: (text: string) => unknown) => (text: string) => {
  try {
    run(text);
  } catch {
    // It is refused, and that is fine.
  }
};
const subscription = (member: (path: string) => object) => (path: string) => {
  const body = { type: "pull-wake", wake_stream: "w", ...member(path) };
  return parseSubscribe(encoder.encode(JSON.stringify(body)), {});
};

/** What reads text from outside, with a word that it takes. */
const readers: readonly [string, string, (text: string) => unknown][] = [
  ["the path of a subscription", "x/x", parseRelativePath],
  ["streams of a subscription", "x/x", subscription((path) => ({ streams: [path] }))],
  ["the pattern of a subscription", "x/*/x", subscription((pattern) => ({ pattern }))],
  ["the wake stream of a subscription", "x/x", subscription((path) => ({ wake_stream: path }))],
  [
    "streams that are added",
    "x/x",
    (path) => parseStreams(encoder.encode(JSON.stringify({ streams: [path] }))),
  ],
  [
    "acks",
    "x/x",
    (stream) => parseReport(encoder.encode(JSON.stringify({ acks: [{ stream, offset: "-1" }] }))),
  ],
  ["a path in a body", "/a/b", (text) => checkPath("stream", text)],
  ["a path in a request", "/a/%41", parseStreamPath],
  ["a query", "a=b&c=d", (text) => parseQuery(text).get("c")],
  ["Accept-Encoding", "br, gzip ; q=0.5", acceptsGzip],
  ["Content-Type", 'a/b; c="d"; e=f', normaliseContentType],
  ["Idempotency-Key in an API", '"a"; b=c', parseIdempotencyKey],
  ["Prefer in an API", "a=b; wait = 5", parseWaitMs],
  ["canonical JSON", "[1e3]", canonicalText],
  ["canonical JSON of strings", '["1e3","', (text) => canonicalText(`${text}"]`)],
  ["slashes at the end", "/a/", withoutLastSlashes],
  ["slashes at both ends", "/a/", withoutSlashes],
];

describe("what reads text from outside takes time in proportion to it", () => {
  test.each(readers)("%s", (_name, word, read) => {
    expect(worstOf(quiet(read), attacksOn([word]))).toBeUndefined();
  });

  const names = ["content-type", "idempotency-key", "prefer", "if-match", "producer-session"];
  test.each(names)("the header %s of an append", (name) => {
    const run = quiet((text) =>
      parseAppendHead((asked) =>
        asked === name ? text : asked === "content-type" ? "a/b" : undefined,
      ),
    );
    expect(worstOf(run, attacksOn(['"a b"', "a/b; c=d", "wait = 5"]))).toBeUndefined();
  });
});

describe("no text is too long for the stack of a pattern", () => {
  // Other folders see texts of a program and of its operator.
  const isReached = ({ file }: Pattern): boolean =>
    !/^src\/(?:cli|testing|stores|databases)\//.test(file);
  const repeating = patterns.filter((pattern) => isReached(pattern) && /[+*]/.test(pattern.source));
  test.each(repeating.map((pattern) => [nameOf(pattern), pattern] as const))(
    "%s",
    (name, pattern) => {
      const regex = new RegExp(pattern.source, pattern.flags);
      const length = NOTES[name]?.lengthMax ?? LIMITS.bodyBytesMax;
      for (const before of ["", ...wordsOf(pattern)]) {
        for (const pump of ["a", "/a", "\\n"]) {
          expect(() => regex.test(textOf({ before, pump, after: "" }, length))).not.toThrow();
        }
      }
    },
  );
});

test("a path of 8 MB in a transaction is refused for its length", () => {
  const refusal = { code: "invalid_request" };
  expect(() => checkPath("stream", "/a".repeat(4_000_000))).toThrow(
    expect.objectContaining(refusal),
  );
});
