/**
 * Follows several streams over one connection. PROTOCOL.md §7.12
 *
 *   - the reader gets each record after the start of its stream once and in order, across cut connections and server restarts: every
 *     request goes on at the end of the last event of each stream;
 *   - an event is whole: one that was cut comes again, and nothing of it was delivered;
 *   - what ends one stream ends no other: it is an item of the iteration;
 *   - one chunk is decoded at a time: a slow reader leaves the bytes at the server.
 */

import { HapaxError, isErrorCode } from "../base/error-codes.ts";
import { SSE_EVENT_CHARS_MAX } from "../protocol/limits.ts";
import { SseDecoder } from "../protocol/sse-decoder.ts";
import { Caller, membersOf } from "./attempt.ts";
import { type Batch, LazyBatch, Seam } from "./batches.ts";
import { Interruption, Line, type LineOptions, SILENCE_MS_MAX } from "./line.ts";
import { type ClientOptions, resolveClientOptions } from "./options.ts";
import { RequestAttempt } from "./request.ts";
import { TrimmedFailure } from "./trimmed.ts";

/** A stream to follow, and where to begin in it. */
export interface FollowedSource {
  /** The path of the stream, not percent-encoded, such as `/v1/stream/orders`. */
  readonly stream: string;
  /** The offset or position to begin after; `now` reads new records only. Default: the beginning of the stream. */
  readonly from?: string | undefined;
}

/** Options of `followAll`. All are optional. */
export type FollowAllOptions = Pick<
  LineOptions,
  "signal" | "patienceMs" | "visibility" | "onReconnect"
>;

/** What `followAll` returns one after the other: records of one stream, or the reason why it is read no more. */
export type FollowedBatch<T> =
  | { readonly stream: string; readonly batch: Batch<T>; readonly failure?: undefined }
  /** The stream was deleted or trimmed, or could not be read from the beginning; the others go on. */
  | { readonly stream: string; readonly failure: HapaxError; readonly batch?: undefined };

/** The place of the reader in one stream. */
interface Place<T> {
  readonly stream: string;
  offset: string;
  life: string | undefined;
  wasUpToDate: boolean;
  /** Joins text that was cut inside a character. */
  readonly seam: Seam<T>;
}

/** A connection that ends sooner was not recycled but cut. */
const LIFE_MS_MIN = 5_000;
const RECORDS = '"records":[';
/** How often the pause between such connections grows. */
const PAUSES_MAX = 5;

type Members = ReturnType<typeof membersOf>;

/**
 * Follows several streams of one server over one connection: a browser opens six of HTTP/1.1 to a server. Sends nothing until the
 * iteration begins; it ends when all the streams have ended. Throws `unsupported` if the server cannot do it.
 *
 * ```ts
 * import { connect, followAll } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const sources = [{ stream: "/v1/stream/orders" }, { stream: "/v1/stream/chat", from: "-1" }];
 * for (const { stream } of sources) {
 *   const handle = connect(server.url + stream);
 *   await handle.create();
 *   await handle.close(`the last of ${stream}`);
 * }
 *
 * const positions = new Map<string, string>();
 * for await (const { stream, batch, failure } of followAll<string>(server.url, sources)) {
 *   if (failure !== undefined) throw failure;
 *   console.assert(batch.records.join() === `the last of ${stream}`);
 *   positions.set(stream, batch.position); // As `from` it goes on there after a restart.
 * }
 * console.assert(positions.size === 2);
 * await server.stop();
 * ```
 */
export function followAll<T = unknown>(
  server: string | URL,
  sources: readonly FollowedSource[],
  options: FollowAllOptions & ClientOptions = {},
): AsyncIterableIterator<FollowedBatch<T>> {
  let base: string;
  try {
    base = new URL(server).href.replace(/\/$/, "");
  } catch (error) {
    throw new HapaxError("invalid_options", `url=${String(server)} is not a URL`, { cause: error });
  }
  const caller = new Caller(resolveClientOptions(options, base));
  return startFollowingAll<T>(caller, base, sources, options);
}

/** Follows streams with the requests of a connection. */
export async function* startFollowingAll<T>(
  caller: Caller,
  base: string,
  sources: readonly FollowedSource[],
  options: FollowAllOptions,
): AsyncGenerator<FollowedBatch<T>, void, undefined> {
  const line = new Line(caller, base, options);
  const open = new Map(sources.map((source) => [source.stream, placeOf<T>(source)]));
  if (open.size < sources.length) throw new HapaxError("invalid_request", "a stream twice");
  for (let shorts = 0; open.size > 0;) {
    line.throwIfAborted();
    await line.untilVisible();
    const startedMs = line.clock.steadyMs();
    const { signal, visibility } = options;
    const answer = new RequestAttempt(caller, {
      method: "GET",
      url: `${base}/_hapax/follow?${queryOf(open.values())}`,
      signal,
      timeoutMs: SILENCE_MS_MAX,
      visibility,
    });
    try {
      yield* eventsOf(line, answer, open);
      const isShort = line.clock.steadyMs() - startedMs < LIFE_MS_MIN;
      shorts = isShort ? Math.min(shorts + 1, PAUSES_MAX) : 0;
      if (isShort && open.size > 0) await line.rest(shorts);
    } catch (error) {
      if (line.isHidden) continue; // Not a failure: the reader goes on when the page is visible.
      const [first] = open.values();
      await line.recover(error, first?.offset ?? "", shorts);
    }
  }
}

