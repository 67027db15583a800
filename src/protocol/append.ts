/**
 * POST on a stream: parses headers and bytes into an `AppendCommand`, and encodes the outcome as status and headers.
 * PROTOCOL.md §4, §5, §14 to §17.
 *
 *   - a header is taken as it is or refused: nothing is trimmed, rounded or guessed;
 *   - the producer headers come together or not at all, and an append has one identity;
 *   - JSON is split by bytes and never written anew.
 */

import { NO_BYTES } from "../base/bytes.ts";
import type { AppendCommand, AppendDecision } from "../streams/core/append.ts";
import type { KeyClaim } from "../streams/core/keys.ts";
import type { ProducerClaim } from "../streams/core/producer.ts";
import { isJson } from "../streams/core/stream.ts";
import type { Epoch, Offset, ProducerId, Sequence, SessionNonce } from "../streams/core/types.ts";
import { HapaxError } from "../base/errors.ts";
import { LIMITS } from "./limits.ts";
import { closedHeaders, encodeAppendRefusal } from "./append-refusal.ts";
import { HEADER, type HeaderGetter, SENT } from "./headers.ts";
import { splitJson } from "./json.ts";
import { type KeyHead, parseKey } from "./key.ts";
import { parseWaitMs } from "./prefer.ts";
import { BETWEEN } from "../streams/core/scoped-name.ts";
import { invalid, type Refusal } from "./refusal.ts";
import {
  formatOffset,
  normaliseContentType,
  parseCount,
  parseOffset,
  parseTrue,
} from "./values.ts";

/** What the headers of an append say. It is known before the body is read. */
export type AppendHead = Omit<AppendCommand, "data" | "key"> & {
  readonly key: KeyHead | undefined;
  /** How long the append may wait for earlier ones, in milliseconds. */
  readonly waitMs: number;
};

export function parseAppendHead(header: HeaderGetter): AppendHead {
  const producer = parseProducer(header);
  const key = parseKey(header(SENT.idempotencyKey));
  if (key !== undefined && producer !== undefined) {
    throw invalid(HEADER.idempotencyKey, "and producer headers exclude each other");
  }
  if (header("if-none-match") !== undefined) throw invalid("If-None-Match", "is for PUT and GET");
  return {
    contentType: header("content-type"),
    closes: parseTrue(header(SENT.closed)),
    producer,
    key,
    streamSeq: parseStreamSeq(header(SENT.streamSeq)),
    expectedTail: parseIfMatch(header("if-match")),
    waitMs: producer === undefined ? 0 : patienceMs(header("prefer")),
  };
}

/** Returns the command without its key, which must be hashed first. */
export function parseAppend(head: AppendHead, body: Uint8Array): AppendCommand {
  const { contentType, closes, producer, streamSeq, expectedTail } = head;
  const key: KeyClaim | undefined = undefined;
  if (body.length === 0) {
    if (!closes) throw invalid("the body", "is empty; only a close may have none");
    return { data: NO_BYTES, contentType, closes, producer, key, streamSeq, expectedTail };
  }
  if (contentType === undefined) throw invalid("Content-Type", "is missing");
  const type = normaliseContentType(contentType);
  if (type === undefined) throw invalid("Content-Type", "is not a media type");
  const data = type.isJson ? splitRecords(body) : body;
  if (data.length === 0) throw new HapaxError("invalid_json", "the array has no elements");
  return { data, contentType, closes, producer, key, streamSeq, expectedTail };
}

/** Returns the bytes to store. For JSON: each record's own bytes and a comma, so that a read only adds brackets. */
export function parseRecords(contentType: string, body: Uint8Array): Uint8Array {
  return isJson(contentType) ? splitRecords(body) : body;
}

function splitRecords(body: Uint8Array): Uint8Array {
  const split = splitJson(body);
  if (split.kind === "invalid") throw new HapaxError("invalid_json", split.reason);
  return split.stored;
}

function parseProducer(header: HeaderGetter): ProducerClaim | undefined {
  const id = header(SENT.producerId);
  const epoch = header(SENT.producerEpoch);
  const sequence = header(SENT.producerSeq);
  const session = header(SENT.producerSession);
  if (id === undefined && epoch === undefined && sequence === undefined && session === undefined) {
    return undefined;
  }
  if (epoch !== undefined && session !== undefined) {
    throw invalid("Producer-Session and Producer-Epoch", "exclude each other");
  }
  if (id === undefined || sequence === undefined || (epoch ?? session) === undefined) {
    throw invalid(
      "Producer-Id, Producer-Epoch (or Producer-Session) and Producer-Seq",
      "must be sent together",
    );
  }
  return {
    id: parseProducerId(id),
    sequence: requireCount(HEADER.producerSeq, sequence) as Sequence,
    epoch: epoch === undefined ? undefined : (requireCount(HEADER.producerEpoch, epoch) as Epoch),
    session: session === undefined ? undefined : parseSession(session),
  };
}

