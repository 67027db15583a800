/**
 * Sends a ServerAnswer over HTTP/2, in slices of which one at a time is with Node. So one answer does not stand before the others of
 * its connection, it is known what the other side has taken, and an answer that is cut holds no more than a slice.
 */

import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { TLSSocket } from "node:tls";
import { systemClock } from "../../base/clock.ts";
import type { LiveSink, ServerAnswer } from "../server/exchange.ts";
import { whenStuck } from "../server/stuck.ts";
import { bodyPieces, takenFrom } from "./node-exchange.ts";

const SLICE_BYTES = 16 * 1024;

/** How long a body may still come after its answer. */
const LAST_MS = 1000;

export interface Http2Target {
  readonly stream: ServerHttp2Stream;
  readonly socket: TLSSocket;
  readonly isHead: boolean;
}

export function sendHttp2Answer(
  { stream, socket, isHead }: Http2Target,
  answer: ServerAnswer,
  stallMs: number,
): void {
  const outlet = new Http2Outlet(stream, socket);
  const isOver = stream.closed || stream.destroyed;
  if (!("live" in answer) && answer.share !== undefined) {
    const { share } = answer;
    share.onCut(outlet.cut);
    if (isOver) share.release();
    else stream.once("close", share.release);
  }
  if (isOver) return;
  if ("live" in answer) {
    stream.respond({ ":status": answer.status, ...answer.headers });
    answer.live(createSink(stream, outlet, stallMs));
    return;
  }
  if (answer.drop === true) {
    socket.destroy();
    return;
  }
  const pieces = bodyPieces(isHead, answer);
  const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const headers: OutgoingHttpHeaders = { ":status": answer.status, ...answer.headers };
  if (answer.status !== 204 && answer.status !== 304 && !isHead) headers["content-length"] = bytes;
  if (answer.onSent !== undefined) stream.once("finish", answer.onSent);
  stream.respond(headers, { endStream: bytes === 0 });
  for (const piece of pieces) outlet.write(piece);
  outlet.end(stallMs);
}

class Http2Outlet {
  readonly #stream: ServerHttp2Stream;
  readonly #socket: TLSSocket;
  readonly #queue: Uint8Array[] = [];
  /** How much of the first one is written. */
  #at = 0;
  #queuedBytes = 0;
  #takenBytes = 0;
  #isWriting = false;
  #isEnding = false;
  #drains: (() => void)[] = [];

  constructor(stream: ServerHttp2Stream, socket: TLSSocket) {
    this.#stream = stream;
    this.#socket = socket;
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  write(bytes: Uint8Array): void {
    if (this.#stream.destroyed || bytes.length === 0) return;
    this.#queue.push(bytes);
    this.#queuedBytes += bytes.length;
    // The caller may have more, and the last slice ends the answer.
    if (this.#queue.length === 1) queueMicrotask(this.#pump);
  }

  onDrain(run: () => void): void {
    if (this.#queuedBytes === 0) queueMicrotask(run);
    else this.#drains.push(run);
  }

  /** Ends the answer after what is queued, or cuts it if the other side does not take that. */
  end(stallMs: number): void {
    this.#isEnding = true;
    this.#pump();
    if (!this.#stream.writableFinished) {
      this.#stream.once("close", this.onStuck(stallMs, this.cut));
    }
    // A body that is still coming is dropped, so that the client sees the answer. After a while the server asks it to stop.
    this.#stream.resume();
    this.#stream.once("finish", () => {
      if (this.#stream.readableEnded) return;
      const late = setTimeout(() => {
        this.#stream.close(constants.NGHTTP2_NO_ERROR);
      }, LAST_MS).unref();
      this.#stream.once("close", () => {
        clearTimeout(late);
      });
    });
  }

  onStuck(delayMs: number, run: () => void): () => void {
    let before = takenFrom(this.#socket);
    return whenStuck(
      systemClock,
      () => this.#takenBytes,
      delayMs,
      () => {
        const now = takenFrom(this.#socket);
        run();
        // A connection that takes nothing at all would keep the last slice of every answer.
        if (now === before) this.#socket.destroy();
        before = now;
      },
    );
  }

  readonly cut = (): void => {
    this.#queue.length = 0;
    this.#stream.close(constants.NGHTTP2_CANCEL);
    this.#stream.destroy();
  };

  readonly #pump = (): void => {
    if (this.#isWriting || this.#stream.destroyed || this.#stream.writableEnded) return;
    const [first] = this.#queue;
    if (first === undefined) {
      if (this.#isEnding) this.#stream.end();
      return;
    }
    const slice = first.subarray(this.#at, this.#at + SLICE_BYTES);
    this.#at += slice.length;
    if (this.#at === first.length) {
      this.#queue.shift();
      this.#at = 0;
    }
    this.#isWriting = true;
    const onTaken = (error?: Error | null): void => {
      this.#isWriting = false;
      if (error instanceof Error) return; // The stream is gone, and `close` follows.
      this.#queuedBytes -= slice.length;
      this.#takenBytes += slice.length;
      if (this.#queuedBytes === 0) for (const run of this.#drains.splice(0)) run();
      this.#pump();
    };
    if (this.#isEnding && this.#queue.length === 0) this.#stream.end(slice, onTaken);
    else this.#stream.write(slice, onTaken);
  };
}

function createSink(stream: ServerHttp2Stream, outlet: Http2Outlet, stallMs: number): LiveSink {
  return {
    write(bytes) {
      outlet.write(bytes);
    },
    get queuedBytes() {
      return outlet.queuedBytes;
    },
    onDrain(run) {
      outlet.onDrain(run);
    },
    onStuck: (delayMs, run) => outlet.onStuck(delayMs, run),
    onClose(run) {
      stream.once("close", run);
    },
    end() {
      outlet.end(stallMs);
    },
    cut: outlet.cut,
  };
}
