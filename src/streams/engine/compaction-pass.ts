/**
 * One pass over a changelog: finds the newest record of each key, and lets the other old ones go. PROTOCOL.md §26.
 *
 * It reads from the beginning to the tail and collects keys of the old part; what is appended meanwhile it gets from the step
 * of the append. Then it goes through the old part again, a slice at a time: what is still newest is appended again, in the
 * change that trims the slice. A crash between two slices leaves a shorter part for the next pass.
 *
 *   - nothing is decided while a record is unseen: in the step of a decision every record of the stream was compared;
 *   - memory is bounded: with more keys than fit, the old part is done in sections;
 *   - it works in turns, and each slice waits until the one before it is durable. If the stream grows faster than that, the turns
 *     are as long as the waits between them, so that a busy server still compacts.
 */

import { assert } from "../../base/assert.ts";
import { pause } from "../../base/pause.ts";
import {
  type CompactionRule,
  compactionEnd,
  decideSlice,
  isCompactable,
  type KeyedRecord,
  NewestRecords,
  type RecordKey,
  SliceRecords,
} from "../core/compaction.ts";
import type { StreamState } from "../core/stream.ts";
import { earliestOf } from "../core/trim.ts";
import { advance, type Offset } from "../core/types.ts";
import { readAcrossForks } from "./reading.ts";
import type { Slices } from "./turn-budget.ts";
import type { Writer } from "./writer.ts";

/** Where the records of a stored append end, and what a rule sees of them; the wire knows what a record is. */
export interface RecordReader {
  /** Returns where the record ends that begins at `start`, with what separates it from the next; -1 if none begins there. */
  endAfter(append: Uint8Array, start: number): number;
  keyOf(record: Uint8Array, rule: CompactionRule): RecordKey;
}

/** What a pass has done. `later`: something is in its way, and goes by itself. */
export type PassEnding = "done" | "little" | "later" | "over";

export interface PassParts {
  readonly writer: Writer;
  readonly records: RecordReader;
  readonly keysMax: number;
  readonly charsMax: number;
  /** Everything before it is older than the lag. */
  readonly agedTo: () => Offset;
  readonly isStopped: () => boolean;
  /** The stream grows faster than the pass: it must not rest. */
  readonly isUrgent: () => boolean;
}

/** Bytes of one read, and of one slice: some milliseconds for the commit behind which others wait. */
const SLICE_BYTES = 1024 * 1024;
/** The same for a pass that must not rest: each read, and each commit, takes some turns of the event loop, which are long then. */
const URGENT_SLICE_BYTES = 4 * SLICE_BYTES;
/** A larger append is not compared in its own step (about a millisecond), but read from the store later. */
const SEEN_BYTES_MAX = 128 * 1024;
/** The same for a pass that cannot catch up otherwise, because large appends come all the time. */
const LATE_SEEN_BYTES_MAX = 1024 * 1024;
/** After so many catch-ups for one slice. */
const LATE_CATCH_UPS = 3;
/** The longest turn of a pass that must not rest: as long as it has waited for it, and no longer than a commit of a slice. */
const URGENT_TURN_MS = 25;
/** Between two reads. Between the turns of a pass, of some milliseconds each, others come anyway. */
const REST_MS = 2;
/** With a smaller share of replaced records, a pass would repeat nearly everything. */
const REPLACED_SHARE_MIN = 0.2;
/** How often a slice waits for records that came meanwhile. */
const CATCH_UPS_MAX = 100;

interface Section {
  readonly from: Offset;
  to: Offset;
  records: number;
  isFull: boolean;
}

export class CompactionPass {
  readonly #parts: PassParts;
  readonly #state: StreamState;
  readonly #rule: CompactionRule;
  readonly #slices: Slices;
  #newest: NewestRecords;
  /** Every record before it was compared, or is about to be. Undefined: keys are being collected. */
  #seenTo: Offset | undefined;
  #seenBytesMax = SEEN_BYTES_MAX;
  /** What is appended in this step is what the pass itself repeats. */
  #isOwn = false;
  /** Bytes of the stream that were too young when the pass began, or needed. */
  leftBytes = 0;
  /** About how many bytes of the old part are newest records. */
  newestBytes = 0;

