/** Applies a frame to the index. Commits and recovery both use it, so that they agree. */

import type { Change } from "../../core/change.ts";
import { advance, type Offset, type StreamId } from "../../core/types.ts";
import { damaged } from "./bytes.ts";
import type { ExtentIndex } from "./extents.ts";
import { type DataRun, Runs, toExtent } from "./frame.ts";
import type { DecodedRecord } from "./records.ts";

/** Collects a frame's effect on the index while its records are read or written. */
export class Placement {
  readonly #created: (readonly [StreamId, Offset])[] = [];
  readonly #removed: StreamId[] = [];
  readonly #trimmed: (readonly [StreamId, Offset])[] = [];
  readonly #runs = new Runs();
  readonly #moves = new Runs();

  change(change: Exclude<Change, { kind: "appended" }>): void {
    if (change.kind === "created") {
      this.#created.push([change.stream, change.fork?.at ?? (0 as Offset)]);
    } else if (change.kind === "removed") {
      this.#removed.push(change.stream);
    } else if (change.kind === "trimmed") {
      this.#trimmed.push([change.stream, change.to]);
    }
  }

  record(record: DecodedRecord, at: number, bytes: number): void {
    if (record.kind === "change") {
      this.change(record.change);
      return;
    }
    const { stream, data } = record.kind === "moved" ? record : record.change;
    if (data.length === 0) return;
    const runs = record.kind === "moved" ? this.#moves : this.#runs;
    runs.add(stream, record.start, advance(record.start, data.length), at, bytes);
  }

  /** Takes the runs of a frame that was just written. */
  runs(runs: readonly DataRun[]): void {
    this.#runs.list.push(...runs);
  }

  /**
   * Applies the effects. A stream is created before its data, and trimmed and removed after it, so this is the
   * frame's order.
   */
  apply(index: ExtentIndex, segment: number, position: number): void {
    for (const [stream, start] of this.#created) {
      if (!index.streams.has(stream)) index.create(stream, start);
    }
    for (const run of this.#runs.list) {
      const extents = index.streams.get(run.stream);
      // The index of a snapshot may already have the run.
      if (extents === undefined || run.end <= extents.end) continue;
      if (run.start !== extents.end) throw damaged(`stream ${run.stream} has a hole in its data`);
      index.add(run.stream, toExtent(run, segment, position), run.end);
    }
    applyMoves(index, this.#moves.list, segment, position);
    for (const [stream, to] of this.#trimmed) index.trim(stream, to);
    for (const stream of this.#removed) index.remove(stream);
  }
}

/** Points moved data to its new place. Joins runs of one stream that touch. */
export function applyMoves(
  index: ExtentIndex,
  runs: readonly DataRun[],
  segment: number,
  position: number,
): void {
  for (let first = 0; first < runs.length;) {
    const group: DataRun[] = [];
    for (let next = runs[first]; next !== undefined; next = runs[first + group.length]) {
      const last = group.at(-1);
      if (last !== undefined && (last.stream !== next.stream || last.end !== next.start)) break;
      group.push(next);
    }
    moveGroup(index, group, segment, position);
    first += group.length;
  }
}

function moveGroup(
  index: ExtentIndex,
  group: readonly DataRun[],
  segment: number,
  position: number,
): void {
  const extents = index.streams.get(group[0]?.stream ?? (0 as StreamId));
  if (extents === undefined) return; // The stream has gone since.
  // The stream may have been trimmed during the move. A run that holds the first kept byte stays whole.
  const kept = group.filter((run) => run.end > extents.first);
  const [first] = kept;
  const last = kept.at(-1);
  if (first === undefined || last === undefined) return;
  const start = Math.max(first.start, extents.first) as Offset;
  const from = extents.find(start);
  const to = extents.find(last.end);
  const isWhole =
    from < extents.count &&
    extents.at(from).start === start &&
    (to === extents.count ? extents.end : extents.at(to).start) === last.end;
  if (!isWhole) throw damaged(`a moved part of stream ${first.stream} does not fit the index`);
  const moved = kept.map((run) => toExtent(run, segment, position));
  index.move(first.stream, from, to, moved);
}
