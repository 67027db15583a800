/** Parts of HTTP messages for the fault proxy: what it passes on, cuts, and makes up. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { connect } from "node:net";
import type { MadeUpAnswer } from "./fault-proxy-fate.ts";

const HOP_BY_HOP = new Set(["connection", "keep-alive", "proxy-connection", "upgrade"]);

/** Returns names and values in turn, without the headers that are about one connection only. */
export function endToEndHeaders(raw: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [name = "", value = ""] = raw.slice(at, at + 2);
    if (!HOP_BY_HOP.has(name.toLowerCase())) kept.push(name, value);
  }
  return kept;
}

function headLines(raw: readonly string[]): string {
  const pairs = endToEndHeaders(raw);
  return pairs.map((text, at) => (at % 2 === 0 ? `${text}: ` : `${text}\r\n`)).join("");
}

/**
 * Sends the head and a share of the body on a new connection, and ends it. If the request has no body, it sends a
 * part of the head. Resolves when the server has closed the connection.
 */
export function sendPart(
  target: URL,
  request: IncomingMessage,
  body: Buffer,
  passedShare: number,
): Promise<void> {
  const { method = "GET", url = "/", rawHeaders } = request;
  const head = Buffer.from(`${method} ${url} HTTP/1.1\r\n${headLines(rawHeaders)}\r\n`, "latin1");
  const passed =
    body.length === 0
      ? head.subarray(0, 1 + Math.floor(passedShare * (head.length - 1)))
      : Buffer.concat([head, body.subarray(0, Math.floor(passedShare * body.length))]);
  return new Promise((resolve) => {
    const socket = connect({ host: target.hostname, port: Number(target.port) });
    socket.on("error", () => undefined); // `close` follows.
    socket.once("close", () => {
      resolve();
    });
    socket.resume();
    socket.end(passed);
  });
}

/**
 * Passes on the head and a share of the body, then ends the connection. If the length of the body is not known yet, a
 * share of the first piece passes. If the answer has no body, a part of the head passes.
 */
export function passPart(
  answer: IncomingMessage,
  response: ServerResponse,
  passedShare: number,
): void {
  const { statusCode = 502, statusMessage = "", rawHeaders } = answer;
  const { "transfer-encoding": coding, "content-length": known } = answer.headers;
  const hasBody = response.req.method !== "HEAD" && statusCode !== 204 && statusCode !== 304;
  const length = coding === undefined ? Number(known ?? 0) : undefined;
  const cut = (): void => {
    response.req.socket.destroy();
  };
  if (!hasBody || length === 0) {
    answer.resume();
    const { socket } = response;
    const head = `HTTP/1.1 ${statusCode} ${statusMessage}\r\n${headLines(rawHeaders)}`;
    // Without a socket the answer waits behind others of its connection, and is lost with it.
    if (socket === null) cut();
    else
      socket.write(head.slice(0, 1 + Math.floor(passedShare * (head.length - 1))), "latin1", cut);
    return;
  }
  response.writeHead(statusCode, statusMessage, endToEndHeaders(rawHeaders));
  let left: number | undefined;
  answer.on("data", (piece: Buffer) => {
    left ??= Math.floor(passedShare * (length ?? piece.length));
    const passed = piece.subarray(0, left);
    left -= passed.length;
    response.write(passed, left === 0 ? cut : undefined);
  });
  answer.once("close", () => {
    if (left !== 0) cut();
  });
}

/** Answers in place of the server, with a text that the server does not use. */
export function makeUp(response: ServerResponse, { status, retryAfter }: MadeUpAnswer): void {
  const words = `the proxy says ${status}\n`;
  const headers = { "Content-Type": "text/plain", "Content-Length": String(words.length) };
  response.writeHead(status, {
    ...headers,
    ...(retryAfter === undefined ? {} : { "Retry-After": retryAfter }),
  });
  response.end(words);
}
