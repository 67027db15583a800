/** Where the data of recent commits lies: in frames, and not in pages yet. */

import type { Offset, StreamId } from "../../core/types.ts";
import type { DataRun } from "../journal/frame.ts";

/** Consecutive data records of one stream in one frame. */
export interface TailRun {
  readonly start: Offset;
  readonly end: Offset;
  /** The table and the first row of the frame. */
  readonly table: number;
  readonly row: number;
  /** Where the records begin in the frame, and how many bytes they take. */
  readonly at: number;
  readonly bytes: number;
}

export class Tail {
  readonly #runs = new Map<StreamId, TailRun[]>();

  add(table: number, row: number, runs: readonly DataRun[]): void {
    for (const { stream, start, end, at, bytes } of runs) {
      const run = { start, end, table, row, at, bytes };
      const known = this.#runs.get(stream);
      if (known === undefined) this.#runs.set(stream, [run]);
      else known.push(run);
    }
  }

  /** The runs of a stream from the one that holds the offset. */
  from(stream: StreamId, offset: Offset): readonly TailRun[] {
    const runs = this.#runs.get(stream) ?? [];
    const first = runs.findIndex(({ end }) => end > offset);
    return first === -1 ? [] : runs.slice(first);
  }

  /** Forgets runs that end at or before the offset. */
  trim(stream: StreamId, to: Offset): void {
    const runs = this.#runs.get(stream);
    if (runs !== undefined) this.#keep(stream, runs, (run) => run.end > to);
  }

  remove(stream: StreamId): void {
    this.#runs.delete(stream);
  }

  /** The streams with data in tables up to this one. */
  *upTo(table: number): Generator<readonly [StreamId, readonly TailRun[]]> {
    for (const [stream, runs] of this.#runs) {
      const old = runs.filter((run) => run.table <= table);
      if (old.length > 0) yield [stream, old];
    }
  }

  /** Forgets what is in tables up to this one. */
  forget(table: number): void {
    for (const [stream, runs] of this.#runs) this.#keep(stream, runs, (run) => run.table > table);
  }

  #keep(stream: StreamId, runs: readonly TailRun[], isKept: (run: TailRun) => boolean): void {
    const kept = runs.filter((run) => isKept(run));
    if (kept.length === 0) this.#runs.delete(stream);
    else this.#runs.set(stream, kept);
  }
}
