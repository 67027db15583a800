/** `hapax inspect`: what is in a directory. Nothing in it is changed. */

import type { Inspection, StreamReport } from "../streams/stores/file/inspection.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import {
  chooseHold,
  createBar,
  formatBytes,
  formatTime,
  NO_LOCK_OPTION,
  PROGRESS_OPTION,
  withDirectory,
} from "./directory.ts";
import { EXIT } from "./failure.ts";
import { countOf, createPaint, formatCount, formatPairs, formatTable } from "./terminal.ts";

const TOP_STREAMS = 10;
/** Lines that are written with one call. */
const CHUNK_LINES = 1000;

async function runInspect(invocation: Invocation, context: Context): Promise<number> {
  const hold = await chooseHold(invocation, context);
  return withDirectory(invocation, hold, async ({ disk }) => {
    const { inspectDisk } = await import("../streams/stores/file/inspection.ts");
    const bar = createBar(invocation, context, "reading");
    const inspection = await inspectDisk(disk, bar.show);
    await bar.finish();
    if (invocation.has("json")) await printJson(invocation, context, inspection);
    else await printReport(invocation, context, inspection);
    return inspection.refusal === undefined ? EXIT.done : EXIT.refused;
  });
}

async function printJson(
  invocation: Invocation,
  context: Context,
  inspection: Inspection,
): Promise<void> {
  const { streams, ...facts } = inspection;
  const top = largest(streams());
  await context.stdout.write(`${JSON.stringify({ ...facts, largestStreams: top })}\n`);
  if (!invocation.has("streams")) return;
  let lines: string[] = [];
  for (const stream of streams()) {
    lines.push(`${JSON.stringify(stream)}\n`);
    if (lines.length < CHUNK_LINES) continue;
    await context.stdout.write(lines.join(""));
    lines = [];
  }
  await context.stdout.write(lines.join(""));
}

async function printReport(
  invocation: Invocation,
  context: Context,
  inspection: Inspection,
): Promise<void> {
  const paint = createPaint(context.stdout, context.env);
  const parts = [formatPairs(summaryOf(inspection, context.nowMs()), paint)];
  const segments = inspection.segments.map((segment) => [
    segment.file,
    segment.firstLsn === undefined ? "unknown" : String(segment.firstLsn),
    formatCount(segment.frames),
    `${formatBytes(segment.usedBytes)} of ${formatBytes(segment.fileBytes)}`,
    segment.liveBytes === undefined ? "unknown" : percent(segment.liveBytes, segment.fileBytes),
    segment.isDamaged ? "damaged" : "",
  ]);
  parts.push(formatTable(["SEGMENT", "FIRST LSN", "FRAMES", "USED", "LIVE", ""], segments, paint));
  if (inspection.snapshots.length > 0) {
    const rows = inspection.snapshots.map((snapshot) => [
      snapshot.file,
      formatTime(snapshot.writtenAtMs),
      formatCount(snapshot.streams),
      formatBytes(snapshot.fileBytes),
      snapshot.fault ?? "whole",
    ]);
    parts.push(formatTable(["SNAPSHOT", "WRITTEN", "STREAMS", "SIZE", "STATE"], rows, paint));
  }
  const all = invocation.has("streams");
  const listed = all ? [...inspection.streams()] : largest(inspection.streams());
  if (listed.length > 0) {
    const title = all ? "STREAM" : "LARGEST STREAMS";
    const header = [title, "CONTENT TYPE", "TAIL", "BYTES", "STATE", "PRODUCERS", "EXTENTS"];
    parts.push(formatTable(header, listed.map(streamRow), paint));
  }
  await context.stdout.write(parts.join("\n"));
}

