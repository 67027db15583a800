/**
 * `hapax tail`: a stream as it grows, over SSE, through any number of connections.
 *
 *   - data is printed when its control event has arrived, and not before. The offset of that event is
 *     the only place to resume from: printing earlier would print again after a disconnect;
 *   - a connection resumes at the offset of the last control event, so nothing is left out.
 */

import { joinBytes } from "../base/bytes.ts";
import { STREAM_SSE_DATA_ENCODING } from "../protocol/header-names.ts";
import { backoffMs } from "../base/backoff.ts";
import { isHapaxError } from "../base/errors.ts";
import { isRepeatable } from "../base/repeatable.ts";
import { SSE_EVENT_CHARS_MAX } from "../protocol/limits.ts";
import { SseDecoder } from "../protocol/sse-decoder.ts";
import { parseCountOption } from "./arguments.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, systemCode } from "./failure.ts";
import { cliAnswerOf, begin, PAUSES, refusal, send, unreachable } from "./http.ts";
import { contentTypeOf, notAStream } from "./read.ts";
import { createRecordWriter, RECORD_OPTIONS, type RecordWriter } from "./records.ts";
import { requireStart, START_OPTIONS, startOf, type StartQuery } from "./start.ts";
import { resolveStream, type Target } from "./target.ts";

/** Servers recycle connections after about 60 s; one that is silent for longer has died unnoticed. */
const SILENCE_MS_MAX = 90_000;

interface Position {
  offset: string;
  /** Where the first events begin, if not at the offset. */
  start: StartQuery | undefined;
  cursor: string | undefined;
  isClosed: boolean;
  /** Control events seen: whether a connection brought anything. */
  controls: number;
  writer: RecordWriter | undefined;
}

async function runTail(invocation: Invocation, context: Context): Promise<number> {
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const range = { min: 0, max: 86_400 * 366, fallback: 60 };
  const retrySeconds = parseCountOption("retry-seconds", invocation.value("retry-seconds"), range);
  const start = startOf(invocation, context) ?? { offset: "now" };
  const position: Position = {
    offset: "offset" in start ? start.offset : "now",
    start,
    cursor: undefined,
    isClosed: false,
    controls: 0,
    writer: undefined,
  };
  const stopped = new AbortController();
  const forget = context.onSignal(() => {
    stopped.abort();
  });
  try {
    // The writer needs the content type, and a missing stream is better told before connecting.
    position.writer = await openWriter(invocation, context, target, stopped.signal);
    await follow(context, target, position, retrySeconds, stopped.signal);
  } catch (error) {
    if (!stopped.signal.aborted || systemCode(error) === "EPIPE") throw error;
    // Ctrl-C is how a person ends a tail: that is success.
  } finally {
    forget();
  }
  await position.writer?.finish();
  return EXIT.done;
}

async function openWriter(
  invocation: Invocation,
  context: Context,
  target: Target,
  signal: AbortSignal,
): Promise<RecordWriter> {
  const answer = await send(context, { target, method: "HEAD", signal });
  if (answer.status !== 200) throw refusal(target, answer);
  return createRecordWriter(invocation, context, contentTypeOf(answer));
}

async function follow(
  context: Context,
  target: Target,
  position: Position,
  retrySeconds: number,
  signal: AbortSignal,
): Promise<void> {
  let failures = 0;
  let lastContactMs = context.nowMs();
  while (!position.isClosed) {
    const before = position.controls;
    const failure = await connect(context, target, position, signal);
    signal.throwIfAborted();
    if (position.controls > before) {
      failures = 0;
      lastContactMs = context.nowMs();
      // A connection that brought something and ended is the server's recycling: go on at once.
      if (failure === undefined) continue;
    }
    failures += 1;
    const delayMs = backoffMs(failures, PAUSES, context.random.unit());
    if (context.nowMs() + delayMs - lastContactMs > retrySeconds * 1000) {
      throw (failure ?? notAStream(target)).withAdvice([
        `everything before offset ${position.offset} was printed; continue with --offset ${position.offset}`,
      ]);
    }
    await context.wait(delayMs, signal);
  }
}