  constructor(parts: PassParts, state: StreamState, rule: CompactionRule) {
    this.#parts = parts;
    this.#state = state;
    this.#rule = rule;
    this.#slices = parts.writer.slices();
    this.#newest = this.#createNewest();
  }

  /** An append was just decided. It begins at `from`. */
  appended(from: Offset, data: Uint8Array): void {
    // What is not seen here is read from the store before the next decision.
    if (from !== this.#seenTo || (data.length > this.#seenBytesMax && !this.#isOwn)) return;
    for (let start = 0, end = 0; !this.#isOwn; start = end) {
      end = this.#endAfter(data, start);
      if (end === -1) break;
      const { key } = this.#keyOf(data, start, end);
      if (key !== undefined) this.#newest.see(key, advance(from, start));
    }
    this.#seenTo = advance(from, data.length);
  }

  async run(): Promise<PassEnding> {
    const { world } = this.#parts.writer;
    const goal = compactionEnd(world, this.#state, this.#parts.agedTo());
    this.leftBytes = this.#state.tail - goal;
    let ending: PassEnding = "later";
    for (let from = earliestOf(world, this.#state); from < goal;) {
      if (this.#isOver) return "over";
      const section = await this.#scan(from, goal);
      if (section === undefined) return "over";
      if (section.to <= from) return ending;
      const { replaced } = this.#newest;
      this.newestBytes += ((section.records - replaced) / section.records) * (section.to - from);
      // What was repeated before would have to be repeated again.
      if (replaced < section.records * REPLACED_SHARE_MIN && ending !== "done") return "little";
      const end = await this.#rewrite(section);
      if (end !== section.to) return this.#isOver ? "over" : end > from ? "done" : "later";
      ending = "done";
      from = section.to;
    }
    return ending;
  }

  get #isOver(): boolean {
    const { writer, isStopped } = this.#parts;
    const { world } = writer;
    const isThere = world.byId.get(this.#state.id) === this.#state && isCompactable(this.#state);
    const isSame = this.#state.compaction === this.#rule;
    return !isThere || !isSame || isStopped() || writer.stopped !== undefined;
  }

  /** Collects the keys of the old part, as many as fit, and compares all later records with them. */
  async #scan(from: Offset, goal: Offset): Promise<Section | undefined> {
    const section: Section = { from, to: from, records: 0, isFull: false };
    this.#newest = this.#createNewest();
    this.#seenTo = undefined;
    const { tail } = this.#state;
    const isRead = await this.#eachAppend(from, tail, async (append, start) => {
      const end = advance(start, append.length);
      const isOld = end <= goal && !section.isFull;
      let records = 0;
      await this.#eachRecord(append, start, ({ key, at }) => {
        records += 1;
        if (key === undefined) return;
        if (!isOld || section.isFull) this.#newest.see(key, at);
        else if (!this.#newest.collect(key, at, start === from)) section.isFull = true;
      });
      if (!isOld || section.isFull) return;
      section.to = end;
      section.records += records;
    });
    this.#seenTo = tail;
    return isRead ? section : undefined;
  }

