/**
 * GET on a stream: catch-up pages, long-poll, and the door to Server-Sent Events. PROTOCOL.md §7.
 *
 *   - `Stream-Up-To-Date` stands exactly on answers that reach the durable tail;
 *   - `Stream-Closed` stands exactly on answers that reach the end of a closed stream;
 *
 * Where a read begins is in read-begin.ts.
 */

import { utf8Of } from "../../base/bytes.ts";
import type { Access } from "../access/access.ts";
import { decideCursor } from "../core/cursor.ts";
import { CONTENT_TYPE_DEFAULT } from "../core/create.ts";
import { mediaType } from "../../base/media-type.ts";
import { isJson, lifeOf, type StreamState } from "../core/stream.ts";
import type { Offset } from "../core/types.ts";
import type { Found, ReadPage } from "../engine/outcomes.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { splitLife, isOtherIncarnation } from "../../base/incarnation.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { HEADER } from "../../protocol/headers.ts";
import { withoutLastComma } from "../../protocol/json.ts";
import { type LastStart, parseRead, type ReadRequest } from "../../protocol/read.ts";
import { requireStreamName } from "../../protocol/reserved.ts";
import { formatOffset } from "../../protocol/values.ts";
import { takeShare } from "./answer-budget.ts";
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import type { RouteOperation, RouteCall } from "./route.ts";
import { restored } from "./incarnations.ts";
import { cutPage, readLastPage, resolveBegin, startHeaders } from "./read-begin.ts";
import { earliestHeaders, refuseTrimmed } from "./retention.ts";
import { followStream } from "./sse.ts";
import { addOffsets } from "./state-offsets.ts";
import { refuseGone, refuseMissing } from "./streams.ts";

/** Looks for a beginning, while the stream is trimmed all the time. */
const TRIES_MAX = 5;
const CACHED = "public, max-age=60, stale-while-revalidate=300";
const REVALIDATED = "no-cache";
/** With authentication every use is checked: no cache may answer for the server, and no shared one may keep the page. */
const PRIVATE = "private, no-cache";
const NOT_STORED = "no-store";
const OPEN = utf8Of("[");
const CLOSE = utf8Of("]");

export const READ: RouteOperation = {
  needs: ["read"],
  subject: (exchange) => ({ stream: requireStreamName(exchange.path) }),
  handle: readStream,
};

async function readStream(call: RouteCall): Promise<ServerAnswer> {
  const { exchange, parts, access } = call;
  const name = requireStreamName(exchange.path);
  const request = parseRead(exchange.query, exchange.header("last-event-id"));
  const look = await parts.engine.look(name);
  if (look.kind === "missing") return refuseMissing(parts, name, access);
  if (look.kind === "gone") return refuseGone(name);
  parts.engine.touch(look.state);
  requireLife(request.life, lifeOf(look.state, parts.engine.world));
  return readFound(call, request, look, TRIES_MAX);
}

/** Reads. Looks again if the stream was trimmed after the look. */
async function readFound(
  call: RouteCall,
  request: ReadRequest,
  look: Found,
  tries: number,
): Promise<ServerAnswer> {
  try {
    return await readOnce(call, request, look);
  } catch (error) {
    if (!isHapaxError(error, "offset_trimmed")) throw error;
    const now = call.parts.engine.view(look.state);
    return tries > 1 && mayBeginLater(request)
      ? readFound(call, request, now, tries - 1)
      : refuseTrimmed(now);
  }
}

/** Who has named no offset gets what there is. One that has waited learns what it has missed. */
function mayBeginLater({ mode, from: { kind } }: ReadRequest): boolean {
  return kind === "start" || (mode !== "long-poll" && (kind === "last" || kind === "time"));
}

async function readOnce(call: RouteCall, request: ReadRequest, look: Found): Promise<ServerAnswer> {
  const { exchange, parts, access, ticket } = call;
  if (request.from.kind === "last" && request.mode === "catch-up") {
    return lastPage(call, look, request, request.from);
  }
  const from = await resolveBegin(parts, request, look, exchange.peer);
  if (from < look.earliest) return refuseTrimmed(look);
  const stateOffsets = hasStateOffsets(parts, request);
  if (request.mode === "sse") {
    // A browser's EventSource comes back until it is answered 204.
    if (request.isResumed && look.isClosed && from === look.tail) return ended(look.tail);
    return followStream(parts, look.state, from, {
      cursor: request.cursor,
      stateOffsets,
      isExact: request.from.kind === "last",
      more: startHeaders(request.from, from),
      exchange,
      access,
      open: () => ticket?.openReader(),
    });
  }
  if (request.mode === "long-poll") return longPoll(call, look.state, from, request);
  return catchUp(call, look.state, from, request);
}

