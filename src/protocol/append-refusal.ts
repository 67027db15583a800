/** Encodes why an append was refused. PROTOCOL.md §4, §5, §14 to §16. */

import type { AppendDecision } from "../streams/core/append.ts";
import type { KeyRefusal } from "../streams/core/keys.ts";
import type { ProducerRefusal } from "../streams/core/producer.ts";
import type { Offset } from "../streams/core/types.ts";
import { HEADER } from "./headers.ts";
import type { Refusal } from "./refusal.ts";
import { formatOffset } from "./values.ts";

/** Returns the headers that say where a stream ends, for a refused condition. */
export function tailHeaders(tail: Offset, isClosed: boolean): Record<string, string> {
  const text = formatOffset(tail);
  const headers: Record<string, string> = { [HEADER.etag]: `"${text}"`, [HEADER.nextOffset]: text };
  if (isClosed) headers[HEADER.closed] = "true";
  return headers;
}

export function closedHeaders(tail: string): Record<string, string> {
  return { [HEADER.nextOffset]: tail, [HEADER.closed]: "true" };
}

export type AppendRefused = Exclude<
  AppendDecision,
  { readonly kind: "accepted" | "duplicate" | "replayed" | "already_closed" }
>;

export function encodeAppendRefusal(outcome: AppendRefused): Refusal {
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
    case "tail_moved":
      return {
        code: "tail_moved",
        detail: `the tail is ${formatOffset(outcome.tail)}`,
        headers: tailHeaders(outcome.tail, false),
        facts: { tail: formatOffset(outcome.tail) },
      };
    case "sequence_regression":
      return {
        code: "sequence_regression",
        detail:
          "sequence conflict: a Stream-Seq must sort after the last one accepted, byte by byte",
        facts: { last: outcome.last },
      };
    case "key_reused":
    case "key_expired":
    case "key_window_full":
      return encodeKeyRefusal(outcome);
    default:
      return encodeProducerRefusal(outcome);
  }
}

function encodeKeyRefusal(outcome: KeyRefusal): Refusal {
  switch (outcome.kind) {
    case "key_reused":
      return { code: "key_reused", detail: "the key is known, and its content is another one" };
    case "key_expired":
      return {
        code: "key_expired",
        detail: `the key is older than ${outcome.windowMs / 1000} s by the time that it carries`,
        facts: { windowSeconds: outcome.windowMs / 1000 },
      };
    case "key_window_full": {
      const seconds = Math.max(1, Math.ceil(outcome.retryAfterMs / 1000));
      return {
        code: "key_window_full",
        detail: `there may be room in ${seconds} s`,
        headers: { [HEADER.retryAfter]: String(seconds) },
      };
    }
  }
}

function encodeProducerRefusal(outcome: ProducerRefusal): Refusal {
  switch (outcome.kind) {
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
    case "reused":
      return {
        code: "producer_seq_reused",
        detail: `sequence ${outcome.received} was stored with other content; this append is not stored`,
        facts: { received: outcome.received },
      };
    case "epoch_exhausted":
      return { code: "epoch_exhausted", detail: "no epoch is left for a new session" };
  }
}
