/** `hapax top`: what a server does, live. On a terminal a picture that is drawn anew, elsewhere a line for each look. */

import {
  lookAt,
  type MetricsLook,
  quantileMs,
  rateOfMetric,
  sumOfMetric,
} from "../base/metrics-reading.ts";
import { parseCountOption } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { refusal, send } from "./http.ts";
import { resolvePath, type Target } from "./target.ts";
import { createPaint, formatPairs, type Paint, printable } from "./terminal.ts";

/** What is shown of one look. */
interface Figures {
  readonly writes: string;
  readonly durability: string;
  readonly appendsPerSecond: number;
  readonly duplicatesPerSecond: number;
  readonly duplicates: number;
  readonly fenced: number;
  readonly gaps: number;
  /** Null: nothing was committed. */
  readonly syncMedianMs: number | null;
  readonly syncSlowMs: number | null;
  readonly bytesPerSecond: number;
  readonly readers: number;
  readonly streams: number;
  readonly storedBytes: number;
  readonly fileBytes: number;
  readonly keys: number;
  readonly groups: number;
  readonly groupLagBytes: number;
  readonly transactions: number;
}

const COMMITS = "hapax_commit_seconds";
const POINTS_MAX = 40;
/** Home, then away with what was there: a picture without flicker. */
const DRAW = "\u001b[H\u001b[J";
/** Without wrapping: a narrow terminal cuts a line off, and the picture stays in its place. */
const BEGIN_PICTURE = "\u001b[?25l\u001b[?7l\u001b[2J";
const END_PICTURE = "\u001b[?7h\u001b[?25h";

async function runTop(invocation: Invocation, context: Context): Promise<number> {
  const everyMs =
    parseCountOption("every", invocation.value("every"), { min: 1, max: 3600, fallback: 1 }) * 1000;
  const looks = parseCountOption("count", invocation.value("count"), {
    min: 1,
    max: 1_000_000_000,
    fallback: 1_000_000_000,
  });
  const stopped = new AbortController();
  const forget = context.onSignal(() => {
    stopped.abort();
  });
  const isPicture = context.stdout.isTerminal && !invocation.has("json");
  try {
    await watch(invocation, context, { everyMs, looks, isPicture, signal: stopped.signal });
  } catch (error) {
    // Ctrl-C is how a person ends it: that is success.
    if (!stopped.signal.aborted) throw error;
  } finally {
    forget();
    if (isPicture) await context.stdout.write(END_PICTURE);
  }
  return EXIT.done;
}

interface Watching {
  readonly everyMs: number;
  readonly looks: number;
  readonly isPicture: boolean;
  readonly signal: AbortSignal;
}

async function watch(
  invocation: Invocation,
  context: Context,
  { everyMs, looks, isPicture, signal }: Watching,
): Promise<void> {
  const target = resolvePath(invocation, context, "/_hapax/metrics");
  const health = resolvePath(invocation, context, "/_hapax/health");
  const paint = createPaint(context.stdout, context.env);
  const rates: number[] = [];
  const where = new URL(target.url).origin;
  let figures: Figures | undefined;
  let before = await look(context, target);
  // Only now: what stands on the terminal is not cleared for a server that is not there.
  if (isPicture) await context.stdout.write(BEGIN_PICTURE);
  for (let shown = 0; shown < looks && !signal.aborted;) {
    await context.wait(everyMs, signal);
    if (signal.aborted) return;
    const now = await lookAgain(context, target);
    if (now === undefined) {
      // The last figures stay on the terminal, below a head that says that they are old.
      if (isPicture && figures !== undefined)
        await context.stdout.write(DRAW + picture(figures, rates, where, paint, false));
      else await context.stderr.write(`${printable(target.label)}: no answer, trying again\n`);
      continue;
    }
    figures = figuresOf(before, now, await stateOf(context, health));
    rates.push(figures.appendsPerSecond);
    const text = invocation.has("json")
      ? `${JSON.stringify(figures)}\n`
      : isPicture
        ? DRAW + picture(figures, rates, where, paint)
        : lineOf(figures);
    await context.stdout.write(text);
    before = now;
    shown += 1;
  }
}

/** A refusal ends the command, and so does a server that is not there at first. */
async function look(context: Context, target: Target): Promise<MetricsLook> {
  const answer = await send(context, { target, method: "GET" });
  if (answer.status !== 200) throw refusal(target, answer);
  return lookAt(context.nowMs(), new TextDecoder().decode(answer.body));
}

/** A server that is away for a while is waited for, also behind a proxy that answers 502 in its place. */
async function lookAgain(context: Context, target: Target): Promise<MetricsLook | undefined> {
  try {
    return await look(context, target);
  } catch (error) {
    if (error instanceof CommandFailure && isPassing(error)) return undefined;
    throw error;
  }
}

function isPassing({ exitCode, problem: { status = 0 } }: CommandFailure): boolean {
  return exitCode === EXIT.unreachable || status === 429 || status >= 500;
}

async function stateOf(context: Context, target: Target): Promise<string> {
  try {
    const { body } = await send(context, { target, method: "GET" });
    const { writes } = JSON.parse(new TextDecoder().decode(body)) as { readonly writes?: unknown };
    return typeof writes === "string" ? printable(writes) : "unknown";
  } catch {
    // A proxy may not let it through: the figures are shown all the same.
    return "unknown";
  }
}

