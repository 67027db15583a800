/**
 * A producer in a snapshot, as bytes.
 *
 *   id, flags u8 (1 session, 2 replaced sessions, 4 resets, 8 nothing accepted, 16 count of ends), epoch,
 *   [last sequence], [session], [count and replaced sessions, oldest first], [resets], [count of ends], ends, digests
 *   ends: of the last sequence, then, going back, how much each was before the one after it
 *   digests (u32): of the same appends, in the same order
 *
 * Numbers are varints. Without a count there are as many ends as the rules keep: 32, or one for each sequence. With
 * flag 8 there is neither a last sequence nor an end.
 */

import {
  ENDS_KEPT,
  type MutableProducer,
  type ProducerState,
  recentAt,
} from "../../core/producer.ts";
import type { Epoch, ProducerId, Sequence, SessionNonce } from "../../core/types.ts";
import { type ByteReader, type ByteWriter, damaged } from "./bytes.ts";

const FLAG_SESSION = 1;
const FLAG_REPLACED = 2;
const FLAG_RESETS = 4;
const FLAG_NOTHING = 8;
const FLAG_END_COUNT = 16;
const FLAGS_KNOWN = FLAG_SESSION | FLAG_REPLACED | FLAG_RESETS | FLAG_NOTHING | FLAG_END_COUNT;
const NOTHING_ACCEPTED = -1 as Sequence;

export function encodeProducer(writer: ByteWriter, id: ProducerId, state: ProducerState): void {
  const { lastSequence, session, replaced, resets } = state;
  const endCount = countEnds(state);
  const hasEndCount = endCount !== endsKeptOf(lastSequence);
  writer.text(id);
  writer.u8(
    (session === undefined ? 0 : FLAG_SESSION) |
      (replaced === undefined ? 0 : FLAG_REPLACED) |
      (resets === 0 ? 0 : FLAG_RESETS) |
      (lastSequence < 0 ? FLAG_NOTHING : 0) |
      (hasEndCount ? FLAG_END_COUNT : 0),
  );
  writer.varint(state.epoch);
  if (lastSequence >= 0) writer.varint(lastSequence);
  if (session !== undefined) writer.text(session);
  if (replaced !== undefined) {
    writer.varint(replaced.length);
    for (const nonce of replaced) writer.text(nonce);
  }
  if (resets !== 0) writer.varint(resets);
  if (hasEndCount) writer.varint(endCount);
  let later = 0;
  for (let back = 0; back < endCount; back += 1) {
    const end = state.recent[placeBefore(lastSequence, back)] ?? 0;
    writer.varint(back === 0 ? end : later - end);
    later = end;
  }
  for (let back = 0; back < endCount; back += 1) {
    writer.u32((state.recent[placeBefore(lastSequence, back) + 1] ?? 0) >>> 0);
  }
}

function placeBefore(lastSequence: Sequence, back: number): number {
  return recentAt((lastSequence - back) as Sequence);
}

function endsKeptOf(lastSequence: Sequence): number {
  return Math.min(ENDS_KEPT, lastSequence + 1);
}

/** Counts the known ends, from the newest back. */
function countEnds({ lastSequence, recent }: ProducerState): number {
  const countMax = endsKeptOf(lastSequence);
  let count = 0;
  while (count < countMax && recent[placeBefore(lastSequence, count)] !== undefined) count += 1;
  return count;
}

export type DecodedProducer = readonly [ProducerId, MutableProducer];

export function decodeProducer(reader: ByteReader): DecodedProducer {
  const id = reader.text() as ProducerId;
  const flags = reader.u8();
  if ((flags & ~FLAGS_KNOWN) !== 0) throw damaged(`a producer has the unknown flags ${flags}`);
  const epoch = reader.varint() as Epoch;
  const isEmpty = (flags & FLAG_NOTHING) !== 0;
  const lastSequence = isEmpty ? NOTHING_ACCEPTED : (reader.varint() as Sequence);
  const session = (flags & FLAG_SESSION) === 0 ? undefined : (reader.text() as SessionNonce);
  const replaced = (flags & FLAG_REPLACED) === 0 ? undefined : decodeNonces(reader);
  const resets = (flags & FLAG_RESETS) === 0 ? 0 : reader.varint();
  const endsKept = endsKeptOf(lastSequence);
  const endCount = (flags & FLAG_END_COUNT) === 0 ? endsKept : reader.varint();
  if (endCount > endsKept) throw damaged("a producer has more ends than are kept");
  const recent = decodeRecent(reader, lastSequence, endCount);
  return [id, { epoch, lastSequence, session, replaced, recent, resets }];
}

function decodeNonces(reader: ByteReader): SessionNonce[] {
  const nonces: SessionNonce[] = [];
  const count = reader.varint();
  for (let taken = 0; taken < count; taken += 1) nonces.push(reader.text() as SessionNonce);
  return nonces;
}

function decodeRecent(reader: ByteReader, lastSequence: Sequence, count: number): number[] {
  if (count === 0) return [];
  let end = reader.varint();
  // Most of a million producers have one append. A list that grows would take the room of 17.
  if (lastSequence === 0) return [end, reader.u32() | 0];
  const recent: number[] = [];
  recent[recentAt(lastSequence)] = end;
  for (let back = 1; back < count; back += 1) {
    end -= reader.varint();
    if (end < 0) throw damaged("an append of a producer ends before its stream begins");
    recent[placeBefore(lastSequence, back)] = end;
  }
  for (let back = 0; back < count; back += 1) {
    recent[placeBefore(lastSequence, back) + 1] = reader.u32() | 0;
  }
  return recent;
}
