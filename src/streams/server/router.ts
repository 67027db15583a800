/**
 * From a request to its handler. Reserved paths come first; every other path is a stream.
 *
 * Who sends a request and whether they may is decided here, before a handler sees it, by what the table of routes declares. Handlers
 * ask for more where the head or the body names more.
 */

import { assert } from "../../base/assert.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Access } from "../access/access.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { CORS_ALLOW, CORS_METHODS, HEADER } from "../../protocol/headers.ts";
import { OWN_PREFIX, SUBSCRIPTIONS_PREFIX, TEST_PREFIX } from "../../protocol/reserved.ts";
import type { ServerAnswer, Exchange } from "./exchange.ts";
import { type Compress, finishAnswer } from "./policy.ts";
import type { Faults } from "./faults.ts";
import type { PartsHolder, ServerParts } from "./parts.ts";
import { failureAnswer, isInside, isRefusal, problemAnswer } from "./problem.ts";
import type { RouteOperation, Route, RouteMethod } from "./route.ts";
import { type RouteBook, STREAM_ROUTE } from "./route-book.ts";
import type { Watch, Watched } from "./watched.ts";

const NO_PARAMS: readonly string[] = [];

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
  onFault: (error: unknown) => void,
  watch: Watch,
  compress: Compress | undefined,
  faults: Faults | undefined,
): Handle {
  const { routes } = holder.current;

  function dispatch(watched: Watched, parts: ServerParts): ServerAnswer | Promise<ServerAnswer> {
    const { exchange } = watched;
    const { path, method } = exchange;
    if (parts.drain.isDraining && !(isProbe(routes, path) && method !== "OPTIONS")) {
      throw new HapaxError("shutting_down", "no new requests are taken");
    }
    if (method === "OPTIONS") return PREFLIGHT;
    if (path.length + exchange.query.length > LIMITS.targetBytesMax) {
      throw new HapaxError("uri_too_long", `the limit is ${LIMITS.targetBytesMax} bytes`);
    }
    if (path.charCodeAt(1) !== UNDERSCORE && !path.startsWith(SUBSCRIPTIONS_PREFIX)) {
      const front = routes.isFront(path) ? routes.find(path) : undefined;
      return call(front?.route ?? STREAM_ROUTE, watched, parts, NO_PARAMS);
    }
    const found = routes.find(path);
    if (found !== undefined) return call(found.route, watched, parts, found.params);
    return refuseReserved(routes, path) ?? call(STREAM_ROUTE, watched, parts, NO_PARAMS);
  }

  function fail(error: unknown): ServerAnswer {
    if (!isRefusal(error) || isInside(error)) onFault(error);
    return failureAnswer(error);
  }

  /** The answer as it leaves, and all that is written about it. */
  function complete(
    watched: Watched,
    ready: ServerAnswer,
    { doors, options: inForce }: ServerParts,
  ): ServerAnswer | Promise<ServerAnswer> {
    const { exchange, requestId } = watched;
    const leaving = finishAnswer(exchange, ready, requestId, doors, compress);
    return watch.end(watched, ready, leaving, inForce);
  }

  // Not async: a good answer goes from its handler to the runtime in one step.
  function answer(watched: Watched, parts: ServerParts): Promise<ServerAnswer> {
    const finish = (made: ServerAnswer): ServerAnswer | Promise<ServerAnswer> => {
      const ready = released(watched, made);
      return faults === undefined ? complete(watched, ready, parts) : ready;
    };
    try {
      watched.exchange.checkHead?.();
      parts.doors.check(watched.exchange);
      return Promise.resolve(dispatch(watched, parts)).then(finish, (error: unknown) =>
        finish(fail(error)),
      );
    } catch (error) {
      return Promise.resolve(finish(fail(error)));
    }
  }

  if (faults === undefined) return (exchange) => answer(watch.begin(exchange), holder.current);
  return async (exchange) => {
    const parts = holder.current;
    const watched = watch.begin(exchange);
    const ready = await faults.answer(exchange, parts, () => answer(watched, parts));
    return complete(watched, ready, parts);
  };
}

