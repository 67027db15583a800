/**
 * Ties the files of a journal together. Each segment names the CRC of the frame before its first one, and snapshots
 * and STORE name the CRC of a frame. Files do not fit if they are from different stores, or from two copies of one
 * store that were both written to. ID1 of store-file.ts.
 */

/** A frame that a file outside of the journal's segments names. */
export interface KnownFrame {
  readonly lsn: number;
  readonly crc: number;
  /** The file that names it. */
  readonly by: string;
}

/**
 * Checks segments and their frames, which the caller passes in order. Each call returns the fault, if there is one.
 */
export class Chain {
  readonly #known = new Map<number, KnownFrame[]>();
  #last: { readonly lsn: number; readonly crc: number; readonly name: string } | undefined;

  constructor(known: readonly KnownFrame[]) {
    for (const frame of known) this.expect(frame);
  }

  /** Names a frame that has not been passed, or is passed again. */
  expect(frame: KnownFrame): void {
    if (frame.lsn <= 0) return;
    const others = this.#known.get(frame.lsn)?.filter(({ by }) => by !== frame.by) ?? [];
    this.#known.set(frame.lsn, [...others, frame]);
  }

  /** CRC of the last frame that it has seen, or of the frame that the last segment names as the one before it. */
  get lastCrc(): number {
    return this.#last?.crc ?? 0;
  }

  segment(
    name: string,
    { firstLsn, crcBefore }: { readonly firstLsn: number; readonly crcBefore: number },
  ): string | undefined {
    const lsn = firstLsn - 1;
    const last = this.#last;
    this.#last = { lsn, crc: crcBefore, name };
    if (last?.lsn === lsn && last.crc !== crcBefore) {
      return `it does not follow ${last.name}: one of the two belongs to another copy of the store`;
    }
    return this.#compare(lsn, crcBefore);
  }

  frame(name: string, lsn: number, crc: number): string | undefined {
    this.#last = { lsn, crc, name };
    return this.#known.size === 0 ? undefined : this.#compare(lsn, crc);
  }

  #compare(lsn: number, crc: number): string | undefined {
    const other = this.#known.get(lsn)?.find((known) => known.crc !== crc);
    if (other === undefined) return undefined;
    return `LSN ${lsn} is not the frame that ${other.by} knows: one of the two belongs to another copy of the store`;
  }
}
