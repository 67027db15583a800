/**
 * `hapax append`: input of any size, stored exactly once.
 *
 *   - each request carries an identity (a producer and its sequence, or a key) and is repeated under it until
 *     an answer arrives; the next one is sent only then;
 *   - with `--key` the whole input is one request, or nothing of it is sent;
 *   - with `--if-match` the first request names that tail and each other one the end of the one before it:
 *     the input is stored without foreign appends in between, up to the first that comes.
 */

import { STREAM_CLOSED, STREAM_NEXT_OFFSET } from "../protocol/header-names.ts";
import { LIMITS } from "../protocol/limits.ts";
import { sseKind } from "../protocol/sse.ts";
import {
  appendRefusal,
  count,
  emptyTally,
  report,
  reusedNumber,
  type AppendTally,
  whatIsStored,
} from "./append-outcome.ts";
import { parseCountOption, quote } from "./arguments.ts";
import { type InputBatch, batchBytes, batchLines } from "./batches.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { type CliAnswer, refusal, sendWithRetries } from "./http.ts";
import {
  chooseIdentity,
  type AppendIdentity,
  identityHeaders,
  identityOption,
} from "./identity.ts";
import { chooseSource, oneDocument, type Source } from "./input.ts";
import { resolveStream, type Target } from "./target.ts";
import { createProgress } from "./terminal.ts";

/** Large enough that the request costs nothing beside its bytes; far below every server's limit. */
const JSON_BATCH_BYTES_MAX = 256 * 1024;
const BYTES_BATCH_BYTES_MAX = 1024 * 1024;
/** A pipe that is silent for so long is a person or a log file: send what there is. */
const PAUSE_MS = 50;

interface Job {
  readonly target: Target;
  readonly contentType: string;
  readonly identity: AppendIdentity;
  /** What `--if-match` says. */
  readonly firstTail: string | undefined;
  readonly retrySeconds: number;
  readonly closes: boolean;
  readonly signal: AbortSignal;
}

async function runAppend(invocation: Invocation, context: Context): Promise<number> {
  const stopped = new AbortController();
  const source = chooseSource(invocation, context, stopped.signal);
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const forget = context.onSignal((signal) => {
    stopped.abort(signal);
  });
  const range = { min: 0, max: 86_400, fallback: 60 };
  const retrySeconds = parseCountOption("retry-seconds", invocation.value("retry-seconds"), range);
  const identity = chooseIdentity(invocation, context);
  const firstTail = checkOffset(invocation.value("if-match"));
  const closes = invocation.has("close");
  const { signal } = stopped;
  const tally = emptyTally();
  try {
    const contentType = await learnContentType(invocation, context, target, retrySeconds, signal);
    const job: Job = { target, contentType, identity, firstTail, retrySeconds, closes, signal };
    await appendAll(invocation, context, job, source, tally);
    await report(invocation, context, identity, closes, tally);
    return EXIT.done;
  } catch (error) {
    const failure = signal.aborted ? interrupted(signal.reason) : error;
    if (!(failure instanceof CommandFailure)) throw failure;
    throw failure.withAdvice(
      whatIsStored(tally, identityOption(invocation, identity), source.kind),
    );
  } finally {
    forget();
  }
}