function figuresOf(before: MetricsLook, now: MetricsLook, writes: string): Figures {
  const { values } = now;
  const of = (name: string): number => values.get(name) ?? 0;
  const outcome = (name: string): number => of(`hapax_appends_total{outcome="${name}"}`);
  const info = [...values.keys()].find((key) => key.startsWith("hapax_info{")) ?? "";
  return {
    writes,
    durability: printable(/durability="([^"]*)"/.exec(info)?.[1] ?? "unknown"),
    appendsPerSecond: rateOfMetric(before, now, 'hapax_appends_total{outcome="accepted"}'),
    duplicatesPerSecond: rateOfMetric(before, now, "hapax_duplicates_total"),
    duplicates: sumOfMetric(values, "hapax_duplicates_total"),
    fenced: outcome("fenced"),
    gaps: outcome("gap"),
    syncMedianMs: quantileMs(before, now, COMMITS, 0.5),
    syncSlowMs: quantileMs(before, now, COMMITS, 0.99),
    bytesPerSecond: rateOfMetric(before, now, "hapax_appended_bytes_total"),
    readers: of("hapax_live_readers"),
    streams: of("hapax_streams"),
    storedBytes: of("hapax_stored_bytes"),
    fileBytes: of("hapax_file_bytes"),
    keys: of("hapax_keys"),
    groups: of("hapax_groups"),
    groupLagBytes: of("hapax_group_lag_bytes"),
    transactions: of('hapax_transactions_total{outcome="committed"}'),
  };
}

const WHOLE = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

const count = (value: number): string =>
  value > 0 && value < 10 ? String(Number(value.toFixed(1))) : WHOLE.format(Math.round(value));

const time = (ms: number | null): string => (ms === null ? "-" : `${ms.toFixed(1)} ms`);

function size(bytes: number): string {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${(bytes / 1024 ** unit).toFixed(unit === 0 ? 0 : 1)} ${UNITS[unit] ?? ""}`;
}

/** The same in one line, for logs and pipes. */
function lineOf(figures: Figures): string {
  const { appendsPerSecond, duplicates, fenced, gaps, syncMedianMs, syncSlowMs } = figures;
  const parts = [
    `writes ${figures.writes}`,
    `appends/s ${count(appendsPerSecond)}`,
    `duplicates ${count(duplicates)}`,
    `fenced ${count(fenced)}`,
    `gaps ${count(gaps)}`,
    `sync p50 ${time(syncMedianMs)}`,
    `p99 ${time(syncSlowMs)}`,
    `readers ${count(figures.readers)}`,
    `disk ${size(figures.fileBytes)}`,
    `lag ${size(figures.groupLagBytes)}`,
  ];
  return `${parts.join("  ")}\n`;
}

const STEPS = "▁▂▃▄▅▆▇█";

/** The last rates as a row of bars. */
function barsOf(rates: readonly number[]): string {
  const most = Math.max(...rates, 0);
  if (most === 0) return "";
  return rates
    .map((rate) => STEPS[Math.min(STEPS.length - 1, Math.floor((rate / most) * STEPS.length))])
    .join("");
}

function picture(
  figures: Figures,
  rates: readonly number[],
  where: string,
  paint: Paint,
  isThere = true,
): string {
  const { writes, durability } = figures;
  const state = isThere
    ? paint(writes === "open" ? "green" : "red", `writes ${writes}`)
    : paint("red", "no answer, trying again");
  const head = `${paint("bold", "hapax top")}  ${printable(where)}  ${state}  ${durability}\n\n`;
  const pairs: readonly (readonly [string, string])[] = [
    [
      "appends/s",
      `${count(figures.appendsPerSecond).padEnd(12)} ${barsOf(rates.slice(-POINTS_MAX))}`,
    ],
    ["bytes/s", size(figures.bytesPerSecond)],
    [
      "duplicates stopped",
      `${count(figures.duplicates)} (${count(figures.duplicatesPerSecond)}/s)`,
    ],
    ["fenced, gaps", `${count(figures.fenced)}, ${count(figures.gaps)}`],
    ["sync p50, p99", `${time(figures.syncMedianMs)}, ${time(figures.syncSlowMs)}`],
    ["live readers", count(figures.readers)],
    ["streams, keys", `${count(figures.streams)}, ${count(figures.keys)}`],
    ["stored, disk", `${size(figures.storedBytes)}, ${size(figures.fileBytes)}`],
    ["groups, lag", `${count(figures.groups)}, ${size(figures.groupLagBytes)}`],
    ["transactions", count(figures.transactions)],
  ];
  return `${head}${formatPairs(pairs, paint)}\n${paint("dim", "Ctrl-C ends it. The same in a browser: the address above.")}\n`;
}

export const topCommand: Command = {
  name: "top",
  summary: "show what a server does, live",
  usage: ["hapax top [options]"],
  positionalsMin: 0,
  positionalsMax: 0,
  options: [
    { name: "every", value: "seconds", help: "how often to look (default 1)" },
    { name: "count", value: "looks", help: "end after so many looks (default: with Ctrl-C)" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "On a terminal the figures are drawn anew with each look. Elsewhere each look is a line, and with --json a line of JSON.",
    "Sync is the time of a group commit: one write and, with fsync, one sync. Rates are those since the look before.",
    "With authentication the token needs the right observe.",
  ],
  examples: [
    ["what does the server do?", "hapax top"],
    ["a line each minute for a log", "hapax top --every 60 >> top.log"],
    ["one look for a script", "hapax top --count 1 --json"],
  ],
  run: runTop,
};
