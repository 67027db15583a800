/**
 * Publishes events to streams of a Hapax server, each batch as one transaction. PROTOCOL.md §19.
 *
 *   - a batch has the number that its relay gave it: however often it is sent, by whichever relay, it is stored once;
 *   - a refusal of a stream fails its events, and the others go under another number; a refusal of what an event has in it
 *     fails that event alone: halves find it;
 *   - a batch counts as refused only when no attempt of it can arrive any more: its number is used up by nothing;
 *   - JSON is stored as it was added, text for text: numbers keep all their digits.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import type { OutboxEvent } from "./log.ts";
import { JsonText } from "../../client/records.ts";
import type { ClientOptions } from "../../client/options.ts";
import {
  type Connection,
  connectServer,
  TransactionFailure,
  type TransactionOptions,
} from "../../client/processing.ts";
import type { TransactionCreateOptions } from "../../client/processing/draft.ts";
import type { Committed } from "../../client/processing/transactions.ts";
import type { PublishBatch, Publisher, PublishOutcome, UncertainRefusal } from "./publisher.ts";

/** Options of `hapaxPublisher`. */
export interface HapaxPublisherOptions {
  /** The server; or a connection to it. */
  readonly url?: string | URL;
  readonly connection?: Connection;
  /** The options of the connection to `url`. */
  readonly clientOptions?: ClientOptions;
  /** The path of the stream that an event goes to. */
  readonly streamOf: (event: OutboxEvent) => string;
  /** True, the default: records are `{ id, topic, key, headers, payload }`. False: the payload alone. */
  readonly hasEnvelope?: boolean;
  /** What is appended for an event, instead of `hasEnvelope`: a JSON value, or text or bytes for a stream of those. */
  readonly encode?: (event: OutboxEvent) => unknown;
  /** Creates streams that are not there. Default: an event for such a stream is a dead letter. */
  readonly create?: TransactionCreateOptions;
}

/** Refusals of what one event has in it: which one of its stream, the server does not say. */
const OF_CONTENT: ReadonlySet<string> = new Set([
  "content_type_mismatch",
  "invalid_request",
  "invalid_json",
  "body_too_large",
]);
/** Refusals that are about an event or its stream. Others are about the server, and no event is given up for them. */
const OF_AN_EVENT: ReadonlySet<string> = new Set([
  "stream_not_found",
  "stream_gone",
  "stream_closed",
  "stream_exists",
  "content_type_mismatch",
  "invalid_request",
  "invalid_json",
  "body_too_large",
]);
/** Those that the server may say before it is sent, naming no operation. */
const OF_A_STREAM: ReadonlySet<string> = new Set(["stream_not_found", "stream_gone"]);
/** Operations of one transaction; see limits.ts. An append and a create for each stream. */
const EVENTS_MAX = 500;
/** What one transaction carries at most, about half of the limit: JSON may become longer on its way. */
const BYTES_MAX = 8 * 1024 * 1024;

const decoder = new TextDecoder();

/**
 * Publishes to streams of a Hapax server. A batch is one transaction under the number of its relay: a relay that dies
 * anywhere never stores an event twice. What the server refuses for good becomes a dead letter.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { startNodeServer } from "hapax/node";
 * import { createOutbox, createRelay, hapaxPublisher } from "hapax/outbox";
 * import { connectServer } from "hapax/processing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const ledger = memoryLedger();
 * const outbox = createOutbox(ledger);
 * await ledger.transaction((tx) => outbox.add(tx, { topic: "orders", key: "17", payload: { cents: 5 } }));
 *
 * const publisher = hapaxPublisher({
 *   url: server.url,
 *   streamOf: ({ topic }) => `/v1/stream/${topic}`,
 *   create: {},
 * });
 * await createRelay(ledger, publisher).runOnce();
 *
 * const records = await connectServer(server.url).stream("/v1/stream/orders").read().values();
 * console.assert(JSON.stringify(records).includes('"payload":{"cents":5}'));
 * await server.stop();
 * ```
 */
