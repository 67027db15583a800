/** `hapax head` and `hapax list`: what there is, without reading it. */

import {
  PRODUCER_EPOCH,
  PRODUCER_ID,
  PRODUCER_NEXT_OFFSET,
  PRODUCER_SEQ,
  STREAM_CLOSED,
  STREAM_EXPIRES_AT,
  STREAM_NEXT_OFFSET,
  STREAM_TTL,
} from "../protocol/header-names.ts";
import { CLIENT_OPTIONS, type Command, type Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { EXIT } from "./failure.ts";
import { type CliAnswer, refusal, send } from "./http.ts";
import { checkProducerOption } from "./identity.ts";
import { keyFacts, keyPairs } from "./key-options.ts";
import { type ListEntry, jsonLines, readPages } from "./listing.ts";
import { notAStream } from "./read.ts";
import { compactionFacts, compactionPairs } from "./compaction.ts";
import { retentionFacts, retentionPairs } from "./retention.ts";
import { resolvePath, resolveStream, streamPath } from "./target.ts";
import { countOf, createPaint, formatPairs, formatTable, printable } from "./terminal.ts";

async function runHead(invocation: Invocation, context: Context): Promise<number> {
  const target = resolveStream(invocation, context, invocation.positionals[0] ?? "");
  const given = invocation.value("producer");
  const producerId = given === undefined ? undefined : checkProducerOption("producer", given);
  const headers: Record<string, string> =
    producerId === undefined ? {} : { [PRODUCER_ID]: producerId };
  const answer = await send(context, { target, method: "HEAD", headers });
  if (answer.status !== 200) throw refusal(target, answer);
  if (answer.header(STREAM_NEXT_OFFSET) === undefined) throw notAStream(target);
  const header = (name: string): string | undefined => answer.header(name);
  const closed = header(STREAM_CLOSED) === "true";
  const ttl = header(STREAM_TTL);
  const expiresAt = header(STREAM_EXPIRES_AT);
  const contentType = header("content-type") ?? "";
  const nextOffset = header(STREAM_NEXT_OFFSET) ?? "";
  const producer = producerId === undefined ? undefined : producerFacts(producerId, answer);
  if (invocation.has("json")) {
    const ttlSeconds = ttl === undefined ? undefined : Number(ttl);
    const facts = { path: target.label, contentType, nextOffset, closed, ttlSeconds, expiresAt };
    const more = { ...keyFacts(answer), ...retentionFacts(answer), ...compactionFacts(answer) };
    const line = JSON.stringify({ ...facts, ...more, producer });
    await context.stdout.write(`${line}\n`);
    return EXIT.done;
  }
  const pairs: [string, string][] = [
    ["stream", target.label],
    ["content type", contentType],
    ["next offset", nextOffset],
    ["closed", closed ? "yes" : "no"],
  ];
  if (ttl !== undefined) pairs.push(["time to live", `${ttl} s after the last use`]);
  if (expiresAt !== undefined) pairs.push(["expires at", expiresAt]);
  pairs.push(...retentionPairs(answer), ...compactionPairs(answer), ...keyPairs(answer));
  if (producer !== undefined) pairs.push(...producerPairs(producer));
  await context.stdout.write(formatPairs(pairs, createPaint(context.stdout, context.env)));
  return EXIT.done;
}

interface ProducerFacts {
  readonly producerId: string;
  /** Whether the stream has an append of it. */
  readonly known: boolean;
  readonly epoch?: number;
  readonly seq?: number;
  readonly nextOffset?: string;
}

function producerFacts(producerId: string, answer: CliAnswer): ProducerFacts {
  const epoch = answer.header(PRODUCER_EPOCH);
  const seq = answer.header(PRODUCER_SEQ);
  const nextOffset = answer.header(PRODUCER_NEXT_OFFSET);
  if (epoch === undefined || seq === null) return { producerId, known: false };
  const facts = { producerId, known: true, epoch: Number(epoch), seq: Number(seq) };
  return nextOffset === undefined ? facts : { ...facts, nextOffset };
}

function producerPairs(producer: ProducerFacts): [string, string][] {
  const { producerId, known, epoch, seq, nextOffset } = producer;
  if (!known) return [["producer", `${producerId}: not known to the stream`]];
  const pairs: [string, string][] = [
    ["producer", producerId],
    ["epoch", String(epoch)],
    ["last sequence", String(seq)],
  ];
  if (nextOffset !== undefined) pairs.push(["stored up to", nextOffset]);
  return pairs;
}

const LIST_PATH = "/_hapax/streams";

async function runList(invocation: Invocation, context: Context): Promise<number> {
  const target = resolvePath(invocation, context, LIST_PATH);
  const argument = invocation.positionals[0];
  const prefix = argument === undefined || argument === "" ? undefined : streamPath(argument);
  const streams: ListEntry[] = [];
  for await (const page of readPages(context, target, "streams", { prefix })) {
    if (invocation.has("json")) await context.stdout.write(jsonLines(page));
    else streams.push(...page);
  }
  if (!invocation.has("json")) await printStreams(context, streams, prefix);
  return EXIT.done;
}

async function printStreams(
  context: Context,
  streams: readonly ListEntry[],
  prefix: string | undefined,
): Promise<void> {
  if (streams.length === 0) {
    const where = prefix === undefined ? "" : ` under ${printable(prefix)}`;
    await context.stderr.write(`no streams${where}\n`);
    return;
  }
  const rows = streams.map((stream) => [
    stream.text("path"),
    stream.text("contentType"),
    stream.text("nextOffset"),
    stream.isTrue("closed") ? "closed" : "open",
  ]);
  const header = ["STREAM", "CONTENT TYPE", "NEXT OFFSET", "STATE"];
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  if (context.stderr.isTerminal) {
    await context.stderr.write(`${countOf(streams.length, "stream")}\n`);
  }
}

export const headCommand: Command = {
  name: "head",
  summary: "show what is known about a stream",
  usage: ["hapax head <stream> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "producer", value: "id", help: "also show what the stream knows about this producer" },
    ...CLIENT_OPTIONS,
  ],
  details: [
    "Shows the options for idempotency keys that the stream was created with; the server has the defaults.",
  ],
  examples: [
    ["type, tail and state", "hapax head orders"],
    ["how far is this writer?", "hapax head orders --producer import-7"],
  ],
  run: runHead,
};

export const listCommand: Command = {
  name: "list",
  summary: "list streams",
  usage: ["hapax list [prefix] [options]"],
  positionalsMin: 0,
  positionalsMax: 1,
  options: [...CLIENT_OPTIONS],
  details: [
    "A prefix is a name or a path, like a stream: orders/ lists all below /v1/stream/orders/.",
  ],
  examples: [
    ["all streams", "hapax list"],
    ["as JSON, one stream a line", "hapax list orders/ --json"],
  ],
  run: runList,
};
