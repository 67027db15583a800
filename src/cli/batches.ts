/**
 * Input of any size to request bodies of bounded size, holding one batch in memory at a time.
 *
 *   - a batch closes when the next record would pass the limit; a record larger than it goes alone;
 *   - the same input gives the same batches, however its bytes arrive, unless a pause cuts one early
 *     (`isCutByPause`). Repeating a command under the same producer rests on this;
 *   - each line is checked to be one JSON value before it joins a batch: `1],[2` would be two records.
 */

import { joinBytes } from "../base/bytes.ts";
import { usageFailure } from "./failure.ts";

export interface InputBatch {
  readonly body: Uint8Array;
  readonly records: number;
  /** Number of the last input line in the batch, from 1; 0 when the input has no lines. */
  readonly lastLine: number;
  /** Cut by a pause of the input and not by its size. */
  readonly isCutByPause: boolean;
}

export interface LineBatchOptions {
  readonly batchBytesMax: number;
  readonly lineBytesMax: number;
  /** Settles when the input has paused long enough to send what there is; absent: never. */
  readonly pause?: () => Promise<void>;
}

const NEWLINE = 0x0a;

interface Line {
  readonly bytes: Uint8Array;
  readonly number: number;
}

/** Lines of JSON as arrays; blank lines are skipped. */
export async function* batchLines(
  source: AsyncIterable<Uint8Array>,
  options: LineBatchOptions,
): AsyncGenerator<InputBatch> {
  let lines: Uint8Array[] = [];
  let bytes = 0;
  let lastLine = 0;
  const take = (isCutByPause: boolean): InputBatch => {
    const batch = {
      body: encodeArray(lines, bytes),
      records: lines.length,
      lastLine,
      isCutByPause,
    };
    lines = [];
    bytes = 0;
    return batch;
  };
  for await (const next of withPauses(splitLines(source, options.lineBytesMax), options.pause)) {
    if (next === "paused") {
      if (lines.length > 0) yield take(true);
      continue;
    }
    for (const line of next) {
      const record = checkedRecord(line);
      if (record === undefined) continue;
      // One byte for the bracket or comma before each record, one for the closing bracket.
      if (lines.length > 0 && bytes + record.length + 2 > options.batchBytesMax) yield take(false);
      lines.push(record);
      bytes += record.length + 1;
      lastLine = line.number;
    }
  }
  if (lines.length > 0) yield take(false);
}

/** Bytes of a stream without records. */
export async function* batchBytes(
  source: AsyncIterable<Uint8Array>,
  options: { readonly batchBytesMax: number; readonly pause?: () => Promise<void> },
): AsyncGenerator<InputBatch> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  const take = (isCutByPause: boolean): InputBatch => {
    const batch = { body: joinBytes(parts), records: 0, lastLine: 0, isCutByPause };
    parts = [];
    bytes = 0;
    return batch;
  };
  for await (const next of withPauses(source, options.pause)) {
    if (next === "paused") {
      if (bytes > 0) yield take(true);
      continue;
    }
    let rest = next;
    while (rest.length > 0) {
      const part = rest.subarray(0, options.batchBytesMax - bytes);
      parts.push(part);
      bytes += part.length;
      rest = rest.subarray(part.length);
      if (bytes === options.batchBytesMax) yield take(false);
    }
  }
  if (bytes > 0) yield take(false);
}

/** All complete lines of a chunk at once: one await for each line would dominate the cost. */
async function* splitLines(
  source: AsyncIterable<Uint8Array>,
  lineBytesMax: number,
): AsyncGenerator<readonly Line[]> {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  let number = 1;
  const finish = (end: Uint8Array): Line => {
    const bytes = heldBytes === 0 ? end : joinBytes([...held, end]);
    held = [];
    heldBytes = 0;
    return { bytes, number: number++ };
  };
  for await (const chunk of source) {
    const lines: Line[] = [];
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      lines.push(finish(chunk.subarray(from, at)));
      from = at + 1;
    }
    if (from < chunk.length) {
      held.push(chunk.slice(from));
      heldBytes += chunk.length - from;
      if (heldBytes > lineBytesMax) {
        throw usageFailure(
          `line ${String(number)} of the input is longer than ${String(lineBytesMax)} bytes`,
        );
      }
    }
    if (lines.length > 0) yield lines;
  }
  if (heldBytes > 0) yield [finish(new Uint8Array(0))];
}

/** Passes the source on, with "paused" in between when nothing came for a while. */
async function* withPauses<T>(
  source: AsyncIterable<T>,
  pause: (() => Promise<void>) | undefined,
): AsyncGenerator<T | "paused"> {
  if (pause === undefined) {
    yield* source;
    return;
  }
  // The iterator is never asked to return: that would wait for the pending read, and the other end of a pipe
  // may stay silent without end after the server has refused.
  const iterator = source[Symbol.asyncIterator]();
  for (;;) {
    const next = iterator.next();
    // Awaited below as well; this only keeps a failure during the yield from being "unhandled".
    next.catch(() => {});
    const first = await Promise.race([next, pause().then(() => "paused" as const)]);
    if (first === "paused") yield first;
    const result = await next;
    if (result.done === true) return;
    yield result.value;
  }
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf] as const;

/** The line without white space around it; undefined for a blank one. */
function checkedRecord(line: Line): Uint8Array | undefined {
  const hasMark = line.number === 1 && BYTE_ORDER_MARK.every((byte, i) => line.bytes[i] === byte);
  const bytes = trim(hasMark ? line.bytes.subarray(BYTE_ORDER_MARK.length) : line.bytes);
  if (bytes.length === 0) return undefined;
  try {
    JSON.parse(decoder.decode(bytes));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw usageFailure(`line ${String(line.number)} of the input is not JSON: ${reason}`, [
      "each line must be one JSON value; for a document over several lines use --document",
    ]);
  }
  return bytes;
}

function trim(bytes: Uint8Array): Uint8Array {
  let from = 0;
  let to = bytes.length;
  while (from < to && isSpace(bytes[from])) from += 1;
  while (to > from && isSpace(bytes[to - 1])) to -= 1;
  return bytes.subarray(from, to);
}

/** White space as JSON knows it. */
function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d || byte === 0x0a;
}

function encodeArray(lines: readonly Uint8Array[], bytes: number): Uint8Array {
  const body = new Uint8Array(bytes + 1);
  let at = 0;
  for (const line of lines) {
    body[at] = at === 0 ? 0x5b : 0x2c; // "[" before the first, "," before the others
    body.set(line, at + 1);
    at += line.length + 1;
  }
  body[at] = 0x5d;
  return body;
}
