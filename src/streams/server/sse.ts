/**
 * Server-Sent Events: one reader that catches up from the store and then follows the tail.
 *
 *   - every data event is followed by its control event, in the same write;
 *   - what a live append looks like on the wire is made once and shared by all readers; so is a page of the store for
 *     readers that read it at about the same time, as all do that were sent there together;
 *   - a reader that does not take its bytes holds a bounded number of them, and is cut in the end;
 *   - a reader that leaves the live path comes back by reading the store, at its own offset.
 */

import { assert } from "../../base/assert.ts";
import { joinBytes } from "../../base/bytes.ts";
import { decideCursor, decideNextCursor } from "../core/cursor.ts";
import { lifeOf, type StreamState } from "../core/stream.ts";
import type { Offset, StreamId } from "../core/types.ts";
import type { ReadPage } from "../engine/outcomes.ts";
import { type Access, UNLIMITED } from "../access/access.ts";
import type { TailEvent } from "../engine/tails.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { HEADER } from "../../protocol/headers.ts";
import {
  dataEventBytes,
  encodeControlEvent,
  encodeDataEvent,
  encodeEventId,
  type SseKind,
  sseKind,
} from "../../protocol/sse.ts";
import { formatOffset } from "../../protocol/values.ts";
import { addOffsets } from "./state-offsets.ts";
import { cutPage } from "./read-begin.ts";
import { earliestHeaders } from "./retention.ts";
import { type AnswerShare, takeShare } from "./answer-budget.ts";
import { LiveConnection } from "./live-connection.ts";
import type { Exchange, LiveAnswer, LiveSink, BridgedPlace } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";

type ReaderAccess = Pick<Access, "expiresAtMs" | "onEnd">;

export function followStream(
  parts: ServerParts,
  state: StreamState,
  from: Offset,
  request: {
    readonly cursor: string | undefined;
    readonly stateOffsets: boolean;
    /** The events begin at `from`, also inside an append. */
    readonly isExact?: boolean;
    /** More headers. */
    readonly more?: Readonly<Record<string, string>>;
    /** The reader's: it ends with its identity. */
    readonly access: ReaderAccess;
    readonly exchange: Pick<Exchange, "onAbort" | "peer">;
    /** Takes the place of a live reader, or throws. What it returns gives the place back. */
    readonly open?: () => (() => void) | undefined;
  },
): LiveAnswer {
  const kind = sseKind(state.contentType);
  const nowMs = parts.clock.nowMs();
  const first = decideCursor(request.cursor, nowMs, parts.random.unit());
  const headers: Record<string, string> = {
    [HEADER.contentType]: "text/event-stream",
    [HEADER.cacheControl]: "no-cache",
    // Where the events begin: a reader that is cut before the first of them resumes here.
    [HEADER.nextOffset]: formatOffset(from),
    [HEADER.cursor]: first,
    [HEADER.life]: lifeOf(state, parts.engine.world),
    ...earliestHeaders(parts.engine.view(state).earliest),
    ...request.more,
    "X-Accel-Buffering": "no",
  };
  if (kind === "base64") headers[HEADER.sseEncoding] = "base64";
  const hasOffsets = request.stateOffsets && kind === "json";
  const onEnd = request.open?.() ?? (() => undefined);
  let hasBegun = false;
  // An answer may never begin: then the end of the request is the end of the reader.
  request.exchange.onAbort(() => {
    if (!hasBegun) onEnd();
  });
  return {
    status: 200,
    headers,
    live: (sink) => {
      hasBegun = true;
      const reader = new SseReader(parts, sink, state, from, first, {
        kind,
        hasOffsets,
        isExact: request.isExact === true,
        peer: request.exchange.peer,
        access: request.access,
        onEnd,
      });
      reader.start();
      request.exchange.onAbort(() => {
        reader.leave();
      });
    },
  };
}

/** Goes on with a reader of a server whose memory is gone. A stream that is gone, or another one, ends it. */
export function resumeReader(parts: ServerParts, place: BridgedPlace, sink: LiveSink): void {
  const state = parts.engine.world.byId.get(place.stream as StreamId);
  if (state === undefined || state.isDeleted || lifeOf(state, parts.engine.world) !== place.life) {
    sink.end();
    return;
  }
  const reader = new SseReader(parts, sink, state, place.offset as Offset, place.cursor, {
    kind: sseKind(state.contentType),
    hasOffsets: place.hasOffsets,
    isExact: false,
    peer: undefined,
    access: UNLIMITED, // Its identity was checked when it came, and its time is kept by the sink.
    onEnd: () => undefined,
  });
  reader.start(true);
}

