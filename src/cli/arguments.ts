/**
 * Command lines to invocations. node:util's parseArgs cuts the words; the checks are ours, because its
 * strict mode refuses `--offset -1`, which is an offset, and cannot suggest a name.
 */

import { parseArgs } from "node:util";

import type { Command, Invocation, OptionSpec } from "./command.ts";
import { usageFailure } from "./failure.ts";

/** Parses what follows the command's name. */
export function parseInvocation(
  command: Command,
  options: readonly OptionSpec[],
  words: readonly string[],
): Invocation {
  const { positionals, found } = parseOptions(options, words, `hapax help ${command.name}`);
  const isCountRight =
    positionals.length >= command.positionalsMin && positionals.length <= command.positionalsMax;
  if (!isCountRight && !found.has("help")) {
    const problem =
      positionals.length < command.positionalsMin
        ? `${command.name} needs ${missingArgument(command)}`
        : `${command.name} does not take ${quote(positionals[command.positionalsMax] ?? "")}`;
    throw usageFailure(problem, [`usage: ${command.usage[0] ?? command.name}`]);
  }
  return {
    positionals,
    has: (name) => found.has(name),
    value: (name) => found.get(name)?.at(-1),
    values: (name) => found.get(name) ?? [],
  };
}

function missingArgument(command: Command): string {
  return /<[^>]+>/.exec(command.usage[0] ?? "")?.[0] ?? "an argument";
}

interface Parsed {
  readonly positionals: readonly string[];
  readonly found: ReadonlyMap<string, readonly string[]>;
}

function parseOptions(
  options: readonly OptionSpec[],
  words: readonly string[],
  helpLine: string,
): Parsed {
  const { tokens } = cut(options, words);
  const positionals: string[] = [];
  const found = new Map<string, string[]>();
  for (const token of tokens) {
    if (token.kind === "positional") positionals.push(token.value);
    if (token.kind !== "option") continue;
    const spec = options.find((option) => option.name === token.name);
    if (spec === undefined) throw unknownOption(token.rawName, options, helpLine);
    const value = optionValue(spec, token.value, token.inlineValue === true);
    found.set(spec.name, [...(found.get(spec.name) ?? []), value]);
  }
  for (const [name, values] of found) {
    const spec = options.find((option) => option.name === name);
    if (spec?.value !== undefined && values.length > 1 && spec.isRepeatable !== true) {
      throw usageFailure(`--${name} was given ${String(values.length)} times`);
    }
  }
  return { positionals, found };
}

function cut(options: readonly OptionSpec[], words: readonly string[]) {
  const config = Object.fromEntries(
    options.map((option) => [
      option.name,
      {
        type: option.value === undefined ? ("boolean" as const) : ("string" as const),
        multiple: true,
        ...(option.short === undefined ? {} : { short: option.short }),
      },
    ]),
  );
  return parseArgs({
    args: [...words],
    options: config,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
}

function optionValue(spec: OptionSpec, value: string | undefined, isInline: boolean): string {
  if (spec.value === undefined) {
    if (value !== undefined) throw usageFailure(`--${spec.name} is a switch and takes no value`);
    return "true";
  }
  // `--offset --json` forgot its value; to pass `--json` as the value, write `--offset=--json`.
  if (value === undefined || (!isInline && value.startsWith("--"))) {
    throw usageFailure(`--${spec.name} needs a value: --${spec.name} <${spec.value}>`);
  }
  return value;
}

function unknownOption(rawName: string, options: readonly OptionSpec[], helpLine: string) {
  if (rawName === "--token") return tokenInArguments();
  const names = options.map((option) => `--${option.name}`);
  const near = nearest(rawName, names);
  const advice = near === undefined ? [] : [`did you mean ${near}?`];
  if (/^-\d/.test(rawName)) advice.push("a value that starts with a dash goes after --");
  return usageFailure(`unknown option ${quote(rawName)}`, [...advice, `see: ${helpLine}`]);
}

/** There is no such option, also for a person who has never seen the help. */
function tokenInArguments() {
  return usageFailure("a token does not belong on the command line: every user can list it", [
    "set HAPAX_TOKEN, or write it into a file that only you can open and give --token-file <path>",
    "the token that you gave may have been seen: revoke it with hapax tokens revoke",
  ]);
}

export interface Split {
  /** Undefined when there is no word that could be a command. */
  readonly commandName: string | undefined;
  readonly words: readonly string[];
}

/** Finds the command's name; options that every command knows may stand before it. */
export function splitCommand(globals: readonly OptionSpec[], words: readonly string[]): Split {
  for (const token of cut(globals, words).tokens) {
    if (token.kind === "option-terminator") break;
    if (token.kind === "positional") {
      return { commandName: token.value, words: words.filter((_, index) => index !== token.index) };
    }
    if (token.rawName === "--token") throw tokenInArguments();
    if (!globals.some((option) => option.name === token.name)) {
      throw usageFailure(`unknown option ${quote(token.rawName)} before the command`, [
        "options of a command stand after its name",
        "see: hapax help",
      ]);
    }
  }
  return { commandName: undefined, words };
}

/** The candidate within a third of the word's length in edits, or nothing. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestEdits = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const edits = editDistance(word, candidate);
    if (edits < bestEdits) {
      best = candidate;
      bestEdits = edits;
    }
  }
  return best;
}

/** Levenshtein, one row at a time. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= to.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}

export function quote(text: string): string {
  return JSON.stringify(text);
}

/** A whole number within a range, or a failure that names all three. */
export function parseCountOption(
  name: string,
  text: string | undefined,
  range: { readonly min: number; readonly max: number; readonly fallback: number },
): number {
  if (text === undefined) return range.fallback;
  const count = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (!(count >= range.min && count <= range.max)) {
    throw usageFailure(
      `--${name} is ${quote(text)}; allowed: a whole number from ${String(range.min)} to ${String(range.max)}`,
    );
  }
  return count;
}
