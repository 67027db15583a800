/**
 * Data of older commits: many appends of one stream in one row, so that reading a stream from its beginning costs few rows.
 *
 *   row: CRC-32 of what follows (u32), stream, start, back, left, count, lengths, times, data
 *
 * Numbers are varints. The first time is as it is, each later one less the one before it. An append that is larger than a row has rows of its own: `back` is how many of its bytes come before
 * this row, `left` how many come after it.
 */

import { crc32 } from "node:zlib";
import { advance, type Offset, OFFSET_ZERO, type StreamId, type TimeMs } from "../../core/types.ts";
import { ByteReader, ByteWriter, damage, damaged } from "../journal/bytes.ts";
import { blobOf, type Database, wholeNumberOf, type StoredRow } from "./database.ts";
import { ROW_BYTES_MAX } from "./frame-rows.ts";

/** A page is written when it has so many bytes. */
const PAGE_BYTES = 256 * 1024;
/** A last page below this size is written again with what follows it. */
const SMALL_BYTES = PAGE_BYTES / 2;
/** Room for the numbers before the data. */
const HEAD_BYTES = 64;
const PIECE_BYTES = ROW_BYTES_MAX - HEAD_BYTES;
const INSERT = "INSERT OR REPLACE INTO hapax_pages (stream, start, bytes) VALUES (?, ?, ?)";

export interface StoredAppend {
  readonly offset: Offset;
  readonly atMs: TimeMs;
  readonly data: Uint8Array;
}

interface DecodedPage {
  readonly start: Offset;
  readonly back: number;
  readonly left: number;
  readonly pieces: readonly Buffer[];
  readonly times: readonly TimeMs[];
  readonly bytes: number;
}

export class Pages {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Whole appends of a stream, from the one that holds the offset, or the first one behind it. */
  *from(stream: StreamId, offset: Offset): Generator<StoredAppend> {
    const before = this.#last(stream, offset);
    let page =
      before === undefined || before.start + before.bytes + before.left <= offset
        ? this.#next(stream, offset)
        : this.#next(stream, (before.start - before.back) as Offset);
    while (page !== undefined) {
      let end = advance(page.start, page.bytes);
      if (page.back > 0)
        throw damage("hapax_pages", page.start, "the beginning of an append is missing");
      if (page.left > 0) {
        const data = this.#whole(stream, page);
        end = advance(page.start, data.length);
        yield { offset: page.start, atMs: timeOf(page, 0), data };
      } else {
        let at = page.start;
        for (const [index, data] of page.pieces.entries()) {
          yield { offset: at, atMs: timeOf(page, index), data };
          at = advance(at, data.length);
        }
      }
      page = this.#next(stream, end);
    }
  }

  /**
   * Where a search for a time may begin: no append from `from` on and before it has this time or a later one. It reads one page for
   * each halving of the bytes.
   */
  beforeTime(stream: StreamId, from: Offset, atMs: TimeMs): Offset {
    let low = from;
    let high = this.#endOf(stream);
    let found = from;
    while (low < high) {
      const page = this.#last(stream, Math.floor((low + high) / 2) as Offset);
      if (page === undefined || page.start < low) {
        // The middle is in the page that holds `low`, or before all pages.
        const next = this.#next(stream, low);
        if (next === undefined || next.start >= high) break;
        if (timeOf(next, 0) >= atMs) break;
        found = next.start;
        low = advance(next.start, next.bytes);
      } else if (timeOf(page, 0) < atMs) {
        found = page.start;
        low = advance(page.start, page.bytes);
      } else {
        high = page.start;
      }
    }
    return found;
  }

  /** Adds appends behind those that the stream has in pages. */
  add(stream: StreamId, appends: Iterable<StoredAppend>): void {
    let page: PageBuilder | undefined;
    for (const { offset, atMs, data } of appends) {
      page ??= this.#begin(stream, offset);
      if (page.bytes > 0 && page.bytes + data.length > PAGE_BYTES) {
        this.#write(page);
        page = new PageBuilder(stream, offset);
      }
      if (data.length > PIECE_BYTES) {
        this.#writeLarge(stream, offset, atMs, data);
        page = undefined;
      } else {
        page.add(data, atMs);
      }
    }
    if (page !== undefined && page.bytes > 0) this.#write(page);
  }

  remove(stream: StreamId): void {
    this.#database.run("DELETE FROM hapax_pages WHERE stream = ?", stream);
  }

  /** Removes appends that end at or before the offset: whole pages, and the beginning of a page once that is half of it. */
  trim(stream: StreamId, to: Offset): void {
    const last = this.#last(stream, to);
    if (last === undefined) return;
    const rest = new PageBuilder(stream, restStart(last, to));
    const isOver = last.start + last.bytes + last.left <= to;
    const isCut = !isOver && rest.start - last.start >= last.bytes / 2;
    const kept = isOver || isCut ? to : last.start - last.back;
    this.#database.run("DELETE FROM hapax_pages WHERE stream = ? AND start < ?", stream, kept);
    if (!isCut) return;
    let at = last.start;
    for (const [index, piece] of last.pieces.entries()) {
      if (at >= rest.start) rest.add(piece, timeOf(last, index));
      at = advance(at, piece.length);
    }
    this.#write(rest);
  }

  /** Where the data of a stream begins. */
  firstOf(stream: StreamId): Offset | undefined {
    const query = "SELECT start FROM hapax_pages WHERE stream = ? ORDER BY start LIMIT 1";
    const [row] = this.#database.run(query, stream);
    return row === undefined ? undefined : (wholeNumberOf(row["start"]) as Offset);
  }

