/** What `append` sends: an argument, a file or standard input, read as it is needed. */

import { joinBytes } from "../base/bytes.ts";
import { LIMITS } from "../protocol/limits.ts";
import { splitJson } from "../protocol/json.ts";
import type { InputBatch } from "./batches.ts";
import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { usageFailure } from "./failure.ts";

export interface Source {
  readonly kind: "argument" | "file" | "stdin" | "nothing";
  readonly bytes: AsyncIterable<Uint8Array>;
}

export function chooseSource(
  invocation: Invocation,
  context: Context,
  signal: AbortSignal,
): Source {
  const data = invocation.positionals[1];
  const file = invocation.value("file");
  if (data !== undefined && file !== undefined) {
    throw usageFailure("give the data as an argument or with --file, not both");
  }
  if (file !== undefined && file !== "-") return { kind: "file", bytes: context.openFile(file) };
  if (data !== undefined && data !== "-") {
    return { kind: "argument", bytes: once(new TextEncoder().encode(data)) };
  }
  if (data === undefined && file === undefined && context.stdin.isTerminal) {
    if (invocation.has("close")) return { kind: "nothing", bytes: once(new Uint8Array(0)) };
    throw usageFailure("nothing to append: give data, use --file, or pipe data in", [
      "to type records at the terminal, give - as the data",
    ]);
  }
  return { kind: "stdin", bytes: untilAborted(context.stdin.bytes, signal) };
}

/** Ends a wait for input that may never arrive. The pending read is left alone: the process ends. */
async function* untilAborted(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  for (;;) {
    const next = await nextOrAbort(iterator.next(), signal);
    if (next.done === true) return;
    yield next.value;
  }
}

/** A listener for each read, removed after it: racing against one promise would collect them all. */
async function nextOrAbort<T>(next: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const cutOff = (): void => {
      reject(new Error("the input was cut off"));
    };
    signal.addEventListener("abort", cutOff, { once: true });
    next.then(resolve, reject).finally(() => {
      signal.removeEventListener("abort", cutOff);
    });
  });
}

// oxlint-disable-next-line require-await -- an async generator is what the readers of input expect
async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** One JSON value; the server makes a record of each element of an array. */
export async function* oneDocument(source: Source): AsyncGenerator<InputBatch> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of source.bytes) {
    parts.push(part);
    bytes += part.length;
    if (bytes > LIMITS.bodyBytesMax) {
      const limit = String(LIMITS.bodyBytesMax);
      throw usageFailure(`the document is larger than ${limit} bytes`, [
        "write one record a line and use --lines: then any size works",
      ]);
    }
  }
  const body = joinBytes(parts);
  const split = splitJson(body);
  if (split.kind === "invalid") {
    const advice = source.kind === "argument" ? ["a string needs its quotes: '\"text\"'"] : [];
    throw usageFailure(`the data is not JSON: ${split.reason}`, advice);
  }
  if (split.count === 0) throw usageFailure("an empty array has no records to append");
  yield { body, records: split.count, lastLine: 0, isCutByPause: false };
}
