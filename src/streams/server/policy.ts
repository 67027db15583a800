/**
 * What holds for every answer, on every runtime: which headers it has, and when it is compressed. A runtime carries bytes
 * and adds nothing of its own.
 */

import { joinBytes } from "../../base/bytes.ts";
import { acceptsGzip } from "../../protocol/accept-encoding.ts";
import { CORS_EXPOSE, HEADER } from "../../protocol/headers.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { Doors } from "./doors.ts";
import type { ServerAnswer, AnswerHeaders, Exchange, WholeAnswer } from "./exchange.ts";
import { FinishedAnswer } from "./finished-answer.ts";

/** Compresses an answer's body with gzip. */
export type Compress = (body: Uint8Array) => Promise<Uint8Array>;

const COMPRESSIBLE = /^(text\/|application\/(json|.*\+json|xml|.*\+xml|javascript|x-ndjson))/i;

/** Every answer has these, also the refusal of bytes that are not a request. */
export const ALWAYS_HEADERS: AnswerHeaders = {
  "X-Content-Type-Options": "nosniff",
  "Cross-Origin-Resource-Policy": "same-origin",
};
/** A stream may hold anything: opened in a browser it must not run as a page of this server. */
const SANDBOX: AnswerHeaders = { "Content-Security-Policy": "sandbox; default-src 'none'" };
// Reads may be cached and then served to another page, so they say that they differ by origin.
const READ_HEADERS: AnswerHeaders = { ...ALWAYS_HEADERS, ...SANDBOX, Vary: "Origin" };

/** For a server that every page may call: its answers are the same for all of them. */
const OPEN_HEADERS: AnswerHeaders = {
  ...ALWAYS_HEADERS,
  "Cross-Origin-Resource-Policy": "cross-origin",
  "Access-Control-Allow-Origin": "*",
  "Access-Control-Expose-Headers": CORS_EXPOSE,
};
const OPEN_READ_HEADERS: AnswerHeaders = { ...OPEN_HEADERS, ...SANDBOX };
const OPEN_OTHER_HEADERS: AnswerHeaders = {
  ...ALWAYS_HEADERS,
  "Cross-Origin-Resource-Policy": "cross-origin",
};

/** The answer with all headers of the policy, and compressed if the client accepts that and it is worth it. */
export function finishAnswer(
  exchange: Exchange,
  answer: ServerAnswer,
  requestId: string,
  doors: Pick<Doors, "isOpen" | "allows">,
  compress: Compress | undefined,
): ServerAnswer | Promise<ServerAnswer> {
  const common = policyFor(exchange, doors);
  if (!("live" in answer) && answer.mayCompress !== true) {
    return new FinishedAnswer(answer, common, requestId);
  }
  const headers: Record<string, string> = {
    ...common,
    [HEADER.requestId]: requestId,
    ...answer.headers,
  };
  if ("live" in answer) return { ...answer, headers };
  const vary = headers["Vary"];
  headers["Vary"] = vary === undefined ? "Accept-Encoding" : `${vary}, Accept-Encoding`;
  const pieces = piecesOf(answer);
  const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (compress === undefined || !isWorthCompressing(exchange, headers, bytes)) {
    return { ...answer, headers };
  }
  return compressAnswer(answer, headers, joinBytes(pieces), compress);
}

function policyFor(exchange: Exchange, doors: Pick<Doors, "isOpen" | "allows">): AnswerHeaders {
  const { method } = exchange;
  const origin = exchange.header("origin");
  if (doors.isOpen) {
    if (method === "GET") return OPEN_READ_HEADERS;
    return method === "OPTIONS" || origin !== undefined ? OPEN_HEADERS : OPEN_OTHER_HEADERS;
  }
  const headers = method === "GET" ? READ_HEADERS : ALWAYS_HEADERS;
  if (origin === undefined || !doors.allows(origin)) return headers;
  return {
    ...headers,
    "Access-Control-Allow-Origin": origin,
    "Access-Control-Expose-Headers": CORS_EXPOSE,
    Vary: "Origin",
  };
}

function piecesOf({ body }: WholeAnswer): readonly Uint8Array[] {
  if (body === undefined) return [];
  return body instanceof Uint8Array ? [body] : body;
}

function isWorthCompressing(exchange: Exchange, headers: AnswerHeaders, bytes: number): boolean {
  if (bytes < LIMITS.gzipBytesMin || exchange.method === "HEAD") return false;
  const accepted = exchange.header("accept-encoding");
  if (accepted === undefined || !acceptsGzip(accepted)) return false;
  return COMPRESSIBLE.test(headers[HEADER.contentType] ?? "");
}

async function compressAnswer(
  { onSent, ...answer }: WholeAnswer,
  headers: Record<string, string>,
  whole: Uint8Array,
  compress: Compress,
): Promise<ServerAnswer> {
  const body = await compress(whole);
  onSent?.(); // The compressed bytes leave; the others are not looked at again.
  const tag = headers[HEADER.etag];
  // The bytes differ from those without compression, so the tag is the weak one (RFC 9110, 8.8.3).
  if (tag !== undefined) headers[HEADER.etag] = `W/${tag}`;
  headers["Content-Encoding"] = "gzip";
  return { ...answer, headers, body, mayCompress: false };
}