/** One connection, until it ends. The failure is given back if another connection may help. */
async function connect(
  context: Context,
  target: Target,
  position: Position,
  signal: AbortSignal,
): Promise<CommandFailure | undefined> {
  let isPrinting = false;
  const start = position.start ?? { offset: position.offset };
  const query = { ...start, live: "sse", cursor: position.cursor };
  const live = begin(context, { target, method: "GET", query, signal }, SILENCE_MS_MAX);
  try {
    await live.send();
    if (live.status !== 200) {
      const failure = refusal(target, await cliAnswerOf(live));
      if (isRepeatable(live.status)) return failure;
      throw failure;
    }
    if (!/^text\/event-stream\b/i.test(live.header("content-type") ?? "")) {
      throw notAStream(target);
    }
    requireStart(target, start, live);
    const isBase64 = live.header(STREAM_SSE_DATA_ENCODING.toLowerCase()) === "base64";
    const consumer = createConsumer(position, isBase64);
    for await (const chunk of live.chunks()) {
      live.arm(SILENCE_MS_MAX);
      isPrinting = true;
      await consumer(chunk);
      isPrinting = false;
      if (position.isClosed) break;
    }
    return undefined;
  } catch (error) {
    // What was refused for good, and what stdout says, no other connection can cure.
    if (isPrinting || !isHapaxError(error, "unreachable")) throw error;
    return unreachable(target, error, `nothing heard for ${String(SILENCE_MS_MAX / 1000)} s`);
  } finally {
    live.cut();
  }
}

/** Holds data back until the control event that makes it safe. */
export function createConsumer(
  position: Position,
  isBase64: boolean,
  eventCharsMax = SSE_EVENT_CHARS_MAX,
): (chunk: Uint8Array) => Promise<void> {
  const encoder = new TextEncoder();
  const decoder = new SseDecoder();
  let held: Uint8Array[] = [];
  return async (chunk) => {
    for (const { event, data } of decoder.push(chunk)) {
      if (event === "data") {
        held.push(isBase64 ? Buffer.from(data, "base64") : encoder.encode(data));
      }
      if (event !== "control") continue;
      const control = parseControl(data);
      for (const part of joinable(position, held)) await position.writer?.write(part);
      held = [];
      position.offset = control.offset;
      position.start = undefined;
      position.cursor = control.cursor ?? position.cursor;
      position.isClosed = control.isClosed;
      position.controls += 1;
    }
    if (decoder.chars <= eventCharsMax) return;
    // No other connection can cure it: the same event would come again.
    const large = `an event has more than ${String(eventCharsMax)} characters`;
    throw new CommandFailure(EXIT.refused, large);
  };
}

/** Each JSON event is an array of its own; bytes may be written together. */
function joinable(position: Position, held: readonly Uint8Array[]): readonly Uint8Array[] {
  if (position.writer?.isJson === true || held.length < 2) return held;
  return [joinBytes(held)];
}

interface Control {
  readonly offset: string;
  readonly cursor: string | undefined;
  readonly isClosed: boolean;
}

function parseControl(data: string): Control {
  const refused = new CommandFailure(
    EXIT.refused,
    "the server sent a control event without offset",
  );
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch (cause) {
    throw new CommandFailure(EXIT.refused, refused.message, [], {}, { cause });
  }
  const fields = new Map<string, unknown>(Object.entries(value ?? {}));
  const offset = fields.get("streamNextOffset");
  const cursor = fields.get("streamCursor");
  if (typeof offset !== "string" || offset === "") throw refused;
  return {
    offset,
    cursor: typeof cursor === "string" ? cursor : undefined,
    isClosed: fields.get("streamClosed") === true,
  };
}

export const tailCommand: Command = {
  name: "tail",
  summary: "print a stream as it grows",
  usage: ["hapax tail <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "offset", value: "offset", help: "start after this offset (default: now)" },
    { name: "from-start", help: "start at the beginning of the stream" },
    ...START_OPTIONS,
    {
      name: "retry-seconds",
      value: "seconds",
      help: "give up after this many seconds without the server (default 60)",
    },
    ...RECORD_OPTIONS,
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Reconnects when a connection ends, and prints each record once. Ends with exit code 0 when the stream is closed",
    "and when you press Ctrl-C. Line breaks of text streams arrive as LF; `hapax read` is byte exact.",
  ],
  examples: [
    ["new records only", "hapax tail orders"],
    ["the last ten, and then new ones", "hapax tail orders --last 10"],
    ["all records, and then new ones", "hapax tail orders --from-start"],
  ],
  run: runTail,
};
