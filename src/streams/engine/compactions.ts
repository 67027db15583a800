/**
 * Changelogs are compacted when they have grown, one after the other. PROTOCOL.md §26.
 *
 *   - what a changelog needs is known after its first pass; then the next pass begins at a share above it;
 *   - a pass that something is in the way of (a lag, a group, a full disk) is tried again by a timer, also without appends;
 *   - what was appended when is remembered since the start, not stored: what was there before the start counts as new then.
 */

import { compactableBytes, type CompactionRule, isCompactable } from "../core/compaction.ts";
import { isJson, type StreamState } from "../core/stream.ts";
import type { TrimMark } from "../core/trim.ts";
import {
  type Offset,
  OFFSET_ZERO,
  type StreamId,
  type StreamName,
  type TimeMs,
} from "../core/types.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { CompactionPass, type PassEnding, type RecordReader } from "./compaction-pass.ts";
import { Deadlines } from "./deadlines.ts";
import { type Gone, GONE, type Missing, MISSING } from "./outcomes.ts";
import type { Writer } from "./writer.ts";

/** How much a changelog grows over its newest records, as the last pass has found them, before the next one. */
const GROWTH = 1.5;
/** The same after a pass that found little to do. */
const LITTLE_GROWTH = 1.25;
/** A changelog that grows so much during a pass has the pass go on without rests. */
const URGENT_GROWTH = 1.1;
/** Between two looks at a changelog that something is in the way of. */
const REST_MS = 10_000;
const REST_MS_MAX = 320_000;
/** A part of the lag that two marks are apart. */
const GRAIN = 16;
const MARKS_MAX = 64;

export interface CompactionsParts {
  readonly writer: Writer;
  /** Undefined: this engine knows no records, and compacts nothing. */
  readonly records: RecordReader | undefined;
  /** Keys that a pass holds in memory. Default: the limit. */
  readonly keysMax?: number;
  /** A changelog with fewer bytes is left alone. Default: the limit. */
  readonly bytesMin?: number;
  readonly onFault: (error: unknown) => void;
}

export type CompactionOutcome =
  | { readonly kind: "set" }
  | { readonly kind: "not_json"; readonly contentType: string }
  | Missing
  | Gone;

/** What is known of a changelog since the start. */
interface Followed {
  /** Everything before each offset was appended at its time or earlier. Oldest first. */
  marks: readonly TrimMark[];
  /** The last append. */
  lastAtMs: number;
  dueBytes: number;
  /** The last pass has ended when the next one was due. */
  isLate: boolean;
  isWaiting: boolean;
  restMs: number;
}

export class Compactions {
  readonly #parts: CompactionsParts;
  readonly #bytesMin: number;
  readonly #writer: Writer;
  /** By the state in the world, so that it goes with the stream. */
  readonly #followed = new WeakMap<StreamState, Followed>();
  readonly #deadlines: Deadlines<StreamId>;
  readonly #queue = new Set<StreamId>();
  #pass: { readonly stream: StreamId; readonly pass: CompactionPass } | undefined;
  #isWorking = false;
  #isStopped = false;

