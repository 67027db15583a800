/**
 * `hapax append`: input of any size, stored exactly once.
 *
 *   CA1  each request carries (producer, epoch, sequence) and is repeated under the same three until an
 *       answer arrives; the next one is sent only then;
 *   CA2  what is reported as stored was acknowledged; what is unknown is called unknown.
 */

import { LIMITS } from "../limits.ts";
import { sseKind } from "../wire/sse.ts";
import { parseCount } from "./arguments.ts";
import { type Batch, batchBytes, batchLines } from "./batches.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { refusal, type Retried, sendWithRetries } from "./http.ts";
import { chooseSource, oneDocument, type Source } from "./input.ts";
import { resolveStream, type Target } from "./target.ts";
import { countOf, createPaint, createProgress } from "./terminal.ts";

/** Large enough that the request costs nothing beside its bytes; far below every server's limit. */
const JSON_BATCH_BYTES_MAX = 256 * 1024;
const BYTES_BATCH_BYTES_MAX = 1024 * 1024;
/** A pipe that is silent for so long is a person or a log file: send what there is. */
const PAUSE_MS = 50;

interface Job {
  readonly target: Target;
  readonly contentType: string;
  readonly producerId: string;
  readonly epoch: number;
  readonly retrySeconds: number;
  readonly closes: boolean;
  readonly signal: AbortSignal;
}

interface Tally {
  sequence: number;
  /** Acknowledged by the server, in this run or before. */
  records: number;
  bytes: number;
  lastLine: number;
  /** Of them, known to the server before this run sent them. */
  knownRecords: number;
  knownRequests: number;
  nextOffset: string;
  /** The batch whose answer is awaited. */
  underWay: Batch | undefined;
  wasCutByPause: boolean;
}

async function runAppend(invocation: Invocation, context: Context): Promise<number> {
  const stopped = new AbortController();
  const source = chooseSource(invocation, context, stopped.signal);
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const forget = context.onSignal((signal) => {
    stopped.abort(signal);
  });
  const range = { min: 0, max: 86_400, fallback: 60 };
  const retrySeconds = parseCount("retry-seconds", invocation.value("retry-seconds"), range);
  const epoch = { min: 0, max: Number.MAX_SAFE_INTEGER, fallback: 0 };
  const tally = emptyTally();
  const producerId = invocation.value("producer") ?? `hapax-${context.random.id()}`;
  if (producerId === "") throw usageFailure("--producer is empty");
  try {
    const job: Job = {
      target,
      contentType: await learnContentType(
        invocation,
        context,
        target,
        retrySeconds,
        stopped.signal,
      ),
      producerId,
      epoch: parseCount("epoch", invocation.value("epoch"), epoch),
      retrySeconds,
      closes: invocation.has("close"),
      signal: stopped.signal,
    };
    await appendAll(invocation, context, job, source, tally);
    await report(invocation, context, job, tally);
    return EXIT.done;
  } catch (error) {
    const failure = stopped.signal.aborted ? interrupted(stopped.signal.reason) : error;
    if (!(failure instanceof CommandFailure)) throw failure;
    throw failure.withAdvice(whatIsStored(tally, producerId, source.kind));
  } finally {
    forget();
  }
}

function emptyTally(): Tally {
  return {
    sequence: 0,
    records: 0,
    bytes: 0,
    lastLine: 0,
    knownRecords: 0,
    knownRequests: 0,
    nextOffset: "",
    underWay: undefined,
    wasCutByPause: false,
  };
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
  const known = answer.headers.get("content-type");
  if (answer.status === 200 && known !== null) return known;
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
  return created.headers.get("content-type") ?? contentType;
}

async function appendAll(
  invocation: Invocation,
  context: Context,
  job: Job,
  source: Source,
  tally: Tally,
): Promise<void> {
  const progress = createProgress(context, "appended", invocation.has("progress"));
  const batches = chooseBatches(invocation, context, job, source);
  // A close travels with the last batch, so one batch is held back until it is known to be the last.
  let held: Batch | undefined;
  try {
    for await (const batch of batches) {
      job.signal.throwIfAborted();
      const ready = job.closes ? held : batch;
      held = batch;
      if (ready !== undefined) {
        await appendBatch(context, job, ready, false, tally);
        await progress.add(ready.records, ready.body.length);
      }
    }
    if (job.closes) await appendBatch(context, job, held, true, tally);
  } finally {
    await progress.finish();
  }
}

function chooseBatches(
  invocation: Invocation,
  context: Context,
  job: Job,
  source: Source,
): AsyncIterable<Batch> {
  const isJson = sseKind(job.contentType) === "json";
  if (invocation.has("lines") && invocation.has("document")) {
    throw usageFailure("--lines and --document exclude each other");
  }
  if (!isJson && (invocation.has("lines") || invocation.has("document"))) {
    throw usageFailure(`--lines and --document are for JSON; the stream is ${job.contentType}`);
  }
  // Under a producer that the caller named, the command must be repeatable: no pause may cut.
  const isPaced = source.kind === "stdin" && invocation.value("producer") === undefined;
  const pause = isPaced ? { pause: () => context.wait(PAUSE_MS) } : {};
  if (!isJson) {
    return batchBytes(source.bytes, { batchBytesMax: BYTES_BATCH_BYTES_MAX, ...pause });
  }
  const isDocument = source.kind === "argument" && !invocation.has("lines");
  if (isDocument || invocation.has("document")) return oneDocument(source);
  const lineBytesMax = LIMITS.bodyBytesMax;
  return batchLines(source.bytes, { batchBytesMax: JSON_BATCH_BYTES_MAX, lineBytesMax, ...pause });
}

