/**
 * One live reader of several streams: catches up in each from the store, and then follows all their tails.
 *
 *   - of each stream it gets every append once and in order; between streams there is no order;
 *   - an event has data of one stream and says where its reader goes on; its id says it for all streams;
 *   - streams that are behind are read in turn, one page at a time: so a connection holds one page and what is queued, however
 *     many streams it follows, and no stream keeps another one waiting for more than a page;
 *   - a stream that ends, is deleted or is trimmed before its reader ends alone.
 */

import { assert } from "../../base/assert.ts";
import { isHapaxError } from "../../base/errors.ts";
import { joinBytes } from "../../base/bytes.ts";
import {
  encodeFollowed,
  encodeFollowRefusal,
  encodePlaces,
  type FollowedPlace,
} from "../../protocol/follow-all.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { Refusal } from "../../protocol/refusal.ts";
import { dataEventBytes } from "../../protocol/sse.ts";
import { formatOffset } from "../../protocol/values.ts";
import { isJson, lifeOf, type StreamState } from "../core/stream.ts";
import type { Offset, StreamName } from "../core/types.ts";
import type { ReadPage } from "../engine/outcomes.ts";
import type { TailEvent } from "../engine/tails.ts";
import { type AnswerShare, takeShare } from "./answer-budget.ts";
import type { LiveSink } from "./exchange.ts";
import { LiveConnection, type LiveConnectionOptions } from "./live-connection.ts";
import type { ServerParts } from "./parts.ts";
import { addOffsets } from "./state-offsets.ts";

/** A stream of the request: where it begins, or why it cannot be read. */
export type LaneStart =
  | { readonly kind: "followed"; readonly state: StreamState; readonly from: Offset }
  | { readonly kind: "refused"; readonly stream: StreamName; readonly refusal: Refusal }
  /** The reader has had its last event. */
  | { readonly kind: "over" };

/** A stream that is followed. */
interface Lane {
  readonly state: StreamState;
  readonly isJson: boolean;
  readonly life: string;
  position: Offset;
  /** Its first event is still to come: it says where the reader is, even if there is no data. */
  mustSpeak: boolean;
  isOver: boolean;
  leave: () => void;
}

interface ManyOptions extends Pick<LiveConnectionOptions, "access"> {
  readonly stateOffsets: boolean;
  readonly peer: string | undefined;
  readonly onOver: () => void;
}

/** What an event has beside its data, and more. */
const FRAME_BYTES = 1024;
/** The last event of a tail that was encoded, for all readers of it. */
const frames = new WeakMap<
  TailEvent,
  { readonly hasOffsets: boolean; readonly bytes: Uint8Array }
>();

export class ManyReader {
  readonly #parts: ServerParts;
  readonly #sink: LiveSink;
  readonly #connection: LiveConnection;
  readonly #options: ManyOptions;
  /** In the order of the request. Undefined: a stream of which there is nothing to follow. */
  readonly #lanes: readonly (Lane | undefined)[];
  readonly #refused: readonly Extract<LaneStart, { readonly kind: "refused" }>[];
  /** Those that must read the store. The one whose turn it is comes first. */
  readonly #behind = new Set<Lane>();
  #open: number;
  #isPumping = false;
  /** Nothing more is written until the queue is empty. */
  #isStalled = false;
  #isLeaving = false;

