/** Handlers that write streams or describe them: PUT, POST, HEAD, DELETE. They decide nothing. */

import type { Access } from "../access/access.ts";
import { lifeOf } from "../core/stream.ts";
import type { Act } from "../engine/acts.ts";
import type { AppendOutcome, Found } from "../engine/outcomes.ts";
import type { StreamName } from "../core/types.ts";
import type { AppendCommand } from "../core/append.ts";
import type { KeyClaim } from "../core/keys.ts";
import type { ProducerView } from "../engine/appends.ts";
import type { Allowance } from "../engine/holdings.ts";
import {
  type AppendHead,
  encodeAppend,
  parseAppend,
  parseAppendHead,
  parseProducerId,
} from "../../protocol/append.ts";
import { encodeCreate, keyHeaders, parseCreate, parseCreateHead } from "../../protocol/create.ts";
import {
  acceptedCodings,
  type ContentCoding,
  parseEncoding,
} from "../../protocol/content-encoding.ts";
import { HEADER, type HeaderGetter, SENT } from "../../protocol/headers.ts";
import { keyBytes, markOf } from "../../protocol/key.ts";
import { invalid } from "../../protocol/refusal.ts";
import { requireStreamName } from "../../protocol/reserved.ts";
import { encodeStreamPath, formatOffset, formatRfc3339 } from "../../protocol/values.ts";
import { actOnce } from "./acts.ts";
import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import { refuse } from "./problem.ts";
import { readRequestBody } from "./request-body.ts";
import type { RouteOperation, RouteCall } from "./route.ts";

const APPEND_NEEDS = ["append", "close"] as const;

const subject: RouteOperation["subject"] = (exchange) => ({
  stream: requireStreamName(exchange.path),
});

export const CREATE: RouteOperation = {
  needs: ["create"],
  subject,
  countsItself: true,
  handle: createStream,
};
export const APPEND: RouteOperation = {
  needs: APPEND_NEEDS,
  subject,
  countsItself: true,
  handle: appendToStream,
};
export const LOOK: RouteOperation = {
  needs: ["read"],
  subject,
  handle: headStream,
};
export const DELETE: RouteOperation = {
  needs: ["delete"],
  subject,
  handle: deleteStream,
};

/** Where the clients of the protocol keep streams; people forget it. */
const USUAL_ROOT = "/v1/stream";

/** A hint at another stream is for callers that may read that one. */
export async function refuseMissing(
  parts: ServerParts,
  name: StreamName,
  access: Access,
): Promise<WholeAnswer> {
  const detail = `there is no stream at ${name}`;
  const other = name.startsWith(`${USUAL_ROOT}${USUAL_ROOT}/`)
    ? name.slice(USUAL_ROOT.length)
    : `${USUAL_ROOT}${name}`;
  const isThere =
    access.may("read", { stream: other }) &&
    (await parts.engine.look(other as StreamName)).kind === "found";
  return refuse({
    code: "stream_not_found",
    detail: isThere ? `${detail}; did you mean ${other}?` : detail,
    facts: { stream: name },
  });
}

export function refuseGone(stream: StreamName): WholeAnswer {
  const detail = `the stream ${stream} was deleted or has expired; forks keep its data`;
  return refuse({ code: "stream_gone", detail, facts: { stream } });
}

async function createStream(call: RouteCall): Promise<ServerAnswer> {
  const { exchange, parts, access, ticket } = call;
  const name = requireStreamName(exchange.path);
  const header: HeaderGetter = (field) => exchange.header(field);
  const head = parseCreateHead(name, header, parts.rules);
  if (head.isClosed) access.require("close", { stream: name });
  if (head.fork !== undefined) access.require("read", { stream: head.fork.sourceName });
  const coding = parseEncoding(header, parts.decoding);
  const { bodyBytesMax } = parts.options;
  ticket?.takeHead(exchange, bodyBytesMax);
  const allowance = await ticket?.allowance();
  const sent = await readRequestBody(call, bodyBytesMax);
  const body = coding === undefined ? sent : await decodeBody(call, coding, sent);
  ticket?.takeBody(body.length);
  let inheritedType: string | undefined;
  const needsType = body.length > 0 || head.compaction !== undefined;
  if (needsType && head.fork !== undefined && head.contentType === undefined) {
    const source = await parts.engine.look(head.fork.sourceName);
    if (source.kind === "found") inheritedType = source.state.contentType;
  }
  const outcome = await parts.engine.create(parseCreate(head, body, inheritedType), allowance);
  const answer = encodeCreate(outcome, exchange.baseUrl + encodeStreamPath(name), parts.rules);
  if ("code" in answer) return refuse(answer);
  return { ...answer, headers: { ...answer.headers, ...codingsOf(parts) } };
}

