/** Cuts of streams, what they keep by themselves, and changelogs. PROTOCOL.md §23, §26. */

import { HapaxError } from "../../base/errors.ts";
import type { Offset, StreamName } from "../core/types.ts";
import type { Found } from "../engine/outcomes.ts";
import { HEADER, SENT } from "../../protocol/headers.ts";
import { invalid } from "../../protocol/refusal.ts";
import { parseCompaction } from "../../protocol/compaction.ts";
import { parseRetention } from "../../protocol/retention.ts";
import { formatOffset, parseOffset, parseQuery } from "../../protocol/values.ts";
import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import { queryText, streamInQuery } from "./json.ts";
import { refuse } from "./problem.ts";
import type { Route, RouteCall, RouteOperation } from "./route.ts";
import { refuseGone, refuseMissing } from "./streams.ts";

const subject: RouteOperation["subject"] = (exchange) => ({ stream: streamInQuery(exchange) });

export const RETENTION_ROUTES: readonly Route[] = [
  {
    path: "/_hapax/trim",
    methods: {
      POST: {
        needs: ["delete"],
        subject,
        handle: trim,
      },
    },
    allow: "POST, OPTIONS",
  },
  {
    path: "/_hapax/retention",
    methods: {
      PUT: {
        needs: ["delete"],
        subject,
        handle: setRetention,
      },
    },
    allow: "PUT, OPTIONS",
  },
  {
    path: "/_hapax/compaction",
    methods: {
      PUT: {
        needs: ["delete"],
        subject,
        handle: setCompaction,
      },
    },
    allow: "PUT, OPTIONS",
  },
];

/** Stands on answers about a stream that was trimmed. */
export function earliestHeaders(earliest: Offset): Record<string, string> {
  return earliest === 0 ? {} : { [HEADER.earliestOffset]: formatOffset(earliest) };
}

/** The answer to a reader that asks for what is gone. */
export function refuseTrimmed(
  { earliest }: Pick<Found, "earliest">,
  more: Readonly<Record<string, string>> = {},
): WholeAnswer {
  const text = formatOffset(earliest);
  return refuse({
    code: "offset_trimmed",
    detail: `the stream begins at ${text}`,
    headers: earliestHeaders(earliest),
    facts: { ...more, earliestOffset: text },
  });
}

async function trim({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const stream = streamInQuery(exchange);
  const query = parseQuery(exchange.query);
  const before = parseOffset(queryText(query, "before") ?? "");
  if (before?.kind !== "at") throw invalid("before", "is not an offset");
  const needed = queryText(query, "needed");
  if (needed !== undefined && needed !== "drop") throw invalid("needed", "is not drop");
  const cut = { before: before.offset, dropsNeeded: needed === "drop" };
  const outcome = await parts.engine.trim(stream, cut);
  switch (outcome.kind) {
    case "missing":
      return refuseMissing(parts, stream, access);
    case "gone":
      return refuseGone(stream);
    case "beyond_tail":
      throw new HapaxError("offset_beyond_tail", `the tail is ${formatOffset(outcome.tail)}`);
    case "needed":
      return refuseNeeded(stream, outcome.needed);
    case "trimmed": {
      const earliest = formatOffset(outcome.earliest);
      const details = { earliest, ...(needed === undefined ? {} : { needed }) };
      const acts = [{ act: "stream.trim", target: stream }];
      // A repetition changes nothing.
      const audit = outcome.isRepeated ? false : { acts, details };
      return { status: 204, headers: { [HEADER.earliestOffset]: earliest }, audit };
    }
  }
}

function refuseNeeded(
  stream: StreamName,
  { from, by }: { readonly from: Offset; readonly by: string },
): WholeAnswer {
  const neededFrom = formatOffset(from);
  const detail = `a ${by} still needs the data from ${neededFrom} on`;
  return refuse({ code: "data_needed", detail, facts: { stream, neededFrom, neededBy: by } });
}

async function setRetention({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const stream = streamInQuery(exchange);
  const text = exchange.header(SENT.retention);
  if (text === undefined) throw invalid(HEADER.retention, "is missing");
  const rule = parseRetention(text);
  const { kind } = await parts.engine.setRetention(stream, rule === "none" ? undefined : rule);
  if (kind === "missing") return refuseMissing(parts, stream, access);
  if (kind === "gone") return refuseGone(stream);
  const acts = [{ act: "stream.retention", target: stream }];
  return { status: 204, headers: {}, audit: { acts, details: { retention: text } } };
}

async function setCompaction({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const stream = streamInQuery(exchange);
  const text = exchange.header(SENT.compactKey);
  if (text === undefined) throw invalid(HEADER.compactKey, "is missing");
  const rule = parseCompaction(text);
  const outcome = await parts.engine.setCompaction(stream, rule === "none" ? undefined : rule);
  if (outcome.kind === "missing") return refuseMissing(parts, stream, access);
  if (outcome.kind === "gone") return refuseGone(stream);
  if (outcome.kind === "not_json") {
    const words = `is for streams of application/json; this one has ${outcome.contentType}`;
    throw invalid(HEADER.compactKey, words);
  }
  const acts = [{ act: "stream.compaction", target: stream }];
  return { status: 204, headers: {}, audit: { acts, details: { compactKey: text } } };
}
