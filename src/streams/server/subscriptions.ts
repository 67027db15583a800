/**
 * Everything below `/v1/stream/__ds/`: subscriptions and the keys that sign their webhooks.
 * PROTOCOL.md §11.
 *
 * A refusal is a problem document like any other, with the member `error` that the protocol has.
 */

import { type Followed, notAllowed } from "../access/access.ts";
import {
  type ReportOutcome,
  type SubscriptionParts,
  Subscriptions,
} from "../engine/subscriptions.ts";
import type { Courier } from "../courier.ts";
import type { SubscriptionView } from "../engine/subscriptions/view.ts";
import { subscriptionOf } from "../signer.ts";
import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { HEADER } from "../../protocol/headers.ts";
import { BETWEEN, splitScoped } from "../core/scoped-name.ts";
import {
  parseClaim,
  parseReport,
  parseStreams,
  parseSubscribe,
  protocolCode,
  subscriptionFormat,
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
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import { mayFollow } from "./following.ts";
import { detailOf, problemAnswer } from "./problem.ts";
import { readRequestBody } from "./request-body.ts";
import type { RouteOperation, Route, RouteCall } from "./route.ts";

type Facts = Readonly<Record<string, unknown>>;
type Report = "callback" | "ack";

const NO_CONTENT: WholeAnswer = { status: 204, headers: { [HEADER.cacheControl]: "no-store" } };
const PATH = `${CONTROL_ROOT}subscriptions/{id}`;

/** Handlers of one subscription: its id as the caller knows it, and the one under which the engine keeps it. */
interface SubscriptionCall extends RouteCall {
  readonly id: string;
  readonly kept: string;
  readonly subscriptions: Subscriptions;
}

type SubscriptionHandler = (call: SubscriptionCall) => Promise<ServerAnswer>;

/** For callers with the right to subscribe. */
function own(handle: SubscriptionHandler): RouteOperation {
  return {
    needs: ["subscribe"],
    subject: (_exchange, params) => ({ subscription: idOf(params) }),
    handle: (call) => {
      const id = idOf(call.params);
      const { subscriptions } = call.parts.engine;
      return handle({ ...call, id, kept: call.access.scoped(id), subscriptions });
    },
  };
}

/** For the holder of a token of a wake or a claim. The token names the subscription, also one of a namespace. */
function byToken(handle: SubscriptionHandler): RouteOperation {
  return {
    needs: "token",
    handle: async (call) => {
      const id = idOf(call.params);
      const token = requireToken(call.exchange);
      const named = subscriptionOf(token);
      const isNamed = named !== undefined && splitScoped(named).name === id;
      const kept = isNamed ? named : id;
      const { subscriptions } = call.parts.engine;
      // Before the body: a stranger's body costs nothing but the reading of its head.
      if (!(await subscriptions.isTokenOf(kept, token))) {
        throw new HapaxError("token_invalid", "the token is not one of this subscription");
      }
      return handle({ ...call, id, kept, subscriptions });
    },
  };
}

function route(path: string, methods: Route["methods"]): Route {
  return { path, methods, allow: Object.keys(methods).join(", "), refuse: subscriptionRefusal };
}

export const SUBSCRIPTION_ROUTES: readonly Route[] = [
  route(`${CONTROL_ROOT}jwks.json`, {
    GET: {
      needs: "nothing",
      handle: answerJwks,
    },
  }),
  route(PATH, {
    GET: own(describe),
    PUT: own(subscribe),
    DELETE: own(unsubscribe),
  }),
  route(`${PATH}/streams`, { POST: own(link) }),
  route(`${PATH}/streams/{path...}`, {
    DELETE: own(unlink),
  }),
  route(`${PATH}/claim`, { POST: own(claim) }),
  route(`${PATH}/callback`, {
    POST: byToken((call) => report(call, "callback")),
  }),
  route(`${PATH}/ack`, {
    POST: byToken((call) => report(call, "ack")),
  }),
  route(`${PATH}/release`, { POST: byToken(release) }),
];

/** The answer to a path below `/v1/stream/__ds/` that no route takes. Undefined: it is not below. */
export function refuseControlPath(path: string): ServerAnswer | undefined {
  return path.startsWith(CONTROL_ROOT) ? subscriptionRefusal(noControlRoute()) : undefined;
}

/** What a server has for its subscriptions. */
export interface GivenSubscriptionParts extends Omit<SubscriptionParts, "courier" | "format"> {
  readonly courier: Courier | undefined;
}

const NO_COURIER: Courier = {
  deliver: () =>
    Promise.resolve({
      kind: "refused",
      reason: "this server has no courier, so it sends no webhooks",
    }),
};

export function createSubscriptions(given: GivenSubscriptionParts): Subscriptions {
  const { courier = NO_COURIER } = given;
  return new Subscriptions({ ...given, courier, format: subscriptionFormat });
}

function idOf([encoded = ""]: readonly string[]): string {
  const id = decodePercent(encoded);
  if (id === undefined || id === "") throw noControlRoute();
  const max = LIMITS.subscriptionIdBytesMax;
  if (new TextEncoder().encode(id).length > max || id.includes(BETWEEN)) {
    const words = `the id of a subscription has at most ${max} bytes, and no NUL`;
    throw new HapaxError("invalid_request", words);
  }
  return id;
}

/** Whether the caller may follow these streams with the subscription of the call. */
function mayFollowAll(call: SubscriptionCall, followed: Followed): Promise<boolean> {
  const { parts, access, id } = call;
  return mayFollow(parts, access, "subscribe", { subscription: id }, followed);
}

/** Whether the caller may follow what a subscription follows. Otherwise it is not there for this caller. */
async function isShown(call: SubscriptionCall, view: SubscriptionView): Promise<boolean> {
  if (call.access.isUnlimited) return true;
  const { pattern } = view.settings;
  const streams = view.links.map(({ stream }) => stream);
  return mayFollowAll(call, { pattern, streams });
}

async function isHidden(call: SubscriptionCall): Promise<boolean> {
  if (call.access.isUnlimited) return false;
  const view = await call.subscriptions.describe(call.kept);
  return view !== undefined && !(await isShown(call, view));
}

async function answerJwks({ parts }: RouteCall): Promise<ServerAnswer> {
  const { subscriptions } = parts.engine;
  const body = new TextEncoder().encode(JSON.stringify(await subscriptions.jwks()));
  const headers = {
    [HEADER.contentType]: "application/jwk-set+json",
    [HEADER.cacheControl]: "public, max-age=300",
  };
  return { status: 200, headers, body };
}

async function subscribe(call: SubscriptionCall): Promise<ServerAnswer> {
  const { parts, access, kept, subscriptions } = call;
  const addresses = { allowLoopback: parts.options.allowLoopbackWebhooks };
  const options = parseSubscribe(await bodyOf(call), addresses);
  if (!(await mayFollowAll(call, options))) throw notAllowed("subscribe");
  if (options.way.kind === "pull_wake") {
    access.require("append", { stream: options.way.wakeStream });
  }
  // There cannot be two subscriptions of one id. Of one that is hidden the caller learns nothing else.
  if (await isHidden(call)) throw new HapaxError("subscription_exists", "the id is taken");
  const outcome = await subscriptions.subscribe(kept, options);
  if (outcome.kind === "conflict") {
    throw new HapaxError("subscription_exists", `the subscription differs in ${outcome.reason}`);
  }
  return json(outcome.kind === "created" ? 201 : 200, encodeSubscription(outcome.view));
}

async function describe(call: SubscriptionCall): Promise<ServerAnswer> {
  const view = await call.subscriptions.describe(call.kept);
  if (view === undefined || !(await isShown(call, view))) throw missing();
  return json(200, encodeSubscription(view));
}

async function unsubscribe(call: SubscriptionCall): Promise<ServerAnswer> {
  const isThere = !(await isHidden(call)) && (await call.subscriptions.unsubscribe(call.kept));
  return isThere ? NO_CONTENT : { ...NO_CONTENT, audit: false };
}

async function link(call: SubscriptionCall): Promise<ServerAnswer> {
  const { id, kept, subscriptions } = call;
  const streams = parseStreams(await bodyOf(call));
  if (!(await mayFollowAll(call, { streams }))) throw notAllowed("subscribe");
  if ((await isHidden(call)) || !(await subscriptions.link(kept, streams))) throw missing();
  const details = { streams: streams.length };
  return { ...NO_CONTENT, audit: { acts: [{ act: "subscription.link", target: id }], details } };
}

async function unlink(call: SubscriptionCall): Promise<ServerAnswer> {
  // The path may come encoded as one segment or as it is.
  const path = decodePercent(call.params[1] ?? "");
  if (path === undefined) throw noControlRoute();
  const name = parseRelativePath(path);
  if (name === undefined) throw new HapaxError("invalid_request", "the stream path is not valid");
  if ((await isHidden(call)) || !(await call.subscriptions.unlink(call.kept, name)))
    throw missing();
  return NO_CONTENT;
}

async function claim(call: SubscriptionCall): Promise<ServerAnswer> {
  const { kept, subscriptions, ticket } = call;
  const worker = parseClaim(await bodyOf(call));
  const allowance = await ticket?.allowance();
  if (await isHidden(call)) throw missing();
  const outcome = await subscriptions.claim(kept, worker, allowance);
  switch (outcome.kind) {
    case "claimed":
      return json(200, encodeClaim(outcome));
    case "held": {
      const { holder, generation } = outcome;
      const error = new HapaxError("already_claimed", "another worker holds the subscription");
      return subscriptionRefusal(error, { current_holder: holder, generation });
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

async function report(call: SubscriptionCall, action: Report): Promise<ServerAnswer> {
  const { exchange, kept, subscriptions } = call;
  const token = requireToken(exchange);
  const body = parseReport(await bodyOf(call));
  const kind = action === "callback" ? "callback" : "claim";
  const outcome = await subscriptions.report(kept, kind, token, body);
  if (outcome.kind === "settled") return json(200, encodeReported(outcome.isWokenAgain));
  throw reportRefusal(outcome, action);
}

async function release(call: SubscriptionCall): Promise<ServerAnswer> {
  const { exchange, kept, subscriptions } = call;
  const token = requireToken(exchange);
  const outcome = await subscriptions.release(kept, token, parseReport(await bodyOf(call)));
  if (outcome.kind === "settled") return NO_CONTENT;
  throw reportRefusal(outcome, "release");
}

function reportRefusal(
  outcome: Exclude<ReportOutcome, { kind: "settled" }>,
  action: Report | "release",
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

function bodyOf(call: RouteCall): Promise<Uint8Array> {
  return readRequestBody(call, LIMITS.subscriptionBodyBytesMax);
}

function json(status: number, body: Uint8Array): ServerAnswer {
  const headers = {
    [HEADER.contentType]: "application/json",
    // Answers hold tokens and what a subscriber follows: no cache may keep them.
    [HEADER.cacheControl]: "no-store",
  };
  return { status, headers, body, mayCompress: true };
}

function subscriptionRefusal(
  error: HapaxError,
  facts: Facts = {},
  headers: Record<string, string> = {},
): ServerAnswer {
  const member = { code: protocolCode(error.code), message: detailOf(error), ...facts };
  return problemAnswer(error, { facts: { error: member }, headers });
}

function noControlRoute(): HapaxError {
  return new HapaxError("not_found", "there is no such control route");
}

function missing(): HapaxError {
  return new HapaxError("subscription_not_found", "there is no subscription of this id");
}

function wrongType(action: Report | "release" | "claim"): HapaxError {
  return new HapaxError("invalid_request", `${action} does not apply to this type of subscription`);
}