  /** Returns how far it came. */
  async #rewrite({ from, to }: Section): Promise<Offset> {
    const { writer } = this.#parts;
    for (let position = from; position < to;) {
      if (this.#isOver) return position;
      const page = await readAcrossForks(writer.store, this.#state, position, to, this.#sliceBytes);
      try {
        const bytes = page.appends.reduce((sum, { length }) => sum + length, 0);
        const records = new SliceRecords(this.#newest, bytes);
        let end = page.start;
        for (const append of page.appends) {
          await this.#eachRecord(append, end, (record) => {
            records.add(record);
          });
          end = advance(end, append.length);
        }
        if (page.start !== position || end === position || end > to) return position;
        if (!(await this.#commit(records, position, end))) return position;
        position = end;
      } finally {
        page.release();
      }
      await this.#rest();
    }
    return to;
  }

  /** False: it must not go on now. */
  async #commit(records: SliceRecords, from: Offset, to: Offset): Promise<boolean> {
    const { writer } = this.#parts;
    for (let tries = 0; this.#seenTo !== this.#state.tail; tries += 1) {
      if (tries === LATE_CATCH_UPS) this.#seenBytesMax = LATE_SEEN_BYTES_MAX;
      if (tries === CATCH_UPS_MAX || !(await this.#catchUp())) return false;
    }
    this.#seenBytesMax = SEEN_BYTES_MAX;
    // One step from here on: decided, and staged.
    if (this.#isOver || compactionEnd(writer.world, this.#state, this.#parts.agedTo()) < to) {
      return false;
    }
    const atMs = writer.nowMs();
    const decision = decideSlice(writer.world, this.#state, records.kept, to, this.#newest, atMs);
    if (decision.kind === "needed" || !this.#hasRoom(decision.repeatedBytes)) return false;
    const batch = writer.begin();
    this.#isOwn = true;
    for (const change of decision.changes) writer.stage(change, batch);
    this.#isOwn = false;
    await batch.done;
    const { meter } = writer;
    if (meter === undefined) return true;
    const { compaction } = meter;
    compaction.records += decision.droppedRecords + records.dropped;
    compaction.repeatedBytes += decision.repeatedBytes;
    compaction.droppedBytes += to - from - decision.repeatedBytes;
    return true;
  }

  /** Compares what was appended meanwhile, and not seen in its step. */
  async #catchUp(): Promise<boolean> {
    const from = this.#seenTo;
    const { tail } = this.#state;
    assert(from !== undefined && from < tail, "a pass has seen what is not there");
    // What is behind this tail can be compared in its step meanwhile: the order does not matter.
    this.#seenTo = tail;
    return this.#eachAppend(from, tail, (append, start) =>
      this.#eachRecord(append, start, ({ key, at }) => {
        if (key !== undefined) this.#newest.see(key, at);
      }),
    );
  }

  #hasRoom(bytes: number): boolean {
    const { room } = this.#parts.writer;
    return bytes === 0 ? room.mayFree : room.canTake(bytes);
  }

  /** False: the data is gone, or the pass is over. */
  async #eachAppend(
    from: Offset,
    to: Offset,
    call: (append: Uint8Array, start: Offset) => Promise<void>,
  ): Promise<boolean> {
    const { writer } = this.#parts;
    // What is decided and not durable yet is not in the store.
    await writer.settled();
    for (let position = from; position < to;) {
      if (this.#isOver) return false;
      const page = await readAcrossForks(writer.store, this.#state, position, to, this.#sliceBytes);
      try {
        if (page.appends.length === 0 || page.start !== position) return false;
        for (const append of page.appends) {
          await call(append, position);
          position = advance(position, append.length);
        }
      } finally {
        page.release();
      }
      await this.#rest();
    }
    return true;
  }

  async #eachRecord(
    append: Uint8Array,
    at: Offset,
    call: (record: KeyedRecord) => void,
  ): Promise<void> {
    for (let start = 0, end = 0; ; start = end) {
      end = this.#endAfter(append, start);
      if (end === -1) return;
      if (!this.#slices.take()) {
        await this.#slices.turn(this.#parts.isUrgent() ? URGENT_TURN_MS : undefined);
      }
      const key = this.#keyOf(append, start, end);
      call({ ...key, at: advance(at, start), data: append.subarray(start, end) });
    }
  }

  get #sliceBytes(): number {
    return this.#parts.isUrgent() ? URGENT_SLICE_BYTES : SLICE_BYTES;
  }

  /** Its turns are short in any case: see `#eachRecord`. */
  #rest(): Promise<void> {
    const { writer, isUrgent } = this.#parts;
    return isUrgent() ? Promise.resolve() : pause(writer.clock, REST_MS);
  }

  #endAfter(append: Uint8Array, start: number): number {
    return this.#parts.records.endAfter(append, start);
  }

  #keyOf(append: Uint8Array, start: number, end: number): RecordKey {
    return this.#parts.records.keyOf(append.subarray(start, end - 1), this.#rule);
  }

  #createNewest(): NewestRecords {
    return new NewestRecords(this.#parts.keysMax, this.#parts.charsMax);
  }
}