  constructor(parts: CompactionsParts) {
    this.#parts = parts;
    this.#bytesMin = parts.bytesMin ?? LIMITS.compactionBytesMin;
    this.#writer = parts.writer;
    const { writer } = parts;
    this.#deadlines = new Deadlines(
      writer.clock,
      () => writer.nowMs(),
      (id) => {
        this.#retry(id);
      },
    );
    for (const state of writer.world.byId.values()) {
      if (state.compaction !== undefined) this.#consider(state);
    }
    writer.onCompactable((state, start, data) => {
      this.#appended(state, start, data);
    });
  }

  /** The pass decides nothing more. What it has decided is durable before the store is closed. */
  stop(): void {
    this.#isStopped = true;
    this.#deadlines.stop();
    this.#queue.clear();
  }

  async setRule(name: StreamName, rule: CompactionRule | undefined): Promise<CompactionOutcome> {
    const writer = this.#writer;
    const state = writer.find(name);
    if (state === undefined) return writer.answer(name, undefined, MISSING);
    if (state.isDeleted) return writer.answer(name, state, GONE);
    const { contentType } = state;
    if (rule !== undefined && !isJson(contentType)) return { kind: "not_json", contentType };
    writer.room.admitRemoval();
    const change = {
      kind: "compaction_set",
      atMs: writer.nowMs(),
      stream: state.id,
      rule,
    } as const;
    const { done } = writer.stage(change);
    if (rule === undefined) this.#followed.delete(state);
    await done;
    if (rule !== undefined) this.#consider(state);
    return { kind: "set" };
  }

  #appended(state: StreamState, start: Offset, data: Uint8Array): void {
    if (this.#pass?.stream === state.id) this.#pass.pass.appended(start, data);
    const followed = this.#follow(state, start);
    const nowMs = this.#writer.nowMs();
    const lagMs = (state.compaction?.lagSeconds ?? 0) * 1000;
    const [last] = followed.marks.slice(-1);
    if (lagMs > 0 && (last === undefined || nowMs - last.atMs >= lagMs / GRAIN)) {
      // What is before it came with the append before, or earlier.
      const mark = { offset: start, atMs: followed.lastAtMs as TimeMs };
      followed.marks = thin([...followed.marks, mark]);
    }
    followed.lastAtMs = nowMs;
    this.#consider(state);
  }

  #follow(state: StreamState, tail: Offset): Followed {
    let followed = this.#followed.get(state);
    if (followed === undefined) {
      const atMs = this.#writer.nowMs();
      const marks = [{ offset: tail, atMs }];
      followed = {
        marks,
        lastAtMs: atMs,
        dueBytes: this.#bytesMin,
        isLate: false,
        isWaiting: false,
        restMs: 0,
      };
      this.#followed.set(state, followed);
    }
    return followed;
  }

  #consider(state: StreamState): void {
    if (this.#parts.records === undefined || this.#isStopped || !isCompactable(state)) return;
    const followed = this.#follow(state, state.tail);
    if (followed.isWaiting || this.#pass?.stream === state.id) return;
    if (compactableBytes(this.#writer.world, state) < followed.dueBytes) return;
    this.#queue.add(state.id);
    this.#begin();
  }

  #begin(): void {
    if (this.#isWorking) return;
    this.#isWorking = true;
    void this.#work().finally(() => {
      this.#isWorking = false;
      if (this.#queue.size > 0) this.#begin();
    });
  }

  #retry(id: StreamId): void {
    const state = this.#writer.world.byId.get(id);
    const followed = state === undefined ? undefined : this.#followed.get(state);
    if (state === undefined || followed === undefined) return;
    followed.isWaiting = false;
    this.#consider(state);
  }

  async #work(): Promise<void> {
    // Not in the step of an append.
    await this.#writer.slices().turn();
    for (const id of this.#queue) {
      this.#queue.delete(id);
      const state = this.#writer.world.byId.get(id);
      if (state !== undefined && !this.#isStopped) await this.#compact(state);
    }
  }

  async #compact(state: StreamState): Promise<void> {
    const { records, keysMax = LIMITS.compactionKeysMax, onFault } = this.#parts;
    const rule = state.compaction;
    if (records === undefined || rule === undefined) return;
    const writer = this.#writer;
    const bytes = compactableBytes(writer.world, state);
    const isLate = this.#followed.get(state)?.isLate === true;
    const pass = new CompactionPass(
      {
        writer,
        records,
        keysMax,
        charsMax: LIMITS.compactionCharsMax,
        agedTo: () => this.#agedTo(state, rule),
        isStopped: () => this.#isStopped,
        isUrgent: () => isLate || compactableBytes(writer.world, state) > URGENT_GROWTH * bytes,
      },
      state,
      rule,
    );
    this.#pass = { stream: state.id, pass };
    let ending: PassEnding = "later";
    try {
      ending = await pass.run();
    } catch (error) {
      // A stream that goes while it is read, and a store that fails, are no faults of compaction.
      const isThere = writer.world.byId.get(state.id) === state && !this.#isStopped;
      if (writer.stopped === undefined && isThere) onFault(error);
    }
    this.#pass = undefined;
    this.#ended(state, ending, pass);
  }

  #ended(state: StreamState, ending: PassEnding, pass: CompactionPass): void {
    const followed = this.#followed.get(state);
    const { meter } = this.#writer;
    if (meter !== undefined) {
      meter.compaction.passes[ending] += 1;
      if (ending === "done") meter.compaction.lastAtMs = this.#writer.nowMs();
    }
    if (ending === "over" || followed === undefined) {
      this.#followed.delete(state);
      const isThere = this.#writer.world.byId.get(state.id) === state;
      // It has another rule by now.
      if (isThere && this.#writer.stopped === undefined) this.#consider(state);
      return;
    }
    const bytes = compactableBytes(this.#writer.world, state);
    if (ending !== "later") {
      const grown = ending === "done" ? GROWTH * pass.newestBytes : LITTLE_GROWTH * bytes;
      followed.dueBytes = Math.max(this.#bytesMin, grown);
      followed.isLate = ending === "done" && bytes >= followed.dueBytes;
      // It has grown meanwhile: the next pass begins at once, unless most of it is too young.
      if (bytes < followed.dueBytes || pass.leftBytes < bytes / 2) {
        this.#consider(state);
        return;
      }
    }
    this.#wait(state, followed, ending);
  }

  /** A pass that finds little has read the changelog for it: it comes more and more seldom. */
  #wait(state: StreamState, followed: Followed, ending: PassEnding): void {
    const lagMs = (state.compaction?.lagSeconds ?? 0) * 1000;
    const restMs = ending === "little" ? 2 * followed.restMs : 0;
    followed.isWaiting = true;
    followed.restMs = Math.min(REST_MS_MAX, Math.max(REST_MS, lagMs / 4, restMs));
    this.#deadlines.add(this.#writer.nowMs() + followed.restMs, state.id);
  }

  /** Everything before it is older than the lag. */
  #agedTo(state: StreamState, { lagSeconds }: CompactionRule): Offset {
    if (lagSeconds === 0) return state.tail;
    const followed = this.#follow(state, state.tail);
    const limitMs = this.#writer.nowMs() - lagSeconds * 1000;
    if (followed.lastAtMs <= limitMs) return state.tail;
    return followed.marks.findLast(({ atMs }) => atMs <= limitMs)?.offset ?? OFFSET_ZERO;
  }
}

/** The newest marks say the most. What is older than the lag needs only one of them. */
function thin(marks: readonly TrimMark[]): readonly TrimMark[] {
  return marks.length <= MARKS_MAX ? marks : marks.slice(-MARKS_MAX / 2);
}
