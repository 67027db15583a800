/** How a socket ends: with a problem document if its bytes are no request, and without a reset that would lose the last answer. */

import type { Socket } from "node:net";
import { ERRORS, type ErrorCode } from "../../base/errors.ts";
import { ERROR_TITLES } from "../../base/error-titles.ts";
import { HEADER } from "../../protocol/headers.ts";
import { encodeProblem, PROBLEM_TYPE } from "../../protocol/refusal.ts";
import { ALWAYS_HEADERS } from "../server/policy.ts";

const ALWAYS = Object.entries(ALWAYS_HEADERS)
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join("");

/** Refuses a socket without a request: sends a problem document, then ends it. */
export function refuseSocket(code: ErrorCode, socket: Socket, requestId: string): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const { status } = ERRORS[code];
  const title = ERROR_TITLES[code];
  const detail = code === "invalid_request" ? "this is not HTTP/1.1 as we accept it" : title;
  const body = encodeProblem({ code, detail, title });
  const head =
    `HTTP/1.1 ${status} ${title}\r\nContent-Type: ${PROBLEM_TYPE}\r\n` +
    `${ALWAYS}${HEADER.requestId}: ${requestId}\r\nCache-Control: no-store\r\n` +
    `Content-Length: ${body.length}\r\nConnection: close\r\n\r\n`;
  endSocket(socket, Buffer.concat([Buffer.from(head), body]));
}

export function endSocket(socket: Socket, last = Buffer.alloc(0)): void {
  // Node calls this too, at the end of an answer. A second end would be an error, which resets the connection.
  if (!socket.writableEnded) socket.end(last);
  // Bytes that still arrive are dropped, but only for a moment: then the socket is destroyed.
  socket.resume();
  setTimeout(() => socket.destroy(), 1000).unref();
}

export function socketCode(code: string | undefined): ErrorCode {
  if (code === "HPE_HEADER_OVERFLOW") return "headers_too_large";
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return "request_timeout";
  if (code === "HPE_CHUNK_EXTENSIONS_OVERFLOW") return "body_too_large";
  return "invalid_request";
}