/** Parses Producer-Id from a header, or from a part of a path. */
export function parseProducerId(id: string): ProducerId {
  if (id === "") throw invalid(HEADER.producerId, "is empty");
  if (id.length > LIMITS.producerIdBytesMax) {
    throw invalid(HEADER.producerId, `is longer than ${LIMITS.producerIdBytesMax} bytes`);
  }
  if (id.includes(BETWEEN)) throw invalid(HEADER.producerId, "has a NUL");
  return id as ProducerId;
}

const SESSION = /^[A-Za-z0-9._~-]+$/;

function parseSession(text: string): SessionNonce {
  if (!SESSION.test(text) || text.length > LIMITS.sessionBytesMax) {
    const grammar = `is not 1 to ${LIMITS.sessionBytesMax} letters, digits, - . _ or ~`;
    throw invalid(HEADER.producerSession, grammar);
  }
  return text as SessionNonce;
}

const TAG = /^"([^"]*)"$/;

// Anything but one offset in quotes matches no tail: the public draft wants 412 for it, not 400.
function parseIfMatch(text: string | undefined): Offset | "none" | undefined {
  if (text === undefined) return undefined;
  const tag = TAG.exec(text)?.[1];
  const offset = tag === undefined ? undefined : parseOffset(tag);
  return offset?.kind === "at" ? offset.offset : "none";
}

/** A preference that is not understood is ignored (RFC 7240, 2). */
function patienceMs(prefer: string | undefined): number {
  return Math.min(parseWaitMs(prefer) ?? 0, LIMITS.patienceSecondsMax * 1000);
}

function requireCount(name: string, text: string): number {
  const count = parseCount(text);
  if (count === undefined) throw invalid(name, "is not a whole number from 0 to 2^53-1");
  return count;
}

function parseStreamSeq(text: string | undefined): string | undefined {
  if (text === "") throw invalid(HEADER.streamSeq, "is empty");
  if (text !== undefined && text.length > LIMITS.streamSeqBytesMax) {
    throw invalid(HEADER.streamSeq, `is longer than ${LIMITS.streamSeqBytesMax} bytes`);
  }
  return text;
}

export interface AppendAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** Returns the answer to a success, or the refusal. */
export function encodeAppend(
  outcome: AppendDecision,
  command: AppendCommand,
): AppendAnswer | Refusal {
  switch (outcome.kind) {
    case "accepted": {
      const next = formatOffset(outcome.tail);
      const headers: Record<string, string> = { [HEADER.nextOffset]: next };
      if (outcome.isClosed) headers[HEADER.closed] = "true";
      if (command.expectedTail !== undefined) headers[HEADER.etag] = `"${next}"`;
      const { producer } = outcome.change;
      if (producer === undefined) return { status: 204, headers };
      headers[HEADER.producerEpoch] = String(producer.epoch);
      headers[HEADER.producerSeq] = String(producer.sequence);
      // A close without data has no new data: the protocol answers it with 204.
      return { status: command.data.length === 0 ? 204 : 200, headers };
    }
    case "duplicate": {
      const headers = repeatedHeaders(outcome, command);
      headers[HEADER.producerEpoch] = String(outcome.epoch);
      headers[HEADER.producerSeq] = String(outcome.lastSequence);
      // The public protocol has no refusal for it. Its clients take this for a success.
      if (outcome.isOther) headers[HEADER.producerSeqReused] = "true";
      return { status: 204, headers };
    }
    case "replayed": {
      const headers = repeatedHeaders(outcome, command);
      headers[HEADER.keyReplayed] = "true";
      return { status: 204, headers };
    }
    case "already_closed":
      return { status: 204, headers: closedHeaders(formatOffset(outcome.tail)) };
    default:
      return encodeAppendRefusal(outcome);
  }
}

/** Returns the headers of a retry: where its original ended. */
function repeatedHeaders(
  outcome: { readonly end: Offset; readonly isClosed: boolean },
  command: AppendCommand,
): Record<string, string> {
  const end = formatOffset(outcome.end);
  const headers: Record<string, string> = { [HEADER.nextOffset]: end };
  if (outcome.isClosed) headers[HEADER.closed] = "true";
  if (command.expectedTail !== undefined) headers[HEADER.etag] = `"${end}"`;
  return headers;
}
