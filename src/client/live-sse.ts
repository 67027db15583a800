/**
 * One connection of Server-Sent Events, from its request to its end. PROTOCOL.md §7.3
 *
 *   LS1  the data of an event counts only together with the control event behind it. What a connection leaves
 *        without one is dropped, and comes again with the next connection: never twice, never not at all;
 *   LS2  one chunk is decoded at a time, and the next one is taken when the reader wants more: a slow reader
 *        leaves the bytes at the server. Data without control is held up to a limit;
 *   LS3  a connection says after its end whether the next one should be of the same kind.
 */

import { HapaxError, isHapaxError } from "../errors.ts";
import { type ControlEvent, createSseDecoder, type SseEvent, sseKind } from "../wire/sse.ts";
import { LIMITS } from "../limits.ts";
import { refusalOf } from "./attempt.ts";
import { LazyBatch } from "./batches.ts";
import { type Guard, Interruption, type Line, SILENCE_MS_MAX } from "./line.ts";
import { advance, type Place } from "./pages.ts";

/** Servers speak at once, so a connection that stays silent has somebody on the way who collects bytes. */
export const FIRST_CONTROL_MS_MAX = 5_000;

/** A connection that ends sooner was not recycled but cut. */
const LIFE_MS_MIN = 5_000;

/** Refusals that mean the way of reading and not the stream. */
const NOT_THIS_WAY: ReadonlySet<number> = new Set([400, 405, 406, 415, 501]);

/**
 * How a connection ended: at the end of the stream, after its time, by a failure, too soon, or because this way
 * of reading does not work here.
 */
export type SseEnding =
  | { readonly kind: "closed" | "recycled"; readonly why?: undefined }
  | { readonly kind: "cut" | "short" | "unusable"; readonly why: Interruption | HapaxError };

/** The batches of one connection; the place moves with each. Throws what no other connection can cure. */
export async function* sseBatches<T>(
  line: Line,
  place: Place,
  firstControlMs: number,
): AsyncGenerator<LazyBatch<T>, SseEnding, undefined> {
  const guard = line.guard(true);
  const held = new Held<T>(place);
  const startedMs = line.clock.steadyMs();
  const isShort = (): boolean => line.clock.steadyMs() - startedMs < LIFE_MS_MIN;
  let chunks: AsyncIterator<Uint8Array> | undefined;
  try {
    guard.arm(firstControlMs);
    chunks = await open(line, place, guard, held);
    for (;;) {
      if (held.controls > 0) guard.arm(SILENCE_MS_MAX);
      const next = await line.taken(chunks.next(), guard);
      if (next.done === true) break;
      for (const batch of held.take(next.value)) {
        line.restored();
        guard.disarm(); // From here on it is the reader who takes time.
        yield batch;
        if (batch.closed) return { kind: "closed" };
      }
    }
    if (!isShort()) return { kind: "recycled" };
    const why = new HapaxError("unreachable", "the connection ended early");
    return { kind: "short", why: new Interruption(why) };
  } catch (error) {
    if (error instanceof Unusable) return { kind: "unusable", why: error.error };
    if (!(error instanceof Interruption)) throw error;
    if (guard.isHidden) return { kind: "recycled" };
    if (guard.isSilent && held.controls === 0) return { kind: "unusable", why: error };
    return { kind: held.controls > 0 && !isShort() ? "cut" : "short", why: error };
  } finally {
    guard.end();
    chunks?.return?.().catch(() => undefined); // Its owner has been told by the guard.
  }
}

/** This way of reading does not work for this stream, or on this way to the server. */
class Unusable extends Error {
  override readonly name = "Unusable";
  readonly error: HapaxError;

  constructor(error: HapaxError) {
    super(error.message, { cause: error });
    this.error = error;
  }
}

async function open<T>(
  line: Line,
  place: Place,
  guard: Guard,
  held: Held<T>,
): Promise<AsyncIterator<Uint8Array>> {
  const { offset, cursor } = place;
  const query = { ...(cursor === undefined ? {} : { cursor }), live: "sse", offset };
  const answer = await line.get(query, guard, NOT_THIS_WAY);
  if (NOT_THIS_WAY.has(answer.status)) {
    throw new Unusable(await line.taken(refusalOf(answer), guard));
  }
  const type = answer.header("content-type") ?? "";
  if (!/^text\/event-stream\b/i.test(type)) {
    answer.discard();
    throw new Unusable(
      new HapaxError("internal", `the answer is not an event stream type=${type}`),
    );
  }
  const encoding = answer.header("stream-sse-data-encoding");
  held.isBase64 = encoding === "base64" || sseKind(place.contentType) === "base64";
  return answer.chunks()[Symbol.asyncIterator]();
}

/** LS1: data that waits for its control event. */
class Held<T> {
  /** Control events so far. */
  controls = 0;
  isBase64 = false;
  readonly #place: Place;
  readonly #decoder = createSseDecoder();
  #texts: string[] = [];
  #chars = 0;

  constructor(place: Place) {
    this.#place = place;
  }

  /** The batches that these bytes complete. */
  *take(chunk: Uint8Array): Generator<LazyBatch<T>, void, undefined> {
    for (const { event, data } of this.#decode(chunk)) {
      if (event === "data") this.#hold(data);
      else if (event === "control") yield this.#release(parseControl(data));
    }
  }

  #decode(chunk: Uint8Array): readonly SseEvent[] {
    try {
      return this.#decoder.push(chunk);
    } catch (error) {
      // The same event would come again with every connection; pages have no such limit.
      throw isHapaxError(error) ? new Unusable(error) : error;
    }
  }

  #hold(data: string): void {
    this.#texts.push(data);
    this.#chars += data.length;
    if (this.#chars <= LIMITS.sseEventCharsMax) return;
    throw new Unusable(new HapaxError("body_too_large", "too much data without a control event"));
  }

  #release(control: ControlEvent): LazyBatch<T> {
    const place = this.#place;
    const batch = new LazyBatch<T>({
      contentType: place.contentType,
      body: this.#texts,
      isBase64: this.isBase64,
      offset: place.offset,
      nextOffset: control.streamNextOffset,
      upToDate: control.upToDate === true,
      closed: control.streamClosed === true,
    });
    this.#texts = [];
    this.#chars = 0;
    this.controls += 1;
    advance(place, batch, control.streamCursor);
    return batch;
  }
}

function parseControl(data: string): ControlEvent {
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch {
    value = undefined; // Said below, as for every other control event that says nothing.
  }
  const members = new Map<string, unknown>(Object.entries(value ?? {}));
  const streamNextOffset = members.get("streamNextOffset");
  const streamCursor = members.get("streamCursor");
  if (typeof streamNextOffset !== "string" || streamNextOffset === "") {
    throw new Unusable(new HapaxError("internal", "a control event has no offset"));
  }
  return {
    streamNextOffset,
    streamCursor: typeof streamCursor === "string" ? streamCursor : undefined,
    upToDate: members.get("upToDate") === true,
    streamClosed: members.get("streamClosed") === true,
  };
}