/** Any text that can stand in an entity tag: which offsets there are is for the server to say. */
function checkOffset(text: string | undefined): string | undefined {
  if (text === undefined || /^[!#-~]+$/.test(text)) return text;
  throw usageFailure(`--if-match is ${quote(text)}; allowed: an offset, without quotes`);
}

async function learnContentType(
  invocation: Invocation,
  context: Context,
  target: Target,
  retrySeconds: number,
  signal: AbortSignal,
): Promise<string> {
  const head = { target, method: "HEAD", signal } as const;
  const { answer } = await sendWithRetries(context, head, retrySeconds);
  const known = answer.header("content-type");
  if (answer.status === 200 && known !== undefined) return known;
  if (answer.status !== 404) throw refusal(target, answer);
  if (!invocation.has("create")) {
    throw refusal(target, answer).withAdvice([
      "create it first with hapax create, or add --create",
    ]);
  }
  const contentType = invocation.value("content-type") ?? "application/json";
  const headers = { "content-type": contentType };
  // Creating again with the same configuration is no error, so another creator may win this race.
  const call = { target, method: "PUT", headers, signal } as const;
  const created = (await sendWithRetries(context, call, retrySeconds)).answer;
  if (created.status !== 200 && created.status !== 201) throw refusal(target, created);
  return created.header("content-type") ?? contentType;
}

async function appendAll(
  invocation: Invocation,
  context: Context,
  job: Job,
  source: Source,
  tally: AppendTally,
): Promise<void> {
  const progress = createProgress(context, "appended", invocation.has("progress"));
  const isKeyed = job.identity.kind === "key";
  const append = async (batch: InputBatch | undefined, closes: boolean): Promise<void> => {
    await appendBatch(context, job, batch, closes, tally);
    if (batch !== undefined) await progress.add(batch.records, batch.body.length);
  };
  // A close travels with the last batch, and a key with the only one: it is held back until that is known.
  const holds = job.closes || isKeyed;
  let held: InputBatch | undefined;
  try {
    for await (const batch of chooseBatches(invocation, context, job, source)) {
      job.signal.throwIfAborted();
      if (isKeyed && held !== undefined) throw tooLargeForKey();
      const ready = holds ? held : batch;
      held = batch;
      if (ready !== undefined) await append(ready, false);
    }
    if (held === undefined && !job.closes) refuseEmpty(job);
    if (job.closes || (isKeyed && held !== undefined)) await append(held, job.closes);
  } finally {
    await progress.finish();
  }
}

function tooLargeForKey(): CommandFailure {
  const limit = String(LIMITS.bodyBytesMax);
  return usageFailure(`the input needs more than one request of ${limit} bytes; a key is for one`, [
    "nothing was sent; use --producer for input of any size, or a key for each part",
  ]);
}

/** Without a request the server has not checked the condition or stored the key: that must not look like success. */
function refuseEmpty({ identity, firstTail }: Job): void {
  if (identity.kind === "key") throw usageFailure("the input is empty: there is nothing for --key");
  if (firstTail !== undefined) {
    throw usageFailure("the input is empty: nothing was appended, and --if-match was not checked");
  }
}

function chooseBatches(
  invocation: Invocation,
  context: Context,
  job: Job,
  source: Source,
): AsyncIterable<InputBatch> {
  const isJson = sseKind(job.contentType) === "json";
  if (invocation.has("lines") && invocation.has("document")) {
    throw usageFailure("--lines and --document exclude each other");
  }
  if (!isJson && (invocation.has("lines") || invocation.has("document"))) {
    throw usageFailure(`--lines and --document are for JSON; the stream is ${job.contentType}`);
  }
  const isKeyed = job.identity.kind === "key";
  // Under an identity that the caller named, the command must be repeatable: no pause may cut.
  const isNamed = isKeyed || invocation.value("producer") !== undefined;
  const isPaced = source.kind === "stdin" && !isNamed;
  const pause = isPaced ? { pause: () => context.wait(PAUSE_MS) } : {};
  const lineBytesMax = LIMITS.bodyBytesMax;
  if (!isJson) {
    const batchBytesMax = isKeyed ? LIMITS.bodyBytesMax : BYTES_BATCH_BYTES_MAX;
    return batchBytes(source.bytes, { batchBytesMax, ...pause });
  }
  const isDocument = source.kind === "argument" && !invocation.has("lines");
  if (isDocument || invocation.has("document")) return oneDocument(source);
  const batchBytesMax = isKeyed ? LIMITS.bodyBytesMax : JSON_BATCH_BYTES_MAX;
  return batchLines(source.bytes, { batchBytesMax, lineBytesMax, ...pause });
}

async function appendBatch(
  context: Context,
  job: Job,
  batch: InputBatch | undefined,
  closes: boolean,
  tally: AppendTally,
): Promise<void> {
  const { target, identity, firstTail } = job;
  tally.underWay = batch;
  tally.wasCutByPause ||= batch?.isCutByPause ?? false;
  const expectedTail = tally.sequence === 0 ? firstTail : tally.nextOffset;
  const isConditional = firstTail !== undefined;
  const retried = await sendWithRetries(
    context,
    {
      target,
      method: "POST",
      signal: job.signal,
      headers: {
        ...identityHeaders(identity, tally.sequence),
        ...(isConditional ? { "if-match": `"${expectedTail ?? ""}"` } : {}),
        ...(batch === undefined ? {} : { "content-type": job.contentType }),
        ...(closes ? { [STREAM_CLOSED]: "true" } : {}),
      },
      ...(batch === undefined ? {} : { body: batch.body }),
    },
    job.retrySeconds,
  );
  const { answer } = retried;
  if (answer.status !== 200 && answer.status !== 204) {
    const condition = isConditional ? expectedTail : undefined;
    throw appendRefusal(target, identity, retried, condition, tally);
  }
  const reused = reusedNumber(target, identity, retried, tally);
  if (reused !== undefined) throw reused;
  count(tally, identity, batch, retried);
  if (isConditional && batch !== undefined) requireTag(target, answer);
}

/** A server that does not know the condition takes the append all the same; only the tag tells. */
function requireTag(target: Target, answer: CliAnswer): void {
  if (answer.header("etag") !== undefined && answer.header(STREAM_NEXT_OFFSET) !== undefined)
    return;
  throw new CommandFailure(
    EXIT.refused,
    `appended, but the server did not check --if-match: ${target.label}`,
    ["its answer has no ETag; compare-and-append is an extension that other servers may not have"],
  );
}

function interrupted(reason: unknown): CommandFailure {
  return new CommandFailure(reason === "SIGTERM" ? 143 : 130, "interrupted");
}

export const appendCommand: Command = {
  name: "append",
  summary: "add records or bytes to a stream, exactly once",
  usage: [
    "hapax append <stream> [data | -] [options]",
    "hapax append <stream> --file <file> [options]",
  ],
  positionalsMin: 1,
  positionalsMax: 2,
  options: [
    { name: "file", value: "file", help: "read the data from a file, - for standard input" },
    { name: "lines", help: "each line is one JSON record (default for files and standard input)" },
    {
      name: "document",
      help: "the input is one JSON value; an array gives one record per element",
    },
    { name: "create", help: "create the stream if there is none" },
    { name: "content-type", value: "type", help: "with --create (default application/json)" },
    { name: "close", help: "close the stream together with the last append" },
    { name: "producer", value: "id", help: "identity of this writer (default a random one)" },
    { name: "epoch", value: "number", help: "epoch of the producer (default 0)" },
    {
      name: "session",
      value: "nonce",
      help: "instead of --epoch: a random text; the server numbers the epochs",
    },
    { name: "key", value: "key", help: "instead of --producer: the whole input is one append" },
    { name: "if-match", value: "offset", help: "append only if this is the tail" },
    {
      name: "retry-seconds",
      value: "seconds",
      help: "give up after this many seconds without an answer (default 60)",
    },
    { name: "progress", help: "show progress also when stderr is not a terminal" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Every request carries an identity. If no answer arrives, the command repeats the request under it: a lost",
    "answer never becomes a second record. Input of any size is sent in requests of up to 256 KiB (JSON) or 1 MiB.",
    "With --producer you can run the whole command again after a crash: on the same input, the server recognises",
    "what it has stored. Do not use the id for other input: the server refuses that, or takes it for a repetition.",
    "",
    "--session begins a new epoch of the producer and fences its former writers. You need not keep a number.",
    "",
    "With --key the input is one request of up to 16 MiB. The stream remembers the key for a time (see",
    "hapax create): it stores the same key with the same input once, and refuses the key with other input.",
    "",
    "With --if-match the server refuses the append, with exit code 1, if the stream has another tail. If the",
    "input needs several requests, each one names the end of the one before it.",
  ],
  examples: [
    ["one record", `hapax append orders '{"id": 1, "item": "tea"}'`],
    [
      "a file of JSON lines; run it again if it was interrupted",
      "hapax append orders --file orders.jsonl --producer import-7",
    ],
    ["follow a log", "tail -f app.jsonl | hapax append logs --create"],
    [
      "stored once, even if this runs several times today",
      "hapax append reports --file today.jsonl --key 2026-11-16",
    ],
    [
      "only if the stream has not changed since",
      `hapax append orders '{"id": 2}' --if-match 0000000000000000_0000000000000009`,
    ],
    ["the last record, and no more", `hapax append orders '{"done": true}' --close`],
  ],
  run: runAppend,
};