export function hapaxPublisher(options: HapaxPublisherOptions): Publisher {
  const { url, connection, clientOptions } = options;
  if ((url === undefined) === (connection === undefined)) {
    throw new HapaxError("invalid_options", "either url or connection must be given");
  }
  const hapax = connection ?? connectServer(url ?? "", clientOptions);
  return {
    publish: (batch) => publish(hapax, options, batch),
    cancel: (batch) => cancel(hapax, batch),
    fits,
  };
}

interface Prepared {
  readonly stream: string;
  readonly data: unknown;
}

const PUBLISHED: PublishOutcome = { kind: "published" };
const SKIPPED: PublishOutcome = { kind: "skipped" };

async function publish(
  hapax: Connection,
  options: HapaxPublisherOptions,
  batch: PublishBatch,
): Promise<readonly PublishOutcome[] | UncertainRefusal> {
  const { events } = batch;
  const prepared = events.map((event) => prepare(options, event));
  if (prepared.some((one) => "kind" in one)) {
    return refused(
      batch,
      prepared.map((one) => ("kind" in one ? one : SKIPPED)),
    );
  }
  const records = prepared.flatMap((one) => ("kind" in one ? [] : [one]));
  // One call after the other, so that the number of a refused one leads to its stream.
  const calls: string[] = [];
  let collecting: number | undefined;
  try {
    const committed = await hapax.transaction((tx) => {
      const seen = new Set<string>();
      for (const [at, { stream, data }] of records.entries()) {
        collecting = at;
        if (options.create !== undefined && !seen.has(stream)) {
          seen.add(stream);
          tx.create(stream, options.create);
          calls.push(stream);
        }
        tx.append(stream, data);
        calls.push(stream);
      }
      collecting = undefined;
    }, optionsOf(batch));
    // The answer is that of an empty transaction, by which the number was used up.
    if (isEmpty(committed)) return events.map(() => SKIPPED);
    return events.map(() => PUBLISHED);
  } catch (error) {
    if (collecting !== undefined) {
      // The data of this one does not fit its stream; nothing was sent.
      const failed: PublishOutcome = { kind: "failed", error, isFinal: true };
      return refused(
        batch,
        events.map((_, at) => (at === collecting ? failed : SKIPPED)),
      );
    }
    if (isHapaxError(error, "producer_seq_reused")) {
      // An empty transaction has the number; or the batch has, as an earlier `encode` made it.
      const isStored = (await cancel(hapax, batch)) === "published";
      return events.map(() => (isStored ? PUBLISHED : SKIPPED));
    }
    return await outcomesOf(hapax, batch, records, calls, error);
  }
}

/** Throws what leaves the outcome unknown. */
async function outcomesOf(
  hapax: Connection,
  batch: PublishBatch,
  records: readonly Prepared[],
  calls: readonly string[],
  error: unknown,
): Promise<readonly PublishOutcome[] | UncertainRefusal> {
  const { events, signal } = batch;
  if (!(error instanceof TransactionFailure)) throw error;
  const skipped = events.map(() => SKIPPED);
  // The server has lost what came before: under a new epoch it begins anew.
  if (error.code === "producer_gap") return skipped;
  // An empty transaction has this key.
  if (error.code === "key_reused") return skipped;
  if (!OF_AN_EVENT.has(error.code)) throw error;
  if (error.outcome === "unknown") return { isUncertain: true, outcomes: skipped };
  const failed: PublishOutcome = { kind: "failed", error, isFinal: true };
  const named = error.operation === undefined ? undefined : calls[error.operation];
  const streams =
    named === undefined ? await missing(hapax, error, records, signal) : new Set([named]);
  if (events.length === 1) return refused(batch, [failed]);
  const isOfOne = records.filter(({ stream }) => streams.has(stream)).length === 1;
  if (OF_CONTENT.has(error.code) && !isOfOne) return refused(batch, skipped);
  return refused(
    batch,
    records.map(({ stream }) => (streams.has(stream) ? failed : SKIPPED)),
  );
}

/** Nothing is certain as long as something may be on its way. */
function refused(
  { isRetry }: PublishBatch,
  outcomes: readonly PublishOutcome[],
): readonly PublishOutcome[] | UncertainRefusal {
  return isRetry ? { isUncertain: true, outcomes } : outcomes;
}

