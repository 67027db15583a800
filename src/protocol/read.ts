/** GET on a stream: parses the query. PROTOCOL.md §7. */

import { HapaxError } from "../base/errors.ts";
import { invalid } from "./refusal.ts";
import { type ParsedOffset, parseOffset, parseQuery, type QueryString } from "./values.ts";

export type ReadMode = "catch-up" | "long-poll" | "sse";

export interface ReadRequest {
  readonly mode: ReadMode;
  readonly from: ParsedOffset;
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
  if (offset === undefined) {
    if (mode !== "catch-up") throw invalid("offset", `is required with live=${mode}`);
    return { ...CATCH_UP, life, stateOffsets };
  }
  const from = parseOffset(offset);
  if (from === undefined) throw invalid("offset", "is not an offset of this server, -1 or now");
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

function parseFlag(parameters: QueryString, name: string): boolean | undefined {
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
