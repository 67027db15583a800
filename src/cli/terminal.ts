/** What differs between a person at a terminal and a pipe: colours, tables, progress. */

import type { Context, Output } from "./context.ts";

type Colour = "bold" | "dim" | "red" | "green";

const CODES: Readonly<Record<Colour, number>> = { bold: 1, dim: 2, red: 31, green: 32 };

/** FORCE_COLOR wins over NO_COLOR, as in Node itself; without either, a terminal decides. */
export function hasColours(output: Output, env: Context["env"]): boolean {
  const forced = env["FORCE_COLOR"];
  if (forced !== undefined && forced !== "") return forced !== "0";
  if ((env["NO_COLOR"] ?? "") !== "" || env["TERM"] === "dumb") return false;
  return output.isTerminal;
}

export type Paint = (colour: Colour, text: string) => string;

export function createPaint(output: Output, env: Context["env"]): Paint {
  if (!hasColours(output, env)) return (_, text) => text;
  return (colour, text) => `\u001b[${String(CODES[colour])}m${text}\u001b[0m`;
}

/** Text of strangers made harmless: of control characters only tabs and line feeds stay. */
export function printable(text: string): string {
  return text.replaceAll(
    /(?![\t\n])\p{Cc}/gu,
    (character) => String.raw`\x` + (character.codePointAt(0) ?? 0).toString(16).padStart(2, "0"),
  );
}

/** Columns as wide as their widest cell; the last one is not padded. */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  paint: Paint,
): string {
  const clean = rows.map((row) => row.map((cell) => oneLine(cell)));
  const widths = header.map((title, column) =>
    Math.max(title.length, ...clean.map((row) => (row[column] ?? "").length)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) =>
        column === cells.length - 1 ? cell : cell.padEnd(widths[column] ?? 0),
      )
      .join("  ")
      .trimEnd();
  return [paint("bold", line(header)), ...clean.map(line)].map((text) => `${text}\n`).join("");
}

/** Names and values, one pair a line. */
export function formatPairs(pairs: readonly (readonly [string, string])[], paint: Paint): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs
    .map(([name, value]) => `${paint("bold", name.padEnd(width))}  ${oneLine(value)}\n`)
    .join("");
}

function oneLine(text: string): string {
  return printable(text)
    .replaceAll("\n", String.raw`\x0a`)
    .replaceAll("\t", String.raw`\x09`);
}

export interface ProgressLine {
  add(records: number, bytes: number): Promise<void>;
  /** Removes the line from a terminal, or prints the last state elsewhere. */
  finish(): Promise<void>;
}

const TERMINAL_EVERY_MS = 200;
const PIPE_EVERY_MS = 2000;

/** Counts on stderr while something long goes on; silent unless a person watches or asked for it. */
export function createProgress(context: Context, verb: string, isAsked: boolean): ProgressLine {
  const { stderr } = context;
  const isShown = isAsked || stderr.isTerminal;
  const everyMs = stderr.isTerminal ? TERMINAL_EVERY_MS : PIPE_EVERY_MS;
  const startedMs = context.nowMs();
  let shownMs = startedMs;
  let records = 0;
  let bytes = 0;

  const line = (): string => {
    const seconds = Math.max(0.001, (context.nowMs() - startedMs) / 1000);
    const megabytes = bytes / 1e6;
    const counted = records > 0 ? `${formatCount(records)} records, ` : "";
    const rate = records > 0 ? `${formatCount(Math.round(records / seconds))} records/s, ` : "";
    return `${verb} ${counted}${megabytes.toFixed(1)} MB (${rate}${(megabytes / seconds).toFixed(1)} MB/s)`;
  };

  return {
    async add(moreRecords, moreBytes) {
      records += moreRecords;
      bytes += moreBytes;
      if (!isShown || context.nowMs() - shownMs < everyMs) return;
      shownMs = context.nowMs();
      await stderr.write(stderr.isTerminal ? `\r\u001b[K${line()}` : `${line()}\n`);
    },
    async finish() {
      if (!isShown) return;
      if (stderr.isTerminal && shownMs !== startedMs) await stderr.write("\r\u001b[K");
      if (isAsked) await stderr.write(`${line()}\n`);
    },
  };
}

export function formatCount(count: number): string {
  return count.toLocaleString("en-US");
}

/** "1 record", "2 records". */
export function countOf(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}
