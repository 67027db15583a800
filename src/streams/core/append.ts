/**
 * What an append does to a stream: decide first, apply after. Closing is an append without data.
 *
 * The order of the checks is the protocol's, and clients depend on it (PROTOCOL.md §4):
 *   A1  closed comes before content type, content type before key and producer, those before If-Match, and
 *       that before Stream-Seq;
 *   A2  on a closed stream the retry of a stored append is a duplicate, a new one is `closed`;
 *   A3  a refused append changes nothing: it consumes no sequence and no Stream-Seq;
 *   A4  closing a closed stream again is not an error;
 *   A5  an append that names a tail is stored at that tail only, and its retry is a duplicate, not a conflict.
 */

import type { StreamAppended } from "./change.ts";
import { digestContent } from "./content-digest.ts";
import {
  decideKnownKey,
  decideNewKey,
  isFromContent,
  type KeyClaim,
  type StoredKey,
  type KeyRefusal,
  type KeyScene,
  type Replayed,
} from "./keys.ts";
import {
  decideProducer,
  type ProducerClaim,
  type ProducerDecision,
  type ProducerMark,
  type ProducerRefusal,
} from "./producer.ts";
import { isSameMediaType, type StreamState } from "./stream.ts";
import { advance, type Epoch, type Offset, type Sequence, type TimeMs } from "./types.ts";

export interface AppendCommand {
  /** Bytes as the stream stores them. Empty only for a close without data. */
  readonly data: Uint8Array;
  /** Compared with the stream's type only if there is data. */
  readonly contentType: string | undefined;
  readonly closes: boolean;
  readonly producer: ProducerClaim | undefined;
  /** Digest of what the producer's number stands for. Set it if that is not the data and the close. */
  readonly digest?: number;
  readonly key: KeyClaim | undefined;
  readonly streamSeq: string | undefined;
  /** The tail that the append must find. `none`: the request names a value that is no tail, so it matches no tail. */
  readonly expectedTail: Offset | "none" | undefined;
}

export interface Accepted {
  readonly kind: "accepted";
  readonly change: StreamAppended;
  readonly tail: Offset;
  readonly isClosed: boolean;
}

export interface Duplicate {
  readonly kind: "duplicate";
  readonly epoch: Epoch;
  readonly lastSequence: Sequence;
  /** Where the original append ended, if the stream still knows that; else the tail. */
  readonly end: Offset;
  readonly isClosed: boolean;
  /** The original had other content. The stream does not store what was sent now. */
  readonly isOther: boolean;
}

export type AppendDecision =
  | Accepted
  | Duplicate
  | Replayed
  | ProducerRefusal
  | KeyRefusal
  | { readonly kind: "already_closed"; readonly tail: Offset }
  | { readonly kind: "closed"; readonly tail: Offset }
  | { readonly kind: "content_type_mismatch"; readonly expected: string }
  | { readonly kind: "tail_moved"; readonly tail: Offset }
  | { readonly kind: "sequence_regression"; readonly last: string };

/** Decides what an append does. Only an append with a key needs `scene`. */
export function decideAppend(
  state: StreamState,
  command: AppendCommand,
  atMs: TimeMs,
  scene?: KeyScene,
): AppendDecision {
  const { data, producer, streamSeq, closes, expectedTail } = command;
  if (state.isClosed) return decideOnClosed(state, command, atMs, scene);
  const keyed = scene === undefined ? undefined : keyOf(state, command);
  if (data.length > 0 && !isSameMediaType(command.contentType ?? "", state.contentType)) {
    return { kind: "content_type_mismatch", expected: state.contentType };
  }
  if (keyed !== undefined && scene !== undefined) {
    const known = decideKnownKey(state.keys, keyed, scene, false, atMs);
    if (known !== undefined) return known;
  }
  let mark: ProducerMark | undefined;
  if (producer !== undefined) {
    const digest = digestOf(command);
    const decision = decideProducer(state.producers?.get(producer.id), producer, digest);
    if (decision.kind === "duplicate") return duplicate(state, decision);
    if (decision.kind !== "accepted") return decision;
    mark = decision.mark;
  }
  if (expectedTail !== undefined && expectedTail !== state.tail) {
    return { kind: "tail_moved", tail: state.tail };
  }
  const last = state.lastStreamSeq;
  if (streamSeq !== undefined && last !== undefined && !isAfter(streamSeq, last)) {
    return { kind: "sequence_regression", last };
  }
  let key: StoredKey | undefined;
  if (keyed !== undefined && scene !== undefined) {
    const decision = decideNewKey(state.keys, keyed, scene, atMs);
    if ("kind" in decision) return decision;
    key = decision;
  }
  const stream = state.id;
  return {
    kind: "accepted",
    change: { kind: "appended", atMs, stream, data, closes, producer: mark, streamSeq, key },
    tail: advance(state.tail, data.length),
    isClosed: closes,
  };
}

function keyOf(state: StreamState, command: AppendCommand): KeyClaim | undefined {
  const { key } = command;
  return key?.isContent === true && !isFromContent(state.keys) ? undefined : key;
}

function digestOf({ digest, data, closes }: AppendCommand): number {
  return digest ?? digestContent(data, closes);
}

function duplicate(
  { tail, isClosed }: StreamState,
  known: Extract<ProducerDecision, { readonly kind: "duplicate" }>,
): Duplicate {
  const { epoch, lastSequence } = known.state;
  const { end, isOther } = known;
  return { kind: "duplicate", epoch, lastSequence, isOther, end: end ?? tail, isClosed };
}

// What the stream knows of a producer or a key stays true after the close. The retry of a stored append is a
// duplicate, and a fenced writer is fenced. Everything new is refused as closed.
function decideOnClosed(
  state: StreamState,
  command: AppendCommand,
  atMs: TimeMs,
  scene: KeyScene | undefined,
): AppendDecision {
  const { producer, data, closes } = command;
  const { tail } = state;
  const key = scene === undefined ? undefined : keyOf(state, command);
  if (key !== undefined && scene !== undefined) {
    const known = decideKnownKey(state.keys, key, scene, true, atMs);
    if (known !== undefined) return known;
  }
  if (producer === undefined) {
    return data.length === 0 && closes
      ? { kind: "already_closed", tail }
      : { kind: "closed", tail };
  }
  const known = state.producers?.get(producer.id);
  const decision = decideProducer(known, producer, digestOf(command));
  if (decision.kind === "fenced" || decision.kind === "reused") return decision;
  if (decision.kind !== "duplicate") return { kind: "closed", tail };
  return duplicate(state, decision);
}

// A header value is Latin-1, where the order of code units is the order of bytes.
function isAfter(sequence: string, last: string): boolean {
  return sequence > last;
}
