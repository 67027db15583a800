/**
 * Bounds what a restart has to replay: at most two spans. After one span a snapshot begins.
 *
 * A snapshot is due after so many changes or bytes. Under heavy load the next span may be full before the snapshot is
 * written. Then commits wait for it. The store refuses nothing; commits only take longer. They wait from one and
 * three quarters of a span on. The rest is for commits that were decided before and must still be written.
 *
 *   - while there is work in the background and a restart would replay 1.75 spans, no commit begins: the work is
 *     the snapshot, or compaction, which then makes way for the next one;
 *   - the content of a snapshot must become durable before the snapshot counts: commits up to there never wait;
 *   - a snapshot that fails lets commits continue at once, and is tried again one span later;
 *   - commits begin in the order of the calls, with or without a wait.
 */

import { assert } from "../../../base/assert.ts";

/** The length of one span. A snapshot begins when either number is reached. */
export interface ReplaySpan {
  readonly changes: number;
  readonly bytes: number;
}

const SPANS_MAX = 1.75;

/** Counts what was written since the snapshots, and makes commits wait if it is too much. */
export class ReplayBound {
  readonly #span: ReplaySpan;
  /** Changes since the newest complete snapshot. A restart replays these. */
  #changes: number;
  #bytes: number;
  /** How many of these were written before the newest snapshot began, complete or not. */
  #changesBefore = 0;
  #bytesBefore = 0;
  #ordinal: number;
  /** Changes that the running snapshot needs. */
  #needed = 0;
  #isWorking = false;
  readonly #waiting: (() => void)[] = [];

  /** `ordinal` is the number of durable changes; `replayed` is the part that was just replayed. */
  constructor(span: ReplaySpan, ordinal: number, replayed: ReplaySpan) {
    this.#span = span;
    this.#ordinal = ordinal;
    this.#changes = replayed.changes;
    this.#bytes = replayed.bytes;
  }

  /** Whether anything has changed since the newest snapshot was begun. */
  get hasChanges(): boolean {
    return this.#changes > this.#changesBefore;
  }

  /** Whether the next snapshot should begin. False if there is no new frame for it. */
  get isDue(): boolean {
    const changes = this.#changes - this.#changesBefore;
    const bytes = this.#bytes - this.#bytesBefore;
    return bytes > 0 && (changes >= this.#span.changes || bytes >= this.#span.bytes);
  }

  /** Whether the next snapshot may begin early, to give back the room of what was trimmed. */
  get isHalfDue(): boolean {
    return this.#bytes - this.#bytesBefore >= this.#span.bytes / 2;
  }

  /** Whether a restart would replay so much that commits wait for the running work. */
  get isFull(): boolean {
    const { changes, bytes } = this.#span;
    return this.#changes >= SPANS_MAX * changes || this.#bytes >= SPANS_MAX * bytes;
  }

  /** Runs a commit: now, or as soon as it may begin. */
  admit<T>(run: () => Promise<T>): Promise<T> {
    if (this.#waiting.length === 0 && !this.#isShut) return run();
    return new Promise((resolve, reject) => {
      this.#waiting.push(() => {
        run().then(resolve, reject);
      });
    });
  }

  /** Counts a frame that is durable. */
  written(changes: number, bytes: number): void {
    this.#ordinal += changes;
    this.#changes += changes;
    this.#bytes += bytes;
    this.#release();
  }

  /** Says that snapshot or compaction begins. It lasts until `workEnds`. */
  workBegins(): void {
    this.#isWorking = true;
  }

  workEnds(): void {
    this.#isWorking = false;
    this.#release();
  }

  snapshotBegins(): void {
    this.#changesBefore = this.#changes;
    this.#bytesBefore = this.#bytes;
  }

  /** The snapshot waits until this many changes are durable. */
  snapshotNeeds(ordinal: number): void {
    this.#needed = ordinal;
    this.#release();
  }

  snapshotCompleted(): void {
    this.#changes -= this.#changesBefore;
    this.#bytes -= this.#bytesBefore;
    assert(this.#changes >= 0 && this.#bytes >= 0, "a snapshot has more than was written");
    this.#changesBefore = 0;
    this.#bytesBefore = 0;
    this.#release();
  }

  get #isShut(): boolean {
    return this.#isWorking && this.isFull && this.#ordinal >= this.#needed;
  }

  #release(): void {
    while (!this.#isShut) {
      const run = this.#waiting.shift();
      if (run === undefined) return;
      run();
      // One at a time if only some may pass. The frame of each calls this again.
      if (this.#isWorking && this.#ordinal < this.#needed) return;
    }
  }
}
