/** Routes about producers: ids, what a stream knows of them, and their reset. PROTOCOL.md §12.4, §12.5. */

import type { Act } from "../engine/acts.ts";
import type { ProducerView } from "../engine/appends.ts";
import { HapaxError } from "../../base/errors.ts";
import { parseProducerId } from "../../protocol/append.ts";
import { invalid } from "../../protocol/refusal.ts";
import { decodePercent, formatOffset, parseQuery } from "../../protocol/values.ts";
import { actOnce } from "./acts.ts";
import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import { json, parseLimit, queryText, streamInQuery } from "./json.ts";
import type { RouteOperation, Route, RouteCall } from "./route.ts";
import { refuseGone, refuseMissing } from "./streams.ts";
import type { ProducerId } from "../core/types.ts";

const LIST: RouteOperation = {
  needs: ["admin"],
  subject: (exchange) => ({ stream: streamInQuery(exchange) }),
  handle: listProducers,
};

export const PRODUCER_ROUTES: readonly Route[] = [
  {
    path: "/_hapax/producers",
    methods: {
      GET: LIST,
      HEAD: LIST,
      POST: {
        needs: ["append"],
        handle: assignId,
      },
    },
    allow: "GET, HEAD, POST, OPTIONS",
  },
  {
    path: "/_hapax/producers/{id...}",
    methods: {
      DELETE: {
        needs: ["admin"],
        subject: (exchange, params) => ({
          stream: streamInQuery(exchange),
          producer: producerOf(params),
        }),
        handle: resetProducer,
      },
    },
    allow: "DELETE, OPTIONS",
  },
];

function assignId({ parts }: RouteCall): ServerAnswer {
  return json(201, { producerId: parts.random.id(), epoch: 0 });
}

async function listProducers({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const query = parseQuery(exchange.query);
  const stream = streamInQuery(exchange);
  const after = queryText(query, "after") ?? "";
  const limit = parseLimit(queryText(query, "limit"));
  // One more than asked for tells whether there is a next page.
  const mayShow = (producer: ProducerId): boolean => access.may("admin", { stream, producer });
  const found = await parts.engine.producers(stream, after, limit + 1, mayShow);
  if ("kind" in found) {
    return found.kind === "missing" ? refuseMissing(parts, stream, access) : refuseGone(stream);
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

function resetProducer(call: RouteCall): Promise<ServerAnswer> {
  return actOnce(
    call,
    undefined,
    (act) => resetOnce(call, act),
    () => NO_CONTENT,
  );
}

const NO_CONTENT: WholeAnswer = { status: 204, headers: {} };

async function resetOnce(
  { exchange, parts, access, params }: RouteCall,
  act: Act | undefined,
): Promise<ServerAnswer> {
  const id = producerOf(params);
  const stream = streamInQuery(exchange);
  const outcome = await parts.engine.resetProducer(stream, id, act);
  switch (outcome.kind) {
    case "missing":
      return refuseMissing(parts, stream, access);
    case "gone":
      return refuseGone(stream);
    case "producer_missing":
      throw new HapaxError("producer_not_found", "the stream does not know this producer");
    case "reset": {
      const { epoch, lastSequence: sequence } = outcome.before;
      return { ...NO_CONTENT, audit: { details: { stream, epoch, sequence } } };
    }
  }
}

function producerOf([encoded = ""]: readonly string[]): ProducerId {
  const text = decodePercent(encoded);
  if (text === undefined) throw invalid("the producer id in the path", "is not percent-encoded");
  return parseProducerId(text);
}
