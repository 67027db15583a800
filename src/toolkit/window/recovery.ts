/**
 * Makes the window whole: from the newest snapshot that can be used, and from what the log has after it.
 *
 *   WD2  nothing is written before the window is whole: the gap after the snapshot of every segment is read, and a segment that the
 *        snapshot does not know from its beginning.
 *
 * The log is read twice: before the writer takes it, so that the writer before can go on meanwhile, and again what has come
 * until it was fenced.
 */

import type { Digest } from "../../base/digest.ts";
import { utf8Of } from "../../base/bytes.ts";
import { HapaxError } from "../../base/errors.ts";
import type { KeyMark } from "../../base/key-window.ts";
import { markOf } from "../../protocol/key.ts";
import { type WindowBounds, WindowState } from "../rules/window.ts";
import type { WindowEntry, LogSegment, StoredBatch, WindowLog } from "./log.ts";
import type { WindowObjects } from "./objects.ts";
import { loadSnapshot } from "./snapshots.ts";

/** What a recovery has read, for reports. */
export interface WindowRecovery {
  readonly hasSnapshot: boolean;
  readonly entries: number;
}

/** The mark of an id and its content. */
export async function markOfEntry(digest: Digest, id: string, bytes: Uint8Array): Promise<KeyMark> {
  const [ofId, ofBytes] = await Promise.all([digest(utf8Of(id)), digest(bytes)]);
  return markOf(ofId, ofBytes, false);
}

/** Reads a log into a window. */
export class WindowReader {
  readonly #log: WindowLog;
  readonly #digest: Digest;
  #state: WindowState;
  #hasSnapshot: boolean;
  /** Segments whose watermark is from the snapshot: the log must still have its entry. */
  readonly #unproven: Set<number>;
  /** Log time of the snapshot. */
  readonly #snapshotMs: number;
  #entries = 0;

  private constructor(state: WindowState, hasSnapshot: boolean, log: WindowLog, digest: Digest) {
    this.#state = state;
    this.#hasSnapshot = hasSnapshot;
    this.#log = log;
    this.#digest = digest;
    this.#unproven = new Set(state.watermarks.keys());
    this.#snapshotMs = state.newestMs;
  }

  static async begin(
    log: WindowLog,
    snapshots: WindowObjects,
    bounds: WindowBounds,
    digest: Digest,
  ): Promise<WindowReader> {
    const found = await loadSnapshot(snapshots, bounds);
    const state = found ?? new WindowState(bounds);
    return new WindowReader(state, found !== undefined, log, digest);
  }

  get state(): WindowState {
    return this.#state;
  }

