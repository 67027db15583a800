/**
 * One connection of Server-Sent Events, from its request to its end. PROTOCOL.md §7.3
 *
 *   - the data of an event counts only together with the control event behind it. Data without one at the end of a
 *     connection is dropped, and comes again with the next connection: exactly once;
 *   - one chunk is decoded at a time, and the next one is taken when the reader wants more: a slow reader
 *     leaves the bytes at the server. Data without control is held up to a limit;
 *   - the end of a connection shows whether the next one should be of the same kind.
 */

import { HapaxError } from "../base/error-codes.ts";
import { SSE_EVENT_CHARS_MAX } from "../protocol/limits.ts";
import { SseDecoder } from "../protocol/sse-decoder.ts";
import { membersOf, refusalOf } from "./attempt.ts";
import type { RequestAttempt } from "./request.ts";
import { LazyBatch } from "./batches.ts";
import { Interruption, isCurable, type Line, SILENCE_MS_MAX } from "./line.ts";
import { movePlace, type ReaderPlace } from "./pages.ts";
import { kindOf } from "./records.ts";

/** Servers send at once, so if a connection stays silent, a proxy on the way is collecting bytes. */
export const FIRST_CONTROL_MS_MAX = 5_000;

/** A connection that ends sooner was not recycled but cut. */
const LIFE_MS_MIN = 5_000;

/** Refusals that are about the way of reading and not about the stream. */
const NOT_THIS_WAY: readonly number[] = [400, 405, 406, 415, 501];

/** The end of a connection that came neither with the end of the stream nor after its time. */
export interface SseFailure {
  /** `cut`: by a failure. `short`: too soon. `unusable`: this way of reading does not work here. */
  readonly kind: "cut" | "short" | "unusable";
  readonly why: Error;
}

/** Yields the batches of one connection; the place moves with each. Throws failures that no other connection can cure. */
export async function* sseBatches<T>(
  line: Line,
  place: ReaderPlace,
  firstControlMs: number,
): AsyncGenerator<LazyBatch<T>, SseFailure | undefined, undefined> {
  const { offset, life, cursor } = place;
  const answer = line.begin({ cursor, life, live: "sse", offset });
  const held = new Held<T>(place);
  const startedMs = line.clock.steadyMs();
  const isShort = (): boolean => line.clock.steadyMs() - startedMs < LIFE_MS_MIN;
  try {
    answer.arm(firstControlMs);
    await line.get(answer, NOT_THIS_WAY);
    if (await isBase64(answer)) held.isBase64 = true;
    for await (const chunk of answer.chunks()) {
      for (const batch of held.take(chunk)) {
        line.restored();
        answer.arm(Infinity); // From here on the reader takes the time.
        yield batch;
        if (batch.closed) return undefined;
      }
      if (held.controls > 0) answer.arm(SILENCE_MS_MAX);
    }
    if (!isShort()) return undefined;
    return { kind: "short", why: new HapaxError("unreachable", "cut") };
  } catch (error) {
    if (error instanceof Unusable) return { kind: "unusable", why: error.error };
    if (!isCurable(error)) throw error;
    if (line.isHidden) return undefined;
    if (answer.isSilent && held.controls === 0) return { kind: "unusable", why: error };
    return { kind: held.controls > 0 && !isShort() ? "cut" : "short", why: error };
  } finally {
    answer.cut();
  }
}

/** Events do not work for this stream, or on this way to the server. */
class Unusable extends Interruption {}

/** Returns whether the answer's events are in base64. Throws if it has no events. */
async function isBase64(answer: RequestAttempt): Promise<boolean> {
  if (NOT_THIS_WAY.includes(answer.status)) throw new Unusable(await refusalOf(answer));
  const type = answer.header("content-type") ?? "";
  if (!/^text\/event-stream\b/i.test(type)) {
    throw new Unusable(new HapaxError("internal", `no events but type=${type}`));
  }
  return answer.header("stream-sse-data-encoding") === "base64";
}

/** Holds data until its control event. */
class Held<T> {
  /** The number of control events so far. */
  controls = 0;
  declare isBase64: boolean;
  readonly #place: ReaderPlace;
  readonly #events = new SseDecoder();
  #texts: string[] = [];
  #chars = 0;

  constructor(place: ReaderPlace) {
    this.#place = place;
    this.isBase64 = kindOf(place.contentType) === "base64";
  }

  /** Yields the batches that these bytes complete. */
  *take(chunk: Uint8Array): Generator<LazyBatch<T>, void, undefined> {
    for (const { event, data } of this.#events.push(chunk)) {
      if (event === "data") this.#hold(data);
      else if (event === "control") yield this.#release(membersOf(data));
    }
    if (this.#chars + this.#events.chars <= SSE_EVENT_CHARS_MAX) return;
    // The next connection would bring the same event again; pages have no such limit.
    throw new Unusable(new HapaxError("body_too_large", "no control event"));
  }

  #hold(data: string): void {
    this.#texts.push(data);
    this.#chars += data.length;
  }

  #release(control: ReturnType<typeof membersOf>): LazyBatch<T> {
    const place = this.#place;
    const { streamNextOffset: nextOffset, streamCursor: cursor, upToDate, streamClosed } = control;
    if (typeof nextOffset !== "string" || nextOffset === "") {
      throw new Unusable(new HapaxError("internal", "no control offset"));
    }
    const batch = new LazyBatch<T>({
      ...place,
      body: this.#texts,
      isBase64: this.isBase64,
      nextOffset,
      upToDate: upToDate === true,
      closed: streamClosed === true,
    });
    this.#texts = [];
    this.#chars = 0;
    this.controls += 1;
    movePlace(place, batch, typeof cursor === "string" ? cursor : undefined);
    return batch;
  }
}
