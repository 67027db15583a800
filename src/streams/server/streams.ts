/** Handlers that write streams or describe them: PUT, POST, HEAD, DELETE. They decide nothing. */

import { lifeOf } from "../core/stream.ts";
import type { Act } from "../engine/acts.ts";
import type { AppendOutcome, Found } from "../engine/outcomes.ts";
import type { StreamName } from "../core/types.ts";
import type { AppendCommand } from "../core/append.ts";
import type { KeyClaim } from "../core/keys.ts";
import type { ProducerView } from "../engine/appends.ts";
import {
  type AppendHead,
  encodeAppend,
  parseAppend,
  parseAppendHead,
  parseProducerId,
} from "../../protocol/append.ts";
import { encodeCreate, keyHeaders, parseCreate, parseCreateHead } from "../../protocol/create.ts";
import { refuseEncoding } from "../../protocol/content-encoding.ts";
import { HEADER, type HeaderGetter, SENT } from "../../protocol/headers.ts";
import { keyBytes, markOf } from "../../protocol/key.ts";
import { invalid } from "../../protocol/refusal.ts";
import { requireStreamName } from "../../protocol/reserved.ts";
import { encodeStreamPath, formatOffset, formatRfc3339 } from "../../protocol/values.ts";
import { actOnce } from "./acts.ts";
import type { ServerAnswer, Exchange, WholeAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import { refuse } from "./problem.ts";

/** Where the clients of the protocol keep streams; people forget it. */
const USUAL_ROOT = "/v1/stream";

export async function refuseMissing(parts: ServerParts, name: StreamName): Promise<WholeAnswer> {
  const detail = `there is no stream at ${name}`;
  const other = name.startsWith(`${USUAL_ROOT}${USUAL_ROOT}/`)
    ? name.slice(USUAL_ROOT.length)
    : `${USUAL_ROOT}${name}`;
  const isThere = (await parts.engine.look(other as StreamName)).kind === "found";
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

export async function createStream(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  const name = requireStreamName(exchange.path);
  const header: HeaderGetter = (field) => exchange.header(field);
  const head = parseCreateHead(name, header);
  refuseEncoding(header);
  const body = await exchange.body(parts.options.bodyBytesMax);
  let inheritedType: string | undefined;
  if (body.length > 0 && head.fork !== undefined && head.contentType === undefined) {
    const source = await parts.engine.look(head.fork.sourceName);
    if (source.kind === "found") inheritedType = source.state.contentType;
  }
  const outcome = await parts.engine.create(parseCreate(head, body, inheritedType));
  const answer = encodeCreate(outcome, exchange.baseUrl + encodeStreamPath(name));
  return "code" in answer ? refuse(answer) : answer;
}

export async function appendToStream(
  exchange: Exchange,
  parts: ServerParts,
): Promise<ServerAnswer> {
  const name = requireStreamName(exchange.path);
  const header: HeaderGetter = (field) => exchange.header(field);
  const head = parseAppendHead(header);
  refuseEncoding(header);
  const { received } = exchange;
  const { bodyBytesMax } = parts.options;
  const isThere = received !== undefined && received.length <= bodyBytesMax;
  const body = isThere ? received : await exchange.body(bodyBytesMax);
  let command = parseAppend(head, body);
  // A close without data can be repeated as it is; it has no content, and no window may be in its way.
  const mayHaveContent = head.producer === undefined && body.length > 0;
  if (head.key !== undefined || (mayHaveContent && parts.engine.isKeyedByContent(name))) {
    const key = claimKey(parts, head, command);
    command = { ...command, key: key instanceof Promise ? await key : key };
  }
  if (head.waitMs > 0) return appendPatiently(exchange, parts, name, command, head.waitMs);
  const outcome = await parts.engine.append(name, command);
  if (outcome.kind === "missing") return refuseMissing(parts, name);
  return answerAppend(outcome, command, name);
}

async function appendPatiently(
  exchange: Exchange,
  parts: ServerParts,
  name: StreamName,
  command: AppendCommand,
  waitMs: number,
): Promise<ServerAnswer> {
  const onAbort = (run: () => void): void => {
    exchange.onAbort(run);
  };
  const patient = { waitMs, onAbort, wasHeld: false };
  const outcome = await parts.engine.append(name, command, patient);
  const answer =
    outcome.kind === "missing"
      ? await refuseMissing(parts, name)
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
  return "code" in answer ? refuse(answer) : answer;
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

export async function deleteStream(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  const name = requireStreamName(exchange.path);
  // A condition that is not looked at would be worse than none.
  if (exchange.header("if-match") !== undefined) throw invalid("If-Match", "is for POST");
  const run = async (act: Act | undefined): Promise<ServerAnswer> => {
    const outcome = await parts.engine.delete(name, act);
    if (outcome.kind === "missing") return refuseMissing(parts, name);
    if (outcome.kind === "gone") return refuseGone(name);
    return { status: 204, headers: {} };
  };
  return actOnce(exchange, parts, undefined, run, () => ({ status: 204, headers: {} }));
}

export async function headStream(exchange: Exchange, parts: ServerParts): Promise<ServerAnswer> {
  const name = requireStreamName(exchange.path);
  const id = exchange.header(SENT.producerId);
  const producer =
    id === undefined ? undefined : await parts.engine.producer(name, parseProducerId(id));
  const look = await parts.engine.look(name);
  if (look.kind === "missing") return refuseMissing(parts, name);
  if (look.kind === "gone") return refuseGone(name);
  return { status: 200, headers: { ...describe(look), ...describeProducer(producer) } };
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

function describe(found: Found): Record<string, string> {
  const { state, tail, isClosed } = found;
  const headers: Record<string, string> = {
    [HEADER.contentType]: state.contentType,
    [HEADER.nextOffset]: formatOffset(tail),
    [HEADER.life]: lifeOf(state),
    [HEADER.cacheControl]: "no-store",
  };
  if (state.expiry.kind === "ttl") headers[HEADER.ttl] = String(state.expiry.seconds);
  if (state.expiry.kind === "at") headers[HEADER.expiresAt] = formatRfc3339(state.expiry.timeMs);
  if (isClosed) headers[HEADER.closed] = "true";
  return { ...headers, ...keyHeaders(state.keys?.policy) };
}