  get report(): WindowRecovery {
    return { hasSnapshot: this.#hasSnapshot, entries: this.#entries };
  }

  /** Where reading has ended, by segment. */
  get readTo(): ReadonlyMap<number, number> {
    const { watermarks } = this.state;
    return new Map(
      [...watermarks.values()]
        .filter(({ segment }) => !this.#unproven.has(segment))
        .map(({ segment, entry }) => [segment, entry + 1]),
    );
  }

  /** Reads everything that the log has by now. */
  async catchUp(signal?: AbortSignal): Promise<void> {
    const { segments, removedToMs } = await this.#log.extent();
    if (this.#log.isOrdered) this.#prove(segments);
    const { state } = this;
    const known = new Set(segments.map(({ segment }) => segment));
    for (const segment of state.watermarks.keys())
      if (!known.has(segment)) state.watermarks.delete(segment);
    // What was removed after the snapshot may have had any id.
    if (removedToMs !== undefined && removedToMs >= this.#snapshotMs)
      state.applyForgotten(removedToMs);
    const newestMs = segments.reduce(
      (newest, { endedAtMs = 0 }) => Math.max(newest, endedAtMs),
      state.newestMs,
    );
    const open = segments.filter((segment) => this.#isToBeRead(segment, newestMs));
    if (this.#log.isOrdered) for (const segment of open) await this.#readAll([segment], signal);
    else await this.#readAll(open, signal);
    state.writer = segments.at(-1)?.writer ?? "";
  }

  /**
   * What the window knows must be in the log. Only the oldest segments can go; a seal stays, and so does who began a segment. If
   * not, the log is an old copy, or the snapshot is of another log: ids would count as stored that are not there.
   */
  #prove(segments: readonly LogSegment[]): void {
    const { watermarks, writer, bounds } = this.state;
    const first = segments[0]?.segment ?? -1;
    const found = new Map(segments.map((segment) => [segment.segment, segment]));
    let last = -1;
    for (const { segment, entry, isSealed } of watermarks.values()) {
      last = Math.max(last, segment);
      const there = found.get(segment);
      if (segment >= first && (there === undefined || (isSealed && !there.isSealed)))
        throw wentBack(segment, entry);
    }
    const newest = found.get(last);
    if (newest !== undefined) {
      if (writer !== "" && newest.writer !== writer) throw wentBack(last, -1);
    } else if (this.#hasSnapshot) {
      // All of its segments were removed: nothing can prove it.
      this.#state = new WindowState(bounds);
      this.#hasSnapshot = false;
    }
  }

  /** A segment that ended before the window begins has nothing for it. */
  #isToBeRead(segment: LogSegment, newestMs: number): boolean {
    const { state } = this;
    if (state.watermarks.get(segment.segment)?.isSealed === true) return false;
    const { endedAtMs = Infinity } = segment;
    if (!segment.isSealed || endedAtMs > newestMs - state.bounds.durationMs) return true;
    state.applyForgotten(endedAtMs);
    return false;
  }

  /** Reads segments side by side, oldest batch first: log time never goes back in a window. */
  async #readAll(segments: readonly LogSegment[], signal: AbortSignal | undefined): Promise<void> {
    const readers = segments.map(({ segment }) => ({ segment, from: this.#from(segment) }));
    const heads = await Promise.all(
      readers.map(async ({ segment, from }) => {
        const batches = this.#log.read(segment, from)[Symbol.asyncIterator]();
        return { segment, batches, next: await batches.next() };
      }),
    );
    for (;;) {
      const [first] = heads
        .filter(({ next }) => next.done !== true)
        .toSorted((one, other) => one.next.value.atMs - other.next.value.atMs);
      if (first === undefined) break;
      signal?.throwIfAborted();
      await this.take(first.segment, first.next.value);
      first.next = await first.batches.next();
    }
    for (const { segment, isSealed } of segments) this.#end(segment, isSealed);
  }

  #from(segment: number): number {
    const watermark = this.state.watermarks.get(segment);
    if (watermark === undefined || watermark.entry < 0) return 0;
    // The batch of the watermark proves that the log is still the one that the snapshot is of.
    return this.#unproven.has(segment) ? watermark.start : watermark.entry + 1;
  }

  #end(segment: number, isSealed: boolean): void {
    const { watermarks } = this.state;
    const watermark = watermarks.get(segment) ?? { segment, entry: -1, start: 0, isSealed };
    if (this.#unproven.has(segment) && watermark.entry >= 0)
      throw wentBack(segment, watermark.entry);
    watermarks.set(segment, { ...watermark, isSealed });
  }

  /** Takes a batch of the log into the window. */
  async take(segment: number, { start, atMs, entries }: StoredBatch): Promise<void> {
    const watermark = this.state.watermarks.get(segment);
    const last = start + entries.length - 1;
    if (watermark !== undefined && this.#unproven.has(segment)) {
      if (last < watermark.entry) throw wentBack(segment, watermark.entry);
      this.#unproven.delete(segment);
    }
    const marks = await Promise.all(entries.map((entry) => this.#markOf(entry)));
    this.state.applyTime(atMs);
    for (const [index, mark] of marks.entries()) {
      const entry = start + index;
      if (mark === undefined || entry <= (watermark?.entry ?? -1)) continue;
      this.state.applyStored({ mark, segment, entry, atMs });
    }
    this.#entries += entries.length;
    this.state.watermarks.set(segment, { segment, entry: last, start, isSealed: false });
  }

  /** A segment of an ordered log has begun: the window knows all of those before it, and nothing can follow in them. */
  sealBefore(segment: number): void {
    if (!this.#log.isOrdered) return;
    for (const watermark of this.state.watermarks.values()) {
      if (watermark.segment >= segment || watermark.isSealed) continue;
      this.state.watermarks.set(watermark.segment, { ...watermark, isSealed: true });
    }
  }

  async #markOf({ id, bytes }: WindowEntry): Promise<KeyMark | undefined> {
    return id === undefined ? undefined : await markOfEntry(this.#digest, id, bytes);
  }
}

function wentBack(segment: number, entry: number): HapaxError {
  const facts = `segment=${segment} entry=${entry}`;
  return new HapaxError(
    "data_damaged",
    `the snapshot has more than the log: the log lost entries, was restored, or is another one; ${facts}. ` +
      "Remove the snapshots to go on with what the log has",
  );
}