/** Gives back what the request has taken. The answer to one that could write says what is left of its caller's rates. */
function released(watched: Watched, answer: ServerAnswer): ServerAnswer {
  const { exchange, ticket } = watched;
  if (ticket === undefined) return answer;
  const rates = WRITES.has(exchange.method) ? ticket.rateHeaders() : undefined;
  watched.release();
  return rates === undefined ? answer : { ...answer, headers: { ...answer.headers, ...rates } };
}

const UNDERSCORE = 0x5f;

function isProbe(routes: RouteBook, path: string): boolean {
  return routes.find(path)?.route.isProbe === true;
}

/** The answer to a path that no route takes, and that is no stream either. Undefined: it is a stream. */
function refuseReserved(routes: RouteBook, path: string): ServerAnswer | undefined {
  const refusal = routes.unknown(path);
  if (refusal !== undefined) return refusal;
  if (path.startsWith(OWN_PREFIX)) {
    throw new HapaxError("not_found", "there is no such route under /_hapax/");
  }
  if (path.startsWith(TEST_PREFIX)) throw new HapaxError("not_found", "faults are not enabled");
  return undefined;
}

/** Finds out who calls, checks what the route needs, and calls its handler. */
function call(
  route: Route,
  watched: Watched,
  parts: ServerParts,
  params: readonly string[],
): ServerAnswer | Promise<ServerAnswer> {
  const { exchange } = watched;
  const refuse = (error: unknown): ServerAnswer => {
    if (route.refuse === undefined || !isRefusal(error)) throw error;
    return route.refuse(error);
  };
  try {
    const operation = route.methods[exchange.method as RouteMethod];
    if (operation === undefined) return methodRefusal(route);
    const access = admit(operation, exchange, parts);
    const answer =
      access instanceof Promise
        ? access.then((admitted) => run(operation, watched, parts, admitted, params))
        : run(operation, watched, parts, access, params);
    return route.refuse !== undefined && answer instanceof Promise ? answer.catch(refuse) : answer;
  } catch (error) {
    return refuse(error);
  }
}

function admit(
  { needs }: RouteOperation,
  exchange: Exchange,
  { gate }: ServerParts,
): Access | Promise<Access> {
  if (!gate.isGuarded || Array.isArray(needs)) return gate.admit(exchange);
  return gate.anonymous;
}

function run(
  operation: RouteOperation,
  watched: Watched,
  parts: ServerParts,
  access: Access,
  params: readonly string[],
): ServerAnswer | Promise<ServerAnswer> {
  const { exchange } = watched;
  if (access !== parts.gate.anonymous || access.isUnlimited) watched.caller = access;
  const { needs, subject } = operation;
  if (access.isUnlimited || !Array.isArray(needs)) {
    return operation.handle({ exchange, parts, access, params, ticket: undefined });
  }
  access.requireOneOf(needs, subject?.(exchange, params));
  // Released with the answer, however the request ends.
  assert(parts.quotas !== undefined, "an identity has no quotas");
  const ticket = parts.quotas.begin(access, parts.options.quotas);
  watched.ticket = ticket;
  if (operation.countsItself !== true && WRITES.has(exchange.method)) ticket.takeAppends(1, 0);
  return operation.handle({ exchange, parts, access, params, ticket });
}

const WRITES: ReadonlySet<string> = new Set(["POST", "PUT", "DELETE"]);

function methodRefusal({ allow, refuse }: Route): ServerAnswer {
  const error = new HapaxError("method_not_allowed", `this path takes ${allow}`);
  if (refuse === undefined) return problemAnswer(error, { headers: { [HEADER.allow]: allow } });
  const answer = refuse(error);
  return { ...answer, headers: { ...answer.headers, [HEADER.allow]: allow } };
}
