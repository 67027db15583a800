/**
 * How much a restart may have to replay: twice what a snapshot is begun after, and no more.
 *
 * A snapshot is due after so many changes or bytes. Under a flood the next span may be full before it is
 * written; then commits wait for it. Nothing is refused, they only take longer. They wait from one and three
 * quarters of a span on: the rest is left for what has been decided by then and is written all the same.
 *
 *   RB1  while there is work in the background and 1.75 spans would have to be replayed, no commit begins: the
 *        work is the snapshot, or compaction, which then makes way for the next one;
 *   RB2  what the snapshot contains must become durable before it counts: commits up to there never wait;
 *   RB3  a snapshot that fails lets commits go on at once, and is tried again one span later;
 *   RB4  commits begin in the order of the calls, whether they have waited or not.
 */

/** One span: a snapshot is begun when either is reached. */
export interface ReplaySpan {
  readonly changes: number;
  readonly bytes: number;
}

const SPANS_MAX = 1.75;

/** Counts what was written since the snapshots, and makes commits wait when it is too much. */
export class ReplayBound {
  readonly #span: ReplaySpan;
  /** Written since the newest snapshot that is complete: what a restart replays. */
  #changes: number;
  #bytes: number;
  /** How much of it had been written when the newest snapshot was begun, complete or not. */
  #changesBefore = 0;
  #bytesBefore = 0;
  #ordinal: number;
  /** Changes that the snapshot under way needs. */
  #needed = 0;
  #isWorking = false;
  readonly #waiting: (() => void)[] = [];

  /** `ordinal` changes are durable, and so much of them was just replayed. */
  constructor(span: ReplaySpan, ordinal: number, replayed: ReplaySpan) {
    this.#span = span;
    this.#ordinal = ordinal;
    this.#changes = replayed.changes;
    this.#bytes = replayed.bytes;
  }

  /** Something has changed since the newest snapshot was begun. */
  get hasChanges(): boolean {
    return this.#changes > this.#changesBefore;
  }

  /** The next snapshot should be begun. Never without a frame to be in it. */
  get isDue(): boolean {
    const changes = this.#changes - this.#changesBefore;
    const bytes = this.#bytes - this.#bytesBefore;
    return bytes > 0 && (changes >= this.#span.changes || bytes >= this.#span.bytes);
  }

  /** So much would have to be replayed that commits wait for the work under way. */
  get isFull(): boolean {
    const { changes, bytes } = this.#span;
    return this.#changes >= SPANS_MAX * changes || this.#bytes >= SPANS_MAX * bytes;
  }

  /** Runs a commit: now, or when it may begin. */
  admit<T>(run: () => Promise<T>): Promise<T> {
    if (this.#waiting.length === 0 && !this.#isShut) return run();
    return new Promise((resolve, reject) => {
      this.#waiting.push(() => {
        run().then(resolve, reject);
      });
    });
  }

  /** A frame is durable. */
  written(changes: number, bytes: number): void {
    this.#ordinal += changes;
    this.#changes += changes;
    this.#bytes += bytes;
    this.#release();
  }

  /** Snapshot and compaction, until `workEnds`. */
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

  /** RB2: the snapshot waits until this many changes are durable. */
  snapshotNeeds(ordinal: number): void {
    this.#needed = ordinal;
    this.#release();
  }

  snapshotCompleted(): void {
    this.#changes -= this.#changesBefore;
    this.#bytes -= this.#bytesBefore;
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
      // One at a time when only some may pass; its frame brings us back here.
      if (this.#isWorking && this.#ordinal < this.#needed) return;
    }
  }
}
