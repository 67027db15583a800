/**
 * Where a group or a subscription may stand: between two records. At an offset inside a record what was committed would
 * come again. Streams that are not JSON have no records: there it is between two appends.
 *
 * Where appends and records end is in the store, so the answer may need a read, and a decision must not wait in its
 * middle. So a decision is taken with what is known. If something was not known, the decision is thrown away, the store
 * is read, and everything is decided again on the state of that later moment. Where an append ends never changes.
 */

import { assert } from "../../base/assert.ts";
import { type IsBoundary, isJson, type StreamState } from "../core/stream.ts";
import type { Offset, StreamId } from "../core/types.ts";
import type { Store } from "../store.ts";
import type { GroupCommit } from "./commit.ts";
import { readAcrossForks } from "./reading.ts";

/** Offsets that are remembered so that a commit of what was just read needs no look at the store. */
const REMEMBERED_MAX = 16_384;

/** Whether a record begins at this byte of a stored append; the wire knows what a record is. */
export type IsRecordStart = (append: Uint8Array, at: number) => boolean;

export interface BoundaryParts {
  readonly store: Store;
  readonly commit: GroupCommit;
  readonly isJsonRecordStart: IsRecordStart;
}

export class Boundaries {
  readonly #parts: BoundaryParts;
  /** Oldest first. */
  readonly #remembered = new Set<string>();

  constructor(parts: BoundaryParts) {
    this.#parts = parts;
  }

  /** An answer or an event has just handed it out. */
  remember(stream: StreamId, offset: Offset): void {
    this.#remembered.add(keyOf(stream, offset));
    for (const oldest of this.#remembered) {
      if (this.#remembered.size <= REMEMBERED_MAX) break;
      this.#remembered.delete(oldest);
    }
    assert(this.#remembered.size <= REMEMBERED_MAX, "too many offsets are remembered");
  }

  /** For one decision, however often it has to be taken. */
  check(): OffsetCheck {
    return new OffsetCheck(this.#parts, this.#remembered);
  }
}

export class OffsetCheck {
  readonly #parts: BoundaryParts;
  readonly #remembered: ReadonlySet<string>;
  readonly #known = new Map<string, boolean>();
  readonly #unknown: { readonly state: StreamState; readonly offset: Offset }[] = [];

  constructor(parts: BoundaryParts, remembered: ReadonlySet<string>) {
    this.#parts = parts;
    this.#remembered = remembered;
  }

  /** A decision that asked for something unknown does not count: `learn`, then decide again. */
  get isOpen(): boolean {
    return this.#unknown.length > 0;
  }

  readonly isBoundary: IsBoundary = (state, offset) => {
    if (offset === 0 || offset === this.#parts.commit.durableTail(state)) return true;
    const key = keyOf(state.id, offset);
    if (this.#remembered.has(key)) return true;
    const known = this.#known.get(key);
    if (known === undefined) this.#unknown.push({ state, offset });
    return known ?? true;
  };

  async learn(): Promise<void> {
    for (const { state, offset } of this.#unknown.splice(0)) {
      this.#known.set(keyOf(state.id, offset), await this.#look(state, offset));
    }
  }

  async #look(state: StreamState, offset: Offset): Promise<boolean> {
    const { store, commit, isJsonRecordStart } = this.#parts;
    if (offset > commit.durableTail(state)) await commit.underWay(state.name, state)?.done;
    const tail = commit.durableTail(state);
    if (offset >= tail) return offset === tail;
    const page = await readAcrossForks(store, state, offset, tail, 1);
    const [append] = page.appends;
    const at = offset - page.start;
    const isStart =
      append !== undefined &&
      (at === 0 || (isJson(state.contentType) && isJsonRecordStart(append, at)));
    page.release();
    return isStart;
  }
}

function keyOf(stream: StreamId, offset: Offset): string {
  return `${stream} ${offset}`;
}
