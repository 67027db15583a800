/** From a request to its handler. Reserved paths come first; every other path is a stream. */

import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { CORS_ALLOW, CORS_METHODS } from "../../protocol/headers.ts";
import {
  OWN_PREFIX,
  requireStreamName,
  SUBSCRIPTIONS_PREFIX,
  TEST_PREFIX,
} from "../../protocol/reserved.ts";
import { handleOwnRoute } from "./own-routes.ts";
import type { ServerAnswer, Exchange } from "./exchange.ts";
import { checkHead, type Compress, finishAnswer } from "./policy.ts";
import { Faults, FAULTS_PATH } from "./faults.ts";
import { answerFront, answerProbe } from "./front.ts";
import type { PartsHolder, ServerParts } from "./parts.ts";
import { failureAnswer, isRefusal, methodNotAllowed } from "./problem.ts";
import { readStream } from "./reads.ts";
import { appendToStream, createStream, deleteStream, headStream } from "./streams.ts";
import type { Watch, Watched } from "./watch.ts";

const STREAM_METHODS = "GET, POST, PUT, DELETE, HEAD, OPTIONS";

const PREFLIGHT: ServerAnswer = {
  status: 204,
  headers: {
    "Access-Control-Allow-Methods": CORS_METHODS,
    "Access-Control-Allow-Headers": CORS_ALLOW,
    "Access-Control-Max-Age": "86400",
  },
};

export type Handle = (exchange: Exchange) => Promise<ServerAnswer>;

/**
 * Makes the function that answers every request. It calls `onFault` for bugs and broken parts, never for refusals. It takes
 * the current parts once a request, so that a request sees one configuration from its first check to its last header.
 */
export function createRouter(
  holder: PartsHolder,
  subscriptions: Handle,
  onFault: (error: unknown) => void,
  watch: Watch,
  compress?: Compress,
): Handle {
  const { options, clock, random } = holder.current;
  const faults = options.testFaults ? new Faults(clock, random) : undefined;

  function dispatch(exchange: Exchange, parts: ServerParts): ServerAnswer | Promise<ServerAnswer> {
    if (parts.drain.isDraining) {
      const probe = answerProbe(exchange, parts);
      if (probe !== undefined && exchange.method !== "OPTIONS") return probe;
      throw new HapaxError("shutting_down", "no new requests are taken");
    }
    if (exchange.method === "OPTIONS") return PREFLIGHT;
    const { path } = exchange;
    if (path.length + exchange.query.length > LIMITS.targetBytesMax) {
      throw new HapaxError("uri_too_long", `the limit is ${LIMITS.targetBytesMax} bytes`);
    }
    if (path.startsWith(SUBSCRIPTIONS_PREFIX)) return subscriptions(exchange);
    if (path.startsWith(OWN_PREFIX)) return handleOwnRoute(exchange, parts);
    const front = answerFront(exchange, parts);
    if (front !== undefined) return front;
    if (path.startsWith(TEST_PREFIX)) throw new HapaxError("not_found", "faults are not enabled");
    return handleStream(exchange, parts);
  }

  function fail(error: unknown): ServerAnswer {
    if (!isRefusal(error)) onFault(error);
    return failureAnswer(error);
  }

  // Not async: a good answer goes from its handler to the runtime in one step.
  function answer(watched: Watched, parts: ServerParts): Promise<ServerAnswer> {
    const { exchange, requestId } = watched;
    const finish = (ready: ServerAnswer): ServerAnswer | Promise<ServerAnswer> =>
      faults === undefined
        ? finishAnswer(exchange, ready, requestId, parts.doors, compress)
        : ready;
    try {
      checkHead(exchange);
      parts.doors.check(exchange);
      return Promise.resolve(dispatch(exchange, parts)).then(finish, (error: unknown) =>
        finish(fail(error)),
      );
    } catch (error) {
      return Promise.resolve(finish(fail(error)));
    }
  }

  if (faults === undefined) return (exchange) => answer(watch.begin(exchange), holder.current);
  const control = async (exchange: Exchange, { doors }: ServerParts): Promise<ServerAnswer> => {
    checkHead(exchange);
    doors.check(exchange);
    return faults.control(exchange);
  };
  return async (exchange) => {
    const parts = holder.current;
    const watched = watch.begin(exchange);
    const isControl = exchange.path === FAULTS_PATH && exchange.method !== "OPTIONS";
    const ready = isControl
      ? await control(exchange, parts).catch((error: unknown) => failureAnswer(error))
      : await faults.around(exchange, () => answer(watched, parts));
    return finishAnswer(exchange, ready, watched.requestId, parts.doors, compress);
  };
}

function handleStream(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  switch (exchange.method) {
    case "POST":
      return appendToStream(exchange, parts);
    case "GET":
      return readStream(exchange, parts);
    case "HEAD":
      return headStream(exchange, parts);
    case "PUT":
      return createStream(exchange, parts);
    case "DELETE":
      return deleteStream(exchange, parts);
    default:
      requireStreamName(exchange.path);
      return Promise.resolve(methodNotAllowed(STREAM_METHODS));
  }
}