/** An append with a close needs both; a close without data needs only that. */
export function checkAppend(
  access: Access,
  stream: StreamName,
  producer: string | undefined,
  closes: boolean,
  hasData: boolean,
): void {
  if (access.isUnlimited) return;
  const subject = { stream, producer };
  if (hasData || !closes) access.require("append", subject);
  if (closes) access.require("close", subject);
}

// Not async: a wait costs as much as the decision, and most appends need none before it.
function appendToStream(call: RouteCall): Promise<ServerAnswer> {
  const { exchange, parts, access, ticket } = call;
  const name = requireStreamName(exchange.path);
  const header: HeaderGetter = (field) => exchange.header(field);
  const head = parseAppendHead(header);
  if (!access.isUnlimited) {
    checkAppend(access, name, head.producer?.id, head.closes, exchange.hasBody);
  }
  const coding = parseEncoding(header, parts.decoding);
  const { received } = exchange;
  const isThere = received !== undefined && received.length <= parts.options.bodyBytesMax;
  const isPlain = head.producer !== undefined && head.key === undefined && head.waitMs === 0;
  if (!isThere || !isPlain || coding !== undefined || ticket !== undefined) {
    return appendInSteps(call, name, head, coding);
  }
  const command = parseAppend(head, received);
  return parts.engine.append(name, command).then((outcome) => {
    if (outcome.kind === "missing") return refuseMissing(parts, name, access);
    return answerAppend(outcome, command, name);
  });
}

/** An append that waits for its body, a decoder, a digest, its predecessors, or for what its caller has left. */
async function appendInSteps(
  call: RouteCall,
  name: StreamName,
  head: AppendHead,
  coding: ContentCoding | undefined,
): Promise<ServerAnswer> {
  const { exchange, parts, access, ticket } = call;
  const { bodyBytesMax } = parts.options;
  ticket?.takeHead(exchange, bodyBytesMax);
  const allowing = ticket?.allowance();
  // Awaited only if it must be: a turn more for each append would be felt.
  const allowance = allowing instanceof Promise ? await allowing : allowing;
  const { received } = exchange;
  const isThere = received !== undefined && received.length <= bodyBytesMax;
  const sent = isThere ? received : await readRequestBody(call, bodyBytesMax);
  const body = coding === undefined ? sent : await decodeBody(call, coding, sent);
  ticket?.takeBody(body.length);
  let command = parseAppend(head, body);
  // A close without data can be repeated as it is; it has no content, and no window may be in its way.
  const mayHaveContent = head.producer === undefined && body.length > 0;
  if (head.key !== undefined || (mayHaveContent && parts.engine.isKeyedByContent(name))) {
    const key = claimKey(parts, head, command);
    command = { ...command, key: key instanceof Promise ? await key : key };
  }
  if (head.waitMs > 0) return appendPatiently(call, name, command, head.waitMs, allowance);
  const outcome = await parts.engine.append(name, command, undefined, allowance);
  if (outcome.kind === "missing") return refuseMissing(parts, name, access);
  return answerAppend(outcome, command, name);
}

/** What the body decodes to. An empty body has no coding. It may wait for its turn, so the sender is looked at again. */
export async function decodeBody(
  { exchange, parts, access }: RouteCall,
  coding: ContentCoding,
  body: Uint8Array,
): Promise<Uint8Array> {
  if (body.length === 0) return body;
  const { bodyBytesMax, bodiesBytesMax } = parts.options;
  const { decoding } = parts;
  const decoded = await decoding.decode(exchange, coding, body, bodyBytesMax, bodiesBytesMax);
  access.requireCurrent(parts.clock.nowMs());
  return decoded;
}

/** What bodies may be encoded with: a client may compress when it has seen this. */
export function codingsOf({ decoding }: ServerParts): Record<string, string> {
  return { [HEADER.acceptEncoding]: acceptedCodings(decoding.codings) };
}

