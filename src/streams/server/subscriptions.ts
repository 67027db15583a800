/**
 * Everything below `/v1/stream/__ds/`: subscriptions and the keys that sign their webhooks.
 * PROTOCOL.md §11.
 *
 * A refusal is a problem document like any other, with the member `error` that the protocol has.
 */

import type { ReportOutcome, Subscriptions } from "../engine/subscriptions.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { HEADER } from "../../protocol/headers.ts";
import {
  parseClaim,
  parseReport,
  parseStreams,
  parseSubscribe,
  protocolCode,
} from "../../protocol/subscription.ts";
import {
  encodeClaim,
  encodeReported,
  encodeSubscription,
} from "../../protocol/subscription-answer.ts";
import {
  CONTROL_ROOT,
  formatRelativePath,
  parseRelativePath,
} from "../../protocol/subscription-path.ts";
import { decodePercent, parseBearer } from "../../protocol/values.ts";
import type { WebhookAddressOptions } from "../../protocol/webhook-address.ts";
import type { ServerAnswer, Exchange } from "./exchange.ts";
import { problemAnswer } from "./problem.ts";

type Action = "callback" | "claim" | "ack" | "release";

type Route =
  | { readonly kind: "jwks" }
  | { readonly kind: "subscription"; readonly id: string }
  | { readonly kind: "streams"; readonly id: string }
  | { readonly kind: "stream"; readonly id: string; readonly path: string }
  | { readonly kind: "action"; readonly id: string; readonly action: Action };

type Facts = Readonly<Record<string, unknown>>;

const NO_CONTENT: ServerAnswer = { status: 204, headers: { [HEADER.cacheControl]: "no-store" } };

export async function handleSubscriptions(
  exchange: Exchange,
  subscriptions: Subscriptions,
  addresses: WebhookAddressOptions = {},
): Promise<ServerAnswer> {
  try {
    return await dispatch(exchange, subscriptions, addresses);
  } catch (error) {
    if (!isHapaxError(error)) throw error;
    return refusal(error);
  }
}

function dispatch(
  exchange: Exchange,
  subscriptions: Subscriptions,
  addresses: WebhookAddressOptions,
): Promise<ServerAnswer> {
  const route = parseRoute(exchange.path);
  const { method } = exchange;
  switch (route.kind) {
    case "jwks":
      return method === "GET" ? answerJwks(subscriptions) : notAllowed("GET");
    case "subscription":
      if (method === "PUT") return subscribe(exchange, subscriptions, route.id, addresses);
      if (method === "GET") return describe(subscriptions, route.id);
      if (method === "DELETE") return unsubscribe(subscriptions, route.id);
      return notAllowed("GET, PUT, DELETE");
    case "streams":
      return method === "POST" ? link(exchange, subscriptions, route.id) : notAllowed("POST");
    case "stream":
      if (method !== "DELETE") return notAllowed("DELETE");
      return unlink(subscriptions, route.id, route.path);
    case "action":
      if (method !== "POST") return notAllowed("POST");
      if (route.action === "claim") return claim(exchange, subscriptions, route.id);
      if (route.action === "release") return release(exchange, subscriptions, route.id);
      return report(exchange, subscriptions, route.id, route.action);
    default:
      return route satisfies never;
  }
}

function parseRoute(path: string): Route {
  const rest = path.slice(CONTROL_ROOT.length);
  if (rest === "jwks.json") return { kind: "jwks" };
  const [collection, encodedId = "", action, ...encodedPath] = rest.split("/");
  const id = decodePercent(encodedId);
  if (collection !== "subscriptions" || id === undefined || id === "") throw noRoute(path);
  if (new TextEncoder().encode(id).length > LIMITS.subscriptionIdBytesMax) {
    const max = LIMITS.subscriptionIdBytesMax;
    throw new HapaxError("invalid_request", `the id of a subscription has at most ${max} bytes`);
  }
  if (action === undefined) return { kind: "subscription", id };
  if (action === "streams") {
    if (encodedPath.length === 0) return { kind: "streams", id };
    // The path may come encoded as one segment or as it is.
    const streamPath = decodePercent(encodedPath.join("/"));
    if (streamPath === undefined) throw noRoute(path);
    return { kind: "stream", id, path: streamPath };
  }
  if (encodedPath.length > 0) throw noRoute(path);
  switch (action) {
    case "callback":
    case "claim":
    case "ack":
    case "release":
      return { kind: "action", id, action };
    default:
      throw noRoute(path);
  }
}

async function answerJwks(subscriptions: Subscriptions): Promise<ServerAnswer> {
  const body = new TextEncoder().encode(JSON.stringify(await subscriptions.jwks()));
  const headers = {
    [HEADER.contentType]: "application/jwk-set+json",
    [HEADER.cacheControl]: "public, max-age=300",
  };
  return { status: 200, headers, body };
}

async function subscribe(
  exchange: Exchange,
  subscriptions: Subscriptions,
  id: string,
  addresses: WebhookAddressOptions,
): Promise<ServerAnswer> {
  const options = parseSubscribe(await readBody(exchange), addresses);
  const outcome = await subscriptions.subscribe(id, options);
  if (outcome.kind === "conflict") {
    throw new HapaxError("subscription_exists", `the subscription differs in ${outcome.reason}`);
  }
  return json(outcome.kind === "created" ? 201 : 200, encodeSubscription(outcome.view));
}

