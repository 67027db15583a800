/** The basic types, shared by every wing. Numbers that must not be mixed up are branded. */

declare const brand: unique symbol;
type Brand<T, Name extends string> = T & { readonly [brand]: Name };

/** Absolute, decoded path of a stream: `/v1/stream/orders`. */
export type StreamName = Brand<string, "StreamName">;
/** One life of a stream. A stream that is deleted and created again has another id. */
export type StreamId = Brand<number, "StreamId">;
/** A random number of the server process that created a stream. A restore can give an id again, but not a run. */
export type RunId = Brand<number, "Run">;
export type ProducerId = Brand<string, "ProducerId">;
/** Random text that the client chose. It tells one life of a writer from the next. */
export type SessionNonce = Brand<string, "SessionNonce">;

/** A position in a stream: the number of stored bytes before it. */
export type Offset = Brand<number, "Offset">;
/** Generation of a producer. A higher epoch fences every lower one. */
export type Epoch = Brand<number, "Epoch">;
/** Number of an append within an epoch, from 0. */
export type Sequence = Brand<number, "Sequence">;
/** Milliseconds since 1970 in journal time, which never goes back. */
export type TimeMs = Brand<number, "TimeMs">;

export const OFFSET_ZERO: Offset = 0 as Offset;
export const SEQUENCE_ZERO: Sequence = 0 as Sequence;

export function advance(offset: Offset, bytes: number): Offset {
  return (offset + bytes) as Offset;
}

export function nextSequence(sequence: Sequence): Sequence {
  return (sequence + 1) as Sequence;
}
