/** GET on a stream: parses the query. PROTOCOL.md §7. */

import { HapaxError } from "../base/errors.ts";
import { invalid } from "./refusal.ts";
import { LIMITS } from "./limits.ts";
import {
  parseCount,
  type ParsedOffset,
  parseOffset,
  parseQuery,
  parseRfc3339,
  type QueryString,
} from "./values.ts";

export type ReadMode = "catch-up" | "long-poll" | "sse";

/** The last records, all of them before an offset if there is one. */
export interface LastStart {
  readonly kind: "last";
  readonly count: number;
  readonly before: ParsedOffset | undefined;
}

/** Where a read begins: at an offset, so many records before the end, or at what was stored at a time or later. */
export type ReadStart = ParsedOffset | LastStart | { readonly kind: "time"; readonly atMs: number };

export interface ReadRequest {
  readonly mode: ReadMode;
  readonly from: ReadStart;
  /** The life of the stream that the reader means, if it names one. */
  readonly life: string | undefined;
  readonly cursor: string | undefined;
  /** The reader resumes: `from` is the id of the last event that it has seen. */
  readonly isResumed: boolean;
  /** Whether records of the State protocol get their offset. Undefined: the server's option. */
  readonly stateOffsets: boolean | undefined;
}

const START: ParsedOffset = { kind: "start" };

const CATCH_UP: ReadRequest = {
  mode: "catch-up",
  from: START,
  life: undefined,
  cursor: undefined,
  isResumed: false,
  stateOffsets: undefined,
};

/** Parses a read. A browser's EventSource repeats its URL, and sends in Last-Event-ID how far it has read. */
export function parseRead(query: string, lastEventId?: string): ReadRequest {
  if (query === "") return CATCH_UP;
  const parameters = parseQuery(query);
  const stateOffsets = parseFlag(parameters, "state-offsets");
  const live = single(parameters, "live");
  const offset = single(parameters, "offset");
  const life = single(parameters, "life");
  const mode = parseMode(live);
  const from = parseStart(parameters, offset, mode);
  if (from === undefined) {
    if (mode !== "catch-up") throw invalid("offset", `is required with live=${mode}`);
    return { ...CATCH_UP, life, stateOffsets };
  }
  if (stateOffsets === true && from.kind === "last" && from.before !== undefined) {
    throw invalid("state-offsets", "cannot be added before an offset");
  }
  const cursor = single(parameters, "cursor");
  if (mode !== "sse" || lastEventId === undefined || lastEventId === "") {
    return { mode, from, life, cursor, isResumed: false, stateOffsets };
  }
  const last = parseOffset(lastEventId);
  if (last === undefined || last.kind === "start" || last.kind === "now") {
    throw invalid("Last-Event-ID", "is not an offset of this server");
  }
  return { mode, from: last, life, cursor, isResumed: true, stateOffsets };
}

/** One of `offset`, `last` and `at`. Undefined: none of them is there. */
function parseStart(
  parameters: QueryString,
  offset: string | undefined,
  mode: ReadMode,
): ReadStart | undefined {
  const last = single(parameters, "last");
  const at = single(parameters, "at");
  const before = single(parameters, "before");
  const given = [offset, last, at].filter((value) => value !== undefined);
  if (given.length > 1) throw invalid("offset", "excludes last and at, and these each other");
  if (before !== undefined && (last === undefined || mode !== "catch-up")) {
    throw invalid("before", "needs last, and excludes live");
  }
  if (last !== undefined) return parseLast(last, before);
  if (at !== undefined) {
    const atMs = parseRfc3339(at);
    if (atMs === undefined) throw invalid("at", "is not a time as RFC 3339 has it");
    return { kind: "time", atMs };
  }
  if (offset === undefined) return undefined;
  const from = parseOffset(offset);
  if (from === undefined) throw invalid("offset", "is not an offset of this server, -1 or now");
  return from;
}

function parseLast(last: string, before: string | undefined): LastStart {
  const count = parseCount(last);
  if (count === undefined || count < 1 || count > LIMITS.lastMax) {
    throw invalid("last", `is not a number from 1 to ${LIMITS.lastMax}`);
  }
  if (before === undefined) return { kind: "last", count, before: undefined };
  const end = parseOffset(before);
  if (end === undefined) throw invalid("before", "is not an offset of this server, -1 or now");
  return { kind: "last", count, before: end };
}

/** A parameter that is `true` or `false`, or is not there. */
export function parseFlag(parameters: QueryString, name: string): boolean | undefined {
  const value = single(parameters, name);
  if (value === undefined) return undefined;
  if (value === "true" || value === "false") return value === "true";
  throw invalid(name, "is neither true nor false");
}

function parseMode(live: string | undefined): ReadMode {
  if (live === undefined) return "catch-up";
  if (live === "long-poll" || live === "sse") return live;
  throw invalid("live", "is neither long-poll nor sse");
}

function single(parameters: QueryString, name: string): string | undefined {
  const found = parameters.get(name);
  if (found.kind === "absent") return undefined;
  if (found.kind === "value") return found.value;
  throw new HapaxError("invalid_request", `${name} is ${found.kind} in the query`);
}