async function describe(subscriptions: Subscriptions, id: string): Promise<ServerAnswer> {
  const view = await subscriptions.describe(id);
  if (view === undefined) throw missing();
  return json(200, encodeSubscription(view));
}

async function unsubscribe(subscriptions: Subscriptions, id: string): Promise<ServerAnswer> {
  await subscriptions.unsubscribe(id);
  return NO_CONTENT;
}

async function link(
  exchange: Exchange,
  subscriptions: Subscriptions,
  id: string,
): Promise<ServerAnswer> {
  const names = parseStreams(await readBody(exchange));
  if (!(await subscriptions.link(id, names))) throw missing();
  return NO_CONTENT;
}

async function unlink(
  subscriptions: Subscriptions,
  id: string,
  path: string,
): Promise<ServerAnswer> {
  const name = parseRelativePath(path);
  if (name === undefined) throw new HapaxError("invalid_request", "the stream path is not valid");
  if (!(await subscriptions.unlink(id, name))) throw missing();
  return NO_CONTENT;
}

async function claim(
  exchange: Exchange,
  subscriptions: Subscriptions,
  id: string,
): Promise<ServerAnswer> {
  const worker = parseClaim(await readBody(exchange));
  const outcome = await subscriptions.claim(id, worker);
  switch (outcome.kind) {
    case "claimed":
      return json(200, encodeClaim(outcome));
    case "held": {
      const { holder, generation } = outcome;
      const error = new HapaxError("already_claimed", "another worker holds the subscription");
      return refusal(error, { current_holder: holder, generation });
    }
    case "nothing_pending":
      throw new HapaxError("no_pending_work", "no followed stream has more than was acknowledged");
    case "wrong_type":
      throw wrongType("claim");
    case "missing":
      throw missing();
    default:
      return outcome satisfies never;
  }
}

async function report(
  exchange: Exchange,
  subscriptions: Subscriptions,
  id: string,
  action: "callback" | "ack",
): Promise<ServerAnswer> {
  const token = requireToken(exchange);
  const body = parseReport(await readBody(exchange));
  const kind = action === "callback" ? "callback" : "claim";
  const outcome = await subscriptions.report(id, kind, token, body);
  if (outcome.kind === "settled") return json(200, encodeReported(outcome.isWokenAgain));
  throw reportRefusal(outcome, action);
}

async function release(
  exchange: Exchange,
  subscriptions: Subscriptions,
  id: string,
): Promise<ServerAnswer> {
  const token = requireToken(exchange);
  const outcome = await subscriptions.release(id, token, parseReport(await readBody(exchange)));
  if (outcome.kind === "settled") return NO_CONTENT;
  throw reportRefusal(outcome, "release");
}

function reportRefusal(
  outcome: Exclude<ReportOutcome, { kind: "settled" }>,
  action: Action,
): HapaxError {
  switch (outcome.kind) {
    case "fenced":
      return new HapaxError("subscription_fenced", "the generation or wake_id is not current");
    case "invalid_ack": {
      const stream = formatRelativePath(outcome.stream);
      return new HapaxError("invalid_ack", `${outcome.reason}: stream=${stream}`);
    }
    case "token_invalid":
      return new HapaxError("token_invalid", "the token is not one of this subscription");
    case "token_expired":
      return new HapaxError("token_expired", "the token has expired");
    case "wrong_type":
      return wrongType(action);
    case "missing":
      return missing();
    default:
      return outcome satisfies never;
  }
}

function requireToken(exchange: Exchange): string {
  const token = parseBearer(exchange.header("authorization") ?? "");
  if (token === undefined) {
    throw new HapaxError("token_invalid", "the Authorization header must be: Bearer <token>");
  }
  return token;
}

function readBody(exchange: Exchange): Promise<Uint8Array> {
  return exchange.body(LIMITS.subscriptionBodyBytesMax);
}

function json(status: number, body: Uint8Array): ServerAnswer {
  const headers = {
    [HEADER.contentType]: "application/json",
    // Answers hold tokens and what a subscriber follows: no cache may keep them.
    [HEADER.cacheControl]: "no-store",
  };
  return { status, headers, body, mayCompress: true };
}

function refusal(
  error: HapaxError,
  facts: Facts = {},
  headers: Record<string, string> = {},
): ServerAnswer {
  const member = { code: protocolCode(error.code), message: error.message, ...facts };
  return problemAnswer(error, { facts: { error: member }, headers });
}

function notAllowed(allow: string): Promise<ServerAnswer> {
  const error = new HapaxError("method_not_allowed", `this path takes ${allow}`);
  return Promise.resolve(refusal(error, {}, { [HEADER.allow]: allow }));
}

function noRoute(path: string): HapaxError {
  return new HapaxError("not_found", `there is no such control route: path=${path}`);
}

function missing(): HapaxError {
  return new HapaxError("subscription_not_found", "there is no subscription of this id");
}

function wrongType(action: Action): HapaxError {
  return new HapaxError("invalid_request", `${action} does not apply to this type of subscription`);
}