/** A reader that names a life of the stream never gets data of another one. */
export function requireLife(life: string | undefined, own: string): void {
  if (life === undefined || life === own) return;
  if (isOtherIncarnation(life, own)) throw restored(splitLife(own)[1], splitLife(life)[1]);
  throw new HapaxError("stream_replaced", `the stream at this path has the life ${own}`);
}

function hasStateOffsets(parts: ServerParts, request: ReadRequest): boolean {
  // The end of the last append is not known there.
  if (request.from.kind === "last" && request.from.before !== undefined) return false;
  return request.stateOffsets ?? parts.options.stateOffsets;
}

function ended(tail: Offset): ServerAnswer {
  const headers = {
    [HEADER.nextOffset]: formatOffset(tail),
    [HEADER.upToDate]: "true",
    [HEADER.closed]: "true",
    [HEADER.cacheControl]: NOT_STORED,
  };
  return { status: 204, headers };
}

/** Waits for room, reads a page, and answers with what is made of it. */
async function answerPage(
  exchange: Exchange,
  parts: ServerParts,
  state: StreamState,
  from: Offset,
  make: (page: ReadPage) => WholeAnswer,
  read = () => parts.engine.read(state, from, LIMITS.pageBytesMax),
): Promise<ServerAnswer> {
  const share = await takeShare(parts, state, from, exchange.peer);
  try {
    // It may have waited for long.
    if (exchange.isGone === true) throw new HapaxError("request_timeout", "the reader has gone");
    const page = await read();
    share.resize(page.bytes);
    return { ...make(page), share };
  } catch (error) {
    share.release();
    throw error;
  }
}

function catchUp(
  call: RouteCall,
  state: StreamState,
  from: Offset,
  request: ReadRequest,
): Promise<ServerAnswer> {
  return answerPage(call.exchange, call.parts, state, from, pageMaker(call, state, request));
}

/** The last records, or the last ones before an offset. */
function lastPage(
  call: RouteCall,
  look: Found,
  request: ReadRequest,
  last: LastStart,
): Promise<ServerAnswer> {
  const { exchange, parts } = call;
  const { state, earliest } = look;
  const make = pageMaker(call, state, request);
  return answerPage(exchange, parts, state, earliest, make, () => readLastPage(parts, last, look));
}

/** Makes the answer of a read that does not wait. */
function pageMaker(
  { exchange, parts, access }: RouteCall,
  state: StreamState,
  request: ReadRequest,
): (page: ReadPage) => WholeAnswer {
  const life = lifeOf(state, parts.engine.world);
  return (page) => {
    const headers = {
      ...pageHeaders(life, state, page),
      ...startHeaders(request.from, page.start),
    };
    if (request.from.kind === "now") {
      headers[HEADER.cacheControl] = NOT_STORED;
      return { status: 200, headers, body: pageBody(state, page, false) };
    }
    const stateOffsets = hasStateOffsets(parts, request);
    const etag = entityTag(life, page, stateOffsets);
    headers[HEADER.etag] = etag;
    // A page that ends before the tail can never change; one that reaches it can grow.
    headers[HEADER.cacheControl] = cachingOf(access, page);
    if (matches(exchange.header("if-none-match"), etag)) {
      delete headers[HEADER.contentType];
      return { status: 304, headers, mayCompress: true }; // It varies as the whole answer would.
    }
    return wholePage(state, page, headers, stateOffsets);
  };
}