interface Following {
  readonly kind: SseKind;
  readonly hasOffsets: boolean;
  readonly isExact: boolean;
  readonly peer: string | undefined;
  readonly access: ReaderAccess;
  /** May be called more than once. */
  readonly onEnd: () => void;
}

interface Frame {
  readonly cursor: string;
  readonly hasOffsets: boolean;
  readonly bytes: Uint8Array;
}

/** The last frame made for an event; readers differ in cursor and offsets only, and seldom in those. */
const frames = new WeakMap<TailEvent, Frame>();
/** What an event has beside its data, and more. */
const FRAME_BYTES = 1024;
/** Of each stream the last page, for as long as a reader has not taken it yet. */
const lastPages = new WeakMap<
  StreamState,
  { readonly key: string; readonly bytes: WeakRef<Uint8Array> }
>();

class SseReader {
  readonly #parts: ServerParts;
  readonly #sink: LiveSink;
  readonly #state: StreamState;
  readonly #kind: SseKind;
  readonly #hasOffsets: boolean;
  /** Set until the first page was sent: it begins here, also inside an append. */
  #cutAt: Offset | undefined;
  readonly #peer: string | undefined;
  readonly #connection: LiveConnection;
  #position: Offset;
  #cursor: string;
  #mode: "catching-up" | "live" | "stalled" | "ended" = "catching-up";
  #isLeaving = false;
  #leave: () => void = () => undefined;

