/**
 * Server-Sent Events: one reader that catches up from the store and then follows the tail.
 *
 *   X1  every data event is followed by its control event, in the same write;
 *   X2  what a live append looks like on the wire is made once and shared by all readers;
 *   X3  a reader that does not take its bytes holds a bounded number of them, and is cut in the end;
 *   X4  a reader that leaves the live path comes back by reading the store, at its own offset.
 */

import { decideCursor, decideNextCursor } from "../core/cursor.ts";
import type { StreamState } from "../core/stream.ts";
import type { Offset } from "../core/types.ts";
import type { TailEvent } from "../engine/tails.ts";
import { LIMITS } from "../limits.ts";
import { HEADER } from "../wire/headers.ts";
import {
  encodeControlEvent,
  encodeDataEvent,
  encodeHeartbeat,
  type SseKind,
  sseKind,
} from "../wire/sse.ts";
import { formatOffset } from "../wire/values.ts";
import type { LiveAnswer, Sink } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";

export function followStream(
  parts: ServerParts,
  state: StreamState,
  from: Offset,
  cursor: string | undefined,
): LiveAnswer {
  const kind = sseKind(state.contentType);
  const headers: Record<string, string> = {
    [HEADER.contentType]: "text/event-stream",
    [HEADER.cacheControl]: "no-cache",
    "X-Accel-Buffering": "no",
  };
  if (kind === "base64") headers[HEADER.sseEncoding] = "base64";
  const nowMs = parts.clock.nowMs();
  const first = decideCursor(cursor, nowMs, parts.random.unit());
  return {
    status: 200,
    headers,
    live: (sink) => {
      new SseReader(parts, sink, state, from, first, kind).start();
    },
  };
}

interface Frame {
  readonly cursor: string;
  readonly bytes: Uint8Array;
}

/** The last frame made for an event; readers differ in their cursor only, and seldom in that. */
const frames = new WeakMap<TailEvent, Frame>();
const HEARTBEAT = encodeHeartbeat();

class SseReader {
  readonly #parts: ServerParts;
  readonly #sink: Sink;
  readonly #state: StreamState;
  readonly #kind: SseKind;
  #position: Offset;
  #cursor: string;
  #mode: "catching-up" | "live" | "stalled" | "ended" = "catching-up";
  #leave: () => void = () => undefined;
  #cancels = new Set<() => void>();

  constructor(
    parts: ServerParts,
    sink: Sink,
    state: StreamState,
    from: Offset,
    cursor: string,
    kind: SseKind,
  ) {
    this.#parts = parts;
    this.#sink = sink;
    this.#state = state;
    this.#position = from;
    this.#cursor = cursor;
    this.#kind = kind;
  }

  start(): void {
    const { engine, settings, random } = this.#parts;
    this.#leave = engine.listen(this.#state, (event) => {
      this.#onEvent(event);
    });
    this.#sink.onClose(() => {
      this.#stop();
    });
    // Readers that came together must not all come back together.
    const lifeMs = settings.sseMaxSeconds * 1000 * (0.95 + 0.1 * random.unit());
    this.#after(lifeMs, () => {
      this.#end();
    });
    this.#cancels.add(
      this.#parts.drain.onDrain(() => {
        this.#end();
      }),
    );
    this.#beat();
    this.#catchUp(true);
  }

  /** The first time it says where the reader is, even if there is nothing to send. */
  #catchUp(mustSpeak = false): void {
    this.#mode = "catching-up";
    this.#pump(mustSpeak).catch(() => {
      // The store could not be read: the reader comes back and is told why.
      this.#stop();
      this.#sink.cut();
    });
  }

  async #pump(isFirst: boolean): Promise<void> {
    const { engine } = this.#parts;
    for (let mustSpeak = isFirst; ; mustSpeak = false) {
      const page = await engine.read(this.#state, this.#position, LIMITS.sseEventBytesMax);
      if (this.#mode !== "catching-up") return;
      this.#position = page.next;
      if (page.bytes > 0 || mustSpeak || page.isAtEnd) {
        const control = this.#control(page.isUpToDate, page.isAtEnd);
        const data = page.bytes > 0 ? encodeDataEvent(this.#kind, join(page.appends)) : undefined;
        this.#sink.write(data === undefined ? control : join([data, control]));
      }
      if (page.isAtEnd) {
        this.#end();
        return;
      }
      if (this.#isStalled()) return;
      // T2: from this look at the tail to the live mode there is no await.
      const view = engine.view(this.#state);
      if (this.#position < view.tail || view.isClosed) continue;
      this.#mode = "live";
      return;
    }
  }

  #onEvent(event: TailEvent): void {
    if (event.isGone) {
      this.#end();
      return;
    }
    if (this.#mode !== "live") return;
    if (event.start !== this.#position) {
      if (event.tail > this.#position) this.#catchUp();
      return;
    }
    this.#position = event.tail;
    this.#sink.write(this.#frame(event));
    if (event.isClosed) this.#end();
    else this.#isStalled();
  }

  #frame(event: TailEvent): Uint8Array {
    this.#moveCursor();
    const shared = frames.get(event);
    if (shared !== undefined && shared.cursor === this.#cursor) return shared.bytes;
    const control = this.#control(true, event.isClosed);
    const bytes =
      event.appends.length === 0
        ? control
        : join([encodeDataEvent(this.#kind, join(event.appends)), control]);
    frames.set(event, { cursor: this.#cursor, bytes });
    return bytes;
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

  /** X3: too much is queued. Nothing more is written until it is gone, or its time is over. */
  #isStalled(): boolean {
    const { settings } = this.#parts;
    if (this.#sink.queuedBytes <= settings.readerBufferBytes) return false;
    this.#mode = "stalled";
    const cancel = this.#sink.onStuck(settings.readerStallMs, () => {
      this.#stop();
      this.#sink.cut();
    });
    this.#cancels.add(cancel);
    this.#sink.onDrain(() => {
      if (this.#mode !== "stalled") return;
      this.#cancels.delete(cancel);
      cancel();
      this.#catchUp();
    });
    return true;
  }

  #beat(): void {
    this.#after(LIMITS.sseHeartbeatMs, () => {
      if (this.#mode === "live") this.#sink.write(HEARTBEAT);
      this.#beat();
    });
  }

  #after(delayMs: number, run: () => void): () => void {
    const cancel = this.#parts.clock.after(delayMs, () => {
      this.#cancels.delete(cancel);
      run();
    });
    this.#cancels.add(cancel);
    return () => {
      this.#cancels.delete(cancel);
      cancel();
    };
  }

  #end(): void {
    this.#stop();
    this.#sink.end();
  }

  #stop(): void {
    this.#mode = "ended";
    this.#leave();
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
  }
}

function join(pieces: readonly Uint8Array[]): Uint8Array {
  const [first] = pieces;
  if (first !== undefined && pieces.length === 1) return first;
  let length = 0;
  for (const piece of pieces) length += piece.length;
  const joined = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}
