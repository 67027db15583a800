/** GET /_hapax/follow: several streams over one connection. PROTOCOL.md §7.12. */

import { HEADER } from "../../protocol/headers.ts";
import { type FollowedStart, parseFollowAll } from "../../protocol/follow-all.ts";
import { parseFlag } from "../../protocol/read.ts";
import { FOLLOW_PATH } from "../../protocol/reserved.ts";
import { parseQuery } from "../../protocol/values.ts";
import { lifeOf } from "../core/stream.ts";
import type { ServerAnswer } from "./exchange.ts";
import { type LaneStart, ManyReader, trimmedRefusal } from "./followed-streams.ts";
import type { ServerParts } from "./parts.ts";
import { detailOf, isInside, isRefusal } from "./problem.ts";
import { requireLife } from "./reads.ts";
import { resolveBegin } from "./read-begin.ts";
import type { Route, RouteCall } from "./route.ts";

export const FOLLOW_ROUTES: readonly Route[] = [
  {
    path: FOLLOW_PATH,
    methods: {
      GET: { needs: ["read"], handle: followAll },
    },
    allow: "GET, OPTIONS",
  },
];

async function followAll(call: RouteCall): Promise<ServerAnswer> {
  const { exchange, parts, access, ticket } = call;
  const { starts, isResumed } = parseFollowAll(exchange.query, exchange.header("last-event-id"));
  const stateOffsets =
    parseFlag(parseQuery(exchange.query), "state-offsets") ?? parts.options.stateOffsets;
  // All of them, before anything is said about one.
  for (const { stream } of starts) access.require("read", { stream });
  const streams: LaneStart[] = [];
  for (const start of starts) streams.push(await find(parts, start, exchange.peer, isResumed));
  // A browser's EventSource comes back until it is answered 204.
  if (isResumed && streams.every(({ kind }) => kind === "over")) {
    return { status: 204, headers: { [HEADER.cacheControl]: "no-store" } };
  }
  const onOver = ticket?.openReader() ?? (() => undefined);
  let hasBegun = false;
  // An answer may never begin: then the end of the request is the end of the reader.
  exchange.onAbort(() => {
    if (!hasBegun) onOver();
  });
  return {
    status: 200,
    headers: {
      [HEADER.contentType]: "text/event-stream",
      [HEADER.cacheControl]: "no-cache",
      "X-Accel-Buffering": "no",
    },
    live: (sink) => {
      hasBegun = true;
      const options = { access, stateOffsets, peer: exchange.peer, onOver };
      const reader = new ManyReader(parts, sink, streams, options);
      reader.start();
      exchange.onAbort(() => {
        reader.leave();
      });
    },
  };
}

/** What keeps one stream from being read does not end the others. */
async function find(
  parts: ServerParts,
  { stream, from, life }: FollowedStart,
  peer: string | undefined,
  isResumed: boolean,
): Promise<LaneStart> {
  if (from === undefined) return { kind: "over" };
  const look = await parts.engine.look(stream);
  if (look.kind !== "found") {
    const code = look.kind === "gone" ? "stream_gone" : "stream_not_found";
    const detail = `there is no stream at ${stream}`;
    return { kind: "refused", stream, refusal: { code, detail } };
  }
  parts.engine.touch(look.state);
  try {
    requireLife(life, lifeOf(look.state, parts.engine.world));
    const begin = await resolveBegin(parts, { from }, look, peer);
    if (begin < look.earliest) {
      return { kind: "refused", stream, refusal: trimmedRefusal(look.earliest) };
    }
    if (isResumed && look.isClosed && begin === look.tail) return { kind: "over" };
    return { kind: "followed", state: look.state, from: begin };
  } catch (error) {
    if (!isRefusal(error) || isInside(error)) throw error;
    return { kind: "refused", stream, refusal: { code: error.code, detail: detailOf(error) } };
  }
}
