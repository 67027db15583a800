/**
 * Several streams over one connection of Server-Sent Events: the request and the events. PROTOCOL.md §7.12.
 *
 *   id: 18/1-2t,0/1-3a
 *   event: data
 *   data:{"stream":"/v1/stream/a","life":"1-2t","offset":"…","nextOffset":"…","upToDate":true,"records":[…]}
 *
 *   - an event is whole: it has the data, the stream, and where a reader of that stream goes on;
 *   - the id has the places of all streams in the order of the request, so a browser's EventSource goes on in all of them;
 *   - JSON travels as it was stored, everything else as base64: every byte comes back.
 */

import { HapaxError } from "../base/errors.ts";
import type { Offset, StreamName } from "../streams/core/types.ts";
import { encodeProblem, invalid, type Refusal } from "./refusal.ts";
import { isReserved } from "./reserved.ts";
import { frameBase64, frameJson } from "./sse.ts";
import {
  encodeStreamPath,
  formatOffset,
  parseCount,
  type ParsedOffset,
  parseOffset,
  parseStreamPath,
  queryValues,
} from "./values.ts";

/** Streams of one connection that follows several: the id of each event has a place of each, some 12 bytes. */
export const FOLLOW_STREAMS_MAX = 100;

/** One stream of a request, and where its reader is. */
export interface FollowedStart {
  readonly stream: StreamName;
  /** Undefined: the reader has had its last event of this stream. */
  readonly from: ParsedOffset | undefined;
  readonly life: string | undefined;
}

export interface FollowAllRequest {
  readonly starts: readonly FollowedStart[];
  /** The places are those of the last event that the reader has seen. */
  readonly isResumed: boolean;
}

/** The place of a reader in one stream. Undefined: there is nothing more for it to get. */
export type FollowedPlace = { readonly offset: Offset; readonly life: string } | undefined;

/** Data of one stream, as its event says it. */
export interface FollowedData {
  readonly stream: StreamName;
  readonly life: string;
  readonly contentType: string;
  readonly isJson: boolean;
  readonly from: Offset;
  readonly next: Offset;
  readonly isUpToDate: boolean;
  readonly isClosed: boolean;
  /** As it was stored. */
  readonly stored: Uint8Array;
}

/** Stands for a stream of which the reader needs nothing more. */
const OVER = "-";
const LIFE = /^[A-Za-z0-9~-]{1,64}$/;
const encoder = new TextEncoder();

/** Parses the query of `/_hapax/follow`, and the id with which a browser's EventSource comes back. */
export function parseFollowAll(query: string, lastEventId?: string): FollowAllRequest {
  const streams = parseFollowed(query);
  const offsets = valuesOf(query, "offset");
  if (offsets.length !== streams.length) {
    throw invalid("offset", "must be there once for each stream");
  }
  const lives = valuesOf(query, "life");
  if (lives.length !== 0 && lives.length !== streams.length) {
    throw invalid("life", "must be there for no stream, or once for each, where it may be empty");
  }
  const starts = streams.map((stream, index) => {
    const from = parseOffset(offsets[index] ?? "");
    if (from === undefined) throw invalid("offset", "is not an offset of this server, -1 or now");
    const life = lives[index];
    return { stream, from, life: life === "" ? undefined : life };
  });
  if (lastEventId === undefined || lastEventId === "") return { starts, isResumed: false };
  return { starts: resumed(starts, lastEventId), isResumed: true };
}

/** The streams that the query names, each once. */
export function parseFollowed(query: string): readonly StreamName[] {
  const names = valuesOf(query, "stream");
  if (names.length === 0) throw invalid("stream", "is missing in the query");
  if (names.length > FOLLOW_STREAMS_MAX) {
    throw invalid("stream", `is there more than ${FOLLOW_STREAMS_MAX} times`);
  }
  const streams = names.map((text) => {
    // The query has been decoded, and a path is decoded once: what is left of `%` belongs to the name.
    const path = parseStreamPath(encodeStreamPath(text as StreamName));
    if (path.kind === "invalid") throw new HapaxError(path.code, path.reason);
    if (isReserved(path.name)) throw new HapaxError("not_found", "the path is reserved");
    return path.name;
  });
  if (new Set(streams).size < streams.length) throw invalid("stream", "names a stream twice");
  return streams;
}

function valuesOf(query: string, name: string): readonly string[] {
  const values = queryValues(query, name);
  if (values === undefined) throw invalid(name, "is invalid in the query");
  return values;
}

function resumed(starts: readonly FollowedStart[], id: string): readonly FollowedStart[] {
  const places = id.split(",");
  const refusal = invalid("Last-Event-ID", "is not an id of this answer");
  if (places.length !== starts.length) throw refusal;
  return starts.map(({ stream }, index) => {
    const place = places[index] ?? "";
    if (place === OVER) return { stream, from: undefined, life: undefined };
    const [count = "", life = ""] = place.split("/");
    const offset = parseCount(count);
    if (offset === undefined || !LIFE.test(life)) throw refusal;
    return { stream, from: { kind: "at", offset: offset as Offset }, life };
  });
}

/** Encodes the line that begins an event: where a reader of all streams goes on after it. */
export function encodePlaces(places: Iterable<FollowedPlace>): Uint8Array {
  const texts: string[] = [];
  for (const place of places) {
    texts.push(place === undefined ? OVER : `${place.offset}/${place.life}`);
  }
  return encoder.encode(`id: ${texts.join(",")}\n`);
}

/** Encodes the rest of a `data` event, which is the same for all readers at this place of the stream. */
export function encodeFollowed(data: FollowedData): Uint8Array {
  const { stream, life, contentType, isJson, from, next, isUpToDate, isClosed, stored } = data;
  const facts = JSON.stringify({
    stream,
    life,
    offset: formatOffset(from),
    nextOffset: formatOffset(next),
    ...(isUpToDate ? { upToDate: true } : {}),
    ...(isClosed ? { closed: true } : {}),
    ...(isJson ? {} : { contentType }),
  }).slice(0, -1);
  const head = `event: data\ndata:${facts}`;
  if (isJson) return frameJson(`${head},"records":[`, stored, "]}\n\n");
  return frameBase64(`${head},"base64":"`, stored, '"}\n\n');
}

/** Encodes the rest of a `refused` event: a problem document that names its stream. */
export function encodeFollowRefusal(stream: StreamName, refusal: Refusal): Uint8Array {
  const facts = { ...refusal.facts, stream };
  const problem = new TextDecoder().decode(encodeProblem({ ...refusal, facts }));
  return encoder.encode(`event: refused\ndata:${problem}\n\n`);
}