async function appendPatiently(
  { exchange, parts, access }: RouteCall,
  name: StreamName,
  command: AppendCommand,
  waitMs: number,
  allowance: Allowance | undefined,
): Promise<ServerAnswer> {
  const onAbort = (run: () => void): void => {
    exchange.onAbort(run);
  };
  const patient = { waitMs, onAbort, wasHeld: false };
  const outcome = await parts.engine.append(name, command, patient, allowance);
  const answer =
    outcome.kind === "missing"
      ? await refuseMissing(parts, name, access)
      : answerAppend(outcome, command, name);
  if (!patient.wasHeld) return answer;
  return { ...answer, headers: { ...answer.headers, [HEADER.preferenceApplied]: "wait" } };
}

function answerAppend(
  outcome: Exclude<AppendOutcome, { readonly kind: "missing" }>,
  command: AppendCommand,
  name: StreamName,
): WholeAnswer {
  if (outcome.kind === "gone") return refuseGone(name);
  const answer = encodeAppend(outcome, command);
  if ("code" in answer) return refuse(answer);
  if (!command.closes || outcome.kind !== "accepted") return answer;
  return { ...answer, audit: { acts: [{ act: "stream.close", target: name }] } };
}

/** At once where the platform hashes at once: then nothing comes between the look and the decision. */
function claimKey(
  parts: ServerParts,
  head: AppendHead,
  command: AppendCommand,
): KeyClaim | Promise<KeyClaim> {
  const { digest } = parts;
  const content = digest(command.data);
  const key = head.key === undefined ? undefined : digest(keyBytes(head.key.text));
  const finish = (keyDigest: Uint8Array | undefined, contentDigest: Uint8Array): KeyClaim => ({
    mark: markOf(keyDigest, contentDigest, command.closes),
    isContent: head.key === undefined,
    timeMs: head.key?.timeMs,
  });
  if (content instanceof Promise || key instanceof Promise) {
    return Promise.all([key, content]).then(([one, other]) => finish(one, other));
  }
  return finish(key, content);
}

async function deleteStream(call: RouteCall): Promise<ServerAnswer> {
  const { exchange, parts, access } = call;
  const name = requireStreamName(exchange.path);
  // A condition that is not looked at would be worse than none.
  if (exchange.header("if-match") !== undefined) throw invalid("If-Match", "is for POST");
  const run = async (act: Act | undefined): Promise<ServerAnswer> => {
    const outcome = await parts.engine.delete(name, act);
    if (outcome.kind === "missing") return refuseMissing(parts, name, access);
    if (outcome.kind === "gone") return refuseGone(name);
    return { status: 204, headers: {} };
  };
  return actOnce(call, undefined, run, () => ({ status: 204, headers: {} }));
}

async function headStream({ exchange, parts, access }: RouteCall): Promise<ServerAnswer> {
  const name = requireStreamName(exchange.path);
  const sent = exchange.header(SENT.producerId);
  const id = sent === undefined ? undefined : parseProducerId(sent);
  access.require("read", { stream: name, producer: id });
  const producer = id === undefined ? undefined : await parts.engine.producer(name, id);
  const look = await parts.engine.look(name);
  if (look.kind === "missing") return refuseMissing(parts, name, access);
  if (look.kind === "gone") return refuseGone(name);
  const headers = {
    ...describe(parts, look),
    ...describeProducer(producer),
    ...codingsOf(parts),
  };
  return { status: 200, headers };
}

function describeProducer(producer: ProducerView | undefined): Record<string, string> {
  if (producer === undefined) return {};
  const headers: Record<string, string> = {
    [HEADER.producerEpoch]: String(producer.epoch),
    [HEADER.producerSeq]: String(producer.lastSequence),
  };
  if (producer.end !== undefined) headers[HEADER.producerNextOffset] = formatOffset(producer.end);
  return headers;
}

function describe({ engine, rules }: ServerParts, found: Found): Record<string, string> {
  const { state, tail, isClosed, earliest } = found;
  const headers: Record<string, string> = {
    [HEADER.contentType]: state.contentType,
    [HEADER.nextOffset]: formatOffset(tail),
    [HEADER.life]: lifeOf(state, engine.world),
    [HEADER.cacheControl]: "no-store",
  };
  if (state.expiry.kind === "ttl") headers[HEADER.ttl] = String(state.expiry.seconds);
  if (state.expiry.kind === "at") headers[HEADER.expiresAt] = formatRfc3339(state.expiry.timeMs);
  if (isClosed) headers[HEADER.closed] = "true";
  headers[HEADER.earliestOffset] = formatOffset(earliest);
  const { keys, retained, compaction } = state;
  const ofRules = rules.format({ retention: retained?.rule, compaction });
  return { ...headers, ...keyHeaders(keys?.policy), ...ofRules };
}
