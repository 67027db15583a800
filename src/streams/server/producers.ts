/** Routes about producers: ids, what a stream knows of them, and their reset. PROTOCOL.md §12.4, §12.5. */

import type { Act } from "../engine/acts.ts";
import type { ProducerView } from "../engine/appends.ts";
import { HapaxError } from "../../base/errors.ts";
import { parseProducerId } from "../../protocol/append.ts";
import { invalid } from "../../protocol/refusal.ts";
import {
  decodePercent,
  encodeStreamPath,
  formatOffset,
  parseQuery,
  parseStreamPath,
} from "../../protocol/values.ts";
import { actOnce } from "./acts.ts";
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import { json, parseLimit, queryText } from "./json.ts";
import type { ServerParts } from "./parts.ts";
import { methodNotAllowed } from "./problem.ts";
import { refuseGone, refuseMissing } from "./streams.ts";
import type { StreamName } from "../core/types.ts";

export const PRODUCERS_PATH = "/_hapax/producers";

export function handleProducers(
  exchange: Exchange,
  parts: ServerParts,
): ServerAnswer | Promise<ServerAnswer> {
  const { method, path } = exchange;
  if (path === PRODUCERS_PATH) {
    if (method === "POST") return assignId(parts);
    if (method === "GET" || method === "HEAD") return listProducers(exchange, parts);
    return methodNotAllowed("GET, HEAD, POST, OPTIONS");
  }
  if (method !== "DELETE") return methodNotAllowed("DELETE, OPTIONS");
  return resetProducer(exchange, parts, path.slice(PRODUCERS_PATH.length + 1));
}

function assignId(parts: ServerParts): ServerAnswer {
  return json(201, { producerId: parts.random.id(), epoch: 0 });
}

async function listProducers(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const stream = requireStream(queryText(query, "stream"));
  const after = queryText(query, "after") ?? "";
  const limit = parseLimit(queryText(query, "limit"));
  // One more than asked for tells whether there is a next page.
  const found = await parts.engine.producers(stream, after, limit + 1);
  if ("kind" in found) {
    return found.kind === "missing" ? refuseMissing(parts, stream) : refuseGone(stream);
  }
  const producers = found.slice(0, limit).map((producer) => describe(producer));
  const next = found.length > limit ? producers.at(-1)?.producerId : undefined;
  return json(200, next === undefined ? { producers } : { producers, next });
}

function describe(producer: ProducerView): {
  readonly producerId: string;
  readonly epoch: number;
  readonly seq: number;
  readonly nextOffset?: string;
  readonly session: boolean;
} {
  const { id, epoch, lastSequence: seq, end, hasSession: session } = producer;
  const offset = end === undefined ? {} : { nextOffset: formatOffset(end) };
  return { producerId: id, epoch, seq, ...offset, session };
}

function resetProducer(
  exchange: Exchange,
  parts: ServerParts,
  encodedId: string,
): Promise<ServerAnswer> {
  return actOnce(
    exchange,
    parts,
    undefined,
    (act) => resetOnce(exchange, parts, encodedId, act),
    () => NO_CONTENT,
  );
}

const NO_CONTENT: WholeAnswer = { status: 204, headers: {} };

async function resetOnce(
  exchange: Exchange,
  parts: ServerParts,
  encodedId: string,
  act: Act | undefined,
): Promise<ServerAnswer> {
  const text = decodePercent(encodedId);
  if (text === undefined) throw invalid("the producer id in the path", "is not percent-encoded");
  const id = parseProducerId(text);
  const stream = requireStream(queryText(parseQuery(exchange.query), "stream"));
  const outcome = await parts.engine.resetProducer(stream, id, act);
  switch (outcome.kind) {
    case "missing":
      return refuseMissing(parts, stream);
    case "gone":
      return refuseGone(stream);
    case "producer_missing":
      throw new HapaxError("producer_not_found", "the stream does not know this producer");
    case "reset": {
      const { epoch, lastSequence } = outcome.before;
      const [name, producer] = [quoteForAudit(stream), quoteForAudit(id)];
      const from = `epoch=${epoch} sequence=${lastSequence}`;
      parts.onAudit(`producer reset: stream=${name} producer=${producer} ${from}`);
      return NO_CONTENT;
    }
  }
}

/** As JSON in ASCII, so that no id can forge a line or steer a terminal. */
export function quoteForAudit(text: string): string {
  return JSON.stringify(text).replaceAll(
    /[^ -~]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function requireStream(text: string | undefined): StreamName {
  if (text === undefined) throw invalid("stream", "is missing in the query");
  // The query has been decoded, and a path is decoded once: what is left of `%` belongs to the name.
  const path = parseStreamPath(encodeStreamPath(text as StreamName));
  if (path.kind === "invalid") throw new HapaxError(path.code, path.reason);
  return path.name;
}
