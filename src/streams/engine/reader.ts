/** Reads what is durable, and never more. A live reader gets data as it becomes durable. PROTOCOL.md §7, §12.1. */

import { HapaxError } from "../../base/errors.ts";
import { isSystemStream, type StreamState } from "../core/stream.ts";
import { assert } from "../../base/assert.ts";
import { earliestOf } from "../core/trim.ts";
import type { Offset, StreamName, TimeMs } from "../core/types.ts";
import type { Boundaries } from "./boundaries.ts";
import type { Page } from "../store.ts";
import type { GroupCommit } from "./commit.ts";
import { pageOfNames, type StreamPage } from "./listing.ts";
import { type Found, GONE, type Look, MISSING, type ReadPage } from "./outcomes.ts";
import { readAcrossForks, seekAcrossForks } from "./reading.ts";
import { readLast, type RecordEnd } from "./reading-back.ts";
import type { TailListener, Tails } from "./tails.ts";
import type { Writer } from "./writer.ts";

export interface ReaderParts {
  /** Looking at an expired stream ends it, and reading one moves its expiry. */
  readonly writer: Writer;
  readonly commit: GroupCommit;
  readonly tails: Tails;
  readonly boundaries: Boundaries;
  readonly jsonRecordEnd: RecordEnd;
}

function trimmedError(from: Offset, earliest: Offset): HapaxError {
  return new HapaxError("offset_trimmed", `offset=${from} earliest=${earliest}`);
}

function deletedError(): HapaxError {
  return new HapaxError("stream_not_found", "the stream was deleted while it was read");
}

function bytesOf({ appends }: Page): number {
  return appends.reduce((bytes, append) => bytes + append.length, 0);
}

export class Reader {
  readonly #writer: Writer;
  readonly #commit: GroupCommit;
  readonly #tails: Tails;
  readonly #boundaries: Boundaries;
  readonly #jsonRecordEnd: RecordEnd;

  constructor(parts: ReaderParts) {
    this.#writer = parts.writer;
    this.#commit = parts.commit;
    this.#tails = parts.tails;
    this.#boundaries = parts.boundaries;
    this.#jsonRecordEnd = parts.jsonRecordEnd;
  }

  async look(name: StreamName): Promise<Look> {
    for (;;) {
      const state = this.#writer.find(name);
      const batch = this.#commit.lifecycle(name);
      if (batch === undefined) {
        if (state === undefined) return MISSING;
        return state.isDeleted ? GONE : this.view(state);
      }
      await batch.done;
    }
  }

  view(state: StreamState): Found {
    const tail = this.#commit.durableTail(state);
    const isClosed = this.#commit.isDurablyClosed(state);
    return { kind: "found", state, tail, isClosed, earliest: this.#earliest(state) };
  }

  #earliest(state: StreamState): Offset {
    return earliestOf(this.#writer.world, state, (one) => this.#commit.durableEarliest(one));
  }

  async read(state: StreamState, from: Offset, bytesMax: number): Promise<ReadPage> {
    const { tail, isClosed, earliest } = this.view(state);
    if (from < earliest) throw trimmedError(from, earliest);
    const page = await readAcrossForks(this.#writer.store, state, from, tail, bytesMax);
    const bytes = bytesOf(page);
    if (bytes === 0 && from < tail) {
      const now = this.#earliest(state);
      if (from < now) throw trimmedError(from, now);
      // Its data is gone: it was deleted between the look and this read.
      throw deletedError();
    }
    const next = (bytes === 0 ? Math.min(from, tail) : page.start + bytes) as Offset;
    assert(next <= tail, `W4 a page reaches beyond what is durable: next=${next} tail=${tail}`);
    const isUpToDate = next >= tail;
    const { start, appends, release } = page;
    const isAtEnd = isClosed && isUpToDate;
    if (!isUpToDate) this.#boundaries.remember(state.id, next);
    return { start, appends, bytes, next, tail, earliest, isUpToDate, isAtEnd, release };
  }

  /** The last records before an offset, or before the tail; no more than fit into a page. PROTOCOL.md §7.10. */
  async readLast(
    state: StreamState,
    count: number,
    before: Offset | undefined,
    bytesMax: number,
  ): Promise<ReadPage> {
    const { tail, isClosed, earliest } = this.view(state);
    const next = Math.min(before ?? tail, tail) as Offset;
    const slices = this.#writer.slices();
    const parts = { store: this.#writer.store, jsonRecordEnd: this.#jsonRecordEnd, slices };
    const wanted = { earliest, before: next, tail, count, bytesMax };
    const page = await readLast(parts, state, wanted);
    const now = this.#earliest(state);
    // An empty page means that there is nothing more, and this one a trim has emptied.
    if (now > earliest && (page.appends.length === 0 || page.start < now)) {
      page.release();
      throw trimmedError(page.start, now);
    }
    if (this.#writer.world.byId.get(state.id) !== state) {
      page.release();
      throw deletedError();
    }
    const isUpToDate = next >= tail;
    const isAtEnd = isClosed && isUpToDate;
    this.#boundaries.remember(state.id, page.start);
    return { ...page, bytes: bytesOf(page), next, tail, earliest, isUpToDate, isAtEnd };
  }

  /** Where the first append is that was stored at a time or later; the tail if there is none. PROTOCOL.md §7.11. */
  async seek(state: StreamState, atMs: TimeMs): Promise<Offset> {
    const { tail, earliest } = this.view(state);
    return seekAcrossForks(this.#writer.store, state, earliest, tail, atMs);
  }

  listen(state: StreamState, listener: TailListener): () => void {
    const leave = this.#tails.listen(state.id, listener);
    const isGone = this.#writer.world.byId.get(state.id) !== state || state.isDeleted;
    if (isGone && this.#commit.lifecycle(state.name) === undefined) this.#tellGone(state);
    return () => {
      leave();
      // Its time starts anew when the last reader goes: until now it could not expire.
      this.#writer.expiry.touch(state);
    };
  }

  list(prefix: string, after: string, limit: number): StreamPage {
    const { streams, names } = this.#writer.world;
    return pageOfNames(names, { prefix, after, limit }, (name) => {
      const state = streams.get(name);
      if (state === undefined || state.isDeleted || isSystemStream(name)) return undefined;
      if (this.#commit.lifecycle(name) !== undefined) return undefined;
      return this.#writer.expiry.isOver(state) ? undefined : this.view(state);
    });
  }

  /** The end came before the reader did. The reader gets the event all the same, but not within `listen`. */
  #tellGone(state: StreamState): void {
    const { id: stream, tail, isClosed } = state;
    queueMicrotask(() => {
      this.#tails.publish([{ stream, start: tail, tail, isClosed, isGone: true, appends: [] }]);
    });
  }
}
