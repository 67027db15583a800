/**
 * Publishes events to streams of a Hapax server, each batch as one transaction. PROTOCOL.md §19.
 *
 *   - a batch keeps the number that its relay gave it, so it is stored once, however often and by whichever relay it is
 *     sent;
 *   - if the server refuses a stream, the events for that stream fail, and the others go under another number. If it
 *     refuses the content of one event, that event alone fails: the publisher finds it by halving the batch;
 *   - a batch counts as refused only when no attempt of it can arrive any more: an empty transaction has used its
 *     number up;
 *   - JSON is stored as it was added, character for character: numbers keep all their digits.
 *   - a server that was restored from a backup takes nothing of a relay that knows it from before;
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
  /** The URL of the server. Give either this or a connection to it. */
  readonly url?: string | URL;
  readonly connection?: Connection;
  /** The options of the connection to `url`. */
  readonly clientOptions?: ClientOptions;
  /** Returns the path of the stream for an event. */
  readonly streamOf: (event: OutboxEvent) => string;
  /** `true` (default): a record is `{ id, topic, key, headers, payload }`. `false`: a record is the payload alone. */
  readonly hasEnvelope?: boolean;
  /**
   * Returns what to append for an event, in place of `hasEnvelope`: a JSON value, or text or bytes for a stream of text
   * or bytes.
   */
  readonly encode?: (event: OutboxEvent) => unknown;
  /** Creates missing streams with these options. Default: an event for a missing stream becomes a dead letter. */
  readonly create?: TransactionCreateOptions;
}

/** Refusals of the content of one event. The server does not say which event of the stream it means. */
const OF_CONTENT: ReadonlySet<string> = new Set([
  "content_type_mismatch",
  "invalid_request",
  "invalid_json",
  "body_too_large",
]);
/** Refusals that are about an event or its stream. All others are about the server, and no event is given up for them. */
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
/** Refusals of a stream that can come before the batch is sent. They name no operation. */
const OF_A_STREAM: ReadonlySet<string> = new Set(["stream_not_found", "stream_gone"]);
/** The most events in one transaction: each may need a create and an append. See limits.ts. */
const EVENTS_MAX = 500;
/** The most bytes in one transaction. About half of the server's limit, because encoding as JSON can make data longer. */
const BYTES_MAX = 8 * 1024 * 1024;

const decoder = new TextDecoder();

/**
 * Creates a publisher that appends events to streams of a Hapax server. Each batch is one transaction under the number
 * of its relay, so a relay that dies at any moment never stores an event twice. An event that the server refuses for
 * good becomes a dead letter.
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
    target: (signal) => hapax.incarnation({ signal }),
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

/** Returns the outcome of each event. Throws an error that leaves the outcome unknown. */
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

/** Turns a refusal into outcomes. Nothing is certain while an earlier attempt may still arrive. */
function refused(
  { isRetry }: PublishBatch,
  outcomes: readonly PublishOutcome[],
): readonly PublishOutcome[] | UncertainRefusal {
  return isRetry ? { isUncertain: true, outcomes } : outcomes;
}

/** Returns the missing streams. The client asks the server for the types of all streams before it sends anything. */
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
 * Sends an empty transaction under the number of the batch. If it arrives first, no attempt of the batch can be stored
 * any more. Otherwise its answer is that of the batch, which was stored.
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

function optionsOf({ identity, target, signal }: PublishBatch): TransactionOptions {
  const own = "key" in identity ? { key: identity.key } : { producer: identity };
  return { ...own, incarnation: target, signal };
}

/** Returns how many of the events fit into one transaction. Each may be for another stream. */
function fits(events: readonly OutboxEvent[]): number {
  let bytes = 0;
  for (const [at, { payload }] of events.entries()) {
    bytes += payload.length;
    if (at >= EVENTS_MAX || bytes > BYTES_MAX) return at;
  }
  return events.length;
}

/** Returns the record of an event; or its failure, if a function of the caller throws. */
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

/** Returns the record of an event as JSON, with bytes in base64. A payload of bytes without an envelope stays bytes. */
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

/** Returns the payload as the text of its JSON. Throws if it is not JSON. */
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
