/** Handlers that write streams or describe them: PUT, POST, HEAD, DELETE. They decide nothing. */

import type { Found } from "../engine/engine.ts";
import type { StreamName } from "../core/types.ts";
import { HapaxError } from "../errors.ts";
import { encodeAppend, parseAppend, parseAppendHead } from "../wire/append.ts";
import { encodeCreate, parseCreate, parseCreateHead } from "../wire/create.ts";
import { HEADER } from "../wire/headers.ts";
import type { Refusal } from "../wire/refusal.ts";
import { encodeStreamPath, formatOffset, formatRfc3339 } from "../wire/values.ts";
import type { Answer, Exchange } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import { refuse } from "./problem.ts";

export const STREAM_MISSING: Refusal = {
  code: "stream_not_found",
  detail: "there is no stream at this path",
};
export const STREAM_GONE: Refusal = {
  code: "stream_gone",
  detail: "the stream was deleted or has expired; forks keep its data",
};

export async function createStream(
  exchange: Exchange,
  parts: ServerParts,
  name: StreamName,
): Promise<Answer> {
  const head = parseCreateHead(name, (header) => exchange.header(header));
  refuseEncoding(exchange);
  const body = await exchange.body(parts.settings.bodyMaxBytes);
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
  name: StreamName,
): Promise<Answer> {
  const head = parseAppendHead((header) => exchange.header(header));
  refuseEncoding(exchange);
  const body = await exchange.body(parts.settings.bodyMaxBytes);
  const command = parseAppend(head, body);
  const outcome = await parts.engine.append(name, command);
  if (outcome.kind === "missing") return refuse(STREAM_MISSING);
  if (outcome.kind === "gone") return refuse(STREAM_GONE);
  const answer = encodeAppend(outcome, command);
  return "code" in answer ? refuse(answer) : answer;
}

export async function deleteStream(parts: ServerParts, name: StreamName): Promise<Answer> {
  const outcome = await parts.engine.delete(name);
  if (outcome.kind === "missing") return refuse(STREAM_MISSING);
  if (outcome.kind === "gone") return refuse(STREAM_GONE);
  return { status: 204, headers: {} };
}

export async function headStream(parts: ServerParts, name: StreamName): Promise<Answer> {
  const look = await parts.engine.look(name);
  if (look.kind === "missing") return refuse(STREAM_MISSING);
  if (look.kind === "gone") return refuse(STREAM_GONE);
  return { status: 200, headers: describe(look) };
}

function describe(found: Found): Record<string, string> {
  const { state, tail, isClosed } = found;
  const headers: Record<string, string> = {
    [HEADER.contentType]: state.contentType,
    [HEADER.nextOffset]: formatOffset(tail),
    [HEADER.cacheControl]: "no-store",
  };
  if (state.expiry.kind === "ttl") headers[HEADER.ttl] = String(state.expiry.seconds);
  if (state.expiry.kind === "at") headers[HEADER.expiresAt] = formatRfc3339(state.expiry.timeMs);
  if (isClosed) headers[HEADER.closed] = "true";
  return headers;
}

// A compressed body would be stored as it is and served as if it were not.
function refuseEncoding(exchange: Exchange): void {
  const encoding = exchange.header("content-encoding");
  if (encoding === undefined || encoding.toLowerCase() === "identity") return;
  throw new HapaxError("unsupported_encoding", `Content-Encoding is ${encoding.slice(0, 64)}`);
}