/** The streams that are not there: the server was asked for their types before anything was sent, and named none. */
async function missing(
  hapax: Connection,
  { code }: HapaxError,
  records: readonly Prepared[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  if (!OF_A_STREAM.has(code)) return found;
  for (const stream of new Set(records.map((record) => record.stream))) {
    try {
      await hapax.stream(stream).head({ signal });
    } catch (error) {
      if (!isHapaxError(error) || !OF_A_STREAM.has(error.code)) throw error;
      found.add(stream);
    }
  }
  return found;
}

/**
 * Sends a transaction that does nothing under the number of the batch. Either it is the first to arrive, and its answer
 * is the answer to all that still comes under the number; or the answer is that of the batch, which was stored.
 */
async function cancel(hapax: Connection, batch: PublishBatch): Promise<"published" | "cancelled"> {
  try {
    const committed = await hapax.transaction((tx) => {
      tx.expect(`/${batch.source}`, { absent: true });
    }, optionsOf(batch));
    if (!committed.isDuplicate || isEmpty(committed)) return "cancelled";
    if (committed.hasAnswer) return "published";
    const words = `the server knows the batch, and no more what it was; relay=${batch.relay}`;
    throw new HapaxError("outcome_unknown", words);
  } catch (error) {
    // The server has the batch under it, and tells other content apart.
    if (isHapaxError(error, "key_reused")) return "published";
    if (isHapaxError(error, "producer_seq_reused")) return "published";
    if (isHapaxError(error, "producer_gap")) return "cancelled";
    throw error;
  }
}

/** A batch has appends, and so its answer has offsets. */
function isEmpty({ offsets, hasAnswer }: Committed<unknown>): boolean {
  return hasAnswer && offsets.size === 0;
}

function optionsOf({ identity, signal }: PublishBatch): TransactionOptions {
  return "key" in identity ? { key: identity.key, signal } : { producer: identity, signal };
}

/** How many of them fit into one transaction: each may be for another stream. */
function fits(events: readonly OutboxEvent[]): number {
  let bytes = 0;
  for (const [at, { payload }] of events.entries()) {
    bytes += payload.length;
    if (at >= EVENTS_MAX || bytes > BYTES_MAX) return at;
  }
  return events.length;
}

/** The record of an event, or its failure: what the caller's functions throw. */
function prepare(options: HapaxPublisherOptions, event: OutboxEvent): Prepared | PublishOutcome {
  const { streamOf, encode, hasEnvelope = true } = options;
  try {
    const stream = streamOf(event);
    const data = encode === undefined ? recordOf(event, hasEnvelope) : encode(event);
    return { stream, data };
  } catch (error) {
    return { kind: "failed", error, isFinal: true };
  }
}

/** As JSON, what cannot be said in it as base64; alone, bytes stay bytes. */
function recordOf(event: OutboxEvent, isWrapped: boolean): unknown {
  const { id, topic, key, headers, payload } = event;
  const type = headers["content-type"] ?? "";
  const isJson = type.startsWith("application/json");
  const isText = type.startsWith("text/");
  if (!isWrapped && !isJson && !isText) return payload;
  if (isJson) {
    const text = jsonTextOf(payload);
    if (!isWrapped) return new JsonText(text);
    const facts = JSON.stringify({ id, topic, key: key ?? null, headers });
    return new JsonText(`${facts.slice(0, -1)},"payload":${text}}`);
  }
  const value = isText ? decoder.decode(payload) : base64Of(payload);
  return isWrapped ? { id, topic, key: key ?? null, headers, payload: value } : value;
}

/** Throws for what is no JSON. */
function jsonTextOf(payload: Uint8Array): string {
  const text = decoder.decode(payload);
  JSON.parse(text);
  return text;
}

function base64Of(bytes: Uint8Array): string {
  const parts: string[] = [];
  // A call has a limited number of arguments.
  for (let at = 0; at < bytes.length; at += 8192) {
    parts.push(String.fromCharCode(...bytes.subarray(at, at + 8192)));
  }
  return btoa(parts.join(""));
}
