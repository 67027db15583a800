/**
 * POST on a stream: from headers and bytes to an `AppendCommand`, and from the outcome to status and
 * headers. PROTOCOL.md §4, §5.
 *
 *   H1  a header is taken as it stands or refused: nothing is trimmed, rounded or guessed;
 *   H2  the three producer headers come together or not at all;
 *   H3  JSON is split by bytes and never written anew.
 */

import type { AppendCommand, AppendDecision } from "../core/append.ts";
import type { ProducerClaim } from "../core/producer.ts";
import { isJson } from "../core/stream.ts";
import type { Epoch, ProducerId, Sequence } from "../core/types.ts";
import { HapaxError } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { HEADER, type HeaderGetter } from "./headers.ts";
import { splitJson } from "./json.ts";
import { invalid, type Refusal } from "./refusal.ts";
import { formatOffset, normaliseContentType, parseCount, parseTrue } from "./values.ts";

/** What the headers of an append say; known before the body is read. */
export type AppendHead = Omit<AppendCommand, "data">;

const EMPTY = new Uint8Array(0);

export function parseAppendHead(header: HeaderGetter): AppendHead {
  return {
    contentType: header("content-type"),
    closes: parseTrue(header("stream-closed")),
    producer: parseProducer(header),
    streamSeq: parseStreamSeq(header("stream-seq")),
  };
}

export function parseAppend(head: AppendHead, body: Uint8Array): AppendCommand {
  if (body.length === 0) {
    if (!head.closes) throw invalid("the body", "is empty; only a close may have none");
    return { ...head, data: EMPTY };
  }
  const { contentType, closes, producer, streamSeq } = head;
  if (contentType === undefined) throw invalid("Content-Type", "is missing");
  if (normaliseContentType(contentType) === undefined) {
    throw invalid("Content-Type", "is not a media type");
  }
  const data = parseRecords(contentType, body);
  if (data.length === 0) throw new HapaxError("invalid_json", "the array has no elements");
  return { data, contentType, closes, producer, streamSeq };
}

/** The bytes to store. For JSON: each record's own bytes and a comma, so that a read adds brackets only. */
export function parseRecords(contentType: string, body: Uint8Array): Uint8Array {
  if (!isJson(contentType)) return body;
  const split = splitJson(body);
  if (split.kind === "invalid") throw new HapaxError("invalid_json", split.reason);
  return split.stored;
}

function parseProducer(header: HeaderGetter): ProducerClaim | undefined {
  const id = header("producer-id");
  const epoch = header("producer-epoch");
  const sequence = header("producer-seq");
  if (id === undefined && epoch === undefined && sequence === undefined) return undefined;
  if (id === undefined || epoch === undefined || sequence === undefined) {
    throw invalid("Producer-Id, Producer-Epoch and Producer-Seq", "must be sent together");
  }
  if (id === "") throw invalid("Producer-Id", "is empty");
  if (id.length > LIMITS.producerIdBytesMax) {
    throw invalid("Producer-Id", `is longer than ${LIMITS.producerIdBytesMax} bytes`);
  }
  return {
    id: id as ProducerId,
    epoch: requireCount("Producer-Epoch", epoch) as Epoch,
    sequence: requireCount("Producer-Seq", sequence) as Sequence,
  };
}

function requireCount(name: string, text: string): number {
  const count = parseCount(text);
  if (count === undefined) throw invalid(name, "is not a whole number from 0 to 2^53-1");
  return count;
}

function parseStreamSeq(text: string | undefined): string | undefined {
  if (text === "") throw invalid("Stream-Seq", "is empty");
  if (text !== undefined && text.length > LIMITS.streamSeqBytesMax) {
    throw invalid("Stream-Seq", `is longer than ${LIMITS.streamSeqBytesMax} bytes`);
  }
  return text;
}

export interface AppendAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** The answer to a success, or the refusal. */
export function encodeAppend(
  outcome: AppendDecision,
  command: AppendCommand,
): AppendAnswer | Refusal {
  switch (outcome.kind) {
    case "accepted": {
      const headers: Record<string, string> = { [HEADER.nextOffset]: formatOffset(outcome.tail) };
      if (outcome.isClosed) headers[HEADER.closed] = "true";
      const { producer } = command;
      if (producer === undefined) return { status: 204, headers };
      headers[HEADER.producerEpoch] = String(producer.epoch);
      headers[HEADER.producerSeq] = String(producer.sequence);
      // A close without data has no new data to speak of: the protocol answers it with 204.
      return { status: command.data.length === 0 ? 204 : 200, headers };
    }
    case "duplicate": {
      const headers: Record<string, string> = {
        [HEADER.nextOffset]: formatOffset(outcome.tail),
        [HEADER.producerEpoch]: String(outcome.epoch),
        [HEADER.producerSeq]: String(outcome.lastSequence),
      };
      if (outcome.isClosed) headers[HEADER.closed] = "true";
      return { status: 204, headers };
    }
    case "already_closed":
      return { status: 204, headers: closedHeaders(formatOffset(outcome.tail)) };
    default:
      return encodeAppendRefusal(outcome);
  }
}

function closedHeaders(tail: string): Record<string, string> {
  return { [HEADER.nextOffset]: tail, [HEADER.closed]: "true" };
}

type AppendRefused = Exclude<
  AppendDecision,
  { readonly kind: "accepted" | "duplicate" | "already_closed" }
>;

function encodeAppendRefusal(outcome: AppendRefused): Refusal {
  switch (outcome.kind) {
    case "closed":
      return {
        code: "stream_closed",
        detail: "the stream was closed before this append",
        headers: closedHeaders(formatOffset(outcome.tail)),
      };
    case "content_type_mismatch":
      return {
        code: "content_type_mismatch",
        detail: `the stream has ${outcome.expected}`,
        facts: { expected: outcome.expected },
      };
    case "fenced":
      return {
        code: "producer_fenced",
        detail: `the current epoch is ${outcome.currentEpoch}`,
        headers: { [HEADER.producerEpoch]: String(outcome.currentEpoch) },
        facts: { currentEpoch: outcome.currentEpoch },
      };
    case "gap": {
      const { expected, received } = outcome;
      return {
        code: "producer_gap",
        detail: `expected sequence ${expected}, received ${received}`,
        headers: {
          [HEADER.producerExpectedSeq]: String(expected),
          [HEADER.producerReceivedSeq]: String(received),
        },
        facts: { expected, received },
      };
    }
    case "epoch_start":
      return {
        code: "epoch_start",
        detail: `expected sequence 0 in a new epoch, received ${outcome.received}`,
        facts: { expected: 0, received: outcome.received },
      };
    case "sequence_regression":
      return {
        code: "sequence_regression",
        detail: "a Stream-Seq must sort after the last one accepted, byte by byte",
        facts: { last: outcome.last },
      };
  }
}
