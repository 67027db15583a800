/** `hapax read`: a stream from an offset to its tail, page by page, and then it ends. */

import {
  STREAM_NEXT_OFFSET,
  STREAM_START_OFFSET,
  STREAM_UP_TO_DATE,
} from "../protocol/header-names.ts";
import { elementStarts } from "../protocol/json.ts";
import { LAST_MAX } from "../protocol/limits.ts";
import { sseKind } from "../protocol/sse.ts";
import { parseCountOption } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { type CliAnswer, NO_SERVER, refusal, sendWithRetries } from "./http.ts";
import { createRecordWriter, RECORD_OPTIONS, type RecordWriter } from "./records.ts";
import { requireStart, START_OPTIONS, startOf, type StartQuery } from "./start.ts";
import { resolveStream, type Target } from "./target.ts";
import { createProgress } from "./terminal.ts";

/** Once a server has answered, a short absence is worth waiting for. */
const RETRY_SECONDS = 30;
/** What `--last` holds in memory. */
const HELD_BYTES_MAX = 64 * 1024 * 1024;

async function runRead(invocation: Invocation, context: Context): Promise<number> {
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const limit = { min: 1, max: Number.MAX_SAFE_INTEGER, fallback: Number.MAX_SAFE_INTEGER };
  let leftBytes = parseCountOption("limit-bytes", invocation.value("limit-bytes"), limit);
  // On a terminal the records themselves are progress enough.
  const isWatched = invocation.has("progress") || !context.stdout.isTerminal;
  const progress = isWatched
    ? createProgress(context, "read", invocation.has("progress"))
    : undefined;
  let writer: RecordWriter | undefined;
  let start: StartQuery = startOf(invocation, context) ?? { offset: "-1" };
  let offset = "offset" in start ? start.offset : "-1";
  let isAtTail = false;
  const held = "last" in start ? await lastPages(context, target, Number(start.last)) : [];
  for (let pages = 0; !isAtTail && leftBytes > 0; pages += 1) {
    const retrySeconds = pages === 0 ? 0 : RETRY_SECONDS;
    const page = held.shift() ?? (await readPage(context, target, start, retrySeconds));
    writer ??= createRecordWriter(invocation, context, page.contentType);
    const written = await writer.write(page.body, leftBytes);
    leftBytes -= written.bytes;
    await progress?.add(written.records, written.bytes);
    if (leftBytes > 0) offset = page.nextOffset;
    start = { offset: page.nextOffset };
    isAtTail = page.isAtTail;
  }
  await progress?.finish();
  await writer?.finish();
  if (invocation.has("show-offset")) await context.stderr.write(`next offset ${offset}\n`);
  return EXIT.done;
}

interface Page {
  readonly contentType: string;
  readonly body: Uint8Array;
  readonly startOffset: string | undefined;
  readonly nextOffset: string;
  readonly isAtTail: boolean;
}

/** Returns the pages with the last records, oldest first. They are asked for from the end, so all of them are held. */
async function lastPages(context: Context, target: Target, count: number): Promise<Page[]> {
  const pages: Page[] = [];
  let heldBytes = 0;
  let before: string | undefined;
  for (let left = count; left > 0;) {
    const last = { last: String(Math.min(left, LAST_MAX)) };
    const seconds = pages.length === 0 ? 0 : RETRY_SECONDS;
    const page = await readPage(context, target, last, seconds, before);
    const isText = sseKind(page.contentType) !== "json";
    const records = isText ? 0 : elementStarts(page.body).length;
    if (before !== undefined && records === 0) break;
    pages.unshift(page);
    heldBytes += page.body.length;
    left -= records;
    before = page.startOffset;
    if (heldBytes > HELD_BYTES_MAX) {
      throw new CommandFailure(EXIT.refused, `the last ${String(count)} records are too large`, [
        `more than ${String(HELD_BYTES_MAX)} bytes; ask for fewer, or use --since or --offset`,
      ]);
    }
    // What is not JSON has no records to count: a page of its last appends is all.
    if (isText || records === 0) break;
  }
  return pages;
}

async function readPage(
  context: Context,
  target: Target,
  start: StartQuery,
  retrySeconds: number,
  before?: string,
): Promise<Page> {
  const call = { target, method: "GET", query: { ...start, before } } as const;
  const { answer } = await sendWithRetries(context, call, retrySeconds);
  if (answer.status !== 200) throw refusal(target, answer);
  requireStart(target, start, answer);
  const nextOffset = answer.header(STREAM_NEXT_OFFSET);
  if (nextOffset === undefined) throw notAStream(target);
  const isAtTail = answer.header(STREAM_UP_TO_DATE) === "true";
  // A page that neither moves nor reaches the tail would be asked for without end.
  if (!isAtTail && "offset" in start && nextOffset === start.offset) throw notAStream(target);
  const startOffset = answer.header(STREAM_START_OFFSET);
  const contentType = contentTypeOf(answer);
  return { contentType, body: answer.body, startOffset, nextOffset, isAtTail };
}

export function contentTypeOf(answer: CliAnswer): string {
  return answer.header("content-type") ?? "application/octet-stream";
}

export function notAStream(target: Target): CommandFailure {
  return new CommandFailure(EXIT.refused, `${target.url} does not answer like a stream`, [
    NO_SERVER,
  ]);
}

export const readCommand: Command = {
  name: "read",
  summary: "print a stream up to its tail",
  usage: ["hapax read <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "offset", value: "offset", help: "start after this offset (default: the beginning)" },
    ...START_OPTIONS,
    { name: "limit-bytes", value: "bytes", help: "stop after this many bytes of data" },
    { name: "show-offset", help: "print the offset of the next read to stderr" },
    ...RECORD_OPTIONS,
    { name: "progress", help: "show progress also when stderr is not a terminal" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "JSON streams print one record a line, each with the exact bytes that were stored; other streams",
    "print their bytes. With --limit-bytes the offset shown is that of the last page printed in full.",
    "--last counts the appends of a stream that is not JSON. --since goes by the clock of the server.",
  ],
  examples: [
    ["all records", "hapax read orders"],
    ["the last ten", "hapax read orders --last 10"],
    ["what the last ten minutes have brought", "hapax read orders --since 10m"],
    ["those with an id above 100", "hapax read orders | jq 'select(.id > 100)'"],
    ["a copy of a binary stream", "hapax read photos/1 > photo.jpg"],
  ],
  run: runRead,
};
