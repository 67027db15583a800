/**
 * Encodes groups in a snapshot. All are of one moment, but a group may have a hundred thousand cursors. So the
 * cursors go before the end of the snapshot, in blocks of their own, and the rest goes with the end.
 *
 *   cursors: count (u32), then group id and its next cursors (JSON) of each
 *   groups: count of cursors in all blocks, then next token and groups without their cursors (JSON)
 */

import type { CursorImage, GroupBookImage } from "../../core/group-image.ts";
import type { GroupId } from "../../core/group-state.ts";
import { type ByteReader, type ByteWriter, damaged } from "./bytes.ts";

/** Cursors to turn into text at once. That takes a fraction of a millisecond. */
const SLICE_MAX = 200;

interface CursorSlice {
  readonly group: GroupId;
  readonly cursors: readonly CursorImage[];
}

/** Yields the cursors of all groups, in the order in which they are written. */
export function* slicesOf(image: GroupBookImage): Generator<CursorSlice> {
  for (const { id: group, cursors } of image.groups) {
    for (let from = 0; from < cursors.length; from += SLICE_MAX) {
      yield { group, cursors: cursors.slice(from, from + SLICE_MAX) };
    }
  }
}

/** Encodes as many slices as fit. Returns whether these were the last. */
export function encodeCursors(
  writer: ByteWriter,
  slices: Iterator<CursorSlice>,
  bytesMax: number,
): boolean {
  const countAt = writer.length;
  writer.u32(0);
  let count = 0;
  let isDone = false;
  while (!isDone && writer.length < bytesMax) {
    const next = slices.next();
    isDone = next.done === true;
    if (next.done === true) break;
    writer.text(next.value.group);
    writer.text(JSON.stringify(next.value.cursors));
    count += 1;
  }
  writer.patchU32(countAt, count);
  return isDone;
}

export function encodeGroups(writer: ByteWriter, image: GroupBookImage): void {
  const groups = image.groups.map(({ cursors: _cursors, ...group }) => group);
  writer.varint(image.groups.reduce((sum, { cursors }) => sum + cursors.length, 0));
  writer.text(JSON.stringify({ nextToken: image.nextToken, groups }));
}

/** Collects the cursors of all blocks. */
export class GroupCollector {
  readonly #cursors = new Map<GroupId, CursorImage[]>();
  #count = 0;

  takeCursors(reader: ByteReader): void {
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) {
      const group = reader.text();
      // encodeCursors wrote this text, and the block's checksum covers it.
      const cursors = JSON.parse(reader.text()) as readonly CursorImage[];
      this.#count += cursors.length;
      const before = this.#cursors.get(group);
      if (before === undefined) this.#cursors.set(group, [...cursors]);
      else before.push(...cursors);
    }
  }

  takeGroups(reader: ByteReader): GroupBookImage {
    if (reader.varint() !== this.#count) throw damaged("it has another number of cursors");
    const image = JSON.parse(reader.text()) as GroupBookImage;
    const groups = image.groups.map((group) => ({
      ...group,
      cursors: this.#cursors.get(group.id) ?? [],
    }));
    return { nextToken: image.nextToken, groups };
  }
}
