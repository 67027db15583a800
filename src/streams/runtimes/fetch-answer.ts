/**
 * A ServerAnswer as a Response of the web platform.
 *
 * The platform says when it takes bytes, and not when they have reached the other side: it may hold some of its own. So bodies
 * are never reported as sent, and their memory is not used again.
 */

import { NO_BYTES } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import type {
  AnswerHeaders,
  LiveAnswer,
  LiveSink,
  ServerAnswer,
  WholeAnswer,
} from "../server/exchange.ts";
import { whenStuck } from "../server/stuck.ts";

const SLICE_BYTES = 16 * 1024;

export interface FetchAnswerParts {
  readonly clock: Clock;
  /** Milliseconds for which the other side may take nothing before it is cut. */
  readonly stallMs: number;
  readonly signal: AbortSignal;
}

/** The answer to a request. `isHead`: it has no body. */
export function fetchResponse(
  answer: ServerAnswer,
  isHead: boolean,
  parts: FetchAnswerParts,
): Response {
  const { status } = answer;
  if ("live" in answer)
    return new Response(openLive(answer, parts), initOf(status, answer.headers));
  if (answer.drop === true) return new Response(brokenBody(), { status: 500 });
  if (isHead || status === 204 || status === 304) {
    answer.share?.release();
    return new Response(null, initOf(status, answer.headers));
  }
  return new Response(bodyOf(answer, parts), initOf(status, answer.headers));
}

/** `encodeBody` is of Workers: it keeps the platform from compressing a body that is compressed. */
function initOf(status: number, headers: AnswerHeaders): ResponseInit & { encodeBody?: "manual" } {
  const isEncoded = "Content-Encoding" in headers;
  return { status, headers: { ...headers }, ...(isEncoded ? { encodeBody: "manual" } : {}) };
}

function bodyOf({ body, share }: WholeAnswer, parts: FetchAnswerParts): BodyInit | null {
  if (share === undefined) {
    if (body === undefined) return null;
    if (body instanceof Uint8Array) return bytesOf(body);
  }
  const pieces = body === undefined ? [] : body instanceof Uint8Array ? [body] : body;
  const sending = new Sending(parts);
  if (share !== undefined) {
    sending.onClose(share.release);
    share.onCut(() => {
      sending.cut();
    });
  }
  for (const piece of pieces) sending.write(piece);
  sending.end();
  return sending.stream;
}

/** The platform has no other way to drop a connection than an answer that breaks. */
function brokenBody(): ReadableStream<Uint8Array> {
  return new ReadableStream({
    pull(controller) {
      controller.error(new Error("the connection is dropped on purpose"));
    },
  });
}

/** The type of the platform wants to know that the memory is not shared between threads. */
function bytesOf(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return bytes as Uint8Array<ArrayBuffer>;
}

function openLive(answer: LiveAnswer, parts: FetchAnswerParts): ReadableStream<Uint8Array> {
  const sending = new Sending(parts);
  answer.live(sending);
  return sending.stream;
}

/** Bytes on their way to the platform. It keeps those that the platform has not asked for. */
class Sending implements LiveSink {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #parts: FetchAnswerParts;
  readonly #queue: Uint8Array[] = [];
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #queuedBytes = 0;
  #takenBytes = 0;
  /** The platform waits for bytes. */
  #isAsked = false;
  /** Nothing comes behind the queue. */
  #isEnding = false;
  #isClosed = false;
  #drains: (() => void)[] = [];
  #closes: (() => void)[] = [];

  constructor(parts: FetchAnswerParts) {
    this.#parts = parts;
    this.stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => {
          this.#isAsked = true;
          this.#give();
        },
        cancel: () => {
          this.#close();
        },
      },
      // Nothing is taken before it is asked for, so that a slow client is seen.
      { highWaterMark: 0 },
    );
    const { signal } = parts;
    const leave = (): void => {
      this.cut();
    };
    signal.addEventListener("abort", leave, { once: true });
    this.onClose(() => {
      signal.removeEventListener("abort", leave);
    });
    if (signal.aborted) leave();
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  write(bytes: Uint8Array): void {
    if (this.#isClosed || this.#isEnding || bytes.length === 0) return;
    this.#queue.push(bytes);
    this.#queuedBytes += bytes.length;
    this.#give();
  }

  onDrain(run: () => void): void {
    if (this.#queuedBytes === 0) queueMicrotask(run);
    else this.#drains.push(run);
  }

  onStuck(delayMs: number, run: () => void): () => void {
    const cancel = whenStuck(this.#parts.clock, () => this.#takenBytes, delayMs, run);
    this.onClose(cancel);
    return cancel;
  }

  onClose(run: () => void): void {
    if (this.#isClosed) run();
    else this.#closes.push(run);
  }

  end(): void {
    if (this.#isClosed || this.#isEnding) return;
    this.#isEnding = true;
    if (this.#queuedBytes > 0) {
      this.onStuck(this.#parts.stallMs, () => {
        this.cut();
      });
    }
    this.#give();
  }

  cut(): void {
    if (this.#isClosed) return;
    this.#controller?.error(new Error("the answer was cut"));
    this.#close();
  }

  #give(): void {
    if (this.#isClosed) return;
    if (this.#isAsked && this.#queue.length > 0) {
      const piece = this.#nextSlice();
      this.#isAsked = false;
      this.#queuedBytes -= piece.length;
      this.#takenBytes += piece.length;
      this.#controller?.enqueue(piece);
      if (this.#queuedBytes === 0) for (const run of this.#drains.splice(0)) queueMicrotask(run);
    }
    if (this.#isEnding && this.#queue.length === 0) {
      this.#controller?.close();
      this.#close();
    }
  }

  /** Takes a part of the queue. In slices, so that it is known how much the other side has taken. */
  #nextSlice(): Uint8Array {
    const [first = NO_BYTES] = this.#queue;
    if (first.length <= SLICE_BYTES) this.#queue.shift();
    else this.#queue[0] = first.subarray(SLICE_BYTES);
    return first.subarray(0, SLICE_BYTES);
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    for (const run of [...this.#closes.splice(0), ...this.#drains.splice(0)]) run();
  }
}
