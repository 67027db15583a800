/**
 * Finds the places of the records in a page, and their bytes. PROTOCOL.md §7.4.
 *
 * The offset of a record is the count of stored bytes before it. A page has the bytes that were stored, so the offset
 * follows from the end of the page, and is the same in every page with the record. It names the record as long as
 * the stream exists.
 */

import { HapaxError } from "../../base/errors.ts";
import { type Batch, LazyBatch } from "../batches.ts";
import { kindOf } from "../records.ts";
import { elementStarts } from "../../protocol/json.ts";

const OFFSET = /^([0-9]{16}_)([0-9]{16})$/;
const DIGITS = 16;
const ARRAY_OPEN = 0x5b;

type PageParts = Pick<Batch<unknown>, "bytes" | "contentType" | "nextOffset">;

export class Places {
  readonly #bytes: Uint8Array;
  /** Whether the page has records with places of their own. */
  readonly isJson: boolean;
  readonly #prefix: string;
  /** The count of stored bytes before the first byte of the page's body. */
  readonly #origin: number;
  readonly #nextOffset: string;
  #starts: readonly number[] | undefined;

  constructor({ bytes, contentType, nextOffset }: PageParts) {
    const [, prefix, digits] = OFFSET.exec(nextOffset) ?? [];
    if (prefix === undefined) {
      throw new HapaxError("internal", `offset=${nextOffset} is not an offset of a Hapax server`);
    }
    this.#bytes = bytes;
    this.isJson = kindOf(contentType) === "json";
    this.#prefix = prefix;
    // A page of JSON is `[` and the stored bytes, with `]` in place of the last comma.
    this.#origin = Number(digits) - bytes.length;
    this.#nextOffset = nextOffset;
  }

  /** Returns where the record begins; for the index behind the last record, where the page ends. */
  offsetAt(index: number): string {
    const start = this.#startsOf()[index];
    if (start === undefined) return this.#nextOffset;
    return this.#format(start);
  }

  /** Returns the record as it was stored. */
  bytesAt(index: number): Uint8Array {
    const starts = this.#startsOf();
    const start = starts[index] ?? this.#bytes.length;
    const end = starts[index + 1] ?? this.#bytes.length + (this.isJson ? 0 : 1);
    return this.#bytes.subarray(start, end - 1);
  }

  /** Returns all records from this one on, as one page. */
  from(index: number): Uint8Array {
    const rest = this.#bytes.subarray(this.#startsOf()[index] ?? this.#bytes.length);
    const body = new Uint8Array(rest.length + 1);
    body[0] = ARRAY_OPEN;
    body.set(rest, 1);
    return body;
  }

  /** Returns the number of the record that holds the offset. */
  indexOf(offset: string): number {
    // Most pages begin at the requested offset: then no scan is needed.
    if (!this.isJson || offset <= this.#format(1)) return 0;
    let index = this.#startsOf().length;
    while (index > 0 && this.offsetAt(index) > offset) index -= 1;
    return index;
  }

  #format(at: number): string {
    return this.#prefix + String(this.#origin + at).padStart(DIGITS, "0");
  }

  /** Scans at the first call: most pages are processed without their places. */
  #startsOf(): readonly number[] {
    this.#starts ??= this.isJson ? elementStarts(this.#bytes) : [0];
    return this.#starts;
  }
}

/** Returns where the first `count` records of a batch end. Scans nothing if these are all records. */
export function offsetBehind(
  { records, nextOffset }: Pick<Batch<unknown>, "records" | "nextOffset">,
  places: Pick<Places, "offsetAt">,
  count: number,
): string {
  return count === records.length ? nextOffset : places.offsetAt(count);
}

/**
 * Returns the batch without the records before an offset. A page begins at an append; a commit may be at any record, so the
 * first page of a lease may begin with committed records.
 */
export function fromOffset<T>(batch: Batch<T>, offset: string): Batch<T> {
  const places = new Places(batch);
  const index = places.indexOf(offset);
  if (index === 0) return batch;
  const { contentType, nextOffset, upToDate, closed } = batch;
  const facts = { contentType, nextOffset, upToDate, closed };
  return new LazyBatch<T>({ ...facts, body: places.from(index), offset: places.offsetAt(index) });
}