function summaryOf(inspection: Inspection, nowMs: number): [string, string][] {
  const { lsn, torn, state, refusal, segments, spares, unfinished, others } = inspection;
  const fileBytes = segments.reduce((sum, segment) => sum + segment.fileBytes, 0);
  const range = lsn === undefined ? "no frame" : `LSN ${lsn.first} to ${lsn.last}`;
  const files = `${countOf(segments.length, "segment")}, ${formatBytes(fileBytes)}`;
  const pairs: [string, string][] = [["journal", `${range}, ${files}`]];
  if (state !== undefined) {
    const live = segments.reduce((sum, segment) => sum + (segment.liveBytes ?? 0), 0);
    pairs.push(
      ["live", `${formatBytes(live)} (${percent(live, fileBytes)})`],
      ["streams", `${formatCount(state.streams)} with ${formatBytes(state.dataBytes)} of data`],
      ["producers", `${formatCount(state.producers)}, ${countOf(state.sessions, "session")}`],
      ["idempotency keys", formatCount(state.keys)],
      ["subscriptions", formatCount(state.subscriptions)],
      ["groups", formatCount(state.groups)],
      ["signing keys", formatCount(state.signingKeys)],
      ["journal time", describeTime(state.timeMs, nowMs)],
    );
  }
  pairs.push(["spare files", formatCount(spares.length)]);
  const { snapshotUsed } = inspection;
  if (snapshotUsed !== undefined)
    pairs.push(["starts from", `the snapshot of LSN ${snapshotUsed}`]);
  if (torn !== undefined) pairs.push(["torn end", `${torn.file} at ${torn.position}: ${TORN}`]);
  if (unfinished.length > 0) pairs.push(["unfinished", `${unfinished.join(", ")}: ${UNFINISHED}`]);
  if (others.length > 0) pairs.push(["other files", others.join(", ")]);
  if (refusal !== undefined) pairs.push(["damaged", `${refusal} (see: hapax verify)`]);
  return pairs;
}

/** A journal that is ahead was written by a server whose clock was: expiry follows it until the clock catches up. */
function describeTime(timeMs: number, nowMs: number): string {
  const aheadMs = timeMs - nowMs;
  if (aheadMs < AHEAD_MS) return formatTime(timeMs);
  const hours = (aheadMs / 3_600_000).toFixed(1);
  return `${formatTime(timeMs)}, ${hours} hours ahead of this machine: a server ran with a wrong clock`;
}

/** Clocks of machines differ by less. */
const AHEAD_MS = 60_000;

const TORN = "never acknowledged; the next start writes over it";
const UNFINISHED = "the next start removes it";

function streamRow(stream: StreamReport): string[] {
  const closed = stream.isClosed ? "closed" : "open";
  return [
    stream.path,
    stream.contentType,
    String(stream.tail),
    formatBytes(stream.dataBytes),
    stream.isDeleted ? "kept for forks" : closed,
    formatCount(stream.producers),
    formatCount(stream.extents),
  ];
}

/** Without sorting a million. */
function largest(streams: Iterable<StreamReport>): StreamReport[] {
  const top: StreamReport[] = [];
  for (const stream of streams) {
    const last = top.at(-1);
    if (top.length === TOP_STREAMS && stream.dataBytes <= (last?.dataBytes ?? 0)) continue;
    top.push(stream);
    top.sort((one, other) => other.dataBytes - one.dataBytes);
    if (top.length > TOP_STREAMS) top.pop();
  }
  return top;
}

function percent(part: number, whole: number): string {
  return `${whole === 0 ? 0 : Math.round((100 * part) / whole)} %`;
}

export const inspectCommand: Command = {
  name: "inspect",
  summary: "show what is in a directory",
  usage: ["hapax inspect <directory> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "streams", help: "list all streams, not only the largest" },
    NO_LOCK_OPTION,
    PROGRESS_OPTION,
  ],
  details: [
    "Reads the whole directory and changes nothing in it. A server that uses it must be stopped first.",
    "With --json the first line is the report; with --streams one line for each stream follows.",
  ],
  examples: [
    ["files, state and the largest streams", "hapax inspect ./hapax-data"],
    ["every stream, for a script", "hapax inspect ./hapax-data --streams --json"],
  ],
  run: runInspect,
};
