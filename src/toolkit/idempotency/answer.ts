/**
 * Keeps answers and repeats them.
 *
 *   - a repetition has the status, the headers and the bytes of the first answer, but no cookie, nothing that belongs to
 *     one connection, and no date; it says that it is a repetition, and until when the answer is kept.
 */

import { joinBytes } from "../../base/bytes.ts";
import { IDEMPOTENCY_EXPIRES, IDEMPOTENCY_REPLAYED } from "../../protocol/header-names.ts";
import { ERRORS, type ErrorCode } from "../../base/errors.ts";
import { ERROR_TITLES } from "../../base/error-titles.ts";
import { encodeProblem, PROBLEM_TYPE } from "../../protocol/refusal.ts";

/** A whole answer. Only an answer that is too large to be kept has a `rest`, which follows the body. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
  readonly rest?: ReadableStream<Uint8Array>;
}

const NOTHING = new Uint8Array(0);
export const REPLAYED = IDEMPOTENCY_REPLAYED;
export const EXPIRES = IDEMPOTENCY_EXPIRES;

/** Headers that belong to one connection (RFC 9110, 7.6.1), to one client, or to one moment. */
const NEVER_KEPT = new Set([
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "set-cookie",
  "set-cookie2",
  "date",
  "content-length",
  REPLAYED.toLowerCase(),
  EXPIRES.toLowerCase(),
]);

/** Returns the part of an answer that is kept. */
export function keptOf({ status, headers, body }: HttpAnswer): HttpAnswer {
  return { status, headers: keptHeaders(headers), body };
}

function keptHeaders(headers: HttpAnswer["headers"]): HttpAnswer["headers"] {
  // RFC 9110, 7.6.1: `Connection` names further headers of this connection.
  const named = new Set<string>();
  for (const [name, value] of headers)
    if (name.toLowerCase() === "connection")
      for (const one of value.split(",")) named.add(one.trim().toLowerCase());
  return headers.filter(([name]) => {
    const lower = name.toLowerCase();
    return !NEVER_KEPT.has(lower) && !lower.startsWith("proxy-") && !named.has(lower);
  });
}

/** Returns the headers of an answer of known length, without `Transfer-Encoding` (RFC 9112, 6.2). */
export function wholeHeaders(headers: HttpAnswer["headers"]): HttpAnswer["headers"] {
  return headers.filter(([name]) => name.toLowerCase() !== "transfer-encoding");
}

/** Returns the answer to a repetition. */
export function duplicateOf(kept: HttpAnswer, expiresAtMs: number | undefined): HttpAnswer {
  const length: HttpAnswer["headers"] = isBodiless(kept.status)
    ? []
    : [["Content-Length", String(kept.body.length)]];
  const headers: HttpAnswer["headers"] = [...kept.headers, ...length, [REPLAYED, "true"]];
  return withExpiry({ ...kept, headers }, expiresAtMs);
}

export function withExpiry(answer: HttpAnswer, expiresAtMs: number | undefined): HttpAnswer {
  if (expiresAtMs === undefined) return answer;
  return { ...answer, headers: [...answer.headers, [EXPIRES, imfFixdate(expiresAtMs)]] };
}

/** Formats a time as `Sun, 06 Nov 1994 08:49:37 GMT`: RFC 9110, 5.6.7. Many answers have the same second. */
function imfFixdate(ms: number): string {
  const second = Math.floor(ms / 1000);
  if (second !== formatted.second)
    // oxlint-disable-next-line no-restricted-globals -- It writes a time and reads no clock.
    formatted = { second, text: new Date(second * 1000).toUTCString() };
  return formatted.text;
}

let formatted = { second: Number.NaN, text: "" };

function isBodiless(status: number): boolean {
  return status === 204 || status === 205 || status === 304;
}

/** Returns a refusal in the format of the stream server, with the headers that the options add. */
export function problemOf(
  code: ErrorCode,
  detail: string,
  extra: { readonly retryAfterMs?: number; readonly describedBy?: string | undefined } = {},
): HttpAnswer {
  const headers: [string, string][] = [
    ["Content-Type", PROBLEM_TYPE],
    ["Cache-Control", "no-store"],
  ];
  if (extra.retryAfterMs !== undefined)
    headers.push(["Retry-After", String(Math.max(1, Math.ceil(extra.retryAfterMs / 1000)))]);
  if (extra.describedBy !== undefined)
    headers.push(["Link", `<${extra.describedBy}>; rel="describedby"`]);
  const body = encodeProblem({ code, detail, title: ERROR_TITLES[code] });
  return { status: ERRORS[code].status, headers, body };
}

/** Reads an answer of `fetch` style as far as it can be kept. The rest stays a stream, and is sent as it comes. */
export async function answerOf(response: Response, bytesMax: number): Promise<HttpAnswer> {
  const head = { status: response.status, headers: [...response.headers] };
  if (response.body === null) return { ...head, body: NOTHING };
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = response.body.getReader();
  while (length <= bytesMax) {
    const { done, value } = await reader.read();
    if (done) return { ...head, body: joinBytes(chunks) };
    chunks.push(value);
    length += value.length;
  }
  return { ...head, body: joinBytes(chunks), rest: restOf(reader) };
}

function restOf(reader: ReadableStreamDefaultReader<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

export function responseOf({ status, headers, body, rest }: HttpAnswer): Response {
  const sent = rest === undefined ? wholeHeaders(headers) : headers;
  const init = { status, headers: sent.map(([name, value]): [string, string] => [name, value]) };
  if (isBodiless(status)) return new Response(null, init);
  // Cast: the type requires bytes that no other thread can change; ours are never shared.
  if (rest === undefined) return new Response(body as Uint8Array<ArrayBuffer>, init);
  return new Response(joined(body, rest), init);
}

function joined(body: Uint8Array, rest: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const reader = rest.getReader();
  let first: Uint8Array | undefined = body;
  return new ReadableStream({
    async pull(controller) {
      if (first !== undefined) {
        controller.enqueue(first);
        first = undefined;
        return;
      }
      const { done, value } = await reader.read();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}
