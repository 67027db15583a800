/** GET on a stream: from the query to what is asked for. PROTOCOL.md §7. */

import { HapaxError } from "../errors.ts";
import { invalid } from "./refusal.ts";
import { type ParsedOffset, parseOffset, parseQuery, type Query } from "./values.ts";

export type ReadMode = "catch-up" | "long-poll" | "sse";

export interface ReadRequest {
  readonly mode: ReadMode;
  readonly from: ParsedOffset;
  readonly cursor: string | undefined;
}

const START: ParsedOffset = { kind: "start" };

export function parseRead(query: string): ReadRequest {
  if (query === "") return { mode: "catch-up", from: START, cursor: undefined };
  const parameters = parseQuery(query);
  const live = single(parameters, "live");
  const offset = single(parameters, "offset");
  const mode = parseMode(live);
  if (offset === undefined) {
    if (mode !== "catch-up") throw invalid("offset", `is required with live=${mode}`);
    return { mode, from: START, cursor: undefined };
  }
  const from = parseOffset(offset);
  if (from === undefined) throw invalid("offset", "is not an offset of this server, -1 or now");
  return { mode, from, cursor: single(parameters, "cursor") };
}

function parseMode(live: string | undefined): ReadMode {
  if (live === undefined) return "catch-up";
  if (live === "long-poll" || live === "sse") return live;
  throw invalid("live", "is neither long-poll nor sse");
}

function single(parameters: Query, name: string): string | undefined {
  const found = parameters.get(name);
  if (found.kind === "absent") return undefined;
  if (found.kind === "value") return found.value;
  throw new HapaxError("invalid_request", `${name} is ${found.kind} in the query`);
}
