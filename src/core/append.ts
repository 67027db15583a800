/**
 * What an append does to a stream: decide first, apply after. Closing is an append without data.
 *
 * The order of the checks is the protocol's, and clients depend on it (PROTOCOL.md §4):
 *   A1  closed comes before content type, content type before producer, producer before Stream-Seq;
 *   A2  on a closed stream the retry of a stored append is a duplicate, a new one is `closed`;
 *   A3  a refused append changes nothing: it consumes no sequence and no Stream-Seq;
 *   A4  closing a closed stream again is not an error.
 */

import type { Appended } from "./change.ts";
import { decideProducer, type ProducerClaim, type ProducerRefusal } from "./producer.ts";
import { isSameMediaType, type StreamState } from "./stream.ts";
import { advance, type Epoch, type Offset, type Sequence, type TimeMs } from "./types.ts";

export interface AppendCommand {
  /** Bytes as they will be stored; empty only for a close without data. */
  readonly data: Uint8Array;
  /** Not judged when there is no data. */
  readonly contentType: string | undefined;
  readonly closes: boolean;
  readonly producer: ProducerClaim | undefined;
  readonly streamSeq: string | undefined;
}

export interface Accepted {
  readonly kind: "accepted";
  readonly change: Appended;
  readonly tail: Offset;
  readonly isClosed: boolean;
}

export interface Duplicate {
  readonly kind: "duplicate";
  readonly epoch: Epoch;
  readonly lastSequence: Sequence;
  readonly tail: Offset;
  readonly isClosed: boolean;
}

export type AppendDecision =
  | Accepted
  | Duplicate
  | ProducerRefusal
  | { readonly kind: "already_closed"; readonly tail: Offset }
  | { readonly kind: "closed"; readonly tail: Offset }
  | { readonly kind: "content_type_mismatch"; readonly expected: string }
  | { readonly kind: "sequence_regression"; readonly last: string };

export function decideAppend(
  state: StreamState,
  command: AppendCommand,
  atMs: TimeMs,
): AppendDecision {
  const { data, producer, streamSeq, closes } = command;
  if (state.isClosed) return decideOnClosed(state, command);
  if (data.length > 0 && !isSameMediaType(command.contentType ?? "", state.contentType)) {
    return { kind: "content_type_mismatch", expected: state.contentType };
  }
  if (producer !== undefined) {
    const decision = decideProducer(state.producers?.get(producer.id), producer);
    if (decision.kind === "duplicate") {
      const { epoch, lastSequence } = decision.state;
      return { kind: "duplicate", epoch, lastSequence, tail: state.tail, isClosed: false };
    }
    if (decision.kind !== "accepted") return decision;
  }
  const last = state.lastStreamSeq;
  if (streamSeq !== undefined && last !== undefined && !isAfter(streamSeq, last)) {
    return { kind: "sequence_regression", last };
  }
  return {
    kind: "accepted",
    change: { kind: "appended", atMs, stream: state.id, data, closes, producer, streamSeq },
    tail: advance(state.tail, data.length),
    isClosed: closes,
  };
}

// What the stream knows of a producer stays true after the close: the retry of a stored append is told
// so, and a fenced writer is told that. Whatever would be new is refused as closed.
function decideOnClosed(state: StreamState, command: AppendCommand): AppendDecision {
  const { producer, data, closes } = command;
  const { tail } = state;
  if (producer === undefined) {
    return data.length === 0 && closes
      ? { kind: "already_closed", tail }
      : { kind: "closed", tail };
  }
  const decision = decideProducer(state.producers?.get(producer.id), producer);
  if (decision.kind === "fenced") return decision;
  if (decision.kind !== "duplicate") return { kind: "closed", tail };
  const { epoch, lastSequence } = decision.state;
  return { kind: "duplicate", epoch, lastSequence, tail, isClosed: true };
}

// A header value is Latin-1, where the order of code units is the order of bytes.
function isAfter(sequence: string, last: string): boolean {
  return sequence > last;
}