async function longPoll(
  call: RouteCall,
  state: StreamState,
  from: Offset,
  request: ReadRequest,
): Promise<ServerAnswer> {
  const { exchange, parts, access } = call;
  // A first look, from the beginning of an empty stream, learns at once that there is nothing yet.
  const isFirstLook = request.from.kind === "start";
  const ending = isFirstLook ? "ready" : await waitInPlace(call, state, from);
  access.requireCurrent(parts.clock.nowMs());
  if (ending === "gone") return refuseMissing(parts, state.name, access);
  const life = lifeOf(state, parts.engine.world);
  return answerPage(exchange, parts, state, from, (whole) => {
    const page = request.from.kind === "last" ? cutPage(whole, from) : whole;
    const headers = {
      ...pageHeaders(life, state, page),
      ...startHeaders(request.from, page.start),
    };
    const nowMs = parts.clock.nowMs();
    headers[HEADER.cursor] = decideCursor(request.cursor, nowMs, parts.random.unit());
    if (page.bytes === 0 && !isFirstLook) {
      headers[HEADER.cacheControl] = NOT_STORED;
      delete headers[HEADER.contentType];
      return { status: 204, headers };
    }
    const stateOffsets = hasStateOffsets(parts, request);
    headers[HEADER.etag] = entityTag(life, page, stateOffsets);
    headers[HEADER.cacheControl] = cachingOf(access, page);
    return wholePage(state, page, headers, stateOffsets);
  });
}

/** Waits as one of the live readers that the caller may have. */
async function waitInPlace(
  { exchange, parts, ticket, access }: RouteCall,
  state: StreamState,
  from: Offset,
): Promise<"ready" | "gone"> {
  const leave = ticket?.openReader();
  try {
    return await waitForTail(exchange, parts, access, state, from);
  } finally {
    leave?.();
  }
}

function cachingOf(access: Access, page: ReadPage): string {
  if (!access.isUnlimited) return PRIVATE;
  return page.isUpToDate ? REVALIDATED : CACHED;
}

function wholePage(
  state: StreamState,
  page: ReadPage,
  headers: Record<string, string>,
  stateOffsets: boolean,
): ServerAnswer {
  const body = pageBody(state, page, stateOffsets);
  return { status: 200, headers, body, mayCompress: true, onSent: page.release };
}

/** Resolves when there is data after `from`, or the stream ends, or the time is over. */
function waitForTail(
  exchange: Exchange,
  parts: ServerParts,
  access: Access,
  state: StreamState,
  from: Offset,
): Promise<"ready" | "gone"> {
  const { tail, isClosed } = parts.engine.view(state);
  if (from < tail || isClosed) return Promise.resolve("ready");
  return new Promise((resolve) => {
    const finish = (ending: "ready" | "gone"): void => {
      leave();
      cancel();
      stay();
      forget();
      resolve(ending);
    };
    const leave = parts.engine.listen(state, (event) => {
      if (event.isGone) finish("gone");
      else if (event.tail > from || event.isClosed) finish("ready");
    });
    const cancel = parts.clock.after(parts.options.longPollMs, () => {
      finish("ready");
    });
    const stay = parts.drain.onDrain(() => {
      finish("ready");
    });
    const forget = access.onEnd(() => {
      finish("ready");
    });
    exchange.onAbort(() => {
      finish("ready");
    });
  });
}

function pageHeaders(life: string, state: StreamState, page: ReadPage): Record<string, string> {
  const headers: Record<string, string> = {
    [HEADER.contentType]: state.contentType,
    [HEADER.nextOffset]: formatOffset(page.next),
    [HEADER.life]: life,
    ...earliestHeaders(page.earliest),
  };
  // A browser saves bytes of no known kind instead of guessing what they are.
  if (mediaType(state.contentType) === CONTENT_TYPE_DEFAULT) {
    headers["Content-Disposition"] = "attachment";
  }
  if (page.isUpToDate) headers[HEADER.upToDate] = "true";
  if (page.isAtEnd) headers[HEADER.closed] = "true";
  return headers;
}

/** The appends as they were stored; JSON gets its brackets and loses its last comma. */
function pageBody(
  state: StreamState,
  page: ReadPage,
  stateOffsets: boolean,
): readonly Uint8Array[] {
  if (!isJson(state.contentType)) return page.appends;
  const appends = stateOffsets ? addOffsets(page.start, page.appends) : page.appends;
  const last = appends.at(-1);
  if (last === undefined) return [OPEN, CLOSE];
  return [OPEN, ...appends.slice(0, -1), withoutLastComma(last), CLOSE];
}

function entityTag(life: string, page: ReadPage, stateOffsets: boolean): string {
  const ending = `${page.isAtEnd ? ":c" : ""}${stateOffsets ? ":s" : ""}`;
  return `"${life}:${page.start}:${page.next}${ending}"`;
}

function matches(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch.split(",").some((tag) => {
    const trimmed = tag.trim();
    return trimmed === "*" || trimmed.replace(/^W\//, "") === etag;
  });
}
