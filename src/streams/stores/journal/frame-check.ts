/** Checks the records of a segment's frames for the tools: their order, their place in the chain, and the index. */

import type { Chain } from "./chain.ts";
import type { IndexCheck } from "./index-check.ts";
import { type StoreProblem, storeProblem } from "./problem.ts";
import { placedRecordsOf, type ScannedFrame } from "./scan.ts";

export interface CheckedSegment {
  readonly number: number;
  readonly name: string;
}

export class FrameCheck {
  readonly #segment: CheckedSegment;
  readonly #index: IndexCheck | undefined;
  readonly #found: StoreProblem[];
  readonly #replayLsn: number;
  readonly #chain: Chain;
  #lsn = 0;
  #ordinal = 0;
  records = 0;

  constructor(
    segment: CheckedSegment,
    index: IndexCheck | undefined,
    found: StoreProblem[],
    replayLsn: number,
    chain: Chain,
  ) {
    this.#replayLsn = replayLsn;
    this.#chain = chain;
    this.#segment = segment;
    this.#index = index;
    this.#found = found;
  }

  take(frame: ScannedFrame): void {
    const { lsn, ordinal, crc } = frame.header;
    const link = this.#chain.frame(this.#segment.name, lsn, crc);
    if (link !== undefined) {
      const isReplayed = lsn + 1 >= this.#replayLsn;
      this.#found.push(describeLink(this.#segment.name, frame.position, lsn, link, isReplayed));
    }
    if (lsn === this.#lsn + 1 && ordinal !== this.#ordinal) {
      this.#add(frame, `its first change is ${ordinal}, not ${this.#ordinal}`);
    }
    let changes = 0;
    try {
      for (const { record, at, bytes } of placedRecordsOf(frame)) {
        this.records += 1;
        if (record.kind !== "moved") changes += 1;
        if (record.kind === "change") continue;
        const { stream, data } = record.kind === "moved" ? record : record.change;
        const place = { segment: this.#segment.number, position: frame.position + at, bytes };
        this.#index?.record(stream, record.start, data.length, place);
      }
    } catch (error) {
      this.#add(frame, error instanceof Error ? error.message : String(error));
    }
    this.#lsn = lsn;
    this.#ordinal = ordinal + changes;
  }

  #add(frame: ScannedFrame, what: string): void {
    const { name } = this.#segment;
    const meaning = "the frame has the right checksum but was not written by this software";
    const { lsn } = frame.header;
    const stopsServer = lsn >= this.#replayLsn;
    this.#found.push(
      storeProblem({
        kind: "record",
        file: name,
        offset: frame.position,
        lsn,
        what,
        meaning,
        stopsServer,
      }),
    );
  }
}

export function describeLink(
  file: string,
  offset: number,
  lsn: number,
  what: string,
  stopsServer: boolean,
): StoreProblem {
  const meaning = "parts of two stores are mixed; put back the one that belongs here";
  return storeProblem({ kind: "chain", file, offset, lsn, what, meaning, stopsServer });
}