  constructor(
    parts: ServerParts,
    sink: LiveSink,
    state: StreamState,
    from: Offset,
    cursor: string,
    { kind, hasOffsets, isExact, peer, access, onEnd }: Following,
  ) {
    this.#parts = parts;
    this.#sink = sink;
    this.#state = state;
    this.#position = from;
    this.#cursor = cursor;
    this.#kind = kind;
    this.#hasOffsets = hasOffsets;
    this.#cutAt = isExact ? from : undefined;
    this.#peer = peer;
    this.#connection = new LiveConnection(parts, sink, {
      access,
      isIdle: () => this.#mode === "live",
      onOver: () => {
        this.#mode = "ended";
        this.#leave();
        onEnd();
      },
    });
  }

  /** `isResumed`: the other side has been told where it is. */
  start(isResumed = false): void {
    this.#leave = this.#parts.engine.listen(this.#state, (event) => {
      this.#onEvent(event);
    });
    this.#connection.begin();
    if (!this.#connection.isOver) this.#catchUp(!isResumed);
  }

  /** Everything up to the reader's position is in these bytes, or was sent before. */
  #send(bytes: Uint8Array): void {
    this.#sink.write(bytes);
    this.#sink.bridge?.moved({
      stream: this.#state.id,
      life: lifeOf(this.#state, this.#parts.engine.world),
      offset: this.#position,
      cursor: this.#cursor,
      hasOffsets: this.#hasOffsets,
    });
  }

  /** The other side sends no more and may have gone: it gets what is there, and then the end. */
  leave(): void {
    this.#isLeaving = true;
    if (this.#mode === "live") this.#connection.end();
  }

  /** The first time it says where the reader is, even if there is nothing to send. */
  #catchUp(mustSpeak = false): void {
    this.#mode = "catching-up";
    this.#pump(mustSpeak).catch(() => {
      // The store could not be read: the reader connects again, and the answer says why.
      this.#connection.cut();
    });
  }

  async #pump(isFirst: boolean): Promise<void> {
    const { engine } = this.#parts;
    for (let mustSpeak = isFirst; ; mustSpeak = false) {
      const found = await this.#readPage();
      if (found === undefined) return;
      const { share } = found;
      const page = this.#cutAt === undefined ? found.page : cutPage(found.page, this.#cutAt);
      this.#cutAt = undefined;
      assert(page.next >= this.#position, "a page leads back");
      this.#position = page.next;
      if (page.bytes > 0 || mustSpeak || page.isAtEnd) {
        const bytes = this.#page(page);
        share.resize(bytes.length);
        this.#send(bytes);
      }
      this.#sink.onDrain(share.release);
      if (page.isAtEnd) {
        this.#connection.end();
        return;
      }
      if (this.#isStalled()) return;
      // From this look at the tail to the live mode there is no await.
      const view = engine.view(this.#state);
      if (this.#position < view.tail || view.isClosed) continue;
      if (this.#isLeaving) this.#connection.end();
      else this.#mode = "live";
      return;
    }
  }

  /** A page and its room; undefined if the reader need not catch up any more. */
  async #readPage(): Promise<{ page: ReadPage; share: AnswerShare } | undefined> {
    const { answers, engine } = this.#parts;
    let share = await takeShare(this.#parts, this.#state, this.#position, this.#peer);
    for (let isSecond = false; ; isSecond = true) {
      this.#connection.hold(share);
      if (this.#mode !== "catching-up") {
        share.release();
        return undefined;
      }
      const page = await engine.read(this.#state, this.#position, LIMITS.sseEventBytesMax);
      if (this.#mode !== "catching-up") return undefined;
      const bytes = dataEventBytes(this.#kind, page.appends);
      if (isSecond || bytes <= 2 * Math.max(share.bytes, FRAME_BYTES)) return { page, share };
      // A line break is seven bytes in an event: it waits for the room that it takes, and not with the page in hand.
      share.release();
      share = await answers.take(bytes, this.#peer);
    }
  }

  #onEvent(event: TailEvent): void {
    if (event.isGone) {
      this.#connection.end();
      return;
    }
    if (this.#mode !== "live") return;
    if (event.start !== this.#position) {
      if (event.tail > this.#position || event.isClosed) this.#catchUp();
      return;
    }
    assert(event.tail >= this.#position, "a live event leads back");
    this.#position = event.tail;
    this.#send(this.#frame(event));
    if (event.isClosed) this.#connection.end();
    else this.#isStalled();
  }

  #frame(event: TailEvent): Uint8Array {
    this.#moveCursor();
    const shared = frames.get(event);
    const hasOffsets = this.#hasOffsets;
    if (shared?.cursor === this.#cursor && shared.hasOffsets === hasOffsets) return shared.bytes;
    const control = this.#control(true, event.isClosed);
    const bytes = this.#withData(event.start, event.appends, control);
    frames.set(event, { cursor: this.#cursor, hasOffsets, bytes });
    return bytes;
  }

  #page({ start, appends, isUpToDate, isAtEnd }: ReadPage): Uint8Array {
    const control = this.#control(isUpToDate, isAtEnd);
    const key = [start, this.#position, isUpToDate, isAtEnd, this.#cursor, this.#hasOffsets].join();
    const last = lastPages.get(this.#state);
    const shared = last?.key === key ? last.bytes.deref() : undefined;
    if (shared !== undefined) return shared;
    const bytes = this.#withData(start, appends, control);
    lastPages.set(this.#state, { key, bytes: new WeakRef(bytes) });
    return bytes;
  }

  /** The appends from `start` to where the reader is now, and the control event behind them. */
  #withData(start: Offset, appends: readonly Uint8Array[], control: Uint8Array): Uint8Array {
    if (appends.length === 0) return control;
    const stored = this.#hasOffsets ? addOffsets(start, appends) : appends;
    const id = encodeEventId(formatOffset(this.#position));
    return joinBytes([id, encodeDataEvent(this.#kind, joinBytes(stored)), control]);
  }

  #control(upToDate: boolean, streamClosed: boolean): Uint8Array {
    const streamNextOffset = formatOffset(this.#position);
    if (streamClosed) return encodeControlEvent({ streamNextOffset, upToDate, streamClosed });
    this.#moveCursor();
    const streamCursor = this.#cursor;
    if (!upToDate) return encodeControlEvent({ streamNextOffset, streamCursor });
    return encodeControlEvent({ streamNextOffset, streamCursor, upToDate });
  }

  #moveCursor(): void {
    this.#cursor = decideNextCursor(this.#cursor, this.#parts.clock.nowMs());
  }

  /** Too much is queued. Nothing more is written until it is gone, or its time is over. */
  #isStalled(): boolean {
    const isStalled = this.#connection.stallIfFull(() => {
      this.#catchUp();
    });
    if (isStalled) this.#mode = "stalled";
    return isStalled;
  }
}