async function appendBatch(
  context: Context,
  job: Job,
  batch: Batch | undefined,
  closes: boolean,
  tally: Tally,
): Promise<void> {
  tally.underWay = batch;
  tally.wasCutByPause ||= batch?.isCutByPause ?? false;
  const retried = await sendWithRetries(
    context,
    {
      target: job.target,
      method: "POST",
      signal: job.signal,
      headers: {
        "producer-id": job.producerId,
        "producer-epoch": String(job.epoch),
        "producer-seq": String(tally.sequence),
        ...(batch === undefined ? {} : { "content-type": job.contentType }),
        ...(closes ? { "stream-closed": "true" } : {}),
      },
      ...(batch === undefined ? {} : { body: batch.body }),
    },
    job.retrySeconds,
  );
  if (retried.answer.status !== 200 && retried.answer.status !== 204) {
    throw appendRefusal(job, retried, tally);
  }
  count(tally, batch, retried);
}

function appendRefusal(job: Job, retried: Retried, tally: Tally): CommandFailure {
  const { answer, attempts } = retried;
  // A refusal of the first attempt is final and nothing of it is stored. After an unanswered attempt
  // only the server's own sequence could tell, and it refused for another reason.
  if (attempts === 1 && answer.status < 500) tally.underWay = undefined;
  const failure = refusal(job.target, answer);
  const newer = answer.headers.get("producer-epoch");
  if (answer.status !== 403 || newer === null) return failure;
  return failure.withAdvice([`to take over from it: --epoch ${String(Number(newer) + 1)}`]);
}

function count(tally: Tally, batch: Batch | undefined, { answer, attempts }: Retried): void {
  tally.underWay = undefined;
  tally.sequence += 1;
  tally.nextOffset = answer.headers.get("stream-next-offset") ?? tally.nextOffset;
  if (batch === undefined) return;
  tally.records += batch.records;
  tally.bytes += batch.body.length;
  tally.lastLine = batch.lastLine;
  // 204 to a first attempt: the server had this sequence before this run. After a retry it is ours.
  if (answer.status === 204 && attempts === 1) {
    tally.knownRecords += batch.records;
    tally.knownRequests += 1;
  }
}

async function report(
  invocation: Invocation,
  context: Context,
  job: Job,
  tally: Tally,
): Promise<void> {
  const { records, bytes, nextOffset, knownRecords, knownRequests } = tally;
  if (invocation.has("json")) {
    const { producerId, epoch, closes } = job;
    const facts = { records, bytes, requests: tally.sequence, knownRecords, knownRequests };
    const line = JSON.stringify({ ...facts, nextOffset, producerId, epoch, closed: closes });
    await context.stdout.write(`${line}\n`);
    return;
  }
  const paint = createPaint(context.stdout, context.env);
  const what = records > 0 ? countOf(records, "record") : countOf(bytes, "byte");
  const isAllKnown = knownRequests > 0 && knownRequests === tally.sequence;
  const verb = isAllKnown ? "already stored" : "appended";
  const some = knownRequests > 0 && !isAllKnown ? `, ${knownWords(tally)} already stored` : "";
  const closed = job.closes ? ", stream closed" : "";
  const next = nextOffset === "" ? "" : `, next offset ${nextOffset}`;
  await context.stdout.write(`${paint("green", verb)} ${what}${some}${closed}${next}\n`);
}

function knownWords({ knownRecords, knownRequests }: Tally): string {
  return knownRecords > 0
    ? `${countOf(knownRecords, "record")} of them`
    : `${countOf(knownRequests, "request")} of them`;
}

function amount({ records, bytes, lastLine }: Tally): string {
  const lines = lastLine > 0 ? `, up to line ${String(lastLine)}` : "";
  return records > 0 ? `${countOf(records, "record")}${lines}` : countOf(bytes, "byte");
}

function whatIsStored(tally: Tally, producerId: string, source: Source["kind"]): string[] {
  if (tally.underWay === undefined) {
    return tally.sequence === 0 ? [] : [`stored before that: ${amount(tally)}; nothing after`];
  }
  const batch = tally.underWay;
  const unknown =
    batch.records > 0 ? countOf(batch.records, "record") : countOf(batch.body.length, "byte");
  const lines = batch.lastLine > 0 ? `, up to line ${String(batch.lastLine)}` : "";
  const known = tally.sequence === 0 ? "nothing" : amount(tally);
  const next =
    tally.wasCutByPause || source === "nothing"
      ? "before you send the rest, read the end of the stream to see whether they are there"
      : `to finish without duplicates: the same command, the same input, and --producer ${producerId}`;
  return [`known to be stored: ${known}; unknown: the ${unknown} after that${lines}`, next];
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
    { name: "close", help: "close the stream with the last append" },
    { name: "producer", value: "id", help: "identity of this writer (default a random one)" },
    { name: "epoch", value: "number", help: "epoch of the producer (default 0)" },
    {
      name: "retry-seconds",
      value: "seconds",
      help: "give up after so long without an answer (60)",
    },
    { name: "progress", help: "show progress also when stderr is not a terminal" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Every request carries an identity and is repeated under it when no answer comes back: a lost answer",
    "never becomes a second record. Input of any size is sent in requests of up to 256 KiB (JSON) or 1 MiB.",
    "With --producer the whole command can be run again after a crash: on the same input, what is stored",
    "already is recognised. Do not reuse the id for other input: it would be taken for a repetition.",
  ],
  examples: [
    ["one record", `hapax append orders '{"id": 1, "item": "tea"}'`],
    [
      "a file of JSON lines, which may be interrupted and run again",
      "hapax append orders --file orders.jsonl --producer import-7",
    ],
    ["follow a log", "tail -f app.jsonl | hapax append logs --create"],
    ["the last record, and no more", `hapax append orders '{"done": true}' --close`],
  ],
  run: runAppend,
};
