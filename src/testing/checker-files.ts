/**
 * Histories of several processes: each process writes a file of its own, and the checker reads them as one history.
 *
 *   - a line that a killed process did not finish is no event, and the next process that opens the file cuts it
 *     off;
 *   - merged events are in the order of their clocks; invocations come first among events of one time, so that
 *     events that cannot be ordered count as concurrent.
 */

import {
  closeSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readSync,
  writeSync,
} from "node:fs";
import { createHistory, type History, type HistoryEvent } from "./checker-history.ts";

/** A history that is written to a file. */
export interface HistoryFile extends History, Disposable {
  /** Closes the file. */
  close(): void;
}

const NEWLINE = 10;
const END_BYTES_MAX = 65_536;

/**
 * Opens a file for the history of one process, and continues at its end. Each line is written when its
 * call returns, so it outlives a kill of the process (not a power cut). The events are not kept in memory.
 *
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { checkHistory, openHistoryFile, readHistory } from "hapax/testing";
 *
 * const path = join(mkdtempSync(join(tmpdir(), "history-")), "writer.jsonl");
 * const file = openHistoryFile(path);
 * file.invoke({ process: "writer", kind: "append", stream: "orders", records: [{ id: "a" }] }).ok();
 * file.close();
 * const verdict = checkHistory(readHistory([path]), { streams: { orders: [{ id: "a" }] } });
 * console.assert(verdict.ok && verdict.counts.operations === 1);
 * ```
 */
export function openHistoryFile(path: string): HistoryFile {
  const handle = openSync(path, "a+");
  cutUnfinishedLine(handle);
  const history = createHistory({ write: (line) => writeWhole(handle, line), isKept: false });
  const close = (): void => closeSync(handle);
  return { ...history, close, [Symbol.dispose]: close };
}

function writeWhole(handle: number, line: string): void {
  const bytes = Buffer.from(line);
  // A full disk takes a part without an error. The next call then throws.
  for (let at = 0; at < bytes.length;) at += writeSync(handle, bytes, at);
}

function cutUnfinishedLine(handle: number): void {
  let { size } = fstatSync(handle);
  const block = Buffer.alloc(END_BYTES_MAX);
  while (size > 0) {
    const from = Math.max(0, size - END_BYTES_MAX);
    const read = readSync(handle, block, 0, size - from, from);
    const newline = block.subarray(0, read).lastIndexOf(NEWLINE);
    if (newline >= 0) {
      ftruncateSync(handle, from + newline + 1);
      return;
    }
    size = from;
  }
  ftruncateSync(handle, 0);
}

/** Reads the histories of several processes of one machine, and merges them into one. Throws on a damaged line. */
export function readHistory(paths: readonly string[]): HistoryEvent[] {
  const events: HistoryEvent[] = [];
  let operations = 0;
  for (const path of paths) {
    // A restarted process counts from 0 again: a number means its newest operation.
    const numbers = new Map<number, number>();
    const lines = readFileSync(path, "utf8").split("\n");
    lines.pop(); // Behind the last newline there is nothing, or an incomplete line.
    for (const [index, line] of lines.entries()) {
      const event = parseEvent(line, `${path}:${index + 1}`);
      if (event.type === "invoke") {
        numbers.set(event.op, operations);
        operations += 1;
      }
      const op = numbers.get(event.op);
      if (op === undefined) throw new Error(`${path}:${index + 1}: the end of what never began`);
      events.push({ ...event, op });
    }
  }
  return events.toSorted(
    (one, other) =>
      one.atUs - other.atUs || Number(one.type !== "invoke") - Number(other.type !== "invoke"),
  );
}

const KINDS: readonly unknown[] = ["append", "transaction", "commit", "claim", "read"];
const ENDS: readonly unknown[] = ["ok", "fail", "unknown"];

/** Parses a line, and checks the members that the reader needs. The types checked the rest when it was written. */
function parseEvent(line: string, where: string): HistoryEvent {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new Error(`${where}: not JSON`, { cause });
  }
  const event = (value ?? {}) as Partial<
    Record<"type" | "op" | "process" | "atUs" | "call", unknown>
  >;
  const isInvocation =
    event.type === "invoke" && KINDS.includes((event.call as { kind?: unknown } | null)?.kind);
  if (
    !(isInvocation || ENDS.includes(event.type)) ||
    typeof event.op !== "number" ||
    typeof event.process !== "string" ||
    typeof event.atUs !== "number"
  ) {
    throw new Error(`${where}: not an event of a history`);
  }
  return value as HistoryEvent; // As far as the checks above go.
}