  /** A small last page is written again: else a stream with few appends would have a page for each. */
  #begin(stream: StreamId, offset: Offset): PageBuilder {
    const last = this.#last(stream, offset);
    const follows = last !== undefined && advance(last.start, last.bytes) === offset;
    const isSmall = last !== undefined && last.bytes < SMALL_BYTES && last.back + last.left === 0;
    if (!follows || !isSmall) return new PageBuilder(stream, offset);
    const page = new PageBuilder(stream, last.start);
    for (const [index, piece] of last.pieces.entries()) page.add(piece, timeOf(last, index));
    return page;
  }

  #write(page: PageBuilder): void {
    const { stream, start, bytes, pieces, times } = page;
    const row = encodePage(stream, start, { back: 0, left: 0, pieces, times, bytes });
    this.#database.run(INSERT, stream, start, row);
  }

  #writeLarge(stream: StreamId, start: Offset, atMs: TimeMs, data: Uint8Array): void {
    for (let back = 0; back < data.length; back += PIECE_BYTES) {
      const piece = data.subarray(back, back + PIECE_BYTES);
      const left = data.length - back - piece.length;
      const at = advance(start, back);
      const times = [atMs];
      const bytes = piece.length;
      const row = encodePage(stream, at, { back, left, pieces: [piece], times, bytes });
      this.#database.run(INSERT, stream, at, row);
    }
  }

  #whole(stream: StreamId, first: DecodedPage): Buffer {
    const pieces = [...first.pieces];
    let { left } = first;
    for (let end = advance(first.start, first.bytes); left > 0;) {
      const page = this.#next(stream, end);
      if (page === undefined || page.start !== end || page.back !== end - first.start) {
        throw damage("hapax_pages", end, "a part of an append is missing");
      }
      pieces.push(...page.pieces);
      end = advance(end, page.bytes);
      left -= page.bytes;
    }
    return Buffer.concat(pieces);
  }

  #endOf(stream: StreamId): Offset {
    const last = this.#last(stream, Number.MAX_SAFE_INTEGER as Offset);
    return last === undefined ? OFFSET_ZERO : advance(last.start, last.bytes);
  }

  #last(stream: StreamId, offset: Offset): DecodedPage | undefined {
    const query =
      "SELECT start, bytes FROM hapax_pages WHERE stream = ? AND start <= ? ORDER BY start DESC LIMIT 1";
    return decodePage(stream, this.#database.run(query, stream, offset)[0]);
  }

  #next(stream: StreamId, offset: Offset): DecodedPage | undefined {
    const query =
      "SELECT start, bytes FROM hapax_pages WHERE stream = ? AND start >= ? ORDER BY start LIMIT 1";
    return decodePage(stream, this.#database.run(query, stream, offset)[0]);
  }
}

/** Where the append of a page begins that holds the offset. */
function restStart({ start, back, left, pieces }: DecodedPage, to: Offset): Offset {
  let at = start;
  if (back + left > 0) return at;
  for (const piece of pieces) {
    const end = advance(at, piece.length);
    if (end > to) break;
    at = end;
  }
  return at;
}

function timeOf({ times }: DecodedPage, index: number): TimeMs {
  return times[index] ?? (0 as TimeMs);
}

class PageBuilder {
  readonly stream: StreamId;
  readonly start: Offset;
  readonly pieces: Uint8Array[] = [];
  readonly times: TimeMs[] = [];
  bytes = 0;

  constructor(stream: StreamId, start: Offset) {
    this.stream = stream;
    this.start = start;
  }

  add(data: Uint8Array, atMs: TimeMs): void {
    this.pieces.push(data);
    this.times.push(atMs);
    this.bytes += data.length;
  }
}

function encodePage(
  stream: StreamId,
  start: Offset,
  page: {
    readonly back: number;
    readonly left: number;
    readonly pieces: readonly Uint8Array[];
    readonly times: readonly TimeMs[];
    readonly bytes: number;
  },
): Uint8Array {
  const { back, left, pieces, times, bytes } = page;
  const writer = new ByteWriter(HEAD_BYTES + 6 * pieces.length + bytes);
  writer.u32(0);
  for (const number of [stream, start, back, left, pieces.length]) writer.varint(number);
  for (const piece of pieces) writer.varint(piece.length);
  let before = 0;
  for (const atMs of times) {
    writer.varint(atMs - before);
    before = atMs;
  }
  for (const piece of pieces) writer.raw(piece);
  writer.patchU32(0, crc32(writer.bytes().subarray(4)));
  return writer.bytes();
}

function decodePage(stream: StreamId, row: StoredRow | undefined): DecodedPage | undefined {
  if (row === undefined) return undefined;
  const start = wholeNumberOf(row["start"]) as Offset;
  const found = blobOf(row["bytes"]);
  try {
    const reader = new ByteReader(found);
    if (reader.u32() !== crc32(found.subarray(4))) throw damaged("a page has another checksum");
    if (reader.varint() !== stream || reader.varint() !== start) {
      throw damaged("a page is not where it was written");
    }
    const back = reader.varint();
    const left = reader.varint();
    const lengths = Array.from({ length: reader.varint() }, () => reader.varint());
    let before = 0;
    const times = lengths.map(() => (before += reader.varint()) as TimeMs);
    const pieces = lengths.map((length) => reader.raw(length));
    if (reader.left > 0) throw damaged("a page has bytes left over");
    const bytes = lengths.reduce((sum, length) => sum + length, 0);
    return { start, back, left, pieces, times, bytes };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw damage("hapax_pages", start, `stream ${stream}: ${reason}`, error);
  }
}