  constructor(
    parts: ServerParts,
    sink: LiveSink,
    streams: readonly LaneStart[],
    options: ManyOptions,
  ) {
    this.#parts = parts;
    this.#sink = sink;
    this.#options = options;
    this.#lanes = streams.map((one) => (one.kind === "followed" ? laneOf(parts, one) : undefined));
    this.#refused = streams.filter((one) => one.kind === "refused");
    this.#open = streams.filter(({ kind }) => kind === "followed").length;
    this.#connection = new LiveConnection(parts, sink, {
      access: options.access,
      isIdle: () => !this.#isPumping,
      onOver: () => {
        for (const lane of this.#lanes) lane?.leave();
        options.onOver();
      },
    });
  }

  start(): void {
    this.#connection.begin();
    if (this.#connection.isOver) return;
    for (const { stream, refusal } of this.#refused) this.#sendRefusal(stream, refusal);
    for (const lane of this.#lanes) {
      if (lane === undefined) continue;
      this.#behind.add(lane);
      lane.leave = this.#parts.engine.listen(lane.state, (event) => {
        this.#onEvent(lane, event);
      });
    }
    if (this.#open === 0) this.#connection.end();
    else this.#catchUp();
  }

  /** The other side sends no more and may have gone: it gets what is there, and then the end. */
  leave(): void {
    this.#isLeaving = true;
    if (this.#behind.size === 0) this.#connection.end();
  }

  #onEvent(lane: Lane, event: TailEvent): void {
    if (lane.isOver || this.#connection.isOver) return;
    if (event.isGone) {
      this.#refuse(lane, {
        code: "stream_not_found",
        detail: `the stream ${lane.state.name} was deleted or has expired`,
      });
      return;
    }
    // What comes while a stream is read from the store is found there.
    if (this.#behind.has(lane)) return;
    if (this.#isStalled || event.start !== lane.position) {
      if (event.tail <= lane.position && !event.isClosed) return;
      this.#behind.add(lane);
      this.#catchUp();
      return;
    }
    assert(event.tail >= lane.position, "a live event leads back");
    lane.position = event.tail;
    this.#send(lane, this.#frame(lane, event), event.isClosed);
    this.#look();
  }

  #catchUp(): void {
    if (this.#isPumping || this.#isStalled) return;
    this.#isPumping = true;
    void this.#pump()
      .catch(() => {
        // The store could not be read: the reader connects again, and the answer says why.
        this.#connection.cut();
      })
      .finally(() => {
        this.#isPumping = false;
        // A stream may have fallen behind after the last look.
        const isNeeded = this.#behind.size > 0 && !this.#connection.isOver;
        if (isNeeded && !this.#isStalled) this.#catchUp();
      });
  }

  async #pump(): Promise<void> {
    const { engine } = this.#parts;
    for (const connection = this.#connection; !connection.isOver && !this.#isStalled;) {
      const [lane] = this.#behind;
      if (lane === undefined) {
        if (this.#isLeaving) connection.end();
        return;
      }
      const found = await this.#readPage(lane);
      if (connection.isOver) return;
      // It goes to the end of the line: the others have their turn.
      this.#behind.delete(lane);
      if (found === undefined) continue;
      const { page, share } = found;
      if (lane.isOver) {
        share.release();
        continue;
      }
      assert(page.next >= lane.position, "a page leads back");
      lane.position = page.next;
      const { mustSpeak } = lane;
      lane.mustSpeak = false;
      // From this look at the tail to the live mode there is no await.
      const view = engine.view(lane.state);
      if (!page.isAtEnd && (lane.position < view.tail || view.isClosed)) this.#behind.add(lane);
      if (page.bytes > 0 || mustSpeak || page.isAtEnd) {
        const { start, appends, isUpToDate, isAtEnd } = page;
        const bytes = this.#encode(lane, start, appends, isUpToDate, isAtEnd);
        share.resize(bytes.length);
        this.#send(lane, bytes, isAtEnd);
      }
      this.#sink.onDrain(share.release);
      this.#look();
    }
  }

  /** A page and its room; undefined if there is nothing to read any more. */
  async #readPage(lane: Lane): Promise<{ page: ReadPage; share: AnswerShare } | undefined> {
    const { answers, engine } = this.#parts;
    const { peer } = this.#options;
    let share = await takeShare(this.#parts, lane.state, lane.position, peer);
    for (let isSecond = false; ; isSecond = true) {
      this.#connection.hold(share);
      if (this.#connection.isOver || lane.isOver) {
        share.release();
        return undefined;
      }
      let page: ReadPage;
      try {
        page = await engine.read(lane.state, lane.position, LIMITS.sseEventBytesMax);
      } catch (error) {
        share.release();
        if (!isHapaxError(error, "offset_trimmed")) throw error;
        this.#refuse(lane, trimmedRefusal(engine.view(lane.state).earliest));
        return undefined;
      }
      const bytes = dataEventBytes(lane.isJson ? "json" : "base64", page.appends);
      if (isSecond || bytes <= 2 * Math.max(share.bytes, FRAME_BYTES)) return { page, share };
      // A line break is seven bytes in an event: it waits for the room that it takes, and not with the page in hand.
      share.release();
      share = await answers.take(bytes, peer);
    }
  }

  #frame(lane: Lane, event: TailEvent): Uint8Array {
    const hasOffsets = this.#options.stateOffsets;
    const shared = frames.get(event);
    if (shared?.hasOffsets === hasOffsets) return shared.bytes;
    const bytes = this.#encode(lane, event.start, event.appends, true, event.isClosed);
    frames.set(event, { hasOffsets, bytes });
    return bytes;
  }

  /** The appends from `start` to where the reader of the stream is now. */
  #encode(
    lane: Lane,
    start: Offset,
    appends: readonly Uint8Array[],
    isUpToDate: boolean,
    isClosed: boolean,
  ): Uint8Array {
    const { state, isJson, life, position } = lane;
    const hasOffsets = this.#options.stateOffsets && isJson;
    const stored = joinBytes(hasOffsets ? addOffsets(start, appends) : appends);
    const { name: stream, contentType } = state;
    const ends = { from: start, next: position, isUpToDate, isClosed };
    return encodeFollowed({ stream, life, contentType, isJson, ...ends, stored });
  }

  /** One event. Everything up to the places of the reader is in it, or was sent before. */
  #send(lane: Lane, event: Uint8Array, isLast: boolean): void {
    if (isLast) this.#finish(lane);
    this.#write(event);
  }

  /** Ends behind the last event of the last stream, and writes no more while too much is queued. */
  #look(): void {
    if (this.#open === 0) this.#connection.end();
    else {
      this.#isStalled = this.#connection.stallIfFull(() => {
        this.#isStalled = false;
        this.#catchUp();
      });
    }
  }

  #refuse(lane: Lane, refusal: Refusal): void {
    this.#finish(lane);
    this.#sendRefusal(lane.state.name, refusal);
    if (this.#open === 0) this.#connection.end();
  }

  #sendRefusal(stream: StreamName, refusal: Refusal): void {
    this.#write(encodeFollowRefusal(stream, refusal));
  }

  #write(event: Uint8Array): void {
    this.#sink.write(encodePlaces(this.#lanes.map(placeOf)));
    this.#sink.write(event);
  }

  #finish(lane: Lane): void {
    lane.isOver = true;
    lane.leave();
    this.#behind.delete(lane);
    this.#open -= 1;
  }
}

function laneOf(
  { engine }: ServerParts,
  { state, from }: Extract<LaneStart, { readonly kind: "followed" }>,
): Lane {
  return {
    state,
    isJson: isJson(state.contentType),
    life: lifeOf(state, engine.world),
    position: from,
    mustSpeak: true,
    isOver: false,
    leave: () => undefined,
  };
}

function placeOf(lane: Lane | undefined): FollowedPlace {
  if (lane === undefined || lane.isOver) return undefined;
  return { offset: lane.position, life: lane.life };
}

/** The refusal of a reader whose data was trimmed. */
export function trimmedRefusal(earliest: Offset): Refusal {
  const earliestOffset = formatOffset(earliest);
  const detail = `the stream begins at ${earliestOffset}`;
  return { code: "offset_trimmed", detail, facts: { earliestOffset } };
}