function placeOf<T>({ stream, from = "-1" }: FollowedSource): Place<T> {
  const [offset = "", life] = from.split("/");
  return { stream, offset, life, wasUpToDate: false, seam: new Seam<T>() };
}

/** The batches of one connection, to its end. A stream that has ended leaves `open`. */
async function* eventsOf<T>(
  line: Line,
  answer: RequestAttempt,
  open: Map<string, Place<T>>,
): AsyncGenerator<FollowedBatch<T>, void, undefined> {
  const events = new SseDecoder();
  try {
    await line.get(answer, [404]);
    const { status } = answer;
    const type = answer.header("content-type") ?? "";
    if (status === 404 || !/^text\/event-stream\b/i.test(type)) {
      throw new HapaxError("unsupported", `no events but status=${status} type=${type}`);
    }
    for await (const chunk of answer.chunks()) {
      for (const { event, data } of events.push(chunk)) {
        const found = take(event, data, open);
        line.restored();
        if (found === undefined) continue;
        answer.arm(Infinity); // From here on the reader takes the time.
        yield found;
      }
      if (events.chars > SSE_EVENT_CHARS_MAX) throw new HapaxError("body_too_large", "an event");
      answer.arm(SILENCE_MS_MAX);
    }
  } finally {
    answer.cut();
  }
}

function queryOf<T>(places: Iterable<Place<T>>): string {
  const query = new URLSearchParams();
  for (const { stream, offset, life = "" } of places) {
    query.append("stream", stream);
    query.append("offset", offset);
    query.append("life", life);
  }
  return query.toString();
}

/** What an event says; undefined if there is nothing to tell. */
function take<T>(
  event: string,
  data: string,
  open: Map<string, Place<T>>,
): FollowedBatch<T> | undefined {
  const members = membersOf(data);
  const stream = String(members["stream"]);
  const place = open.get(stream);
  if (place === undefined) return undefined;
  if (event === "refused") {
    open.delete(stream);
    return { stream, failure: failureOf(members) };
  }
  if (event !== "data") return undefined;
  const batch = batchOf<T>(place, data, members);
  place.offset = batch.nextOffset;
  place.life = String(members["life"]);
  if (batch.closed) open.delete(stream);
  const whole = place.seam.join(batch, batch.closed);
  if (whole === undefined) return undefined;
  // Each connection begins with the place of every stream, also if there is nothing new.
  const isNews = whole.upToDate && !place.wasUpToDate;
  place.wasUpToDate = whole.upToDate;
  return whole.isEmpty && !isNews && !whole.closed ? undefined : { stream, batch: whole };
}

function batchOf<T>(place: Place<T>, data: string, members: Members): LazyBatch<T> {
  const { life, nextOffset, upToDate, closed, records, base64, contentType } = members;
  const isRight =
    typeof nextOffset === "string" &&
    typeof life === "string" &&
    (Array.isArray(records) || (typeof base64 === "string" && typeof contentType === "string"));
  if (!isRight) throw new Interruption(new HapaxError("internal", "an event without its data"));
  const isBase64 = typeof base64 === "string";
  const batch = new LazyBatch<T>({
    contentType: isBase64 ? String(contentType) : "application/json",
    // The text of the records, with every digit: they are the last member.
    body: [isBase64 ? base64 : data.slice(data.indexOf(RECORDS) + RECORDS.length - 1, -1)],
    isBase64,
    offset: place.offset,
    life,
    nextOffset,
    upToDate: upToDate === true,
    closed: closed === true,
  });
  // As bytes, so that text that was cut inside a character is seen.
  if (isBase64) void batch.bytes;
  return batch;
}

function failureOf({ code, status, detail, earliestOffset }: Members): HapaxError {
  const known = typeof code === "string" && isErrorCode(code) ? code : "refused";
  const message = `${typeof detail === "string" ? detail : known} status=${String(status)}`;
  if (known === "offset_trimmed" && typeof earliestOffset === "string") {
    return new TrimmedFailure(message, earliestOffset);
  }
  return new HapaxError(known, message, { status: Number(status) });
}
